"""The outputs of a user's function: any number of records, yielded or returned as an iterable, or None.

A function that returns ``(a, b)`` or a text means one record, and would be taken for several: its fields, its
characters. A generator cannot make that mistake, so it is called as it is; what any other function returns is looked
at (about 40 ns).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from moorline.api.functions.base import OutputTag
from moorline.errors import InvalidOutput

#: One record, and not many, though Python would go through their parts.
_ONE_RECORD = (str, bytes, bytearray, memoryview, dict, tuple)


def many(
    function: Callable[..., Any], uid: str, method: str, *, may_be_tuple: bool = False
) -> Callable[..., Iterable[Any]]:
    """``function`` with its results checked: an iterable of records.

    ``may_be_tuple``: in flat_map a tuple, though not one with names, is a handful of records.
    """
    if inspect.isgeneratorfunction(function):
        return function

    def call(*arguments: Any) -> Iterable[Any]:
        results = function(*arguments)
        return results if type(results) is list else checked(results, uid, method, may_be_tuple)

    return call


def many_of_element(function: Callable[[Any, Any], Any], uid: str, method: str) -> Callable[[Any, Any], Any]:
    """The same for ``process_element``, which is called for every record: without a tuple of arguments."""
    if inspect.isgeneratorfunction(function):
        return function

    def call(value: Any, ctx: Any) -> Any:
        results = function(value, ctx)
        return results if results is None or type(results) is list else checked(results, uid, method)

    return call


def checked(results: Any, uid: str, method: str, may_be_tuple: bool = False) -> Iterable[Any]:
    """``results``, if it is an iterable of records. Raises :class:`InvalidOutput`."""
    if results is None:
        return ()
    if not isinstance(results, Iterable):
        raise InvalidOutput(uid, method, _shown(results), f"Yield the records, or return a list: {_listed(results)}.")
    if type(results) is tuple and (may_be_tuple or not results):
        return results
    if isinstance(results, _ONE_RECORD):
        parts = "its fields" if isinstance(results, tuple) else "its keys" if isinstance(results, dict) else "its parts"
        advice = (
            f"That is one record, and {parts} would become records. Yield it, or return a list: {_listed(results)}."
        )
        raise InvalidOutput(uid, method, _shown(results), advice)
    return results


def is_tagged(value: Any, uid: str) -> bool:
    """Is it ``tag, value``, which means a side output? A tag with none or with several values is refused."""
    if type(value) is not tuple or not value or not isinstance(value[0], OutputTag):
        return False
    if len(value) != 2:
        advice = "Yield a pair of tag and value: yield tag, (a, b)."
        raise InvalidOutput(uid, "the function", f"a tag with {len(value) - 1} values: {value!r:.200}", advice)
    return True


def no_tag(uid: str, had: Any) -> InvalidOutput:
    """The error for something else in the place of a tag."""
    advice = "The first argument is the tag, the second the value: ctx.output(mo.OutputTag(name), value)."
    return InvalidOutput(uid, "ctx.output", f"{had!r:.200}, which is no OutputTag", advice, "was given")


def has_tags(values: list[Any]) -> bool:
    """Is any of these ``tag, value``? Some 17 ns each, of tuples 34: asked only of a batch in which one can be."""
    try:
        firsts = {type(value[0]) for value in values if type(value) is tuple}
    except IndexError:  # an empty tuple
        firsts = {type(value[0]) for value in values if type(value) is tuple and value}
    return any(issubclass(kind, OutputTag) for kind in firsts)


def _shown(results: Any) -> str:
    return f"a {type(results).__qualname__}: {results!r:.200}"


def _listed(results: Any) -> str:
    return f"return [{results!r:.60}]"
