"""The pace at which snapshots are encoded, and that it makes no difference to what is in them."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from moorline.api.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from moorline.model.config.thresholds import SliceRule
from moorline.model.key_groups import KeyGroupRange
from moorline.state.backend import NO_KEY, CurrentKey
from moorline.state.heap import rows
from moorline.state.heap.backend import HeapBackend
from moorline.storage.stores.memory import MemoryStore
from moorline.subtask.snapshot.capture import Captured
from moorline.subtask.snapshot.pace import SWITCH_SECONDS, Pace
from moorline.subtask.snapshot.writer import Writer

#: Work is counted in nothing, so every slice is followed by a rest.
TINY = SliceRule(slice_ms=0, first_rows=3, least_rows=1, most_rows=3)


class CountedRests:
    def __init__(self):
        self.count = 0

    def __call__(self, seconds):
        self.count += 1


def filled(keys):
    backend, scope = HeapBackend("op", 16), CurrentKey()
    states = [
        backend.bind(ValueStateDescriptor("value", int)),
        backend.bind(ListStateDescriptor("list", str)),
        backend.bind(MapStateDescriptor("map", str, int)),
    ]
    windowed = backend.bind(ValueStateDescriptor("windowed", int), scope)
    timers = backend.timers("event")
    for n, key in enumerate(keys):
        backend.current.key = key
        states[0].update(n)
        states[1].update(["x"] * (n % 5 + 1))
        states[2].put_all({str(i): i for i in range(n % 3 + 1)})
        scope.key = (key, (0, 10 * (n % 4 + 1)))
        windowed.update(n)
        timers.register(n, key, None if n % 2 else (0, 10))
        timers.register(n + 7, key)
    backend.current.key = scope.key = NO_KEY
    return backend


def tables_of(backend, **options):
    taken = backend.snapshot(1, 0)
    if "pace" not in options:
        return {part.state: [t for t in part.tables() if t.num_rows] for part in taken.parts}
    with options["pace"].of_a_snapshot() as slices:
        return {part.state: [t for t in part.tables_in(slices) if t.num_rows] for part in taken.parts}


KEYS = st.lists(st.integers(), unique=True) | st.lists(st.text(), unique=True)
MIXED = st.lists(st.integers() | st.text(), unique=True)


@settings(max_examples=examples(50), deadline=None)
@given(keys=KEYS | MIXED)
def test_slices_make_no_difference_to_what_is_written(keys):
    backend = filled(keys)
    whole, sliced = tables_of(backend), tables_of(backend, pace=Pace(lambda seconds: None, TINY))
    assert {s: [t.to_pylist() for t in ts] for s, ts in sliced.items()} == {
        s: [t.to_pylist() for t in ts] for s, ts in whole.items()
    }


def test_tables_are_cut_between_key_groups_however_they_are_sliced(monkeypatch):
    monkeypatch.setattr(rows, "TABLE_ROWS", 20)
    sliced = tables_of(filled(range(200)), pace=Pace(lambda seconds: None, TINY))
    for tables in sliced.values():
        groups = [set(table["key_group"].to_pylist()) for table in tables]
        assert len(groups) > 1 and len(set.union(*groups)) == sum(map(len, groups))


def written(backend, pace):
    captured = [Captured("op", backend.snapshot(1, 0), [], {}, [])]
    return Writer(MemoryStore(), captured, 1, 0, 1, KeyGroupRange(0, 16), pace=pace)()


def test_a_snapshot_that_nobody_waits_for_rests_between_slices():
    rests = CountedRests()
    written(filled(range(100)), Pace(rests, TINY))
    assert rests.count > 100 / TINY.most_rows


def test_neither_a_snapshot_that_is_waited_for_nor_one_before_it_rests():
    rests = CountedRests()
    pace = Pace(rests, TINY)
    pace.await_one()
    written(filled(range(100)), pace)
    assert not rests.count
    pace.awaited_one_ended()
    written(filled(range(100)), pace)
    assert rests.count


def test_one_that_is_waited_for_hurries_the_one_that_is_being_written():
    pace = Pace(lambda seconds: hurry(), TINY)
    rests = 0

    def hurry():
        nonlocal rests
        rests += 1
        if rests == 2:
            pace.await_one()

    written(filled(range(100)), pace)
    assert rests == 2


def test_threads_hand_over_sooner_while_state_is_encoded_and_no_longer():
    before, seen = sys.getswitchinterval(), set()
    written(filled(range(100)), Pace(lambda seconds: seen.add(sys.getswitchinterval()), TINY))
    assert [*seen] == [pytest.approx(SWITCH_SECONDS)]
    assert sys.getswitchinterval() == before
