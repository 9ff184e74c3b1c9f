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
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from types import FunctionType
from typing import Any
from uuid import UUID

import numpy as np

M64 = (1 << 64) - 1
INT = struct.Struct(">Q")
FLOAT = struct.Struct(">d")
LENGTH = struct.Struct(">I")
YEAR_1 = datetime(1, 1, 1)
_YEAR_10000 = 315_537_897_600_000_000
MICROSECOND = timedelta(microseconds=1)
#: A Decimal of more digits before the point is not made a number of.
MOST_DIGITS = 4000


class NotAKey(ValueError):
    """The value cannot be a key; the text says why."""


class Encoded:
    """Base of what stands for a key in memory and knows its encoding."""

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
    return _encode(key, _first_kinds)


def _encode(key: Any, rarer: _Rarer) -> bytes:
    kind = type(key)
    if kind is int or kind is bool:
        return _int(int(key))
    if kind is str:
        return b"s" + _utf8(key)
    if kind is bytes:
        return b"b" + key  # type: ignore[no-any-return]
    if kind is tuple:
        return b"(" + _items(key, rarer)
    if kind is float:
        return _float(key)
    return rarer(key)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise NotAKey(f"it is not valid Unicode: {error.reason}") from None


def _int(number: int) -> bytes:
    if -(1 << 63) <= number < 1 << 63:
        return b"i" + INT.pack(number + (1 << 63))
    try:
        return b"I" + str(number).encode()
    except ValueError:
        raise NotAKey("it has too many digits") from None


def _float(number: float) -> bytes:
    if number != number:
        raise NotAKey("NaN is not equal to itself, so it would never be found again")
    if number in (float("inf"), float("-inf")) or not number.is_integer():
        return b"f" + FLOAT.pack(number)
    return _int(int(number))  # -0.0 and 0.0 are equal, and so are 2.0 and 2


def _items(items: Any, rarer: _Rarer) -> bytes:
    return _joined([_encode(item, rarer) for item in items])


def _joined(encoded: list[bytes]) -> bytes:
    return b"".join(LENGTH.pack(len(item)) + item for item in encoded)


def _decimal(number: Decimal) -> bytes:
    if number.is_nan():
        raise NotAKey("NaN is not equal to itself, so it would never be found again")
    if number.is_infinite():
        return _float(float(number))
    if number.adjusted() > MOST_DIGITS:
        raise NotAKey("it has too many digits")
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    exponent += len(text) - len(short)
    if not short or exponent >= 0:
        return _int((-1 if sign else 1) * int(short or "0") * 10 ** max(exponent, 0))
    if Decimal.from_float(as_float := float(number)) == number:
        return _float(as_float)
    return b"m" + f"{'-' if sign else ''}{short}e{exponent}".encode()


def _timedelta(key: timedelta) -> bytes:
    if getattr(key, "nanoseconds", 0):  # pandas' Timedelta has them
        raise NotAKey("it is not a time in whole microseconds")
    micros = (key.days * 86_400 + key.seconds) * 1_000_000 + key.microseconds
    return b"l" + (micros + (1 << 127)).to_bytes(16)


def _rarer(key: Any) -> bytes:
    if key is None:  # inside of another
        return b"n"
    if isinstance(key, Encoded):
        return key.encoded
    kind: Any = type(key)
    if has_own_equality(kind):
        raise NotAKey(
            f"{kind.__name__} has an __eq__ of its own, and keys are one if their content is: key by what it "
            f"compares, or leave fields out of the comparison with field(compare=False)"
        )
    if isinstance(key, Decimal):
        return _decimal(key)
    if isinstance(key, timedelta):
        return _timedelta(key)
    if isinstance(key, frozenset):
        return b"{" + _joined(sorted({_encode(item, _rarer) for item in key}))
    return _first_kinds(key, _rarer)


def _first_kinds(key: Any, rarer: _Rarer | None = None) -> bytes:
    """The kinds that have been keys from the beginning."""
    rarer = rarer or _first_kinds
    if key is None:
        raise NotAKey("None is not a key")
    for plain, convert in _PLAIN:
        # Subclasses such as numpy.float64, a namedtuple or an IntEnum member equal their plain value.
        if isinstance(key, plain):
            return _encode(convert(key), rarer)
    if isinstance(key, datetime):
        return _datetime(key)
    if isinstance(key, date):
        return b"d" + INT.pack(key.toordinal())
    if isinstance(key, time) and key.tzinfo is None:
        micros = ((key.hour * 60 + key.minute) * 60 + key.second) * 1_000_000 + key.microsecond
        return b"c" + INT.pack(micros)
    if isinstance(key, UUID):
        return b"u" + key.bytes
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        if not type(key).__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise NotAKey(f"{type(key).__name__} is a dataclass that is not frozen, so it could change")
        if not type(key).__dataclass_params__.eq:  # type: ignore[attr-defined]
            raise NotAKey(f"{type(key).__name__} is a dataclass with eq=False, so no two of them are equal")
        values = [getattr(key, f.name) for f in dataclasses.fields(key) if f.compare]
        return b"D" + _items([type(key).__qualname__, *values], rarer)
    if isinstance(key, Enum):
        return b"e" + _utf8(f"{type(key).__qualname__}\0{key.name}")
    if isinstance(key, (np.integer, np.bool_)):
        return _int(int(key))
    if isinstance(key, np.floating):
        return _float(float(key))
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

    >>> has_own_equality(UUID), has_own_equality(type("Loose", (str,), {"__eq__": lambda self, other: True}))
    (False, True)
    """
    equality = kind.__eq__
    if not isinstance(equality, FunctionType) or equality.__module__ in _SOUND:
        return False
    return _origin(equality) != _origin(_Generated.__eq__)  # type: ignore[arg-type]


#: Modules whose classes compare what is encoded, in Python.
_SOUND = frozenset(("uuid", "datetime", "_pydatetime", "decimal", "_pydecimal"))


# Called on the base class: a subclass may convert itself in another way.
_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__int__),
    (str, str.__str__),
    (bytes, lambda key: bytes.__getitem__(key, slice(None))),
    (tuple, lambda key: tuple.__getitem__(key, slice(None))),
    (float, float.__float__),
)


def _datetime(key: datetime) -> bytes:
    nanosecond: int = getattr(key, "nanosecond", 0)  # pandas' Timestamp has them, and a NaT
    if nanosecond or key != key:
        raise NotAKey("it is not a time in whole microseconds")
    # By its parts: a datetime near year 1 or 9999 cannot be shifted to UTC.
    seconds = ((key.toordinal() - 1) * 24 + key.hour) * 3600 + key.minute * 60 + key.second
    micros, offset = seconds * 1_000_000 + key.microsecond, key.utcoffset()
    if offset is None:
        return b"t" + INT.pack(micros)
    micros -= offset // MICROSECOND
    if not 0 <= micros < _YEAR_10000:
        raise NotAKey("it is out of range in UTC")
    return b"T" + INT.pack(micros)
