"""Many objects of one class, pickled together: the class once, and of each object what it holds.

Pickle spells out for every object how it is made, and makes it in several steps. For records that are objects of the
same class, such as dataclasses, that takes more time than all that they hold. So their states are pickled as one list,
and the objects are made of them in a loop. Of a dataclass the fields are pickled as columns (``twins.py``). A msgspec
struct is made of its fields by one call. Records of five fields, as they were and are packed and unpacked:
``bench/records.py``, and the figures in ``docs/internals/performance.md``. Dicts are left to pickle: nothing else was
quicker.

What comes out is what pickle would have made, or else this is left to pickle: classes that say themselves how they are
pickled or made, that have slots, records that are there twice, and those that hold more than plain values, which could
hold each other.
"""

from __future__ import annotations

import copyreg
import gc
import inspect
import pickle
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from itertools import chain, starmap
from types import GetSetDescriptorType, NoneType
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from moorline.model.wire import user_code
from moorline.model.wire.twins import Columns, made_of, taken_apart

#: Records of these are left to pickle at first sight.
_NO_OBJECTS = frozenset((tuple, dict, list, int, float, str, bytes, bool, NoneType))
#: Values that hold no other object.
_LEAVES = frozenset(
    (int, float, complex, str, bytes, bool, NoneType, date, datetime, time, timedelta, timezone, Decimal, UUID)
)
#: What a class can have to be pickled in its own way; and what is looked up when it is.
_OWN_WAYS = ("__setstate__", "__getnewargs__", "__getnewargs_ex__", "__getattr__")

#: From objects to what they hold, each as an iterable; and back.
_Take = Callable[[list[Any]], list[Any]]
_Make = Callable[[Any, Any], list[Any]]


class Together:
    """Objects of one class on their way into a pickle; what is unpickled is the list of them."""

    __slots__ = ("_kind", "_make", "_states")

    def __init__(self, make: _Make, kind: type | bytes, states: Any) -> None:
        self._make, self._kind, self._states = make, kind, states

    def __reduce__(self) -> tuple[_Make, tuple[type | bytes, Any]]:
        return self._make, (self._kind, self._states)


def together(records: list[Any]) -> list[Any] | Together:
    """The records themselves, or what stands for them in a pickle, if it takes less time.

    >>> import pickle
    >>> from fractions import Fraction
    >>> pickle.loads(pickle.dumps(together([Fraction(1, 2), Fraction(2, 3)])))
    [Fraction(1, 2), Fraction(2, 3)]
    """
    if not records or type(records[0]) in _NO_OBJECTS:
        return records
    kind: Any = type(records[0])
    way = _way(kind)
    if way is None or len(set(map(type, records))) > 1 or len(set(map(id, records))) < len(records):
        return records
    try:
        states = way.take(records)
    except AttributeError:  # a struct with a field that was deleted
        return records
    # What Python's collector does not keep track of holds nothing that could lead back to it. It is quicker to ask than
    # to look at every value, and keeps track of some that hold none.
    if any(map(gc.is_tracked, records if way.is_tracked_itself else states)) and not _LEAVES.issuperset(
        map(type, chain.from_iterable(map(way.values, states)))
    ):
        return records
    if way.make is make_objects and (parts := taken_apart(kind, states)) is not None:
        return Together(make_of_columns, way.kind, parts)
    return Together(way.make, way.kind, states)


class _Way(NamedTuple):
    """The way in which objects of a class are taken apart and made, and the values in between."""

    take: _Take
    make: _Make
    #: The class itself, or how it is made, if other processes do not find it by its name.
    kind: type | bytes
    values: Callable[[Any], Any]
    #: Does the collector keep track of the object, and not of its state?
    is_tracked_itself: bool


@lru_cache(256)
def _way(kind: Any) -> _Way | None:
    """None: as pickle does it."""
    if isinstance(kind, type(msgspec.Struct)):
        is_tracked = kind.__struct_config__.gc
        return _Way(_fields, make_structs, _sent(kind), iter, is_tracked) if _is_plain_struct(kind) else None
    return _Way(_states, make_objects, _sent(kind), dict.values, False) if _is_plain(kind) else None


def _sent(kind: type) -> type | bytes:
    """A class as it is sent. One of the user's script or of a function has no name to be found by elsewhere.

    Such a class is put into bytes once and made of them once, not for every few records: that took longer than all the
    rest (1,229 + 1,111 ns per record).
    """
    try:
        pickle.dumps(kind, 5)
    except (pickle.PicklingError, AttributeError, TypeError):
        return user_code.dumps(kind)
    return kind


@lru_cache(256)
def _made(definition: bytes) -> Any:
    return pickle.loads(definition)


def _is_plain(kind: type) -> bool:
    """Does pickle make an object of this class from its ``__dict__`` and nothing else?"""
    is_untouched = all(
        getattr(kind, name) is getattr(object, name)
        for name in ("__new__", "__reduce__", "__reduce_ex__", "__getstate__", "__getattribute__")
    )
    return (
        is_untouched
        and kind not in copyreg.dispatch_table
        and not any(hasattr(kind, name) for name in _OWN_WAYS)
        and not any(base.__dict__.get("__slots__") for base in kind.__mro__)
        and isinstance(_dict_of(kind), GetSetDescriptorType)
    )


def _dict_of(kind: type) -> Any:
    """The descriptor by which a class gives its objects a ``__dict__``."""
    return next((base.__dict__["__dict__"] for base in kind.__mro__ if "__dict__" in base.__dict__), None)


def _is_plain_struct(kind: Any) -> bool:
    """Is a struct of this class made by its class alone, from its fields in their order?"""
    is_untouched = all(
        getattr(kind, name) is getattr(msgspec.Struct, name)
        for name in ("__new__", "__init__", "__reduce__", "__reduce_ex__", "__getstate__", "__getattribute__")
    )
    return (
        is_untouched
        and kind not in copyreg.dispatch_table
        and not any(hasattr(kind, name) for name in (*_OWN_WAYS, "__post_init__"))
        and not kind.__dictoffset__
        and type(kind) is type(msgspec.Struct)
        and all(p.kind is p.POSITIONAL_OR_KEYWORD for p in inspect.signature(kind).parameters.values())
    )


def _states(records: list[Any]) -> list[Any]:
    return [record.__dict__ for record in records]


def make_objects(kind: type | bytes, states: list[dict[str, Any]]) -> list[Any]:
    """Objects of a class, each with one of the states. Called by pickle."""
    kind = _made(kind) if isinstance(kind, bytes) else kind
    new, give, made = object.__new__, _dict_of(kind).__set__, []
    for state in states:
        record: Any = new(kind)
        give(record, state)  # not by setattr: it may be frozen
        made.append(record)
    return made


def make_of_columns(kind: type | bytes, parts: tuple[tuple[str, ...], Columns]) -> list[Any]:
    """Objects of a dataclass, of the names of its fields and a column for each. Called by pickle."""
    return made_of(_made(kind) if isinstance(kind, bytes) else kind, *parts)


def _fields(records: list[Any]) -> list[Any]:
    return list(map(msgspec.structs.astuple, records))


def make_structs(kind: type | bytes, fields: list[tuple[Any, ...]]) -> list[Any]:
    """Structs of a class, each of the fields in a tuple. Called by pickle."""
    kind = _made(kind) if isinstance(kind, bytes) else kind
    return list(starmap(kind, fields))
