"""Windows over columns: aggregates of each key and window, a batch at a time.

What is kept lies in slots of keys and windows (``state/columns/window_table.py``; ``state/rocksdb/windows.py``). A
window fires at its end, is kept as long as late records are allowed, and then gives its slots back. It is the same as
what windows of records do (``subtask/windows/``), row for row:

    the window's clean-up time has passed       the row is not in it; one that is in none is late
    its end has passed                          the row is added, and the window fires again at once, for each such row
    else                                        the row is added; the window fires when the watermark passes its end
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from moorline.api.columns.windows import BOUND, WindowAggregation, WindowRows, check_bounds
from moorline.api.state.descriptors import ValueStateDescriptor
from moorline.api.windows.assigners import SlidingEventTimeWindows, TumblingEventTimeWindows
from moorline.api.windows.streams import WindowSpec
from moorline.errors import TimestampMissing
from moorline.model.columns import ColumnBatch, TimeColumn, Times, times_of
from moorline.model.times import MAX_TIME, MIN_TIME
from moorline.state.columns.backend import ColumnBackend
from moorline.state.columns.index import Slots
from moorline.state.columns.table import Keys
from moorline.state.columns.window_table import WindowTable
from moorline.state.rocksdb.backend import RocksDbBackend
from moorline.state.rocksdb.windows import WindowsInColumns
from moorline.subtask.columns.conversion import to_batch
from moorline.subtask.columns.kernels import Kernel
from moorline.subtask.columns.keys import key_columns, keys_of
from moorline.subtask.columns.panes import Assigned, Rows, assigned
from moorline.subtask.operators.base import ChainedOperator, OperatorContext
from moorline.subtask.windows.contents import CONTENTS

#: Results of windows are passed on so many at a time.
FIRED_ROWS = 65_536


class ColumnWindowOperator(ChainedOperator):
    """Tumbling and sliding windows by event time, whose aggregates lie in columns."""

    backend: ColumnBackend | RocksDbBackend

    def __init__(self, place: OperatorContext) -> None:
        super().__init__(place)
        self._spec: WindowSpec = self.operator.options["window"]
        self._rows: WindowRows = self.operator.function
        self._aggregation: WindowAggregation = self._spec.combine
        assert isinstance(self._spec.assigner, (TumblingEventTimeWindows, SlidingEventTimeWindows))
        self._assigner = self._spec.assigner
        self._lateness_ms = self._spec.lateness_ms
        #: No window ends or is cleaned up before this time.
        self._next = MAX_TIME

    def open(self) -> None:
        kept = ValueStateDescriptor(CONTENTS, self._aggregation.kept)
        self._table: WindowTable | WindowsInColumns = self.backend.bind_windows(kept, self._lateness_ms)
        uid, columns = self.operator.uid, self._table.columns
        self._kernels = [Kernel(uid, name, a, columns) for name, a in self._aggregation.results.items()]
        self._schema, self._out = self._aggregation.schema, self._rows.out_schema
        self._find_next()

    # --- records ---------------------------------------------------------------------------------

    def process(self, records: Sequence[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        if timestamps is None:
            raise TimestampMissing(self.operator.uid, f"{records[0]!r:.500}")
        batch, times = to_batch(records, self._schema, self.operator.uid), times_of(timestamps)
        check_bounds(int(times.min()), int(times.max()))
        windows = assigned(self._assigner, times)
        ends = np.array([end for _, end in windows.spans], np.int64)
        clean_up = np.minimum(ends - 1, MAX_TIME - self._lateness_ms) + self._lateness_ms
        is_live = clean_up > self.moment.watermark
        if not is_live.all() or (windows.rows is not None and not len(windows.rows)):
            windows, ends = windows.chosen(is_live, len(times)), ends[is_live]
            self._see_to_late(batch, times, windows)
        elif windows.rows is not None:
            self._see_to_late(batch, times, windows)
        if windows.spans:
            self._add(batch, windows, ends)
            self.backend.flush()
        self.records_in += batch.num_rows

    def _add(self, batch: pa.RecordBatch, windows: Assigned, ends: Rows) -> None:
        """Add rows to windows that still take them."""
        check_bounds(min(start for start, _ in windows.spans), int(ends.max()))
        found, places = keys_of(batch, self._rows.keys, self.operator.uid, self.backend.identities)
        slots = self._slots(found, places, windows)
        is_over = ends - 1 <= self.moment.watermark
        if not is_over.any():
            self._take(batch, slots, windows.rows)
            self._table.is_waiting[slots] = True
            self._next = min(self._next, int(ends.min()) - 1)
            return
        # Windows that have fired fire again, for each row that comes too late for them.
        is_late = np.broadcast_to(is_over[windows.windows if windows.windows is not None else 0], len(slots))
        rows = windows.places(batch.num_rows)
        if len(in_time := slots[~is_late]):
            self._take(batch, in_time, rows[~is_late])
            self._table.is_waiting[in_time] = True
            self._next = min(self._next, int(ends[~is_over].min()) - 1)
        self._next = min(self._next, int(ends[is_over].min()) - 1 + self._lateness_ms)
        self._fire_each(batch, slots[is_late], rows[is_late])

    def _slots(self, found: Keys, places: Slots | None, windows: Assigned) -> Slots:
        """The slot of the key and window of each row that is in one."""
        assert self._table.windows is not None
        numbers = np.fromiter(map(self._table.windows.of, windows.spans), np.int64, len(windows.spans))
        if windows.windows is None:
            slots = self._table.slots(found, np.broadcast_to(numbers, len(found)))
            return slots if places is None else slots[places]
        of_row = numbers[windows.windows]
        if isinstance(found, np.ndarray):
            return self._table.slots(found if windows.rows is None else found[windows.rows], of_row)
        # Of a key of another kind, each window once.
        assert places is not None
        codes = (places if windows.rows is None else places[windows.rows]) * len(numbers) + windows.windows
        known, codes = np.unique(codes, return_inverse=True)
        keys = [found[place] for place in (known // len(numbers)).tolist()]
        return self._table.slots(keys, numbers[known % len(numbers)])[codes]

    def _take(self, batch: pa.RecordBatch, slots: Slots, rows: Rows | None) -> None:
        """Take rows into account. ``rows``: which; None: all, in order."""
        places = None if rows is None else pa.array(rows)
        for kernel in self._kernels:
            column = None if kernel.aggregate.column is None else batch.column(kernel.aggregate.column)
            kernel.add(slots, column if column is None or places is None else column.take(places))
        self._table.touch(slots)

    def _fire_each(self, batch: pa.RecordBatch, slots: Slots, rows: Rows) -> None:
        """Add rows one after the other, and fire the window of each. Those of different windows go together."""
        made: list[pa.RecordBatch] = []
        order: list[Rows] = []
        left = np.arange(len(slots))
        while len(left):
            # The first row that is left of each slot.
            _, first = np.unique(slots[left], return_index=True)
            now = left[np.sort(first)]
            self._take(batch, slots[now], rows[now])
            made.append(self._results(slots[now]))
            order.append(now)
            left = np.setdiff1d(left, now, assume_unique=True)
        fired = pa.concat_batches(made).take(pa.array(np.argsort(np.concatenate(order))))
        self.emit(ColumnBatch(fired), TimeColumn(self._table.ends_of(slots) - 1))  # type: ignore[arg-type]

    def _see_to_late(self, batch: pa.RecordBatch, times: Times, windows: Assigned) -> None:
        """See to rows that are in no window: late, unless there are gaps between windows."""
        is_in = np.zeros(len(times), np.bool_)
        is_in[windows.places(len(times)) if windows.spans else []] = True
        latest = max(self.moment.watermark - self._lateness_ms, MIN_TIME)
        late = np.flatnonzero(~is_in & (times <= latest))
        if not len(late):
            return
        tag = self._spec.late_tag
        if tag is None:
            advice = "Give allowed_lateness(...), or side_output_late_data(...) to keep them."
            self.drop_late(latest - int(times[late[0]]), advice, len(late))
        elif targets := self.side_targets.get(tag.name):
            rows = ColumnBatch(batch.take(pa.array(late)))
            self._give(targets, rows, TimeColumn(times[late]))  # type: ignore[arg-type]  # sequences will do

    # --- time ------------------------------------------------------------------------------------

    def watermark(self, time: int) -> None:
        self.moment.watermark = time
        if time >= self._next:
            self._end_windows(time)
        self.moment.passed = time
        self._pass_watermark(time)

    def _end_windows(self, time: int) -> None:
        """Fire the windows whose end has come, and forget those that nothing can come for any more."""
        for _ in self._table.due(time):
            self._end_some(time)
        self.backend.flush()
        self._find_next()

    def _end_some(self, time: int) -> None:
        """The same for those that are in slots."""
        table = self._table
        used = table.used()
        last = table.ends_of(used) - 1
        due = used[table.is_waiting[used] & (last <= time)]
        due = due[np.argsort(table.ends_of(due), kind="stable")]
        table.is_waiting[due] = False
        table.touch(due)
        for first in range(0, len(due), FIRED_ROWS):
            slots = due[first : first + FIRED_ROWS]
            fired = ColumnBatch(self._results(slots))
            self.emit(fired, TimeColumn(table.ends_of(slots) - 1))  # type: ignore[arg-type]  # sequences will do
        clean_up = np.minimum(last, MAX_TIME - self._lateness_ms) + self._lateness_ms
        table.remove(used[(clean_up <= time) & (clean_up < MAX_TIME)])

    def _find_next(self) -> None:
        """Find out when the next window ends or is cleaned up."""
        self._next = self._table.next_due(self._lateness_ms)

    def _results(self, slots: Slots) -> pa.RecordBatch:
        """The rows of some windows."""
        table, names = self._table, self._rows.keys
        assert table.windows is not None
        numbers = table.window_of[slots]
        keys = key_columns(table.keys_of(slots), [self._out.field(name) for name in names], self.backend.identities)
        bounds = [pa.array(b[numbers] * 1000).cast(BOUND) for b in (table.windows.starts, table.windows.ends)]
        results = [kernel.result(slots, self._out.field(kernel.name).type) for kernel in self._kernels]
        return pa.RecordBatch.from_arrays([*keys, *bounds, *results], schema=self._out)
