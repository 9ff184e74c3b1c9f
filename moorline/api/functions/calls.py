"""Can a function be called in the way that it will be? Asked when a job is built, not by the first record.

Three mistakes can be read off a function without calling it, and two of them would pass in silence: a filter that is
asynchronous, or a generator, gives an object that is true whatever is in it, so it keeps every record.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from moorline.errors import InvalidArgument

#: Said of a method whose results may be yielded.
_MANY = ("Iterable", "Iterator")


def check_call(what: str, function: Any, arguments: int, *, may_yield: bool = False, instead: str = "") -> None:
    """Raises :class:`InvalidArgument` if a call with so many arguments cannot give what is wanted.

    ``may_yield``: its results are gone through. ``instead``: what to use for a function that yields.

    >>> check_call("map", lambda a, b: a, 1)
    Traceback (most recent call last):
    moorline.errors.InvalidArgument: map: got <function <lambda> at ...>. It is called with 1 argument: missing a ...
    """
    called = _called(function)
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise InvalidArgument(
            what, function, "It is asynchronous, and nothing would await it. Write def, not async def."
        )
    if not may_yield and inspect.isgeneratorfunction(called):
        advice = f" {instead}" if instead else ""
        raise InvalidArgument(what, function, f"It yields, and one value is wanted: return it.{advice}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C: it does not say
        return
    try:
        signature.bind(*(None,) * arguments)
    except TypeError as error:
        number = f"{arguments} argument{'' if arguments == 1 else 's'}"
        raise InvalidArgument(what, function, f"It is called with {number}: {error}.") from None


def check_override(where: str, name: str, ours: Callable[..., Any], theirs: Callable[..., Any]) -> None:
    """The same for a method that stands in the place of one of ours, which says how it is called."""
    parameters = list(inspect.signature(ours).parameters.values())[1:]
    fewest = sum(p.default is p.empty for p in parameters)
    may_yield = str(ours.__annotations__.get("return", "")).startswith(_MANY)
    if fewest == len(parameters) or not _takes(theirs, len(parameters)):
        check_call(f"{name} of {where}", theirs, fewest, may_yield=may_yield)


def _takes(function: Callable[..., Any], arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*(None,) * arguments)
    except (TypeError, ValueError):
        return False
    return True


def _called(function: Any) -> Any:
    """The object that has the code: of an object that can be called, its method."""
    while isinstance(function, functools.partial):
        function = function.func
    is_object = not inspect.isroutine(function) and not isinstance(function, type)
    return type(function).__call__ if is_object else function
