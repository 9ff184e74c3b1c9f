"""Misspelt options: one way to refuse them, with the name that was probably meant, wherever options are taken.

Python's own error for a keyword that a function does not take says neither what it takes nor what may have been meant.
And an option that is True or False takes nothing else: the text "false" would be true. One that is a number takes
numbers: a text would fail where it is used, and nan is neither below nor above any limit.
"""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar

from moorline.errors import InvalidArgument, UnknownOption
from moorline.model.spelling import nearest

#: How the annotation of an option reads that is on or off. Ours are not evaluated.
_SWITCH = "bool"
#: The same of one that is any number. Whole ones have limits, and are looked at where those are.
_NUMBER = "float"

F = TypeVar("F", bound=Callable[..., Any])

#: What every step of a stream takes beside its function.
STEP_OPTIONS = ("uid", "name", "parallelism", "rekey", "drop_states")


def check_options(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises :class:`UnknownOption` for the first of ``given`` that is not known."""
    known = tuple(known)
    for name in given:
        if name not in known:
            raise UnknownOption(where, name, known, nearest(name, known) or "")


def checks_options(*, also: Iterable[str] = ()) -> Callable[[F], F]:
    """A decorator for functions, methods and classes: keywords that they do not take are refused with advice.

    ``also``: the names that go into a ``**options``.

    >>> @checks_options()
    ... def read(path, *, encoding="utf-8"): ...
    >>> read("a.txt", encodin="latin-1")
    Traceback (most recent call last):
    moorline.errors.UnknownOption: read() has no option 'encodin'. Did you mean 'encoding'? It takes path, encoding.
    """

    def decorated(target: F) -> F:
        if isinstance(target, type):
            cls: Any = target
            cls.__init__ = _checked(cls.__init__, cls.__name__, also)
            return target
        checked: F = _checked(target, target.__name__.strip("_"), also)
        return checked

    return decorated


def _without_none(parameter: inspect.Parameter) -> str:
    return str(parameter.annotation).removesuffix(" | None")


def _checked(function: Any, name: str, also: Iterable[str]) -> Any:
    parameters = inspect.signature(function).parameters.values()
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name != "self"]
    known += also
    switches = {p.name for p in parameters if str(p.annotation) == _SWITCH}
    measured = {p.name for p in parameters if _without_none(p) == _NUMBER}
    may_be_none = {p.name for p in parameters if str(p.annotation) != _without_none(p)}

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        if not options.keys() <= accepted:
            check_options(f"{name}()", options, known)
        for option in switches & options.keys():
            if type(options[option]) is not bool:
                raise InvalidArgument(option, options[option], "It is True or False.")
        for option in measured & options.keys():
            value = options[option]
            if value is None and option in may_be_none:
                continue
            if isinstance(value, bool) or not isinstance(value, numbers.Real) or value != value:
                raise InvalidArgument(option, value, "Give a number.")
        return function(*arguments, **options)

    accepted = frozenset(known)
    return call
