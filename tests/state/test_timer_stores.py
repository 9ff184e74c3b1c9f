"""The heap's timers beyond the contract: that what is deleted does not pile up, and what a snapshot holds."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from moorline.errors import NoCurrentKey
from moorline.model.type_tree.tree import INT
from moorline.state.backend import NO_KEY
from moorline.state.heap.backend import HeapBackend
from moorline.state.heap.states import Table, TrackedTable
from moorline.state.heap.timers import HeapTimers
from moorline.testing.contracts.backend.base import MAX_PARALLELISM, BackendTests, Colour, rows_of, saved


def drained(timers):
    found = []
    while (timer := timers.pop_due(1 << 62)) is not None:
        found.append(timer)
    return found


def test_deleted_timers_do_not_pile_up():
    timers = HeapTimers(Table(), lambda key: key)
    timers.register(0, "a")
    for time in range(10_000):
        timers.register(time + 1, "a")
        timers.delete(time, "a")
    assert len(timers._times) < 200
    assert drained(timers) == [(10_000, "a", None)]


def test_a_key_without_timers_leaves_nothing_behind():
    table = Table()
    timers = HeapTimers(table, lambda key: key)
    for key in range(100):
        timers.register(key, key, (0, key))
        timers.register(key, key)
    for key in range(0, 100, 2):
        timers.delete(key, key, (0, key))
    drained(timers)
    assert (table.entries, timers._buckets, timers._times) == ({}, {}, [])


def test_a_million_timers_of_one_time_do_not_slow_each_other_down():
    timers = HeapTimers(Table(), lambda key: key)
    for key in range(100_000):
        timers.register(10, key)
    assert len(drained(timers)) == 100_000


ITEMS = st.tuples(st.integers(0, 5), st.none() | st.tuples(st.just(0), st.integers(1, 3)))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), st.integers(0, 8), st.lists(ITEMS, unique=True)),
        st.tuples(st.just("delete"), st.integers(0, 8), st.lists(ITEMS, max_size=2)),
        st.tuples(st.just("pop"), st.integers(0, 9), st.integers(1, 4)),
        st.just(("cut",)),
    )
)


@settings(max_examples=examples(200), deadline=None)
@given(steps=STEPS)
def test_many_at_once_are_what_one_after_the_other_would_be(steps):
    tables = TrackedTable(), TrackedTable()
    bulk, single = (HeapTimers(table, lambda key: key) for table in tables)
    for number, step in enumerate(steps):
        match step:
            case ("register", time, items):
                bulk.register_all(time, items)
                for key, namespace in items:
                    single.register(time, key, namespace)
            case ("delete", time, items):
                for timers in (bulk, single):
                    for key, namespace in items:
                        timers.delete(time, key, namespace)
            case ("pop", up_to, most):
                while (due := bulk.pop_due_all(up_to, most)) is not None:
                    time, items = due
                    assert 0 < len(items) <= most
                    assert [single.pop_due(up_to) for _ in items] == [(time, *item) for item in items]
                assert single.pop_due(up_to) is None
            case _:
                for table in tables:
                    table.cut(number)
        assert {i: set(t) for i, t in tables[0].entries.items()} == {i: set(t) for i, t in tables[1].entries.items()}
        assert tables[0].changed_since(0) == tables[1].changed_since(0)
        assert bulk.next_time() == single.next_time()


KEYED = st.dictionaries(st.integers(0, 9), st.integers())


@settings(max_examples=examples(200), deadline=None)
@given(steps=st.lists(st.one_of(KEYED, st.lists(st.integers(0, 9), unique=True), st.none())))
def test_a_table_notes_many_changes_at_once_as_it_does_one_after_the_other(steps):
    bulk, single = TrackedTable(), TrackedTable()
    for number, step in enumerate(steps):
        match step:
            case dict():
                bulk.put_all(step)
                for key, value in step.items():
                    single.put(key, value)
            case list():
                assert bulk.take_all(step) == [single.entries.get(key) for key in step]
                for key in step:
                    single.drop(key)
            case _:
                bulk.cut(number)
                single.cut(number)
        assert bulk.entries == single.entries
        assert bulk.changed_since(0) == single.changed_since(0)


def test_those_due_at_one_time_are_popped_in_parts_of_bounded_size():
    timers = HeapTimers(Table(), lambda key: key)
    timers.register_all(10, [(key, (0, 11)) for key in range(100)])
    sizes = []
    while (due := timers.pop_due_all(10, 30)) is not None:
        sizes.append(len(due[1]))
    assert sizes == [30, 30, 30, 10]


def test_windows_that_end_together_share_what_stands_for_their_timer():
    table = Table()
    timers = HeapTimers(table, lambda key: key)
    timers.register_all(10, [(key, (0, 11)) for key in range(100)])
    assert all(a is b for a, b in pairwise(table.entries.values()))
    again = Table()
    again.entries = {item: set(times) for item, times in table.entries.items()}  # as a restore reads them
    HeapTimers(again, lambda key: key)
    assert all(a is b for a, b in pairwise(again.entries.values()))


def test_without_a_key_there_is_no_timer():
    timers = HeapTimers(Table(), lambda key: key)
    timers.register(1, "a")
    with pytest.raises(NoCurrentKey):
        timers.register(1, NO_KEY)


class TestRows(BackendTests):
    def make_backend(self, uid, max_parallelism, moment=None, *, incremental=False, key_type=None):
        return HeapBackend(uid, max_parallelism, moment, incremental=incremental, key_type=key_type)

    def test_timers_are_rows_of_key_namespace_and_time(self):
        backend = HeapBackend("op", MAX_PARALLELISM)
        timers = backend.timers("event")
        for time, window in ((20, None), (10, (0, 10)), (5, None)):
            timers.register(time, "a", window)
        parts = saved(backend)
        assert [p.handle.states for p in parts] == [[("timers:event", "timers", INT)]]
        assert rows_of(parts, "timers:event") == [("a", {"start": 0, "end": 10}, 10), ("a", None, 5), ("a", None, 20)]

    def test_an_increment_lists_all_timers_of_the_windows_that_changed(self):
        subtask = self.subtask(timers=["event"])
        (timers,) = subtask.timers
        for key in range(20):
            timers.register(key, key, (0, 10))
            timers.register(key, key, (0, 20))
        subtask.checkpoint()
        timers.register(50, 3, (0, 10))
        timers.delete(4, 4, (0, 20))
        (part,) = subtask.begin().snapshot.parts
        rows = [row for table in part.tables() for row in table.to_pylist()]
        found = {(r["key"], r["namespace"]["end"], r["value"], r["gone"]) for r in rows}
        assert found == {(3, 10, 3, False), (3, 10, 50, False), (4, 20, None, True)}

    def test_waiting_timers_are_claimed_while_a_snapshot_is_written(self):
        subtask = self.subtask(timers=["event"], incremental=False)
        subtask.at(Colour.RED)
        subtask.timers[0].register(10, Colour.RED)
        again = self.subtask(timers=["event"], restored=saved(subtask.backend), incremental=False)
        snapshot = again.begin()
        again.at(Colour.RED)
        again.timers[0].delete(10, Colour.RED)
        again.timers[0].register(20, Colour.RED)
        last = self.subtask(timers=["event"], restored=snapshot.done(), key_type=Colour)
        assert drained(last.timers[0]) == [(10, Colour.RED, None)]
