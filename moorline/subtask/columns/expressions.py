"""Steps made of expressions: columns that are computed, and rows that are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import pyarrow as pa

from moorline.api.columns.expressions.tree import ExpressionFailed, Node, evaluate, evaluate_all
from moorline.api.columns.projections import Condition, Projection
from moorline.model.columns import ColumnBatch
from moorline.subtask.columns.conversion import to_batch
from moorline.subtask.operators.base import ChainedOperator, OperatorContext, user_code_failed


class _ExpressionOperator(ChainedOperator):
    def _failed(self, failed: ExpressionFailed, nodes: list[Node], batch: pa.RecordBatch) -> Exception:
        """The error with the first row that it is about."""
        good, bad = 0, batch.num_rows  # so many rows are known to be good; among so many is one that is not
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                evaluate_all(nodes, batch.slice(0, middle))
                good = middle
            except ExpressionFailed as earlier:
                failed, bad = earlier, middle
        row = f"{ColumnBatch(batch.slice(bad - 1, 1))[0]!r:.500}"
        return user_code_failed(self.operator, self.subtask, failed, self.records_in + bad - 1, row)


class SelectOperator(_ExpressionOperator):
    """Rows of other columns."""

    def __init__(self, place: OperatorContext) -> None:
        super().__init__(place)
        self._step: Projection = self.operator.function
        self._nodes = list(self._step.columns)

    def process(self, records: Sequence[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        batch = to_batch(records, self._step.in_schema, self.operator.uid)
        try:
            made = evaluate_all(self._nodes, batch)
        except ExpressionFailed as failed:
            raise self._failed(failed, self._nodes, batch) from failed
        self.records_in += batch.num_rows
        out = pa.RecordBatch.from_arrays(made, schema=self._step.out_schema)
        self.emit(ColumnBatch(out), timestamps)  # type: ignore[arg-type]  # a sequence will do


class WhereOperator(_ExpressionOperator):
    """The rows for which a condition is true."""

    def __init__(self, place: OperatorContext) -> None:
        super().__init__(place)
        self._step: Condition = self.operator.function

    def process(self, records: Sequence[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        batch = to_batch(records, self._step.schema, self.operator.uid)
        try:
            mask = evaluate(self._step.node, batch)
        except ExpressionFailed as failed:
            raise self._failed(failed, [self._step.node], batch) from failed
        self.records_in += batch.num_rows
        kept = mask.true_count
        if kept == batch.num_rows:
            self.emit(ColumnBatch(batch), timestamps)  # type: ignore[arg-type]
        elif kept:
            stamps = timestamps and list(compress(timestamps, mask.fill_null(False).to_pylist()))
            self.emit(ColumnBatch(batch.filter(mask)), stamps)  # type: ignore[arg-type]
