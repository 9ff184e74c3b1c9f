"""A restored job whose keys are of another kind: its state would never be found again, so it is refused."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

import moorline as mo
from moorline.errors import KeysChanged
from moorline.model.config.state import StateConfig
from moorline.testing import OperatorHarness

ON = pytest.mark.parametrize("on", ["heap", "rocksdb", "rocksdb files"])


class Count(mo.KeyedProcessFunction):
    seen = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        self.seen.update(self.seen.value() + 1)
        yield self.seen.value()


def kept_in(on, folder):
    if on == "heap":
        return StateConfig()
    return StateConfig(rocksdb=mo.RocksDb(folder=str(folder)), incremental=on == "rocksdb files")


def counting(key, state, snapshot=None, rekey=None, parallelism=1, **options):
    return OperatorHarness.of(
        lambda stream: stream.key_by(key, **options).process(Count(), uid="count", rekey=rekey),
        state=state,
        snapshot=snapshot,
        parallelism=parallelism,
    )


def without_kinds(snapshot):
    """The snapshot as an older version wrote it."""
    (entry,) = snapshot.manifest.operators
    subtasks = [msgspec.structs.replace(subtask, keys=[]) for subtask in entry.subtasks]
    entry = msgspec.structs.replace(entry, subtasks=subtasks)
    return replace(snapshot, manifest=msgspec.structs.replace(snapshot.manifest, operators=[entry]))


@ON
def test_a_record_with_a_key_of_another_kind_is_refused_with_what_to_do(on, tmp_path):
    old = counting(lambda n: n, kept_in(on, tmp_path))
    assert [old.process(n) for n in (1, 2, 1)] == [[1], [1], [2]]
    new = counting(lambda n: f"user-{n}", kept_in(on, tmp_path), old.snapshot())
    with pytest.raises(
        KeysChanged, match=r"'count'.*kind number.*now of kind str \(such as 'user-1'\).*rekey="
    ) as caught:
        new.process(1)
    assert (caught.value.uid, caught.value.stored, caught.value.now) == ("count", ("number",), "str")


@ON
def test_rekey_says_what_becomes_of_the_state_and_the_new_kind_is_noted(on, tmp_path):
    state = kept_in(on, tmp_path)
    old = counting(lambda n: n, state)
    old.process(1)
    rekey = mo.Rekey("named", lambda n: f"user-{n}")
    new = counting(lambda n: f"user-{n}", state, old.snapshot(), rekey)
    assert new.process(1) == [2]
    assert new.snapshot().manifest.operators[0].keys == ["str"]
    again = counting(lambda n: f"user-{n}", state, new.snapshot(), rekey)
    assert again.process(1) == [3]
    back = counting(lambda n: n, state, again.snapshot(), rekey)
    with pytest.raises(KeysChanged):
        back.process(1)


@ON
def test_keys_of_both_kinds_pass_if_both_were_there_or_are_declared(on, tmp_path):
    state = kept_in(on, tmp_path)
    old = counting(lambda n: n, state)
    old.process(1)
    declared = counting(lambda n: n, state, old.snapshot(), key_type=int | str)
    assert declared.process("a") == [1]
    assert declared.process(1) == [2]
    mixed = counting(lambda n: n, state, declared.snapshot())
    assert [mixed.process("a"), mixed.process(1), mixed.process(b"x")] == [[2], [3], [1]]


@ON
def test_every_subtask_knows_the_kinds_of_all(on, tmp_path):
    state = kept_in(on, tmp_path)
    old = counting(lambda n: n, state)
    old.process(1)
    new = counting(str, state, old.snapshot(), parallelism=4)
    for n in range(8):
        with pytest.raises(KeysChanged):
            new.process(n)


@ON
def test_what_a_selector_is_annotated_with_declares_the_kinds(on, tmp_path):
    def key(n: int | str) -> int | str:
        return n

    state = kept_in(on, tmp_path)
    old = counting(key, state)
    old.process(1)
    new = counting(key, state, old.snapshot())
    assert [new.process("a"), new.process(1)] == [[1], [2]]


def test_files_of_an_older_version_are_asked_for_their_keys(tmp_path):
    state = kept_in("rocksdb files", tmp_path)
    old = counting(lambda n: n, state)
    old.process(1)
    snapshot = without_kinds(old.snapshot())
    new = counting(str, state, snapshot)
    with pytest.raises(KeysChanged, match="kind number"):
        new.process(1)
    assert counting(lambda n: n, state, snapshot).process(1) == [2]


@pytest.mark.parametrize(
    ("before", "after", "passes"),
    [
        (("a", 1), ("b", 2), True),
        (("a", 1), ("a", 1, "x"), False),
        (("a", 1), ("a", "1"), False),
        (("a", 1), ("a", None), True),
        (("a", 1), "a", False),
        (1, 1.5, True),
        ("a", b"a", False),
    ],
    ids=repr,
)
def test_a_tuple_has_the_kinds_of_its_items(before, after, passes):
    old = counting(lambda r: r, StateConfig())
    old.process(before)
    new = counting(lambda r: r, StateConfig(), old.snapshot())
    if passes:
        new.process(after)
    else:
        with pytest.raises(KeysChanged):
            new.process(after)


def test_tuples_of_several_lengths_may_have_any():
    old = counting(lambda r: r, StateConfig())
    for key in ((1,), (1, 2)):
        old.process(key)
    assert counting(lambda r: r, StateConfig(), old.snapshot()).process((1, 2, 3)) == [1]
