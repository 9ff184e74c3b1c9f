"""Removing what is over its time from RocksDB, a few rows after each batch, all of them in the end.

A compaction filter would do it while files are merged anyway, but rocksdict has none. So a cursor goes round the rows
of the states that have a time to live. It runs when the batch has been written, so it sees everything; it reads only
the stamp of each row; and it looks at ``cleanup_incrementally`` rows for every key of the batch, as many as
``state/ttl/sweep.py`` does on the heap, which also says why it rests between two rounds.

What is in a cache may be removed under it: it is expired there too, and every read judges it again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from moorline.api.state.ttl import StateTtlConfig
from moorline.model.key_groups import KeyGroupRange
from moorline.model.times import MIN_TIME
from moorline.protocol.expiry import is_expired
from moorline.state.rocksdb.layout import element, groups, packed_map_key, stamp
from moorline.state.rocksdb.store import Store, new_batch
from moorline.state.ttl.sweep import MINUTE_MS

#: Rows looked at after one batch, at most: about a millisecond.
MOST_ROWS = 1000


class RowSweep:
    """The rounds over the rows of one state."""

    def __init__(
        self, store: Store, number: int, config: StateTtlConfig, key_groups: KeyGroupRange, now: Callable[[], int]
    ) -> None:
        self._store, self._config, self._now = store, config, now
        self._start, self._end = groups(number, key_groups.first, key_groups.end)
        #: Where the round goes on; None: it is over.
        self._cursor: bytes | None = None
        self._next_round = MIN_TIME
        self._pause_ms = min(config.length_ms // 8, MINUTE_MS)

    def turn(self, keys: int) -> None:
        """A batch with so many keys has been written."""
        rows = min(keys * self._config.cleanup_incrementally, MOST_ROWS)
        now = self._now()
        if not rows or now == MIN_TIME:
            return
        if self._cursor is None:
            if now < self._next_round:
                return
            self._cursor, self._next_round = self._start, now + self._pause_ms
        batch, length, last = new_batch(), self._config.length_ms, b""
        for row, value in islice(self._store.scan(self._cursor, self._end), rows):
            last_access, ttl, at = stamp(value)
            if is_expired(last_access, ttl or length, now):
                batch.delete(row)
            elif last_access is None:
                # From before it had a time to live, which begins now.
                map_key, at = packed_map_key(value, at)
                batch[row] = element(value[at:], now, ttl, map_key)
            last, rows = row, rows - 1
        self._store.write(batch)
        self._cursor = None if rows else last + b"\0"
