"""``aggregate``: a batch at a time, over state in columns, on the heap or over the rows of RocksDB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moorline.api.columns.aggregation import Aggregation
from moorline.api.state.states import declared_states
from moorline.api.state.ttl import StateTtlConfig
from moorline.model.columns import ColumnBatch, chosen
from moorline.state.columns.backend import ColumnBackend
from moorline.state.columns.index import Slots
from moorline.state.columns.table import ColumnTable
from moorline.state.rocksdb.backend import RocksDbBackend
from moorline.state.rocksdb.columns import RowsInColumns
from moorline.subtask.columns.conversion import to_batch
from moorline.subtask.columns.kernels import Kernel
from moorline.subtask.columns.keys import keys_of
from moorline.subtask.operators.base import ChainedOperator, OperatorContext


class AggregateOperator(ChainedOperator):
    """Running aggregates of each key. Emits a row for each key that a batch has changed."""

    backend: ColumnBackend | RocksDbBackend

    def __init__(self, place: OperatorContext) -> None:
        super().__init__(place)
        self._function: Aggregation = self.operator.function

    def open(self) -> None:
        function = self._function
        (declared,) = declared_states(function).values()
        self._table: ColumnTable | RowsInColumns = self.backend.bind_columns(declared.descriptor)
        uid, columns = self.operator.uid, self._table.columns
        self._kernels = [Kernel(uid, name, a, columns) for name, a in function.results.items()]
        self._out = function.out_schema
        #: By slot, a row of a batch: scratch space, which is written before it is read.
        self._last: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        #: When to look for what is over its time.
        self._sweeps_at = 0
        self.state.initialize(function)

    def process(self, records: Sequence[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        batch = to_batch(records, self._function.schema, self.operator.uid)
        if self._function.ttl is not None:
            self._look_at_clock(self._function.ttl)
        found, places = keys_of(batch, self._function.keys, self.operator.uid, self.backend.identities)
        slots = self._table.slots(found)
        slots = slots if places is None else slots[places]
        if self._function.ttl is not None:
            self._table.renew(slots, self.moment.processing_ms)
        for kernel in self._kernels:
            column = kernel.aggregate.column
            kernel.add(slots, None if column is None else batch.column(column))
        changed, rows = self._changed(slots)
        self._table.touch(changed)
        self.records_in += batch.num_rows
        results = [kernel.result(changed, self._out.field(kernel.name).type) for kernel in self._kernels]
        # The columns of the key, as they stand in the last row of it.
        taken = batch.select(list(self._function.keys)).take(pa.array(rows))
        out = pa.RecordBatch.from_arrays([*taken.columns, *results], schema=self._out)
        stamps = chosen(timestamps, rows)
        self.backend.flush()
        self.emit(ColumnBatch(out), stamps)  # type: ignore[arg-type]  # a sequence will do

    def _look_at_clock(self, ttl: StateTtlConfig) -> None:
        """Take note of the time, and now and then give back the slots of what was untouched for too long."""
        now = self.moment.processing_ms = max(self.moment.processing_ms, self.wall_ms())
        table = self._table
        if not isinstance(table, ColumnTable):
            return  # RocksDB's rows are swept
        if now >= self._sweeps_at and ttl.cleanup_incrementally:
            self._sweeps_at = now + max(1_000, ttl.length_ms // 8)
            used = table.used()
            table.remove(np.setdiff1d(used, table.live(used, now), assume_unique=True))

    def _changed(self, slots: Slots) -> tuple[Slots, Slots]:
        """The slots that occur, each once, and the last row of each."""
        if (size := int(slots.max(initial=-1)) + 1) > len(self._last):
            self._last = np.zeros(2 * size, np.int32)
        numbers = np.arange(len(slots), dtype=np.int32)
        self._last[slots] = numbers  # of several the last one stays
        rows = np.flatnonzero(self._last[slots] == numbers)
        return slots[rows], rows
