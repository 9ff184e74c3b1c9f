"""The function behind an interval join: it keeps the records of either side while one of the other may still come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from moorline.api.functions.base import Function, OutputTag
from moorline.api.functions.connected import KeyedCoProcessFunction
from moorline.api.state.descriptors import MapStateDescriptor
from moorline.api.state.states import MapState, declared_states
from moorline.api.windows.functions import ProcessJoinFunction
from moorline.errors import TimestampMissing
from moorline.model.copying.copies import copy_of
from moorline.model.times import MAX_TIME, MIN_TIME

if TYPE_CHECKING:
    from moorline.api.windows.joins import IntervalSpec


class PairContext:
    """The context of a function of an interval join: the times of the pair."""

    def __init__(self) -> None:
        self.left_timestamp = self.right_timestamp = 0
        self.current_key: Any = None
        self.outputs: list[tuple[OutputTag, Any]] = []

    def timestamp(self) -> int:
        return max(self.left_timestamp, self.right_timestamp)

    def output(self, tag: OutputTag, value: Any) -> None:
        self.outputs.append((tag, value))


class IntervalJoinFunction(KeyedCoProcessFunction):
    """Keeps the records of each side by their timestamps until none of the other side can be near enough any more.

    Made of what any function has: map states and event-time timers. What it yields are pairs of timestamp and result,
    which ``subtask/operators/interval_join.py`` takes apart.
    """

    def __init__(self, function: Any, spec: IntervalSpec, left_type: object, right_type: object) -> None:
        self._function, self._spec, self._types = function, spec, (left_type, right_type)
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        # How long a record is kept, and where a timer's records are.
        self._keep_ms = max(spec.upper_ms, 0), max(-spec.lower_ms, 0)
        #: Called for each record that is dropped, with how late it is. Set by the operator.
        self.on_late: Callable[[int], None] = lambda late_ms: None

    def open(self, runtime_context: Any) -> None:
        self._uid = runtime_context.operator_uid
        left, right = (
            MapStateDescriptor(name, int, object if kind is object else list[kind])  # type: ignore[valid-type]
            for name, kind in zip(("left-buffer", "right-buffer"), self._types)
        )
        self._buffers: tuple[MapState[int, list[Any]], ...] = (
            runtime_context.get_map_state(left),
            runtime_context.get_map_state(right),
        )
        self._context = PairContext()
        self.pair = self._function
        if isinstance(self._function, ProcessJoinFunction):
            for attribute, declared in declared_states(self._function).items():
                setattr(self._function, attribute, runtime_context.get_state(declared.descriptor))
            self._function.open(runtime_context)
            self.pair = self._function.process_element

    def finish(self) -> Iterable[Any] | None:
        return self._function.finish() if isinstance(self._function, Function) else None

    def close(self) -> None:
        if isinstance(self._function, Function):
            self._function.close()

    def process_element1(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        if self._keep(0, value, ctx, self._spec.left_late):
            return self._pairs(value, ctx, self._spec.lower_ms, self._spec.upper_ms)
        return None

    def process_element2(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        if self._keep(1, value, ctx, self._spec.right_late):
            return self._pairs_of_right(value, ctx, -self._spec.upper_ms, -self._spec.lower_ms)
        return None

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        # How long records are kept depends on the side alone: whichever record set the timer, what is due now is due.
        for buffer, keep_ms in zip(self._buffers, self._keep_ms):
            buffer.remove(timestamp - keep_ms)

    def _keep(self, side: int, value: Any, ctx: Any, late: OutputTag | None) -> bool:
        time = ctx.timestamp()
        if time is None:
            raise TimestampMissing(self._uid, f"{value!r:.500}")
        watermark = ctx.timer_service().current_watermark()
        if watermark > MIN_TIME and time < watermark:
            if late is not None:
                ctx.output(late, value)
            else:
                self.on_late(watermark - time)
            return False
        buffer = self._buffers[side]
        buffer.put(time, [*(buffer.get(time) or ()), value])
        ctx.timer_service().register_event_time_timer(min(time + self._keep_ms[side], MAX_TIME))
        return True

    def _pairs(self, left: Any, ctx: Any, lower_ms: int, upper_ms: int) -> Iterator[tuple[int, Any]]:
        pair = self._context
        pair.current_key, pair.left_timestamp = ctx.current_key, ctx.timestamp()
        first, last = pair.left_timestamp + lower_ms, pair.left_timestamp + upper_ms
        for time, rights in self._buffers[1].items():
            if first <= time <= last:
                pair.right_timestamp = time
                for right in rights:
                    yield from self._results(left, right)

    def _pairs_of_right(self, right: Any, ctx: Any, lower_ms: int, upper_ms: int) -> Iterator[tuple[int, Any]]:
        pair = self._context
        pair.current_key, pair.right_timestamp = ctx.current_key, ctx.timestamp()
        first, last = pair.right_timestamp + lower_ms, pair.right_timestamp + upper_ms
        for time, lefts in self._buffers[0].items():
            if first <= time <= last:
                pair.left_timestamp = time
                for left in lefts:
                    yield from self._results(left, right)

    def _results(self, left: Any, right: Any) -> Iterator[tuple[int, Any]]:
        pair = self._context
        at = pair.timestamp()
        # Both are in state, and meet others.
        for result in self.pair(copy_of(left), copy_of(right), pair):
            yield at, result
        for diverted in pair.outputs:
            yield at, diverted
        pair.outputs.clear()
