"""One window after the other: its contents, its trigger, and what follows when the trigger fires or time runs out.

The states of triggers, functions and contents belong to the current window. It is set here, by pointing their scopes
at a key and a span: merged windows have their contents under another span than their own (``windows/merging.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moorline.api.windows.assigners import Span, Window, window_of
from moorline.api.windows.triggers import CONTINUE, Trigger, TriggerResult
from moorline.model.copying.copies import copy_of
from moorline.protocol.merging import Merge
from moorline.state.backend import NO_KEY, CurrentKey
from moorline.subtask.operators.base import ChainedOperator
from moorline.subtask.windows.contents import Contents
from moorline.subtask.windows.contexts import TriggerScope
from moorline.subtask.windows.lifetimes import Lifetimes
from moorline.subtask.windows.merging import WindowSets
from moorline.subtask.windows.results import WindowFunctionCall


class Firing:
    """The windows of one operator, as its records and timers meet them."""

    def __init__(
        self,
        operator: ChainedOperator,
        lifetimes: Lifetimes,
        contents: Contents,
        sets: WindowSets | None,
        scopes: tuple[CurrentKey, CurrentKey],
        trigger: Trigger,
        trigger_scope: TriggerScope,
        function: WindowFunctionCall,
    ) -> None:
        self._operator, self._lifetimes = operator, lifetimes
        self._contents, self._sets = contents, sets
        #: Which window the states of triggers and functions belong to, and which one the contents.
        self.scope, self.contents_scope = scopes
        self._trigger, self._trigger_scope, self._function = trigger, trigger_scope, function
        self._window: tuple[Span, Window] = ((0, 0), window_of((0, 0)))

    def add(self, key: Any, record: Any, timestamp: int | None, spans: Sequence[Span], side: int) -> None:
        """Add a record to some windows and ask the trigger of each. The scope of merged contents is set."""
        scope, contents, asked = self.scope, self._contents, self._trigger_scope
        self._operator.moment.timestamp = timestamp
        is_shared = len(spans) > 1 and self._operator.own is not None
        for span in spans:
            scope.key = (key, span)
            contents.add(copy_of(record) if is_shared else record, timestamp, side)
            asked.key, asked.span = key, span
            window = self._window_of(span)
            result = self._trigger.on_element(record, timestamp, window, asked)
            if result is not CONTINUE:
                self._obey(result, key, window)
            self._lifetimes.clean_up_later(key, span)

    def merge(self, key: Any, merge: Merge) -> None:
        """Make one window of several, or let one grow."""
        scope, trigger = self._trigger_scope, self._trigger
        scope.key, scope.span, scope.ended = key, merge.window, merge.ended
        self.scope.key = (key, merge.window)
        trigger.on_merge(window_of(merge.window), scope)
        scope.ended = ()
        lifetimes = self._lifetimes
        for span in merge.ended:
            scope.span = span
            self.scope.key = (key, span)
            trigger.clear(window_of(span), scope)
            lifetimes.timers.delete(lifetimes.clean_up_time(span), key, span)
        contents = self._contents
        for span in merge.moved:
            self.contents_scope.key = (key, span)
            taken = contents.take()
            self.contents_scope.key = (key, merge.contents)
            contents.absorb(taken)

    def on_timer(self, is_event: bool, time: int, key: Any, span: Span) -> None:
        """Ask the trigger about a timer of its window, and clean the window up if it is time."""
        contents_span = span
        if self._sets is not None:
            known = self._sets.of(key).get(span)
            if known is None:
                return  # of a window that has become another: its trigger has left a timer behind
            contents_span = known
        self.scope.key = (key, span)
        self.contents_scope.key = (key, contents_span)
        asked = self._trigger_scope
        asked.key, asked.span = key, span
        window = self._window_of(span)
        ask = self._trigger.on_event_time if is_event else self._trigger.on_processing_time
        result = ask(time, window, asked)
        if result is not CONTINUE:
            self._obey(result, key, window)
        if is_event is self._lifetimes.is_event_time:
            if time >= self._lifetimes.clean_up_time(span):
                self._clear(key, span, window)
            else:
                self._lifetimes.clean_up_later(key, span)

    def at_end(self, key: Any, span: Span, is_last: bool) -> None:
        """The end of a window that fires then without being asked. ``is_last``: nothing of it is kept."""
        self.scope.key = self.contents_scope.key = (key, span)
        asked = self._trigger_scope
        asked.key, asked.span = key, span
        window = self._window_of(span)
        elements = self._contents.elements(window)
        if elements is not None:
            self._function.fire(key, window, elements, is_kept=True)
        if is_last:
            self._contents.clear()
            self._function.clear(window)

    def leave(self) -> None:
        """No window is current any more."""
        self.scope.key = self.contents_scope.key = NO_KEY

    def _obey(self, result: TriggerResult, key: Any, window: Window) -> None:
        if result.fires:
            elements = self._contents.elements(window)
            if elements is not None:
                self._function.fire(key, window, elements, is_kept=not result.purges)
        if result.purges:
            self._contents.clear()

    def _clear(self, key: Any, span: Span, window: Window) -> None:
        """A window is gone for good."""
        self._contents.clear()
        self._trigger.clear(window, self._trigger_scope)
        self._function.clear(window)
        if self._sets is not None:
            self._sets.retire(key, span)

    def _window_of(self, span: Span) -> Window:
        known, window = self._window
        if known != span:
            window = window_of(span)
            self._window = span, window
        return window
