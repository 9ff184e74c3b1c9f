"""Jobs on real Spark that fail, and what their users are told."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

import moorline as mo
from moorline.errors import JobFailed
from moorline.testing import CRASH, ScriptedSource

pytestmark = pytest.mark.spark


def test_an_error_of_user_code_is_told_with_its_traceback_its_operator_and_its_record(spark):
    def divide(n):
        def inner():
            return 100 // (n - 7)

        return inner()

    job = mo.Job("fails", parallelism=2)
    job.source(mo.from_items(range(10))).key_by(lambda n: n).map(divide, uid="division").sink(mo.collect("out"))
    with pytest.raises(JobFailed) as failed:
        mo.run(job, spark)
    told = str(failed.value)
    assert failed.value.job == "fails"
    assert "ZeroDivisionError: integer division or modulo by zero in operator 'division' (divide)" in told
    assert "in inner" in told
    assert "return 100 // (n - 7)" in told
    assert ": 7\n" in failed.value.last, "the record itself"
    assert "/moorline/subtask/" not in failed.value.last, "no lines of ours in the user's traceback"
    assert "checkpoints turn one on" in failed.value.reason


def test_a_message_that_is_no_valid_text_is_told_all_the_same(spark):
    def fail(n):
        raise ValueError("half a \ud83d smile")

    job = mo.Job("surrogate")
    job.source(mo.from_items([1])).map(fail, uid="fails").sink(mo.discard())
    with pytest.raises(JobFailed, match=r"ValueError: half a .* smile in operator 'fails'"):
        mo.run(job, spark)


def test_a_poison_record_is_given_up_on_after_three_times(spark, tmp_path):
    def choke(n):
        if n == 50:
            raise ValueError(f"cannot swallow {n}")
        return n

    job = mo.Job("poison", parallelism=2)
    job.source(mo.from_items(range(100))).key_by(lambda n: n).map(choke, uid="choke").sink(mo.collect("out"))
    handle = mo.start(
        job,
        spark,
        checkpoints=mo.Checkpoints(str(tmp_path), interval="10s"),
        restart=mo.FixedDelay(attempts=50, delay="10ms"),
    )
    with pytest.raises(JobFailed, match="3 times in a row") as failed:
        handle.wait()
    assert len(failed.value.history) == len(handle.failures) == 3
    assert "cannot swallow 50" in failed.value.last
    assert handle.restored_from == [0, 0, 0]


def test_a_scripted_crash_is_recovered_from(spark, tmp_path):
    script = [*range(300), CRASH, *range(300, 400), CRASH, *range(400, 500)]
    job = mo.Job("scripted", parallelism=2)
    (
        job.source(ScriptedSource(script, batch=1), uid="script")
        .key_by(lambda n: n % 5)
        .reduce(lambda a, b: a + b)
        .sink(mo.collect("sums"), uid="sums")
    )
    result = mo.run(
        job,
        spark,
        checkpoints=mo.Checkpoints(str(tmp_path), interval="20ms"),
        restart=mo.FixedDelay(attempts=5, delay="10ms"),
    )
    expected, sums = [], Counter()
    for n in range(500):
        sums[n % 5] += n
        expected.append(sums[n % 5])
    assert sorted(result.collected("sums")) == sorted(expected)
    assert len(result.failures) == 2
    assert all("scripted crash" in line for line in result.failures)
    assert len(result.restored_from) == 3


@pytest.mark.parametrize(("key", "why"), [(None, "None"), ([1], "mutable"), (float("nan"), "nan")])
def test_a_key_that_is_no_key_is_refused_with_the_record_that_has_it(spark, key, why):
    job = mo.Job("keyless")
    job.source(mo.from_items([("a", 1), ("b", 2)])).key_by(lambda r: key if r[0] == "b" else r[0]).map(
        lambda r: r, uid="keyed"
    ).sink(mo.discard())
    with pytest.raises(JobFailed) as failed:
        mo.run(job, spark)
    assert "InvalidKey: operator 'keyed' was given the key" in failed.value.last
    assert "by record ('b', 2)" in failed.value.last
    assert why in failed.value.last


def test_an_error_of_a_key_selector_shows_the_record(spark):
    job = mo.Job("selector")
    job.source(mo.from_items([{"id": 1}, {"name": "no id"}, {"id": 3}])).key_by(lambda r: r["id"]).map(
        lambda r: r, uid="keyed"
    ).sink(mo.discard())
    with pytest.raises(JobFailed) as failed:
        mo.run(job, spark)
    assert "KeyError: 'id' in operator 'keyed'" in failed.value.last
    assert "{'name': 'no id'}" in failed.value.last


def test_a_module_that_workers_do_not_have_is_named(spark, tmp_path, monkeypatch):
    (tmp_path / "only_on_the_driver.py").write_text("def double(n):\n    return 2 * n\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_on_the_driver  # noqa: PLC0415

    job = mo.Job("module")
    job.source(mo.from_items([1])).map(only_on_the_driver.double).sink(mo.discard())
    with pytest.raises(JobFailed) as failed:
        mo.run(job, spark)
    sys.modules.pop("only_on_the_driver")
    assert "No module named 'only_on_the_driver'" in str(failed.value)


def test_a_value_that_has_no_stored_form_is_told_with_its_state_and_does_not_loop(spark, tmp_path):
    class Opaque:
        pass

    class Keeps(mo.KeyedProcessFunction):
        kept = mo.ValueState()

        def process_element(self, value, ctx):
            self.kept.update(Opaque())

    job = mo.Job("opaque")
    job.source(mo.from_items([1])).key_by(lambda n: n).process(Keeps(), uid="keeps").sink(mo.discard())
    with pytest.raises(JobFailed) as failed:
        mo.run(
            job,
            spark,
            checkpoints=mo.Checkpoints(str(tmp_path), interval="10s"),
            restart=mo.FixedDelay(attempts=50, delay="10ms"),
        )
    assert "StateTypeMismatch: operator 'keeps', key 1: a value in state 'kept'" in failed.value.last
    assert "Opaque" in failed.value.last
    assert len(failed.value.history) == 1
