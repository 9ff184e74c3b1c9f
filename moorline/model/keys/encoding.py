"""One stable encoding of keys, and the key group that follows from it.

Identity is the encoding, everywhere: for routing, in memory (``model/keys/identity.py``), in snapshots. What Python
calls equal has the same encoding: ``1``, ``1.0`` and ``True`` are one key, as they are in a dict; an ``IntEnum`` member
is its number. Where Python's equality is not sound the encoding decides, or the key is refused. (Flink tells an Integer
from a Long; a Python user does not. See docs/decisions/0003 and 0026.)

    tag   key                      payload
    i     int, bool, whole float   8 bytes, big endian, sign bit flipped (sorts as numbers do)
    I     int beyond 64 bits       decimal digits
    f     other float              8 bytes IEEE, big endian
    m     Decimal equal to neither sign, digits, e, exponent; no zero at either end of the digits
    s     str                      UTF-8
    b     bytes                    as they are
    d     date                     8 bytes: proleptic ordinal
    t     datetime, naive          8 bytes: microseconds since year 1
    T     datetime with a zone     8 bytes: microseconds since year 1, in UTC
    c     time, naive              8 bytes: microseconds since midnight
    l     timedelta                16 bytes: microseconds, big endian, sign bit flipped
    u     UUID                     16 bytes
    (     tuple                    every item as 4-byte length + encoding
    {     frozenset                the same, sorted by encoding
    n     None in one of these     nothing
    e     Enum                     class name, 0 byte, member name
    D     frozen dataclass         class name as s, then every field, like a tuple

The hash of an ``i`` key is the splitmix64 finaliser of its number, so that a column of ints can be
hashed by NumPy at once; of any other, xxh3 of its encoding. Both are part of the storage format.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Hashable
from enum import Enum
from functools import lru_cache
from types import FunctionType
from typing import Any

import numpy as np

from moorline.model.keys.leaves import (
    FIRST_LEAVES,
    LATER_LEAVES,
    LEAF_ENCODERS,
    NotAKey,
    encode_float,
    encode_int,
    encode_leaf,
    utf8,
)

LENGTH = struct.Struct(">I")


class Encoded:
    """Base of the objects that stand for a key in memory and know its encoding."""

    __slots__ = ("encoded",)

    encoded: bytes


#: Encodes what the quick kinds do not.
_Rarer = Callable[[Any], bytes]


def encode(key: Any) -> bytes:
    """The identity of ``key``. Raises :class:`NotAKey`."""
    if key is None:
        raise NotAKey("None is not a key")
    try:
        return _encode(key, _rarer)
    except RecursionError:
        raise NotAKey("it is nested too deeply") from None


def encode_map_key(key: Any) -> bytes:
    """The encoding of a map key in a row of RocksDB: only of the kinds that were keys when its layout was fixed."""
    return _encode(key, _rarer_map_key)


def _encode(key: Any, rarer: _Rarer) -> bytes:
    kind = type(key)
    if kind is int or kind is bool:
        return encode_int(int(key))
    if kind is str:
        return b"s" + utf8(key)
    if kind is bytes:
        return b"b" + key  # type: ignore[no-any-return]
    if kind is tuple:
        return b"(" + _items(key, rarer)
    if kind is float:
        return encode_float(key)
    return rarer(key)


def _items(items: Any, rarer: _Rarer) -> bytes:
    return _joined([_encode(item, rarer) for item in items])


def _joined(encoded: list[bytes]) -> bytes:
    return b"".join(LENGTH.pack(len(item)) + item for item in encoded)


def _rarer(key: Any) -> bytes:
    if key is None:  # inside of another
        return b"n"
    if isinstance(key, Encoded):
        return key.encoded
    kind: Any = type(key)
    if kind in LEAF_ENCODERS and (encoded := LEAF_ENCODERS[kind](key)) is not None:
        return encoded
    if has_own_equality(kind):
        raise NotAKey(
            f"{kind.__name__} has an __eq__ of its own, and keys are one if their content is: key by what it "
            f"compares, or leave fields out of the comparison with field(compare=False)"
        )
    if isinstance(key, LATER_LEAVES) and (encoded := encode_leaf(key)) is not None:
        return encoded
    if isinstance(key, frozenset):
        return b"{" + _joined(sorted({_encode(item, _rarer) for item in key}))
    return _first_kinds(key, _rarer)


def _rarer_map_key(key: Any) -> bytes:
    if key is None:
        raise NotAKey("None is not a key")
    kind = type(key)
    if kind in FIRST_LEAVES and (encoded := LEAF_ENCODERS[kind](key)) is not None:
        return encoded
    return _first_kinds(key, _rarer_map_key)


def _first_kinds(key: Any, rarer: _Rarer) -> bytes:
    """The kinds that have been keys from the beginning."""
    for base, convert in _CONVERSIONS.items():
        # Subclasses such as numpy.float64, a namedtuple or an IntEnum member equal their plain value.
        if isinstance(key, base):
            return _encode(convert(key), rarer)
    if isinstance(key, FIRST_LEAVES) and (encoded := encode_leaf(key)) is not None:
        return encoded
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        if not type(key).__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise NotAKey(f"{type(key).__name__} is a dataclass that is not frozen, so it could change")
        if not type(key).__dataclass_params__.eq:  # type: ignore[attr-defined]
            raise NotAKey(f"{type(key).__name__} is a dataclass with eq=False, so no two of them are equal")
        values = [getattr(key, f.name) for f in dataclasses.fields(key) if f.compare]
        return b"D" + _items([type(key).__qualname__, *values], rarer)
    if isinstance(key, Enum):
        return b"e" + utf8(f"{type(key).__qualname__}\0{key.name}")
    if isinstance(key, (np.integer, np.bool_)):
        return encode_int(int(key))
    if isinstance(key, np.floating):
        return encode_float(float(key))
    if not isinstance(key, Hashable):
        raise NotAKey(f"{type(key).__name__} is mutable")
    raise NotAKey(f"{type(key).__name__} has no stable encoding")


@dataclasses.dataclass(frozen=True)
class _Generated:
    """Shows what an ``__eq__`` looks like that was made by ``dataclass``."""


def _origin(function: FunctionType) -> tuple[str, str]:
    return function.__code__.co_filename, function.__code__.co_qualname


@lru_cache(1024)
def has_own_equality(kind: Any) -> bool:
    """Does a class say by itself which of its objects are equal? Then its encoding does not know.

    >>> has_own_equality(bytes), has_own_equality(type("Loose", (str,), {"__eq__": lambda self, other: True}))
    (False, True)
    """
    equality = kind.__eq__
    if not isinstance(equality, FunctionType) or equality.__module__ in _SOUND:
        return False
    return _origin(equality) != _origin(_Generated.__eq__)  # type: ignore[arg-type]


#: Modules whose classes compare what is encoded, in Python.
_SOUND = frozenset(("uuid", "datetime", "_pydatetime", "decimal", "_pydecimal"))


#: The plain value that one of a subclass equals. By the base class: a subclass may convert itself in another way.
_CONVERSIONS: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    str: str.__str__,
    bytes: lambda key: bytes.__getitem__(key, slice(None)),
    tuple: lambda key: tuple.__getitem__(key, slice(None)),
    float: float.__float__,
}
