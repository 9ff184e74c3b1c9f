"""Has a function the methods that it needs, and can they be called? A mistake would come to light with a record.

A method that a base class of ours leaves to its subclasses raises ``NotImplementedError`` there. So nothing has to be
listed a second time: a function that still has such a method is not finished.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from moorline.api.functions.calls import check_override
from moorline.errors import MethodMissing
from moorline.model.spelling import nearest

#: May be left out: needed for some windows only, where it is asked for.
_OPTIONAL = {"merge"}
#: Needed if the function says so, by this attribute.
_NEEDED_IF = {"open_committer": "commits_on_driver", "open_enumerator": "enumerates"}


def similar_method(function: object, method: str) -> str:
    """The function's own public method with the nearest name, or nothing."""
    own = {
        name
        for cls in type(function).__mro__
        if not cls.__module__.startswith("moorline.") and cls is not object
        for name, value in vars(cls).items()
        if callable(value) and not name.startswith("__")
    }
    return nearest(method, own) or ""


def check_methods(function: object, where: str) -> None:
    """Raises :class:`MethodMissing` if a method is not written, InvalidArgument if it cannot be called as it will be.

    ``where``: which operator or state it is for.
    """
    for cls in type(function).__mro__:
        if not cls.__module__.startswith("moorline."):
            continue
        for name, method in vars(cls).items():
            written: Any = getattr(function, name, None)
            if isinstance(method, FunctionType) and not name.startswith("_") and _is_of_the_user(written):
                check_override(where, name, method, written)
            if name in _NEEDED_IF and not getattr(function, _NEEDED_IF[name]):
                continue
            if name in _OPTIONAL or not _is_left_to_subclasses(method) or name in vars(function):
                continue
            if getattr(type(function), name) is method:
                base, similar = cls.__name__, similar_method(function, name)
                raise MethodMissing(where, type(function).__name__, base, name, similar)


def _is_of_the_user(method: Any) -> bool:
    return callable(method) and not str(getattr(method, "__module__", "")).startswith("moorline.")


def _is_left_to_subclasses(method: Any) -> bool:
    code = getattr(method, "__code__", None)
    return code is not None and code.co_names == ("NotImplementedError",)
