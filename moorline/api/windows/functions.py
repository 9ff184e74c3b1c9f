"""The functions a user writes for windows and joins. Outputs are yielded, or returned as any iterable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from moorline.api.functions.base import Function, OutputTag
from moorline.api.state import descriptors, states
from moorline.api.state.descriptors import StateDescriptor

if TYPE_CHECKING:
    from moorline.api.windows.assigners import Window


class KeyedStateStore(Protocol):
    """States that were declared beforehand, found by their descriptors."""

    def get_state(self, descriptor: descriptors.ValueStateDescriptor) -> states.ValueState[Any]: ...
    def get_list_state(self, descriptor: descriptors.ListStateDescriptor) -> states.ListState[Any]: ...
    def get_map_state(self, descriptor: descriptors.MapStateDescriptor) -> states.MapState[Any, Any]: ...
    def get_reducing_state(self, descriptor: descriptors.ReducingStateDescriptor) -> states.ReducingState[Any]: ...
    def get_aggregating_state(
        self, descriptor: descriptors.AggregatingStateDescriptor
    ) -> states.AggregatingState[Any, Any]: ...


class WindowContext(Protocol):
    """What a window function can learn and do beside its elements."""

    def window(self) -> Window:
        """Which window it is about."""
        ...

    def current_watermark(self) -> int: ...
    def current_processing_time(self) -> int: ...

    def window_state(self) -> KeyedStateStore:
        """What is kept for this key and this window: the states in ``window_states``."""
        ...

    def global_state(self) -> KeyedStateStore:
        """What is kept for this key in all windows: the states in ``global_states``."""
        ...

    def output(self, tag: OutputTag, value: Any) -> None:
        """Send a value to a side output."""
        ...


class ProcessWindowFunction(Function):
    """The contents of a window into results, with state, timers' clocks and side outputs.

    Under ``reduce`` and ``aggregate`` there is one element: the reduction or the result. A function may be called
    several times for a window (by its trigger, or for late records), and can keep state: per key as any function, and
    per window. Both kinds that are asked for in ``process`` are listed on the class, so that a restored job knows them
    before the first record.

    >>> import moorline as mo
    >>> FIRED = mo.ValueStateDescriptor("fired", int, default=0)
    >>> class Numbered(ProcessWindowFunction):
    ...     window_states = (FIRED,)
    ...     def process(self, key, context, elements):
    ...         fired = context.window_state().get_state(FIRED)
    ...         fired.update(fired.value() + 1)
    ...         yield key, context.window().start, fired.value(), sum(elements)
    ...     def clear(self, context):
    ...         context.window_state().get_state(FIRED).clear()
    """

    #: States per key and window, for ``context.window_state()``. Not for windows that merge.
    window_states: ClassVar[tuple[StateDescriptor, ...]] = ()
    #: States per key, for ``context.global_state()``.
    global_states: ClassVar[tuple[StateDescriptor, ...]] = ()

    def process(self, key: Any, context: WindowContext, elements: list[Any]) -> Iterable[Any] | None:
        raise NotImplementedError

    def clear(self, context: WindowContext) -> None:
        """The window is gone for good: clear its states."""


class WindowFunction(Function):
    """The contents of a window into results, with the key and the window.

    >>> class Latest(WindowFunction):
    ...     def apply(self, key, window, elements):
    ...         yield key, window.end, elements[-1]
    """

    def apply(self, key: Any, window: Window, elements: list[Any]) -> Iterable[Any] | None:
        raise NotImplementedError


class CoGroupFunction(Function):
    """The records that two streams have in a window with the same key into results. One side may be empty.

    >>> class Unanswered(CoGroupFunction):
    ...     def co_group(self, questions, answers):
    ...         if not answers:
    ...             yield from questions
    """

    def co_group(self, lefts: list[Any], rights: list[Any]) -> Iterable[Any] | None:
        raise NotImplementedError


class JoinFunction(Function):
    """Each pair of records that two streams have in a window with the same key into one result.

    >>> class Price(JoinFunction):
    ...     def join(self, order, rate):
    ...         return order["amount"] * rate["factor"]
    """

    def join(self, left: Any, right: Any) -> Any:
        raise NotImplementedError


class ProcessJoinContext(Protocol):
    """What a function of an interval join can learn beside the pair."""

    @property
    def left_timestamp(self) -> int: ...
    @property
    def right_timestamp(self) -> int: ...

    def timestamp(self) -> int:
        """When the pair was complete: the later of the two. Results carry it."""
        ...

    @property
    def current_key(self) -> Any: ...

    def output(self, tag: OutputTag, value: Any) -> None:
        """Send a value to a side output."""
        ...


class ProcessJoinFunction(Function):
    """Each pair of records that are near enough in time into results.

    >>> class Delay(ProcessJoinFunction):
    ...     def process_element(self, left, right, ctx):
    ...         yield left, right, ctx.right_timestamp - ctx.left_timestamp
    """

    def process_element(self, left: Any, right: Any, ctx: ProcessJoinContext) -> Iterable[Any] | None:
        raise NotImplementedError
