"""The examples of operator state, broadcast state and timers: their steps alone, with restarts, and on Spark."""

import importlib.util
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest

import moorline as mo
from moorline.testing import OperatorHarness

FOLDER = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    """The example as a module that is nowhere registered, so that its functions travel to workers by value."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- the buffering sink ---------------------------------------------------------------------------

SENT = ["sent to:1 be:1 or:1", "sent not:1 to:2 be:2", "sent that:1"]


def buffering(module, snapshot=None):
    return OperatorHarness.of(lambda s: s.sink(module.BufferingSink(3), uid="groups"), snapshot=snapshot)


def test_the_buffering_sink_sends_in_groups(capsys):
    module = load("buffering_sink")
    sink = buffering(module)
    sink.process_all(module.WORDS)
    sink.finish()
    assert capsys.readouterr().out.splitlines() == SENT


def test_the_buffering_sink_loses_nothing_if_it_restarts_after_every_element(capsys):
    module = load("buffering_sink")
    sink = buffering(module)
    for word in module.WORDS:
        sink.process(word)
        sink = buffering(module, sink.snapshot())
    sink.finish()
    assert capsys.readouterr().out.splitlines() == SENT


@pytest.mark.spark
def test_the_buffering_sink_on_spark(spark, tmp_path):
    module = load("buffering_sink")
    log = str(tmp_path / "sent")

    def send(elements):
        with open(log, "a") as file:
            file.write(" ".join(f"{word}:{count}" for word, count in elements) + "\n")

    mo.run(module.build(send=send), spark)
    assert [f"sent {line}" for line in Path(log).read_text().splitlines()] == SENT


# --- the counting source --------------------------------------------------------------------------


def counting(module, limit, snapshot=None):
    return OperatorHarness.of(
        lambda job: job.source(module.CounterSource(limit), uid="counter"), inputs=0, snapshot=snapshot
    )


def test_the_counting_source_counts_every_number_once_over_restarts():
    module = load("counting_source")
    found, snapshot = [], None
    while len(found) < 20_000:
        with counting(module, 20_000, snapshot) as source:
            found += source.read(3000)
            subtask = source._subtasks[0]
            snapshot = source.snapshot()
            found += subtask.taken()  # what went out before the barrier
    assert found == list(range(20_000))


@pytest.mark.spark
def test_the_counting_source_on_spark(spark, tmp_path):
    module = load("counting_source")
    result = mo.run(
        module.build(5000),
        spark,
        checkpoints=mo.Checkpoints(str(tmp_path), interval="100ms"),
        restart=mo.FixedDelay(1, "10ms"),
    )
    assert result.collected("numbers") == list(range(5000))
    assert len(result.failures) == 1


# --- broadcast rules ------------------------------------------------------------------------------

OVER = [(1_500, "bob", 120, 100), (2_000, "ada", 80, 50)]


def judged(module, order, parallelism=1, restart=False):
    """Payments and limits in some order: 0 is the next payment, 1 the next limit."""

    def harness(snapshot=None):
        return OperatorHarness.of(
            lambda payments, limits: (
                payments.key_by(lambda p: p[1])
                .connect(limits.broadcast(module.LIMIT_STATE))
                .process(module.OverTheLimit(), uid="judge")
            ),
            inputs=2,
            parallelism=parallelism,
            snapshot=snapshot,
        )

    inputs = [iter(module.PAYMENTS), iter(module.LIMITS)]
    reached = [0, 0]
    step, found = harness(), []
    for side in order:
        record = next(inputs[side])
        found += step.process(record, record[0], side=side)
        reached[side] = record[0]
        found += step.watermark(min(reached) - 1)
        if restart:
            step = harness(step.snapshot())
    return sorted(found + step.finish())


ORDERS = [order for order in product((0, 1), repeat=8) if sum(order) == 3]


def test_each_payment_is_judged_by_the_limit_of_its_time_however_they_come_in():
    module = load("broadcast_rules")
    for order in ORDERS[::7]:
        assert judged(module, order) == OVER


@pytest.mark.parametrize("parallelism", [1, 3])
def test_also_with_a_restart_after_every_record(parallelism):
    module = load("broadcast_rules")
    for order in ORDERS[::20]:
        assert judged(module, order, parallelism, restart=True) == OVER


@pytest.mark.spark
def test_the_broadcast_rules_on_spark(spark):
    module = load("broadcast_rules")
    assert sorted(mo.run(module.build(), spark).collected("over")) == OVER


# --- timers ---------------------------------------------------------------------------------------

SILENCES = [("cellar", 1_000), ("cellar", 20_000), ("roof", 8_000), ("roof", 22_000)]


@pytest.mark.parametrize("every", [1, 2, 6])
@pytest.mark.parametrize("restart", [False, True])
def test_silences_are_found_however_often_watermarks_come(every, restart):
    module = load("timers")

    def harness(snapshot=None):
        return OperatorHarness.of(
            lambda s: s.key_by(lambda r: r[1]).process(module.Silent(), uid="silent"), snapshot=snapshot
        )

    step, found = harness(), []
    latest = 0
    for number, reading in enumerate(module.READINGS, 1):
        found += step.process(reading, reading[0])
        latest = max(latest, reading[0])
        if number % every == 0:
            found += step.watermark(latest - 1001)
        if restart:
            step = harness(step.snapshot())
    assert sorted(found + step.finish()) == SILENCES


@pytest.mark.spark
def test_the_timers_on_spark(spark):
    module = load("timers")
    assert sorted(mo.run(module.build(), spark).collected("silences")) == SILENCES
