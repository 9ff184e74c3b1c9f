"""The functions a user writes.

Wherever a function has one method, a plain callable will do. Outputs of ``flat_map`` and
``process_element`` are yielded, or returned as a list or another iterable; ``None`` means none. A text,
a dict, and in ``process_element`` a tuple, is one record: returned as such it is refused.
``yield tag, value`` with an :class:`OutputTag` sends a value to a side output.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol

from moorline.api.type_parameters import ACC, IN, OUT, A, B, K_co, K_contra, T
from moorline.model.copying.immutable import NotData

if TYPE_CHECKING:
    from moorline.api.metrics import MetricGroup
    from moorline.api.state import combining, descriptors, states


@dataclass(frozen=True)
class OutputTag(NotData, Generic[T]):
    """The name of a side output.

    ``OutputTag[Order]("late")`` is one of which type checkers know that orders go there.

    >>> late = OutputTag("late")
    """

    name: str


#: A value for a side output, among others that are yielded: ``yield tag, value``.
Diverted = tuple[OutputTag[Any], Any]


class KeyedStateStore(Protocol):
    """States that were declared beforehand, found by their descriptors."""

    def get_state(self, descriptor: descriptors.ValueStateDescriptor[A]) -> states.ValueState[A]: ...
    def get_list_state(self, descriptor: descriptors.ListStateDescriptor[A]) -> states.ListState[A]: ...
    def get_map_state(self, descriptor: descriptors.MapStateDescriptor[A, B]) -> states.MapState[A, B]: ...
    def get_reducing_state(self, descriptor: descriptors.ReducingStateDescriptor[A]) -> combining.ReducingState[A]: ...
    def get_aggregating_state(
        self, descriptor: descriptors.AggregatingStateDescriptor[A, B]
    ) -> combining.AggregatingState[A, B]: ...


class RuntimeContext(KeyedStateStore, Protocol):
    """The place of a function in its job, and its states, as ``open`` gets them."""

    @property
    def operator_uid(self) -> str: ...
    @property
    def subtask(self) -> int: ...
    @property
    def parallelism(self) -> int: ...
    @property
    def max_parallelism(self) -> int: ...
    @property
    def attempt(self) -> int: ...

    @property
    def metrics_group(self) -> MetricGroup:
        """Counters, gauges, meters, distributions and histograms of your own."""
        ...

    def get_metrics_group(self) -> MetricGroup:
        """Same as ``metrics_group``, by PyFlink's name."""
        ...

    def get_index_of_this_subtask(self) -> int:
        """Same as ``subtask``, by PyFlink's name."""
        ...

    def get_number_of_parallel_subtasks(self) -> int:
        """Same as ``parallelism``, by PyFlink's name."""
        ...


class TimerService(Protocol):
    """The clocks of an operator, and on a keyed stream timers for the current key.

    A timer exists once per key and time, however often it is registered. When the watermark (or the clock) reaches
    its time, ``on_timer`` is called.
    """

    def current_processing_time(self) -> int:
        """The wall clock, in milliseconds since 1970."""
        ...

    def current_watermark(self) -> int:
        """The current watermark of this subtask; a very small number before the first one."""
        ...

    def register_event_time_timer(self, time: int) -> None: ...
    def register_processing_time_timer(self, time: int) -> None: ...
    def delete_event_time_timer(self, time: int) -> None: ...
    def delete_processing_time_timer(self, time: int) -> None: ...

    def event_time_timers(self) -> list[int]:
        """The due times of the current key's event-time timers, earliest first."""
        ...

    def processing_time_timers(self) -> list[int]:
        """The due times of the current key's processing-time timers, earliest first."""
        ...


class Context(Protocol):
    """The context of a record: its timestamp, the clocks and the side outputs."""

    def output(self, tag: OutputTag[A], value: A) -> None:
        """Send a value to a side output."""
        ...

    def timestamp(self) -> int | None:
        """The time of the record (or timer), in milliseconds since 1970; ``None`` if it has no timestamp."""
        ...

    def timer_service(self) -> TimerService: ...


class KeyedContext(Context, Protocol[K_co]):
    """The context of a record on a keyed stream: also its key, and timers of that key."""

    @property
    def current_key(self) -> K_co: ...

    def get_current_key(self) -> K_co:
        """Same as ``current_key``, by PyFlink's name."""
        ...


