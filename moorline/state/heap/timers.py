"""Timers on the heap: which is next, and which a key has.

The timers of a key and namespace are a set of times in a table like any other state's, so snapshots, increments and
copy-on-write come for free. Beside it stands what is needed to fire them in order: a bucket of (key, namespace) for
each time, and a heap of the times. Deleting a timer empties its bucket and leaves the time in the heap, where it is
skipped when its turn comes; the heap is made anew when most of it is such.

Timers that are due at the same time fire last registered first: it is the cheap end of a dict, and Flink promises
no order either.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from moorline.state.backend import Namespace
from moorline.state.heap.states import Table


class HeapTimers:
    """The timers of one kind, over a table from (key, namespace) to a set of times. ``shown``: the user's own key.

    >>> timers = HeapTimers(Table(), shown=lambda key: key)
    >>> timers.register(20, "a"), timers.register(10, "b"), timers.register(10, "b")
    (None, None, None)
    >>> timers.pop_due(15), timers.pop_due(15), timers.next_time()
    ((10, 'b', None), None, 20)
    """

    def __init__(self, table: Table, shown: Callable[[Any], Any]) -> None:
        self._table, self._shown = table, shown
        self._buckets: dict[int, dict[tuple[Any, Namespace], None]] = {}
        #: The windows of each key that have timers.
        self._spaces: dict[Any, set[Namespace]] = {}
        for (key, namespace), times in table.entries.items():
            self._enter(key, namespace, times)
        self._times = list(self._buckets)
        heapify(self._times)

    def _enter(self, key: Any, namespace: Namespace, times: set[int]) -> None:
        for time in times:
            self._buckets.setdefault(time, {})[key, namespace] = None
        if namespace is not None:
            self._spaces.setdefault(key, set()).add(namespace)

    def register(self, time: int, key: Any, namespace: Namespace = None) -> None:
        item = (key, namespace)
        bucket = self._buckets.get(time)
        if bucket is None:
            self._buckets[time] = {item: None}
            heappush(self._times, time)
        elif item in bucket:
            return
        else:
            bucket[item] = None
        times = self._table.own(item, False)
        if times is None:
            self._table.put(item, {time})
            if namespace is not None:
                self._spaces.setdefault(key, set()).add(namespace)
        else:
            times.add(time)

    def delete(self, time: int, key: Any, namespace: Namespace = None) -> None:
        item = (key, namespace)
        bucket = self._buckets.get(time)
        if bucket is None or item not in bucket:
            return
        del bucket[item]
        self._forget(time, bucket, item)
        if len(self._times) > 2 * len(self._buckets) + 64:
            self._times = list(self._buckets)
            heapify(self._times)

    def of_key(self, key: Any) -> list[tuple[int, Namespace]]:
        entries = self._table.entries
        timers = [(time, None) for time in entries.get((key, None), ())]
        timers += [(time, n) for n in self._spaces.get(key, ()) for time in entries[key, n]]  # type: ignore[misc]
        return sorted(timers, key=lambda timer: timer[0])

    def next_time(self) -> int | None:
        times = self._times
        while times and times[0] not in self._buckets:
            heappop(times)
        return times[0] if times else None

    def pop_due(self, up_to: int) -> tuple[int, Any, Namespace] | None:
        times = self._times
        while times and times[0] <= up_to:
            time = times[0]
            bucket = self._buckets.get(time)
            if bucket is None:
                heappop(times)
                continue
            item, _ = bucket.popitem()
            key, namespace = item
            try:
                shown = self._shown(key)
            except BaseException:
                bucket[item] = None
                raise
            self._forget(time, bucket, item)
            return time, shown, namespace
        return None

    def forget(self) -> None:
        """Drop them all."""
        self._table.entries.clear()
        self._buckets.clear()
        self._spaces.clear()
        self._times.clear()

    def _forget(self, time: int, bucket: dict[tuple[Any, Namespace], None], item: tuple[Any, Namespace]) -> None:
        """A timer has left its bucket."""
        if not bucket:
            del self._buckets[time]
        times = self._table.own(item, False)
        times.discard(time)
        if not times:
            self._table.drop(item)
            key, namespace = item
            if namespace is not None:
                spaces = self._spaces[key]
                spaces.discard(namespace)
                if not spaces:
                    del self._spaces[key]
