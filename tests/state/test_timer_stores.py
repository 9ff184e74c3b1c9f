"""The heap's timers beyond the contract: that what is deleted does not pile up, and what a snapshot holds."""

import pytest

from moorline.errors import NoCurrentKey
from moorline.model.type_tree.tree import INT
from moorline.state.backend import NO_KEY
from moorline.state.heap.backend import HeapBackend
from moorline.state.heap.states import Table
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
    assert (table.entries, timers._spaces, timers._buckets) == ({}, {}, {})


def test_a_million_timers_of_one_time_do_not_slow_each_other_down():
    timers = HeapTimers(Table(), lambda key: key)
    for key in range(100_000):
        timers.register(10, key)
    assert len(drained(timers)) == 100_000


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