class OnTimerContext(KeyedContext[K_co], Protocol[K_co]):
    """The context of a timer that is due: its key, and whether it was of event time or of the clock."""

    @property
    def time_domain(self) -> str:
        """``"event"`` or ``"processing"``."""
        ...


class Function:
    """Base of all functions: opened before the first record, closed after the last.

    >>> class Tax(MapFunction):
    ...     def open(self, runtime_context):
    ...         self.rate = 0.19
    ...     def map(self, value):
    ...         return value * (1 + self.rate)
    """

    def open(self, runtime_context: RuntimeContext, /) -> None:
        """Called once in each subtask, before its first record."""

    def finish(self) -> Iterable[object] | None:
        """Called in each subtask when its input has ended and the last timers have fired: the last chance to emit.

        Not called when a job is stopped before its input ends, and called again if the job fails between here and
        its end: let go of what you have emitted, as with any other output, so that it is not emitted twice.
        """

    def close(self) -> None:
        """Called once in each subtask, at the end or after a failure."""


class MapFunction(Function, Generic[IN, OUT]):
    """One record in, one out.

    >>> class Double(MapFunction):
    ...     def map(self, value):
    ...         return 2 * value
    """

    def map(self, value: IN, /) -> OUT:
        raise NotImplementedError


class FilterFunction(Function, Generic[IN]):
    """One record in; it goes on if the answer is true.

    >>> class Positive(FilterFunction):
    ...     def filter(self, value):
    ...         return value > 0
    """

    def filter(self, value: IN, /) -> bool:
        raise NotImplementedError


class FlatMapFunction(Function, Generic[IN, OUT]):
    """One record in, any number out.

    >>> class Words(FlatMapFunction):
    ...     def flat_map(self, value):
    ...         yield from value.split()
    """

    def flat_map(self, value: IN, /) -> Iterable[OUT] | None:
        raise NotImplementedError


class ReduceFunction(Function, Generic[T]):
    """Two values of a kind into one.

    >>> class Sum(ReduceFunction):
    ...     def reduce(self, value1, value2):
    ...         return value1 + value2
    """

    def reduce(self, value1: T, value2: T, /) -> T:
        raise NotImplementedError


class AggregateFunction(Function, Generic[IN, ACC, OUT]):
    """Many values into one accumulator, and the accumulator into a result.

    >>> class Mean(AggregateFunction):
    ...     def create_accumulator(self):
    ...         return 0, 0.0
    ...     def add(self, value, accumulator):
    ...         return accumulator[0] + 1, accumulator[1] + value
    ...     def get_result(self, accumulator):
    ...         return accumulator[1] / accumulator[0]
    ...     def merge(self, a, b):
    ...         return a[0] + b[0], a[1] + b[1]
    """

    def create_accumulator(self) -> ACC:
        raise NotImplementedError

    def add(self, value: IN, accumulator: ACC, /) -> ACC:
        raise NotImplementedError

    def get_result(self, accumulator: ACC, /) -> OUT:
        raise NotImplementedError

    def merge(self, a: ACC, b: ACC, /) -> ACC:
        raise NotImplementedError


class ProcessFunction(Function, Generic[IN, OUT]):
    """One record in, any number out, with side outputs.

    >>> refused = OutputTag("refused")
    >>> class Parse(ProcessFunction):
    ...     def process_element(self, value, ctx):
    ...         if value.isdigit():
    ...             yield int(value)
    ...         else:
    ...             ctx.output(refused, value)
    """

    def process_element(self, value: IN, ctx: Context, /) -> Iterable[OUT | Diverted] | None:
        raise NotImplementedError


class KeyedProcessFunction(Function, Generic[K_contra, IN, OUT]):
    """One record of a keyed stream in, any number out, with state and timers per key.

    >>> class Count(KeyedProcessFunction):
    ...     def process_element(self, value, ctx):
    ...         yield ctx.current_key, value
    """

    def process_element(self, value: IN, ctx: KeyedContext[K_contra], /) -> Iterable[OUT | Diverted] | None:
        raise NotImplementedError

    def on_timer(self, timestamp: int, ctx: OnTimerContext[K_contra], /) -> Iterable[OUT | Diverted] | None:
        """A timer of the current key is due. Outputs are yielded."""
