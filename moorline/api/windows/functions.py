"""The functions a user writes for windows and joins. Outputs are yielded, or returned as any iterable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Generic, Protocol

from moorline.api.functions.base import Diverted, Function, KeyedStateStore, OutputTag
from moorline.api.state.descriptors import StateDescriptor
from moorline.api.type_parameters import IN, IN1, IN2, OUT, A, K_co, K_contra, W, W_co


class WindowContext(Protocol[W_co]):
    """The window, the clocks and the states that a window function has beside its elements."""

    def window(self) -> W_co:
        """The window it is called for."""
        ...

    def current_watermark(self) -> int: ...
    def current_processing_time(self) -> int: ...

    def window_state(self) -> KeyedStateStore:
        """State of this key and this window: the states in ``window_states``."""
        ...

    def global_state(self) -> KeyedStateStore:
        """State of this key in all windows: the states in ``global_states``."""
        ...

    def output(self, tag: OutputTag[A], value: A) -> None:
        """Send a value to a side output."""
        ...


class ProcessWindowFunction(Function, Generic[IN, OUT, K_contra, W]):
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

    def process(
        self, key: K_contra, context: WindowContext[W], elements: list[IN], /
    ) -> Iterable[OUT | Diverted] | None:
        raise NotImplementedError

    def clear(self, context: WindowContext[W], /) -> None:
        """The window is gone for good: clear its states."""


class WindowFunction(Function, Generic[IN, OUT, K_contra, W]):
    """The contents of a window into results, with the key and the window.

    >>> class Latest(WindowFunction):
    ...     def apply(self, key, window, elements):
    ...         yield key, window.end, elements[-1]
    """

    def apply(self, key: K_contra, window: W, elements: list[IN], /) -> Iterable[OUT] | None:
        raise NotImplementedError


class CoGroupFunction(Function, Generic[IN1, IN2, OUT]):
    """The records that two streams have in a window with the same key into results. One side may be empty.

    >>> class Unanswered(CoGroupFunction):
    ...     def co_group(self, questions, answers):
    ...         if not answers:
    ...             yield from questions
    """

    def co_group(self, lefts: list[IN1], rights: list[IN2], /) -> Iterable[OUT] | None:
        raise NotImplementedError


class JoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Each pair of records that two streams have in a window with the same key into one result.

    >>> class Price(JoinFunction):
    ...     def join(self, order, rate):
    ...         return order["amount"] * rate["factor"]
    """

    def join(self, left: IN1, right: IN2, /) -> OUT:
        raise NotImplementedError


class ProcessJoinContext(Protocol[K_co]):
    """The times of a pair, for a function of an interval join."""

    @property
    def left_timestamp(self) -> int: ...
    @property
    def right_timestamp(self) -> int: ...

    def timestamp(self) -> int:
        """The time at which the pair was complete: the later of the two. Results carry it."""
        ...

    @property
    def current_key(self) -> K_co: ...

    def output(self, tag: OutputTag[A], value: A) -> None:
        """Send a value to a side output."""
        ...


class ProcessJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Each pair of records that are near enough in time into results.

    >>> class Delay(ProcessJoinFunction):
    ...     def process_element(self, left, right, ctx):
    ...         yield left, right, ctx.right_timestamp - ctx.left_timestamp
    """

    def process_element(
        self, left: IN1, right: IN2, ctx: ProcessJoinContext[Any], /
    ) -> Iterable[OUT | Diverted] | None:
        raise NotImplementedError
