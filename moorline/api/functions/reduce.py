"""The function behind ``KeyedStream.reduce``: one reduction per key, kept in a value state."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable
from typing import Any

from moorline.api.functions.base import KeyedProcessFunction, ReduceFunction
from moorline.api.state.states import ValueState
from moorline.errors import InvalidOutput


def nothing_combined(uid: str, method: str) -> InvalidOutput:
    """The error for a function that returned nothing, as ``dict.update`` and ``list.append`` do.

    None is what there is before the first value, so the next one would begin anew.
    """
    advice = "Return what the two are together. A function that changes its argument returns it, too."
    return InvalidOutput(uid, method, "None", advice)


class Reduction(KeyedProcessFunction):
    """Keeps the reduction of each key, and emits it for each record; in a batch job, once at the end of a key."""

    reduced: ValueState[Any] = ValueState()
    #: False in a batch job: ``subtask/batch/reduce.py`` emits the last one.
    emits_each = True

    def __init__(self, function: ReduceFunction | Callable[[Any, Any], Any]) -> None:
        self._function = function

    def open(self, runtime_context: Any) -> None:
        self._uid = runtime_context.operator_uid
        if isinstance(self._function, ReduceFunction):
            self._function.open(runtime_context)
            self._reduce: Callable[[Any, Any], Any] = self._function.reduce
        else:
            self._reduce = self._function

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        before = self.reduced.value()
        if before is not None:
            value = self._reduce(before, value)
            if value is None:
                raise nothing_combined(self._uid, "reduce")
        self.reduced.update(value)
        return [value] if self.emits_each else None

    def last(self) -> Any:
        """The reduction of the current key."""
        return self.reduced.value()

    def close(self) -> None:
        if isinstance(self._function, ReduceFunction):
            self._function.close()


def reduction(function: ReduceFunction | Callable[[Any, Any], Any], type_: Any) -> Reduction:
    """The function whose state has this type, or the one that ``function`` says it returns.

    >>> def most(a: int, b: int) -> int:
    ...     return max(a, b)
    >>> reduction(most, None).reduced.descriptor.type
    <class 'int'>
    """
    declared = _returned(function) if type_ is None else type_
    if declared is None:
        return Reduction(function)
    # States are declared on classes.
    typed: type[Reduction] = type(
        "Reduction", (Reduction,), {"reduced": ValueState(declared, name="reduced"), "__doc__": Reduction.__doc__}
    )
    return typed(function)


def _returned(function: Any) -> Any:
    """The annotation of a function's result; None if it has none that says something."""
    called = function.reduce if isinstance(function, ReduceFunction) else function
    try:
        annotation = typing.get_type_hints(called).get("return")
    except Exception:  # no function, or a name that is not there at run time
        return None
    says_nothing = annotation is Any or annotation is type(None) or isinstance(annotation, typing.TypeVar)
    return None if says_nothing else annotation
