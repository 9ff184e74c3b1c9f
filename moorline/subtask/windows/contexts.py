"""The contexts of triggers and window functions: time, timers and state of the window they are asked about.

There is one context of each kind per operator. It points at the current key and window, which the operator sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from moorline.api.functions.base import OutputTag
from moorline.api.state.descriptors import StateDescriptor
from moorline.api.windows.assigners import Span, Window, window_of
from moorline.errors import InvalidArgument, UnknownState
from moorline.state.backend import CurrentKey
from moorline.subtask.operators.timers import Timers


class TriggerScope:
    """The context of a trigger, for the current key and window."""

    def __init__(self, uid: str, timers: Timers, scope: CurrentKey, states: Mapping[str, Any]) -> None:
        self._uid, self._timers, self._scope, self._states = uid, timers, scope, states
        self.key: Any = None
        self.span: Span = (0, 0)
        #: While windows merge: those that are no more.
        self.ended: tuple[Span, ...] = ()
        self.current_watermark = self.get_current_watermark = timers.current_watermark
        self.current_processing_time = self.get_current_processing_time = timers.current_processing_time

    def register_event_time_timer(self, time: int) -> None:
        self._timers.event.register(time, self.key, self.span)

    def register_processing_time_timer(self, time: int) -> None:
        self._timers.processing.register(time, self.key, self.span)

    def delete_event_time_timer(self, time: int) -> None:
        self._timers.event.delete(time, self.key, self.span)

    def delete_processing_time_timer(self, time: int) -> None:
        self._timers.processing.delete(time, self.key, self.span)

    def get_partitioned_state(self, descriptor: StateDescriptor) -> Any:
        state = self._states.get(descriptor.name)
        if state is None:
            raise UnknownState(self._uid, descriptor.name, tuple(self._states))
        return state

    def merge_partitioned_state(self, descriptor: StateDescriptor) -> None:
        state = self.get_partitioned_state(descriptor)
        taken: list[Any] = []
        for span in self.ended:
            self._scope.key = (self.key, span)
            content = state.get() if descriptor.kind in ("reducing", "list") else _refuse(descriptor)
            taken += content if descriptor.kind == "list" else [content]
            state.clear()
        self._scope.key = (self.key, self.span)
        for value in taken:
            if value is not None:
                state.add(value)


def _refuse(descriptor: StateDescriptor) -> Any:
    advice = "Only reducing and list states can be merged."
    raise InvalidArgument(f"trigger state {descriptor.name!r}", descriptor.kind, advice)


class StateStore:
    """States that were bound beforehand, by name."""

    def __init__(self, uid: str, states: Mapping[str, Any]) -> None:
        self._uid, self._states = uid, states

    def get_state(self, descriptor: StateDescriptor) -> Any:
        state = self._states.get(descriptor.name)
        if state is None:
            raise UnknownState(self._uid, descriptor.name, tuple(self._states))
        return state

    get_list_state = get_map_state = get_reducing_state = get_aggregating_state = get_state


class FunctionScope:
    """The context of a window function, for the current key and window."""

    def __init__(
        self,
        timers: Timers,
        window_states: StateStore,
        global_states: StateStore,
        output: Callable[[str, Any, int], None],
    ) -> None:
        self.current_watermark, self.current_processing_time = timers.current_watermark, timers.current_processing_time
        self._window_states, self._global_states, self._output = window_states, global_states, output
        self._window: Window = window_of((0, 0))

    def at(self, window: Window) -> None:
        self._window = window

    def window(self) -> Window:
        return self._window

    def window_state(self) -> StateStore:
        return self._window_states

    def global_state(self) -> StateStore:
        return self._global_states

    def output(self, tag: OutputTag, value: Any) -> None:
        self._output(tag.name, value, self._window.max_timestamp())
