"""Functions with two inputs: two streams side by side, or a stream and a broadcast one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol

from moorline.api.functions.base import Context, Diverted, Function, KeyedContext, OnTimerContext
from moorline.api.state.descriptors import MapStateDescriptor, StateDescriptor
from moorline.api.state.states import MapState
from moorline.api.type_parameters import IN1, IN2, OUT, A, B, K_co, K_contra


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """One record of either input in, one out.

    >>> class Label(CoMapFunction):
    ...     def map1(self, value): return "left", value
    ...     def map2(self, value): return "right", value
    """

    def map1(self, value: IN1, /) -> OUT:
        raise NotImplementedError

    def map2(self, value: IN2, /) -> OUT:
        raise NotImplementedError


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """One record of either input in, any number out.

    >>> class Words(CoFlatMapFunction):
    ...     def flat_map1(self, value): yield from value.split()
    ...     def flat_map2(self, value): yield value
    """

    def flat_map1(self, value: IN1, /) -> Iterable[OUT] | None:
        raise NotImplementedError

    def flat_map2(self, value: IN2, /) -> Iterable[OUT] | None:
        raise NotImplementedError


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """Two inputs, any number of records out, with side outputs.

    >>> class Both(CoProcessFunction):
    ...     def process_element1(self, value, ctx): yield "left", value
    ...     def process_element2(self, value, ctx): yield "right", value
    """

    def process_element1(self, value: IN1, ctx: Context, /) -> Iterable[OUT | Diverted] | None:
        raise NotImplementedError

    def process_element2(self, value: IN2, ctx: Context, /) -> Iterable[OUT | Diverted] | None:
        raise NotImplementedError


class KeyedCoProcessFunction(Function, Generic[K_contra, IN1, IN2, OUT]):
    """Two keyed inputs that share state and timers per key.

    >>> import moorline as mo
    >>> class Latest(KeyedCoProcessFunction):
    ...     price = mo.ValueState(float)
    ...     def process_element1(self, order, ctx):
    ...         yield order, self.price.value()
    ...     def process_element2(self, price, ctx):
    ...         self.price.update(price)
    """

    def process_element1(self, value: IN1, ctx: KeyedContext[K_contra], /) -> Iterable[OUT | Diverted] | None:
        raise NotImplementedError

    def process_element2(self, value: IN2, ctx: KeyedContext[K_contra], /) -> Iterable[OUT | Diverted] | None:
        raise NotImplementedError

    def on_timer(self, timestamp: int, ctx: OnTimerContext[K_contra], /) -> Iterable[OUT | Diverted] | None:
        """A timer of the current key is due. Outputs are yielded."""


class ReadOnlyBroadcastContext(Context, Protocol):
    """The context of the side that may look at broadcast state and not change it."""

    def get_broadcast_state(self, descriptor: MapStateDescriptor[A, B]) -> MapState[A, B]: ...


class KeyedReadOnlyBroadcastContext(KeyedContext[K_co], ReadOnlyBroadcastContext, Protocol[K_co]):
    """The same on a keyed stream."""


class BroadcastOnTimerContext(OnTimerContext[K_co], ReadOnlyBroadcastContext, Protocol[K_co]):
    """The same when a timer is due."""


class BroadcastContext(Context, Protocol):
    """The context of the broadcast side. Every subtask must make the same change for the same record."""

    def get_broadcast_state(self, descriptor: MapStateDescriptor[A, B]) -> MapState[A, B]: ...

    def apply_to_keyed_state(self, descriptor: StateDescriptor, function: Callable[[Any, Any], object]) -> None:
        """Call ``function(key, state)`` for every key of this subtask that has something in a keyed state."""
        ...


class BroadcastProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """A stream beside a broadcast one: rules for all subtasks, kept in broadcast state.

    >>> import moorline as mo
    >>> RULES = mo.MapStateDescriptor("rules", str, int)
    >>> class AtLeast(BroadcastProcessFunction):
    ...     def process_broadcast_element(self, rule, ctx):
    ...         ctx.get_broadcast_state(RULES).put(*rule)
    ...     def process_element(self, value, ctx):
    ...         if value >= ctx.get_broadcast_state(RULES).get("limit", 0):
    ...             yield value
    """

    def process_element(self, value: IN1, ctx: ReadOnlyBroadcastContext, /) -> Iterable[OUT | Diverted] | None:
        raise NotImplementedError

    def process_broadcast_element(self, value: IN2, ctx: BroadcastContext, /) -> Iterable[OUT | Diverted] | None:
        raise NotImplementedError


class KeyedBroadcastProcessFunction(Function, Generic[K_contra, IN1, IN2, OUT]):
    """A keyed stream beside a broadcast one: the keyed side has state and timers per key as well.

    >>> class Alarms(KeyedBroadcastProcessFunction):
    ...     def process_broadcast_element(self, rule, ctx): pass
    ...     def process_element(self, value, ctx): yield ctx.get_current_key(), value
    """

    def process_element(
        self, value: IN1, ctx: KeyedReadOnlyBroadcastContext[K_contra], /
    ) -> Iterable[OUT | Diverted] | None:
        raise NotImplementedError

    def process_broadcast_element(self, value: IN2, ctx: BroadcastContext, /) -> Iterable[OUT | Diverted] | None:
        raise NotImplementedError

    def on_timer(self, timestamp: int, ctx: BroadcastOnTimerContext[K_contra], /) -> Iterable[OUT | Diverted] | None:
        """A timer of the current key is due. Outputs are yielded."""
