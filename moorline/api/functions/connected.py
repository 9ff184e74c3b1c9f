"""Functions with two inputs: two streams side by side, or a stream and a broadcast one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from moorline.api.functions.base import Context, Function, KeyedContext, OnTimerContext
from moorline.api.state.descriptors import MapStateDescriptor, StateDescriptor
from moorline.api.state.states import MapState, State


class CoMapFunction(Function):
    """One record of either input in, one out.

    >>> class Label(CoMapFunction):
    ...     def map1(self, value): return "left", value
    ...     def map2(self, value): return "right", value
    """

    def map1(self, value: Any) -> Any:
        raise NotImplementedError

    def map2(self, value: Any) -> Any:
        raise NotImplementedError


class CoFlatMapFunction(Function):
    """One record of either input in, any number out.

    >>> class Words(CoFlatMapFunction):
    ...     def flat_map1(self, value): yield from value.split()
    ...     def flat_map2(self, value): yield value
    """

    def flat_map1(self, value: Any) -> Iterable[Any] | None:
        raise NotImplementedError

    def flat_map2(self, value: Any) -> Iterable[Any] | None:
        raise NotImplementedError


class CoProcessFunction(Function):
    """Two inputs, any number of records out, with side outputs.

    >>> class Both(CoProcessFunction):
    ...     def process_element1(self, value, ctx): yield "left", value
    ...     def process_element2(self, value, ctx): yield "right", value
    """

    def process_element1(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        raise NotImplementedError

    def process_element2(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        raise NotImplementedError


class KeyedCoProcessFunction(Function):
    """Two keyed inputs that share state and timers per key.

    >>> import moorline as mo
    >>> class Latest(KeyedCoProcessFunction):
    ...     price = mo.ValueState(float)
    ...     def process_element1(self, order, ctx):
    ...         yield order, self.price.value()
    ...     def process_element2(self, price, ctx):
    ...         self.price.update(price)
    """

    def process_element1(self, value: Any, ctx: KeyedContext) -> Iterable[Any] | None:
        raise NotImplementedError

    def process_element2(self, value: Any, ctx: KeyedContext) -> Iterable[Any] | None:
        raise NotImplementedError

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """A timer of the current key is due. Outputs are yielded."""


class ReadOnlyBroadcastContext(Context, Protocol):
    """The context of the side that may look at broadcast state and not change it."""

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> MapState[Any, Any]: ...


class BroadcastContext(Context, Protocol):
    """The context of the broadcast side. Every subtask must make the same change for the same record."""

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> MapState[Any, Any]: ...

    def apply_to_keyed_state(self, descriptor: StateDescriptor, function: Callable[[Any, State], None]) -> None:
        """Call ``function(key, state)`` for every key of this subtask that has something in a keyed state."""
        ...


class BroadcastProcessFunction(Function):
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

    def process_element(self, value: Any, ctx: ReadOnlyBroadcastContext) -> Iterable[Any] | None:
        raise NotImplementedError

    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> Iterable[Any] | None:
        raise NotImplementedError


class KeyedBroadcastProcessFunction(Function):
    """A keyed stream beside a broadcast one: the keyed side has state and timers per key as well.

    >>> class Alarms(KeyedBroadcastProcessFunction):
    ...     def process_broadcast_element(self, rule, ctx): pass
    ...     def process_element(self, value, ctx): yield ctx.get_current_key(), value
    """

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        raise NotImplementedError

    def process_broadcast_element(self, value: Any, ctx: BroadcastContext) -> Iterable[Any] | None:
        raise NotImplementedError

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any] | None:
        """A timer of the current key is due. Outputs are yielded."""
