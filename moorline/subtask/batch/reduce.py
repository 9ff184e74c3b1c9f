"""``reduce`` and ``aggregate`` in a batch job: the last result of each key, when the key has ended.

It carries the timestamp of the key's last record: it is the last of the records that a streaming job would emit.
"""

from __future__ import annotations

from typing import Any

from moorline.api.columns.aggregation import Aggregation
from moorline.api.functions.reduce import Reduction
from moorline.state.backend import NO_KEY
from moorline.subtask.operators.process import ProcessOperator


class BatchReduceOperator(ProcessOperator):
    """Around a function which emits nothing itself. Its state is emitted before it is dropped."""

    function: Reduction | Aggregation

    def open(self) -> None:
        super().open()
        self.function.emits_each = False
        self._key: Any = NO_KEY
        self._stamp: int | None = None

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        super().process(records, timestamps, side)
        self._key = self._sides[side].key_of(records[-1])  # type: ignore[misc]
        self._stamp = timestamps[-1] if timestamps else None

    def end_key(self) -> None:
        assert self.backend is not None
        self.backend.current.key = self._key
        last = self.function.last()
        self.backend.current.key = self._key = NO_KEY
        if last is not None:
            self.emit([last], None if self._stamp is None else [self._stamp])
