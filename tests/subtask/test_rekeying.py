"""Other keys for state that exists already: nothing is lost, what meets is merged, and it is done once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rekey_worlds import LOWER, VISITS, EveryKind, Mean, every, lower_key, plus, shown
from thoroughness import examples

import moorline as mo
from moorline.connectors.memory_state import memory_state
from moorline.errors import (
    InvalidArgument,
    KeyClassUnknown,
    KeysCollide,
    MergeFailed,
    RekeyFailed,
    StateIncompatible,
)
from moorline.model.config.state import StateConfig
from moorline.model.manifest import NativeHandle
from moorline.subtask.restore import rekey as rekeying
from moorline.testing import OperatorHarness


@pytest.mark.parametrize("before", [1, 3])
@pytest.mark.parametrize("after", [1, 2, 5])
def test_every_kind_of_state_is_merged_and_timers_are_kept_at_any_parallelism(before, after):
    old = every(before)
    old.process_all(VISITS)
    new = every(after, old.snapshot(), LOWER, key=lower_key)
    visits, pages, per_page, most, mean = shown(new, "ann")
    assert (visits, sorted(pages), per_page, most, mean) == (3, ["a", "a", "c"], {"a": 2, "c": 1}, 4, 8 / 3)
    assert shown(new, "bob") == [2, ["b", "b"], {"b": 2}, 2, 2.0]
    assert shown(new, "cleo") == [1, ["x"], {"x": 1}, 5, 5.0]
    assert shown(new, "Ann") == [0, [], {}, None, None]
    fired = sorted(new.watermark(100))
    assert fired == [
        ("event", 1, "ann"),
        ("event", 2, "bob"),
        ("event", 3, "ann"),
        ("event", 4, "ann"),
        ("event", 5, "cleo"),
    ]
    assert len(new.advance_clock(2000)) == 5, "equal timers have become one"


def test_what_comes_afterwards_goes_to_the_new_keys():
    old = every()
    old.process_all(VISITS)
    new = every(2, old.snapshot(), LOWER, key=lower_key)
    new.process_all([("ANN", "z", 100)])
    visits, pages, per_page, most, mean = shown(new, "ann")
    assert (visits, pages[-1], per_page["z"], most, mean) == (4, "z", 1, 100, 108 / 4)


def test_a_key_that_becomes_none_is_dropped_with_all_it_has():
    old = every()
    old.process_all(VISITS)
    only_bob = mo.Rekey("bob", lambda k: k if k.lower() == "bob" else None)
    new = every(2, old.snapshot(), only_bob)
    assert shown(new, "bob")[0] == 1 and shown(new, "Bob")[0] == 1
    assert shown(new, "Ann")[0] == 0
    assert {key for _, _, key in new.watermark(100)} == {"bob", "Bob"}


def test_keys_may_become_of_another_type():
    old = every(2)
    old.process_all(VISITS)
    new = every(3, old.snapshot(), mo.Rekey("parts", lambda k: (len(k), k)), key=lambda r: (len(r[0]), r[0]))
    assert shown(new, (3, "Ann"))[0] == 1
    assert shown(new, (4, "Cleo"))[0] == 1


@pytest.mark.parametrize("state", ["visits", "per_page"])
def test_two_values_under_one_key_are_an_error_if_nobody_says_what_becomes_of_them(state):
    merge = {"visits": plus, "per_page": plus}
    del merge[state]
    old = every()
    old.process_all(VISITS)
    snapshot = old.snapshot()
    with pytest.raises(KeysCollide, match=rf"state '{state}' has a value for more than one.*merge={{'{state}': lambda"):
        every(1, snapshot, mo.Rekey("lower", str.lower, merge=merge), key=lower_key)
    assert shown(every(1, snapshot), "Ann")[0] == 1, "the snapshot is unharmed"


def test_without_a_collision_no_merge_is_needed_also_not_of_an_aggregate_function():
    class NoMerge(Mean):
        merge = mo.AggregateFunction.merge

    class Means(mo.KeyedProcessFunction):
        mean = mo.AggregatingState(tuple[int, int], NoMerge())
        text = mo.FoldingState("", plus, str)

        def process_element(self, value, ctx):
            self.mean.add(value[2])
            self.text.add(value[1])

    old = every(function=Means())
    old.process_all(VISITS)
    snapshot = old.snapshot()
    new = every(2, snapshot, mo.Rekey("bang", lambda k: k + "!"), function=Means(), key=lambda r: r[0] + "!")
    assert new.state("mean", "Ann!") == 1.0
    assert new.state("text", "Ann!") == "a"
    new.process(("Ann", "b", 3))
    assert new.state("mean", "Ann!") == 2.0
    with pytest.raises(KeysCollide, match="'mean'"):
        every(1, snapshot, mo.Rekey("lower", str.lower), function=Means())
    merge = {"mean": lambda a, b: (a[0] + b[0], a[1] + b[1]), "text": plus}
    new = every(1, snapshot, mo.Rekey("lower", str.lower, merge=merge), function=Means())
    assert new.state("mean", "bob") == 2.0
    assert new.state("text", "bob") == "bb"


def test_a_function_that_fails_is_told_with_the_key():
    old = every()
    old.process_all(VISITS)
    snapshot = old.snapshot()
    with pytest.raises(RekeyFailed, match=r"rekey 'first' of operator 'every' failed for the key '\w+': .*unharmed"):
        every(1, snapshot, mo.Rekey("first", lambda k: {}[k]))
    with pytest.raises(RekeyFailed, match="It must return a key"):
        every(1, snapshot, mo.Rekey("first", lambda k: [k]))


@pytest.mark.parametrize("state", ["visits", "per_page", "mean"])
def test_a_merge_that_fails_is_told_with_the_state_and_the_key(state):
    def fail(a, b):
        raise OSError("no idea")

    old = every()
    old.process_all(VISITS)
    merge = {"visits": plus, "per_page": plus, state: fail}
    with pytest.raises(MergeFailed, match=rf"state '{state}' over to the new key '\w+': OSError: no idea.*unharmed"):
        every(1, old.snapshot(), mo.Rekey("lower", str.lower, merge=merge))


def test_a_merge_for_a_state_that_is_not_there_is_refused():
    old = every()
    old.process_all(VISITS)
    with pytest.raises(InvalidArgument, match=r"'visit'.*it can be said for 'visits', 'per_page', 'mean'"):
        every(1, old.snapshot(), mo.Rekey("lower", str.lower, merge={"visit": plus}))
    with pytest.raises(InvalidArgument, match=r"'pages'.*without being told"):
        every(1, old.snapshot(), mo.Rekey("lower", str.lower, merge={"pages": plus}))


# --- once -----------------------------------------------------------------------------------------

TWICE = mo.Rekey("bang", lambda k: k + "!")


def test_it_is_done_once_and_the_snapshots_say_so():
    old = every(key=lambda r: r[0])
    old.process(("Ann", "a", 1))
    snapshot = old.snapshot()
    assert snapshot.manifest.operators[0].rekeyed == ""
    second = every(2, snapshot, TWICE)
    assert shown(second, "Ann!")[0] == 1
    snapshot = second.snapshot()
    assert snapshot.manifest.operators[0].rekeyed == "bang"
    third = every(1, snapshot, TWICE)
    assert shown(third, "Ann!")[0] == 1 and shown(third, "Ann!!")[0] == 0


def test_another_one_is_done_by_its_new_name():
    old = every()
    old.process(("Ann", "a", 1))
    second = every(1, old.snapshot(), TWICE)
    third = every(1, second.snapshot(), mo.Rekey("bang again", lambda k: k + "!"))
    assert shown(third, "Ann!!")[0] == 1


def test_a_job_that_starts_without_a_snapshot_has_nothing_to_change():
    fresh = every(1, None, TWICE)
    fresh.process(("Ann", "a", 1))
    after = every(1, fresh.snapshot(), TWICE)
    assert shown(after, "Ann")[0] == 1


# --- from whatever it was stored in ---------------------------------------------------------------


def test_a_state_is_carried_over_in_pieces(monkeypatch):
    monkeypatch.setattr(rekeying, "PIECE_ROWS", 7)
    made = []

    class Counting(rekeying.HeapBackend):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            made.append(self)

    old = every(3)
    old.process_all([(f"User{n}", "a", n) for n in range(60)] + [(f"user{n}", "b", n) for n in range(60)])
    snapshot = old.snapshot()
    monkeypatch.setattr(rekeying, "HeapBackend", Counting)
    new = every(1, snapshot, LOWER, key=lower_key)
    assert len(made) > 50
    assert max(backend.entries() for backend in made) < 5 * 60, "no piece has held it all"
    for n in range(60):
        assert shown(new, f"user{n}")[0] == 2
    assert len(new.watermark(100)) == 60


INCREMENTAL = StateConfig(incremental=True)


def test_a_chain_of_increments_is_read_as_what_it_amounts_to():
    old = every(2, state=INCREMENTAL)
    old.process_all([(f"U{n}", "a", n) for n in range(50)])
    old.snapshot()
    old.watermark(25)
    old.process_all([("U1", "b", 100), ("U2", "b", 100), ("new", "b", 100)])
    snapshot = old.snapshot()
    assert any(h.increment for s in snapshot.manifest.operators[0].subtasks for h in s.keyed)
    new = every(3, snapshot, LOWER, state=INCREMENTAL, key=lower_key)
    assert shown(new, "u1") == [2, ["a", "b"], {"a": 1, "b": 1}, 100, 50.5]
    assert shown(new, "new")[0] == 1
    assert sorted(t for _, t, _ in new.watermark(1000)) == [*range(26, 50), 100, 100, 100], "what has fired is gone"
    again = every(2, new.snapshot(), LOWER, state=INCREMENTAL, key=lower_key)
    assert shown(again, "u2")[0] == 2


@pytest.mark.parametrize("pieces", [1, 20])
def test_from_rocksdb_to_rocksdb_and_from_one_backend_to_the_other(tmp_path, monkeypatch, pieces):
    if pieces > 1:
        monkeypatch.setattr(rekeying, "PIECE_ROWS", 10)
    rocks = StateConfig(rocksdb=mo.RocksDb(folder=str(tmp_path)), incremental=True)
    old = every(2, state=rocks)
    old.process_all(VISITS)
    snapshot = old.snapshot()
    assert any(isinstance(h, NativeHandle) for s in snapshot.manifest.operators[0].subtasks for h in s.keyed)
    for state in (rocks, StateConfig()):
        new = every(3, snapshot, LOWER, state=state, key=lower_key)
        visits, pages, per_page, most, mean = shown(new, "ann")
        assert (visits, sorted(pages), per_page, most, mean) == (3, ["a", "a", "c"], {"a": 2, "c": 1}, 4, 8 / 3)
        assert sorted(t for _, t, _ in new.watermark(100)) == [1, 2, 3, 4, 5]
    old.close()


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Name:
    text: str


def test_old_keys_of_classes_of_ones_own_need_their_class_declared():
    old = every(key=lambda r: Name(r[0]))
    old.process_all(VISITS)
    snapshot = old.snapshot()
    by_text = mo.Rekey("text", lambda name: name.text.lower(), merge={"visits": plus, "per_page": plus})
    with pytest.raises(KeyClassUnknown, match=r"'Name'.*key_type"):
        every(1, snapshot, by_text, key=lower_key)
    new = every(1, snapshot, by_text, key=lower_key, key_type=Name | str)
    assert shown(new, "ann")[0] == 3


def test_new_keys_may_be_of_a_class_of_ones_own():
    old = every()
    old.process(("Ann", "a", 1))
    new = every(1, old.snapshot(), mo.Rekey("colour", lambda k: Colour.RED), key=lambda r: Colour.RED, key_type=Colour)
    assert shown(new, Colour.RED)[0] == 1
    assert new.watermark(1) == [("event", 1, Colour.RED)]


class Grown(EveryKind):
    """Another type at the same time."""

    visits = mo.ValueState(float, default=0.0)


def test_types_may_change_at_the_same_time():
    old = every()
    old.process_all(VISITS)
    new = every(1, old.snapshot(), LOWER, key=lower_key, function=Grown())
    assert repr(new.state("visits", "ann")) == "3.0"


class Fewer(mo.KeyedProcessFunction):
    visits = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        pass


def test_a_state_that_is_gone_at_the_same_time_must_be_dropped_by_name():
    old = every()
    old.process_all(VISITS)
    snapshot = old.snapshot()
    rekey = mo.Rekey("lower", str.lower, merge={"visits": plus})
    with pytest.raises(StateIncompatible, match="no such state"):
        every(1, snapshot, rekey, function=Fewer())
    new = every(1, snapshot, rekey, function=Fewer(), drop_states=["pages", "per_page", "most", "mean"])
    assert new.state("visits", "ann") == 3


def test_state_in_an_outside_store_stays_under_its_keys():
    store = memory_state("rekeying")

    class Outside(mo.KeyedProcessFunction):
        visits = mo.ValueState(int, default=0, store=store)

        def process_element(self, value, ctx):
            self.visits.update(self.visits.value() + 1)

    old = every(function=Outside())
    old.process(("Ann", "a", 1))
    snapshot = old.snapshot()
    with pytest.raises(StateIncompatible, match=r"outside store.*rekey 'lower' can reach"):
        every(1, snapshot, mo.Rekey("lower", str.lower), function=Outside())


def test_state_of_windows_stays_under_its_keys():
    def windowed(snapshot=None, **options):
        return OperatorHarness.of(
            lambda s: (
                s.key_by(lambda r: r[0])
                .window(mo.TumblingEventTimeWindows("1s"))
                .reduce(lambda a, b: a, uid="windowed", **options)
            ),
            snapshot=snapshot,
        )

    old = windowed()
    old.process(("Ann", 1), 5)
    with pytest.raises(StateIncompatible, match=r"state of windows.*rekey 'lower' can reach"):
        windowed(old.snapshot(), rekey=mo.Rekey("lower", str.lower))


# --- against a plain dict -------------------------------------------------------------------------


@settings(max_examples=examples(25))
@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc"), st.integers(0, 9)), max_size=60),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 7),
)
def test_it_agrees_with_what_a_job_with_the_new_keys_would_have(visits, before, after, buckets):
    old = every(before)
    old.process_all(visits)
    rekey = mo.Rekey("bucket", lambda k: k % buckets, merge={"visits": plus, "per_page": plus})
    new = every(after, old.snapshot(), rekey, key=lambda r: r[0] % buckets)
    fresh = every(1, key=lambda r: r[0] % buckets)
    fresh.process_all(visits)
    for bucket in range(buckets):
        mine, expected = shown(new, bucket), shown(fresh, bucket)
        assert (mine[0], sorted(mine[1]), *mine[2:]) == (expected[0], sorted(expected[1]), *expected[2:])
    assert sorted(new.watermark(1000)) == sorted(fresh.watermark(1000))
