"""Aggregates and windows over columns in a batch job: the rows of one key group after the other.

What comes out is what the same steps make key by key: one row for each key, with the timestamp of its last record, and
for windows one for each key and window. Only the keys of one key group are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from moorline.model.columns import ColumnBatch, TimeColumn, Times, times_of
from moorline.model.times import MAX_TIME, MIN_TIME
from moorline.state.columns.index import Slots, grown
from moorline.subtask.columns.aggregate import AggregateOperator
from moorline.subtask.columns.eligible import used_schema
from moorline.subtask.columns.keys import key_columns, keys_of
from moorline.subtask.columns.windows import ColumnWindowOperator
from moorline.subtask.operators.base import OperatorContext

#: Results are passed on so many at a time.
EMITTED_ROWS = 65_536
#: What depends on the order of a key's records.
ORDERED = frozenset({"first", "last"})


class KeyGroupAggregates(AggregateOperator):
    """``aggregate``: its results come out when the key group has ended."""

    def __init__(self, place: OperatorContext) -> None:
        super().__init__(place)
        #: By slot, the latest timestamp.
        self._latest: Times = np.zeros(0, np.int64)
        self._has_times = False
        self._is_ordered = any(a.kind in ORDERED for a in self._function.results.values())
        #: Rows that are put in order by time first.
        self._waiting: list[tuple[pa.RecordBatch, Times]] = []

    def process(self, records: Sequence[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        assert isinstance(records, ColumnBatch)
        batch = records.batch
        self.records_in += batch.num_rows
        times = times_of(timestamps) if timestamps else None
        if times is not None and self._is_ordered:
            self._waiting.append((batch, times))
        else:
            self._add(batch, times)

    def _add(self, batch: pa.RecordBatch, times: Times | None) -> None:
        found, places = keys_of(batch, self._function.keys, self.operator.uid, self.backend.identities)
        slots = self._table.slots(found)
        slots = slots if places is None else slots[places]
        for kernel in self._kernels:
            column = kernel.aggregate.column
            kernel.add(slots, None if column is None else batch.column(column))
        if times is not None:
            before = len(self._latest)
            self._latest = grown(self._latest, int(slots.max()) + 1)
            self._latest[before:] = MIN_TIME
            np.maximum.at(self._latest, slots, times)
            self._has_times = True

    def end_key(self) -> None:
        if self._waiting:
            batches, times = zip(*self._waiting)
            self._waiting = []
            by_time = np.concatenate(times)
            order = np.argsort(by_time, kind="stable")
            self._add(pa.concat_batches(batches).take(pa.array(order)), by_time[order])
        used = self._table.used()  # type: ignore[union-attr]  # no RocksDB in a batch job
        for first in range(0, len(used), EMITTED_ROWS):
            self._emit_keys(used[first : first + EMITTED_ROWS])
        self._latest[:] = MIN_TIME
        self._has_times = False

    def _emit_keys(self, slots: Slots) -> None:
        out, identities = self._out, self.backend.identities
        keys = self._table.keys_of(slots)  # type: ignore[union-attr]
        results = [kernel.result(slots, out.field(kernel.name).type) for kernel in self._kernels]
        key = key_columns(keys, [out.field(name) for name in self._function.keys], identities)
        stamps = TimeColumn(self._latest[slots]) if self._has_times else None
        made = pa.RecordBatch.from_arrays([*key, *results], schema=out)
        self.emit(ColumnBatch(made), stamps)  # type: ignore[arg-type]  # a sequence will do


class KeyGroupWindows(ColumnWindowOperator):
    """Windows: all of them end with the key group. Nothing is late."""

    def open(self) -> None:
        super().open()
        self._schema = used_schema(self.operator)

    def end_key(self) -> None:
        self.moment.watermark = MAX_TIME
        self._end_windows(MAX_TIME)
        self.moment.watermark = MIN_TIME
