"""Steps for whole batches: records into columns, and a user's function of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from moorline.api.columns.batch_steps import BatchFunction
from moorline.errors import InvalidOutput, MoorlineError
from moorline.model.columns import ColumnBatch, chosen
from moorline.model.graph import OperatorKind
from moorline.subtask.columns.conversion import batch_of, frame_of, made_to, mask_of, to_batch
from moorline.subtask.operators.base import ChainedOperator, OperatorContext, user_code_failed


class ToColumnsOperator(ChainedOperator):
    """Makes columns of records."""

    def process(self, records: Sequence[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        batch = to_batch(records, self.operator.function, self.operator.uid)
        self.records_in += len(records)
        self.emit(ColumnBatch(batch), timestamps)  # type: ignore[arg-type]  # a sequence will do


class BatchOperator(ChainedOperator):
    """map_batches and filter_batches."""

    def __init__(self, place: OperatorContext) -> None:
        super().__init__(place)
        self._step: BatchFunction = self.operator.function
        self._is_filter = self.operator.kind == OperatorKind.FILTER_BATCHES

    def process(self, records: Sequence[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        batch = self._batch_of(records)
        uid, method = self.operator.uid, str(self.operator.kind)
        try:
            made = self._step.function(frame_of(batch, self._step.frames))
        except MoorlineError:
            raise
        except Exception as error:  # the user's function
            first = f"the first of {batch.num_rows} rows: {ColumnBatch(batch.slice(0, 1))[0]!r:.400}"
            raise user_code_failed(self.operator, self.subtask, error, self.records_in, first) from error
        if self._is_filter:
            mask = mask_of(made, batch.num_rows, uid)
            out = batch.filter(mask)
            timestamps = chosen(timestamps, mask.fill_null(False).to_numpy(zero_copy_only=False))
        else:
            out = batch_of(made, uid, method)
            if self._step.schema is not None:
                out = made_to(out, self._step.schema, uid, method)
            if timestamps and out.num_rows != batch.num_rows:
                had = f"{out.num_rows} rows for {batch.num_rows}"
                advice = "Rows have timestamps here: return as many as came, or use filter_batches and flat_map."
                raise InvalidOutput(uid, method, had, advice)
        self.records_in += batch.num_rows
        if out.num_rows:
            self.emit(ColumnBatch(out), timestamps)  # type: ignore[arg-type]  # a sequence will do

    def _batch_of(self, records: Sequence[Any]) -> pa.RecordBatch:
        if isinstance(records, ColumnBatch):
            return records.batch
        # Rows that were in flight in a snapshot. Without a schema their types are guessed.
        if self._step.in_schema is not None:
            return to_batch(records, self._step.in_schema, self.operator.uid)
        return pa.RecordBatch.from_pylist(list(records))
