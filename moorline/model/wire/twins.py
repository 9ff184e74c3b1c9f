"""Objects of a dataclass as columns of their fields, and back: fewer bytes than a dict for each, and less to do.

An object is made without its class having a say, as pickle does it: a class may be frozen. Python is quickest where
attributes are written out, one after the other, on an object of a class that lets it. So an object is made of the
class's *twin*, an empty class, given its fields, and made one of the class itself.

``model/wire/objects.py`` says which objects these are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from operator import itemgetter
from typing import Any

#: A class of more fields than this is not worth a function as long as itself.
MOST_FIELDS = 100

#: One list for each field.
Columns = list[list[Any]]


def taken_apart(kind: type, states: list[dict[str, Any]]) -> tuple[tuple[str, ...], Columns] | None:
    """The names of the fields, and a column for each. None: not all of the objects have these alone.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Point:
    ...     x: int
    ...     y: int
    >>> taken_apart(Point, [{"x": 1, "y": 2}, {"x": 3, "y": 4}])
    (('x', 'y'), [[1, 3], [2, 4]])
    >>> taken_apart(Point, [{"x": 1, "y": 2}, {"x": 3, "length": 5}])
    >>> made_of(Point, ("x", "y"), [[1, 3], [2, 4]])
    [Point(x=1, y=2), Point(x=3, y=4)]
    """
    names = _names(kind)
    if not names or set(map(len, states)) != {len(names)}:
        return None
    try:
        return names, [list(map(itemgetter(name), states)) for name in names]
    except KeyError:
        return None


def made_of(kind: type, names: tuple[str, ...], columns: Columns) -> list[Any]:
    """Objects of a class, each with a value of each column."""
    return _maker(kind, names)(columns)


@lru_cache(256)
def _names(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass in their order; nothing if its objects are not made here."""
    if "__dataclass_fields__" not in vars(kind) or len(fields(kind)) > MOST_FIELDS:
        return ()
    probe: Any = object.__new__(type("Twin", (), {}))
    try:
        probe.__class__ = kind
    except TypeError:  # its objects lie in memory in another way
        return ()
    return tuple(field.name for field in fields(kind))


@lru_cache(256)
def _maker(kind: type, names: tuple[str, ...]) -> Callable[[Columns], list[Any]]:
    if any(name not in kind.__dataclass_fields__ for name in names):  # type: ignore[attr-defined]
        raise ValueError(f"{kind.__qualname__} has other fields than {names}")
    values = [f"v{number}" for number in range(len(names))]
    gives = "".join(f"        record.{name} = {value}\n" for name, value in zip(names, values))
    text = (
        "def make(columns):\n"
        "    made = []\n"
        f"    for {', '.join(values)}, in zip(*columns, strict=True):\n"
        "        record = new(twin)\n"
        f"{gives}"
        "        record.__class__ = kind\n"
        "        made.append(record)\n"
        "    return made\n"
    )
    scope: dict[str, Any] = {"new": object.__new__, "twin": type(kind.__name__, (), {}), "kind": kind}
    exec(text, scope)
    made: Callable[[Columns], list[Any]] = scope["make"]
    return made
