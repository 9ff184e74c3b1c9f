"""The operator around a sink in its short form, ``invoke``."""

from __future__ import annotations

from typing import Any

from moorline.api.functions.source_function import SinkFunction
from moorline.model.times import MIN_TIME
from moorline.state.backend import NO_KEY
from moorline.subtask.operators.function import FunctionOperator


class _InvokeContext:
    """The context of ``invoke``."""

    def __init__(self, operator: SinkFunctionOperator) -> None:
        self._operator = operator

    def timestamp(self) -> int | None:
        return self._operator.moment.timestamp

    def current_watermark(self) -> int:
        return self._operator.moment.watermark

    def current_processing_time(self) -> int:
        return self._operator.wall_ms()


class SinkFunctionOperator(FunctionOperator):
    """Around a :class:`SinkFunction`. On a keyed stream it has keyed state."""

    function: SinkFunction

    def open(self) -> None:
        super().open()
        self.moment.watermark = MIN_TIME
        self._context = _InvokeContext(self)
        self._invoke: Any = self.function.invoke

    def _keyed(self, records: list[Any]) -> Any:
        """``invoke``, called for these records in turn: each has its key."""
        assert self.backend is not None
        invoke, current = self._invoke, self.backend.current
        following = iter(self._begin(self.operator.inputs[0].key, records)).__next__

        def keyed(record: Any, context: Any) -> None:
            current.key = following()
            invoke(record, context)

        return keyed

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        invoke, context, moment = self._invoke, self._context, self.moment
        iterator: Any = iter(records)
        if self.backend is not None:
            invoke = self._keyed(records)
        try:
            if timestamps is None:
                for record in iterator:
                    invoke(record, context)
            else:
                for record, moment.timestamp in zip(iterator, timestamps):
                    invoke(record, context)
        except Exception as error:  # the user's code
            raise self.failure(error, records, iterator) from error
        finally:
            moment.timestamp = None
            if self.backend is not None:
                self.backend.current.key = NO_KEY
        if self.backend is not None:
            self.backend.flush()
        self.records_in += len(records)
