"""Timers on the heap: which is next, and which a key has.

The timers of a key and namespace are its times in a table like any other state's, so snapshots, increments and
copy-on-write come for free: a tuple of the one time, as nearly all have one, or a set of several. Beside it stands what
is needed to fire them in order: a bucket of (key, namespace) for each time, and a heap of the times. Deleting a timer
empties its bucket and leaves the time in the heap, where it is skipped when its turn comes; the heap is made anew when
most of it is such.

Windows that end together have their timers in one bucket. They are registered and popped by the thousand, which is
what :meth:`HeapTimers.register_all` and :meth:`HeapTimers.pop_due_all` are for.

Timers that are due at the same time fire last registered first: it is the cheap end of a dict, and Flink promises
no order either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from heapq import heapify, heappop, heappush
from typing import Any

from moorline.state.backend import Namespace
from moorline.state.heap.states import Table

#: What a timer belongs to.
Item = tuple[Any, Namespace]
#: The items of one time, and what stands in the table for those that have this timer only.
Bucket = tuple[dict[Item, None], tuple[int]]


class HeapTimers:
    """The timers of one kind, over a table from (key, namespace) to times. ``shown``: the user's own key.

    >>> timers = HeapTimers(Table(), shown=lambda key: key)
    >>> timers.register(20, "a"), timers.register(10, "b"), timers.register(10, "b")
    (None, None, None)
    >>> timers.pop_due(15), timers.pop_due(15), timers.next_time()
    ((10, 'b', None), None, 20)
    """

    def __init__(self, table: Table, shown: Callable[[Any], Any]) -> None:
        self._table, self._shown = table, shown
        self._buckets: dict[int, Bucket] = {}
        self._times: list[int] = []
        #: Are there timers of windows?
        self._has_windows = False
        for item, times in table.entries.items():
            for time in times:
                items, one = self._bucket(time)
                items[item] = None
                if len(times) == 1:
                    table.entries[item] = one
            self._has_windows = self._has_windows or item[1] is not None

    def _bucket(self, time: int) -> Bucket:
        """The bucket of a time; a new one if there is none."""
        bucket = self._buckets.get(time)
        if bucket is None:
            bucket = self._buckets[time] = {}, (time,)
            heappush(self._times, time)
        return bucket

    def register(self, time: int, key: Any, namespace: Namespace = None) -> None:
        item = (key, namespace)
        times = self._table.entries.get(item)
        items, one = self._bucket(time)
        if item not in items:
            items[item] = None
            self._note(item, times, one)

    def _note(self, item: Item, times: tuple[int] | set[int] | None, one: tuple[int]) -> None:
        """Put a timer that has come into its bucket into the table, beside those that are there."""
        table = self._table
        if times is None:
            table.put(item, one)
            self._has_windows = self._has_windows or item[1] is not None
        elif type(times) is tuple:
            table.put(item, {*times, *one})
        else:
            table.own(item, False).update(one)

    def register_all(self, time: int, items: Collection[Item]) -> None:
        """Register a timer of the same time for each of these windows."""
        if not items:
            return  # not a bucket of nothing
        known, one = self._bucket(time)
        new = [item for item in items if item not in known] if known else items
        known.update(dict.fromkeys(new))
        entries = self._table.entries
        if not entries.keys().isdisjoint(new):
            for item in [item for item in new if item in entries]:
                self._note(item, entries[item], one)
            new = [item for item in new if item not in entries]
        self._table.put_all(dict.fromkeys(new, one))
        self._has_windows = True

    def delete(self, time: int, key: Any, namespace: Namespace = None) -> None:
        item = (key, namespace)
        bucket = self._buckets.get(time)
        if bucket is None or item not in bucket[0]:
            return
        del bucket[0][item]
        self._forget(time, bucket[0], item)
        if len(self._times) > 2 * len(self._buckets) + 64:
            self._times = list(self._buckets)
            heapify(self._times)

    def of_key(self, key: Any) -> list[tuple[int, Namespace]]:
        entries = self._table.entries
        timers: list[tuple[int, Namespace]] = [(time, None) for time in entries.get((key, None), ())]
        if self._has_windows:
            # Asked for by tests and at the end of a batch job's key, when there is no other: windows are many, and
            # an index of them by key would cost more than all that it is good for.
            of_windows = [item for item in entries if item[1] is not None and item[0] == key]
            timers += [(time, item[1]) for item in of_windows for time in entries[item]]
        return sorted(timers, key=lambda timer: timer[0])

    def next_time(self) -> int | None:
        times = self._times
        while times and times[0] not in self._buckets:
            heappop(times)
        return times[0] if times else None

    def pop_due(self, up_to: int) -> tuple[int, Any, Namespace] | None:
        time = self.next_time()
        if time is None or time > up_to:
            return None
        items, _ = self._buckets[time]
        item, _ = items.popitem()
        key, namespace = item
        try:
            shown = self._shown(key)
        except BaseException:
            items[item] = None
            raise
        self._forget(time, items, item)
        return time, shown, namespace

    def pop_due_all(self, up_to: int, most: int) -> tuple[int, list[Item]] | None:
        """Remove and return the earliest timers that are due at ``up_to``: their time, and up to ``most`` items.

        The keys are what stands for the users' own.
        """
        time = self.next_time()
        if time is None or time > up_to:
            return None
        items, _ = self._buckets[time]
        if len(items) <= most:
            popped = list(items)
            popped.reverse()
            del self._buckets[time]
        else:
            popped = [items.popitem()[0] for _ in range(most)]
        taken = self._table.take_all(popped)
        if set(map(type, taken)) != {tuple}:
            # Some have timers of other times as well.
            for item, times in zip(popped, taken):
                if len(times) > 1:
                    self._table.put(item, times - {time})
        return time, popped

    def forget(self) -> None:
        """Drop them all."""
        self._table.entries.clear()
        self._buckets.clear()
        self._times.clear()

    def _forget(self, time: int, items: dict[Item, None], item: Item) -> None:
        """A timer has left its bucket."""
        if not items:
            del self._buckets[time]
        self._forget_time(time, item)

    def _forget_time(self, time: int, item: Item) -> None:
        table = self._table
        if type(table.entries[item]) is not tuple:
            times = table.own(item, False)
            times.discard(time)
            if times:
                return
        table.drop(item)
