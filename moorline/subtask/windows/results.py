"""From a window's contents to what is passed on: calling the user's function, and keeping what it makes for a while.

Results carry the last moment of their window as timestamp, on the side outputs too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from moorline.api.windows.assigners import Window
from moorline.api.windows.functions import CoGroupFunction, JoinFunction, ProcessWindowFunction, WindowFunction
from moorline.model.copying.copies import copy_of
from moorline.subtask.operators.base import ChainedOperator, take
from moorline.subtask.operators.yields import has_tags, is_tagged, many
from moorline.subtask.windows.contexts import FunctionScope

#: Tag, then values and timestamps.
Side = dict[str, tuple[list[Any], list[int]]]


class WindowResults:
    """Results that are not passed on yet."""

    def __init__(self, operator: ChainedOperator) -> None:
        self._operator = operator
        self._out: list[Any] = []
        self._stamps: list[int] = []
        self._side: Side = {}
        #: Can there be ``tag, value`` among them?
        self._may_be_tagged = False

    def __len__(self) -> int:
        return len(self._out)

    def extend(self, made: Iterable[Any] | None, timestamp: int) -> None:
        if made is not None:
            self._may_be_tagged |= take(made, self._out, self._operator.own)
            self._stamps += (len(self._out) - len(self._stamps)) * (timestamp,)

    def divert(self, tag: str, value: Any, timestamp: int) -> None:
        """To a side output."""
        own = self._operator.own
        self._keep(tag, value if own is None else own(None, value), timestamp)

    def _keep(self, tag: str, value: Any, timestamp: int) -> None:
        values, stamps = self._side.setdefault(tag, ([], []))
        values.append(value)
        stamps.append(timestamp)

    def taken(self, uid: str) -> tuple[list[Any], list[int], Side]:
        """Everything, which is not here any more."""
        if self._may_be_tagged and has_tags(self._out):
            # ``yield tag, value`` means a side output, as in PyFlink.
            made, self._out, stamps, self._stamps = self._out, [], self._stamps, []
            for value, timestamp in zip(made, stamps):
                if is_tagged(value, uid):
                    self._keep(value[0].name, value[1], timestamp)
                else:
                    self._out.append(value)
                    self._stamps.append(timestamp)
        taken = self._out, self._stamps, self._side
        self._out, self._stamps, self._side, self._may_be_tagged = [], [], {}, False
        return taken


class WindowFunctionCall:
    """The user's function, called when a window fires. ``copies``: it gets copies of elements that are kept."""

    def __init__(
        self,
        function: Any,
        scope: FunctionScope,
        uid: str,
        shown: Callable[[Any], Any],
        results: WindowResults,
        copies: bool,
    ) -> None:
        self._scope, self._shown, self._results, self._copies = scope, shown, results, copies
        self._call = _calling(function, scope, uid)
        self._clear = function.clear if isinstance(function, ProcessWindowFunction) else None

    def fire(self, key: Any, window: Window, elements: Any, *, is_kept: bool) -> None:
        """Call the function for a window. ``is_kept``: its contents stay for the next time."""
        if self._copies and is_kept:
            elements = copy_of(elements)
        self._results.extend(self._call(self._shown(key), window, elements), window.max_timestamp())

    def clear(self, window: Window) -> None:
        """Have the function forget a window that is gone for good."""
        if self._clear is not None:
            self._scope.at(window)
            self._clear(self._scope)


def _calling(function: Any, scope: FunctionScope, uid: str) -> Callable[[Any, Window, Any], Iterable[Any] | None]:
    """The call of the user's function with key, window and contents."""
    if isinstance(function, ProcessWindowFunction):
        made = many(function.process, uid, "process")

        def process(key: Any, window: Window, elements: Any) -> Iterable[Any] | None:
            scope.at(window)
            return made(key, scope, elements)

        return process
    if isinstance(function, WindowFunction):
        return many(function.apply, uid, "apply")
    if isinstance(function, JoinFunction):
        return lambda key, window, sides: (function.join(left, right) for left in sides[0] for right in sides[1])
    if isinstance(function, CoGroupFunction):
        grouped = many(function.co_group, uid, "co_group")
        return lambda key, window, sides: grouped(*sides)
    # The reduction or aggregation itself.
    return lambda key, window, elements: elements
