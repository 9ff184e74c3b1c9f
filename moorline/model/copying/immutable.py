"""Types whose values can never change, nor anything in them.

A frozen dataclass, a frozen msgspec struct and a named tuple are taken at their word: if all their fields are annotated
with immutable types, they are immutable.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import fractions
import ipaddress
import pathlib
import re
import types
import typing
from collections.abc import Iterable
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from moorline.model.value_kinds import TYPES

#: Types whose values cannot change, nor anything in them. It grows as types are met.
IMMUTABLE: set[type] = {
    *TYPES,
    *(complex, type(None), type(...), type(NotImplemented), range, slice, frozenset),
    *(datetime.timezone, fractions.Fraction, re.Pattern),
    *(types.FunctionType, types.BuiltinFunctionType, types.ModuleType),
}


class NotData:
    """The base of types that tell an operator what to do with a record, such as a tag.

    They are immutable, but never in :data:`IMMUTABLE`. So whoever looks for parts that can change finds them, too.
    """


#: Their subclasses are immutable, too.
_IMMUTABLE_BASES = (
    *(type, enum.Enum, np.generic, pathlib.PurePath),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
    *(ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network),
)


def are_immutable(values: Iterable[Any]) -> bool:
    """Can nothing in any of these be changed? Looks at tuples one level deep, for speed: False may mean yes.

    >>> are_immutable([1, "a"]), are_immutable([(1, 2), (3, None)]), are_immutable([{"n": 1}])
    (True, True, False)
    """
    values = values if isinstance(values, list) else list(values)
    kinds = set(map(type, values))
    if kinds <= IMMUTABLE:
        return True
    return kinds == {tuple} and set(map(type, chain.from_iterable(values))) <= IMMUTABLE


def is_immutable_type(cls: type) -> bool:
    """Can no value of this type change, nor anything in it?

    >>> is_immutable_type(np.float64), is_immutable_type(list)
    (True, False)
    """
    if cls in IMMUTABLE or cls.__module__ == "pyarrow.lib":
        return True
    if issubclass(cls, NotData):
        return False
    return (issubclass(cls, _IMMUTABLE_BASES) and cls is not np.void) or _is_frozen(cls)


def _is_frozen(cls: type) -> bool:
    """Does a class say that its instances, and all that is in them, cannot change?"""
    own = vars(cls)
    is_dataclass = "__dataclass_params__" in own and own["__dataclass_params__"].frozen
    is_struct = issubclass(cls, msgspec.Struct) and cls.__struct_config__.frozen
    is_named_tuple = tuple in cls.__bases__ and "_fields" in own and "__annotations__" in own
    if not (is_dataclass or is_struct or is_named_tuple):
        return False
    try:
        hints = typing.get_type_hints(cls)
    except Exception:  # a name that is not there at run time
        return False
    if is_dataclass:
        names = [f.name for f in dataclasses.fields(cls)]
    else:
        names = list(own["_fields"] if is_named_tuple else cls.__struct_fields__)  # type: ignore[attr-defined]
    return all(name in hints and _is_immutable_hint(hints[name], cls) for name in names)


def _is_immutable_hint(hint: Any, of: type) -> bool:
    if isinstance(hint, typing.NewType):
        return _is_immutable_hint(hint.__supertype__, of)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is None:
        if hint is None or hint is of or hint in IMMUTABLE:
            return True
        return isinstance(hint, type) and (issubclass(hint, _IMMUTABLE_BASES) or _is_frozen(hint))
    if origin is typing.Literal:
        return True
    if origin is typing.Annotated:
        return _is_immutable_hint(arguments[0], of)
    if origin in (tuple, frozenset, typing.Union, types.UnionType):
        return all(a is ... or _is_immutable_hint(a, of) for a in arguments)
    return False
