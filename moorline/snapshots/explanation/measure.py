"""The figures of one keyed state: its rows are read once, table by table, and only sums are kept.

Memory is bounded by the size of a table, one number for each key group and the largest keys. The rows of a key lie in
one table (``snapshots/rows.py``), so the figures of a key are exact.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from moorline.model import keys
from moorline.snapshots.explanation.report import Expired, GroupSize, KeySize
from moorline.snapshots.explanation.sizes import table_row_bytes
from moorline.state.folding import with_encoded_keys

#: A key is decoded for people up to so many bytes.
MAX_SHOWN_KEY = 10_000

Numbers = npt.NDArray[np.int64]


class Measurement:
    """Sums over the rows of one state."""

    def __init__(self, key_groups: int, top: int, ttl_ms: int | None = None, now_ms: int | None = None) -> None:
        self._top, self._ttl_ms, self._now_ms = top, ttl_ms, now_ms
        self.rows = self.bytes = self.keys = 0
        self._of_group = np.zeros((2, key_groups), np.int64)
        #: A heap of (bytes, rows, encoding, key group), the smallest first.
        self._largest: list[tuple[int, int, bytes, int]] = []
        self._has_stamps = False
        self._expired_rows = self._expired_bytes = self._undated = 0

    def add(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        sizes = table_row_bytes(table.drop_columns([c for c in ("key_group",) if c in table.column_names]))
        groups = np.asarray(table["key_group"].to_numpy(), np.int64)
        self.rows += table.num_rows
        self.bytes += int(sizes.sum())
        for at, weights in enumerate((None, sizes)):
            self._of_group[at] += np.bincount(groups, weights, self._of_group.shape[1]).astype(np.int64)
        if "key" in table.column_names:
            self._add_keys(table.select(["key"]), groups, sizes)
        if "last_access" in table.column_names and self._now_ms is not None:
            self._add_stamps(table, sizes)

    @property
    def key_groups(self) -> tuple[GroupSize, ...]:
        rows, sizes = self._of_group
        return tuple(GroupSize(int(g), int(rows[g]), int(sizes[g])) for g in np.flatnonzero(rows))

    @property
    def largest(self) -> tuple[KeySize, ...]:
        found = sorted(self._largest, key=lambda one: (-one[0], one[2]))
        return tuple(KeySize(_shown(encoded), encoded, group, rows, size) for size, rows, encoded, group in found)

    @property
    def expired(self) -> Expired | None:
        if not self._has_stamps or self._now_ms is None:
            return None
        return Expired(self._expired_rows, self._expired_bytes, self._undated, self._now_ms)

    def _add_keys(self, column: pa.Table, groups: Numbers, sizes: Numbers) -> None:
        codes = column["key"].combine_chunks().dictionary_encode()
        index = np.asarray(codes.indices.to_numpy(), np.int64)
        count = len(codes.dictionary)
        rows = np.bincount(index, minlength=count)
        of_key = np.bincount(index, sizes, count).astype(np.int64)
        self.keys += count
        if not self._top:
            return
        best = np.argpartition(of_key, -self._top)[-self._top :] if count > self._top else np.arange(count)
        encoded = with_encoded_keys(pa.table({"key": codes.dictionary.take(pa.array(best))}))["key"].to_pylist()
        first = np.zeros(count, np.int64)
        first[index[::-1]] = np.arange(len(index))[::-1]
        for at, key in zip(best.tolist(), encoded):
            entry = (int(of_key[at]), int(rows[at]), key, int(groups[first[at]]))
            if len(self._largest) < self._top:
                heapq.heappush(self._largest, entry)
            else:
                heapq.heappushpop(self._largest, entry)

    def _add_stamps(self, table: pa.Table, sizes: Numbers) -> None:
        self._has_stamps = True
        assert self._now_ms is not None
        lives = table["ttl"] if self._ttl_ms is None else pc.fill_null(table["ttl"], self._ttl_ms)
        is_dated = pc.and_(pc.is_valid(table["last_access"]), pc.is_valid(lives)).to_numpy()
        touched = pc.fill_null(table["last_access"], 0).to_numpy()
        # As floats: a hostile stamp overflows nothing.
        ends = touched.astype(float) + pc.fill_null(lives, 0).to_numpy()
        is_over = is_dated & (ends <= self._now_ms)
        self._expired_rows += int(is_over.sum())
        self._expired_bytes += int(sizes[is_over].sum())
        self._undated += int((~is_dated).sum())


def newest_stamp(tables: Iterable[pa.Table]) -> int | None:
    """The newest time that anything in a state was touched: event time has come at least so far."""
    stamps = (pc.max(table["last_access"]).as_py() for table in _stamped(tables))
    return max((stamp for stamp in stamps if stamp is not None), default=None)


def _stamped(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    return (table for table in tables if "last_access" in table.column_names)


def _shown(encoded: bytes) -> object:
    try:
        return keys.decode(encoded) if len(encoded) <= MAX_SHOWN_KEY else encoded[:MAX_SHOWN_KEY]
    except ValueError:  # of a class that only the job knows
        return encoded
