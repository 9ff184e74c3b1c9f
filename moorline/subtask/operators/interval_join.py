"""The operator of an interval join: a function with two inputs whose results say themselves when they happened."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moorline.subtask.operators.process import ProcessOperator, Side
from moorline.subtask.operators.yields import many


class IntervalJoinOperator(ProcessOperator):
    """Runs an ``IntervalJoinFunction`` (``api/windows/interval_function.py``), whose results are pairs of timestamp and
    value."""

    def open(self) -> None:
        super().open()
        self.function.pair = many(self.function.pair, self.operator.uid, "process_element")
        self.function.on_late = self._drop_late

    def _drop_late(self, late_ms: int) -> None:
        self.drop_late(
            late_ms, "Give side_output_left_late_data(...) and side_output_right_late_data(...) to keep them."
        )

    def _stamped(
        self, this: Side, records: Iterable[Any], timestamps: list[int], keys: list[Any] | None, out: list[Any]
    ) -> list[int]:
        joined: list[Any] = []
        super()._stamped(this, records, timestamps, keys, joined)
        out.extend([value for _, value in joined])
        return [timestamp for timestamp, _ in joined]
