"""Timers in RocksDB: there may be more than fit into memory, and the next one is always at hand.

Every timer is two rows. One lies under its key, for what a key has, for snapshots and rescaling; the other under its
time, for what is due. Both are written without being read.

The earliest timers are held in memory, the *head*: all of those before the *horizon*, and none behind it.

    before the horizon    in the head, whether they are written or not
    from the horizon on   written, or waiting to be
    horizon None          there is nothing behind it: the head has them all

A new timer goes into the head if it is before the horizon, else it only waits to be written. When the head has run
empty it is filled from the rows at the horizon; when it has grown too large its end is cut off, and the horizon comes
nearer. Rows of timers that have fired lie before the horizon and are never passed over again.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any

import rocksdict

from moorline.model import keys
from moorline.state.backend import Namespace
from moorline.state.rocksdb.cells import Places
from moorline.state.rocksdb.layout import (
    after,
    encoded_key,
    number_bytes,
    place_end,
    time_at,
    time_bytes,
    window_at,
    window_bytes,
)
from moorline.state.rocksdb.store import Store, new_batch

#: So many timers are read into the head at once. It holds four times as many at most.
HEAD = 4096

#: A timer as it lies under its time, without the number of the store: bytes that are sorted as timers are due.
Due = bytes


def by_key(due: Due) -> bytes:
    """The row of a timer under its key, without the number of the store."""
    return due[8:] + due[:8]


def by_time(row: bytes) -> Due:
    """A timer whose row under its key is this, without the number of the store."""
    return row[-8:] + row[:-8]


class RocksDbTimers:
    """The timers of one kind. ``shown`` gives the user's own key for what stands for it."""

    def __init__(self, store: Store, number: int, places: Places, shown: Callable[[Any], Any]) -> None:
        self._store, self._places, self._shown = store, places, shown
        self._under_key, self._under_time = number_bytes(number), number_bytes(number + 1)
        self._heap: list[Due] = []
        #: The timers of the head, and their keys if known. What is in the heap and not here was deleted.
        self._head: dict[Due, Any] = {}
        #: Nothing has been read yet: everything is behind it.
        self._horizon: Due | None = b""
        #: Timers that are to be written (True) or removed (False).
        self._waiting: dict[Due, bool] = {}
        #: Those among them that are in no row yet.
        self._unwritten: set[Due] = set()
        #: Keys that have something waiting.
        self._touched: set[Any] = set()

    # --- the timers of a key --------------------------------------------------------------------

    def register(self, time: int, key: Any, namespace: Namespace = None) -> None:
        due = time_bytes(time) + self._places[key] + window_bytes(namespace)
        horizon = self._horizon
        if horizon is None or due < horizon:
            if due in self._head:
                return
            self._head[due] = key
            heappush(self._heap, due)
            if due not in self._waiting:
                self._unwritten.add(due)
            if len(self._head) > 4 * HEAD:
                self._cut()
        self._waiting[due] = True
        self._touched.add(key)

    def delete(self, time: int, key: Any, namespace: Namespace = None) -> None:
        self._remove(time_bytes(time) + self._places[key] + window_bytes(namespace))
        self._touched.add(key)

    def of_key(self, key: Any) -> list[tuple[int, Namespace]]:
        if key in self._touched:
            self.flush()
        prefix = self._under_key + self._places[key]
        timers = []
        for row, _ in self._store.scan(prefix, after(prefix)):
            namespace, at = window_at(row, len(prefix))
            timers.append((time_at(row, at), namespace))
        return sorted(timers, key=lambda timer: timer[0])

    # --- what is due ----------------------------------------------------------------------------

    def next_time(self) -> int | None:
        due = self._first()
        return None if due is None else time_at(due, 0)

    def pop_due(self, up_to: int) -> tuple[int, Any, Namespace] | None:
        due = self._first()
        if due is None or (time := time_at(due, 0)) > up_to:
            return None
        end = place_end(due, 8)
        key = self._head[due]
        if key is None:
            key = keys.decode_identity(encoded_key(due[8:end]))
        shown = self._shown(key)
        self._remove(due)
        self._touched.add(key)
        return time, shown, window_at(due, end)[0]

    def _first(self) -> Due | None:
        while True:
            heap = self._heap
            while heap:
                if heap[0] in self._head:
                    return heap[0]
                heappop(heap)
            if self._horizon is None:
                return None
            self._fill()

    def _remove(self, due: Due) -> None:
        self._head.pop(due, None)
        if len(self._heap) > 2 * len(self._head) + HEAD:
            self._rebuild()
        if due in self._unwritten:
            # It came and went within a batch, as timers of windows do.
            self._unwritten.discard(due)
            del self._waiting[due]
        else:
            self._waiting[due] = False

    # --- the head -------------------------------------------------------------------------------

    def _fill(self) -> None:
        """The head is empty: read on at the horizon."""
        assert self._horizon is not None and not self._head
        self.flush()
        rows = self._store.scan(self._under_time + self._horizon, after(self._under_time))
        self._head = dict.fromkeys(row[2:] for row, _ in islice(rows, HEAD))
        self._rebuild()
        following = next(rows, None)
        self._horizon = None if following is None else following[0][2:]

    def _cut(self) -> None:
        """The head is too large: what is cut off is waiting or written."""
        kept = sorted(self._head)
        self._horizon = kept[HEAD]
        for due in kept[HEAD:]:
            del self._head[due]
            # Behind the horizon it is not known what is written and what is not.
            self._unwritten.discard(due)
        self._rebuild()

    def _rebuild(self) -> None:
        self._heap = list(self._head)
        heapify(self._heap)

    # --- batches --------------------------------------------------------------------------------

    def write_into(self, batch: rocksdict.WriteBatch) -> None:
        """Add what has changed to a batch of writes."""
        under_key, under_time = self._under_key, self._under_time
        for due, is_there in self._waiting.items():
            if is_there:
                batch[under_time + due] = b""
                batch[under_key + by_key(due)] = b""
            else:
                batch.delete(under_time + due)
                batch.delete(under_key + by_key(due))
        self._waiting.clear()
        self._unwritten.clear()
        self._touched.clear()

    def flush(self) -> None:
        """Write what is waiting."""
        batch = new_batch()
        self.write_into(batch)
        self._store.write(batch)

    def flushed(self) -> None:
        """The batch is over."""

    shrink = flushed

    def forget(self) -> None:
        """The rows have been changed by others. Everything has been written."""
        self._head, self._heap, self._horizon = {}, [], b""
