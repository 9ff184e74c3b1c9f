"""One stable encoding of keys, and the key group that follows from it.

Identity is the encoding, and two keys have the same encoding exactly when Python calls them equal:
``1``, ``1.0`` and ``True`` are one key, as they are in a dict; an ``IntEnum`` member is its number.
(Flink tells an Integer from a Long; a Python user does not. See docs/decisions/0003.)

    tag   key                      payload
    i     int, bool, whole float   8 bytes, big endian, sign bit flipped (sorts as numbers do)
    I     int beyond 64 bits       decimal digits
    f     other float              8 bytes IEEE, big endian
    s     str                      UTF-8
    b     bytes                    as they are
    d     date                     8 bytes: proleptic ordinal
    t     datetime, naive          8 bytes: microseconds since year 1
    T     datetime with a zone     8 bytes: microseconds since year 1, in UTC
    c     time, naive              8 bytes: microseconds since midnight
    u     UUID                     16 bytes
    (     tuple                    every item as 4-byte length + encoding
    e     Enum                     class name, 0 byte, member name
    D     frozen dataclass         class name as s, then every field, like a tuple

The hash of an ``i`` key is the splitmix64 finaliser of its number, so that a column of ints can be
hashed by NumPy at once; of any other, xxh3 of its encoding. Both are part of the storage format.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
from collections.abc import Callable, Hashable
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import xxhash

_M64 = (1 << 64) - 1
_INT = struct.Struct(">Q")
_FLOAT = struct.Struct(">d")
_LENGTH = struct.Struct(">I")
_YEAR_1 = datetime(1, 1, 1)
_YEAR_10000 = 315_537_897_600_000_000
_MICROSECOND = timedelta(microseconds=1)


class NotAKey(ValueError):
    """The value cannot be a key; the text says why."""


class UnknownClass(ValueError):
    """The key is an Enum member or dataclass, and a snapshot cannot name the class it came from."""


def encode(key: Any) -> bytes:
    """The identity of ``key``. Raises :class:`NotAKey`."""
    try:
        return _encode(key)
    except RecursionError:
        raise NotAKey("it is nested too deeply") from None


def _encode(key: Any) -> bytes:
    kind = type(key)
    if kind is int or kind is bool:
        return _int(int(key))
    if kind is str:
        return b"s" + _utf8(key)
    if kind is bytes:
        return b"b" + key  # type: ignore[no-any-return]
    if kind is tuple:
        return b"(" + _items(key)
    if kind is float:
        return _float(key)
    return _rarer(key)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise NotAKey(f"it is not valid Unicode: {error.reason}") from None


def _int(number: int) -> bytes:
    if -(1 << 63) <= number < 1 << 63:
        return b"i" + _INT.pack(number + (1 << 63))
    try:
        return b"I" + str(number).encode()
    except ValueError:
        raise NotAKey("it has too many digits") from None


def _float(number: float) -> bytes:
    if number != number:
        raise NotAKey("NaN is not equal to itself, so it would never be found again")
    if number in (float("inf"), float("-inf")) or not number.is_integer():
        return b"f" + _FLOAT.pack(number)
    return _int(int(number))  # -0.0 and 0.0 are equal, and so are 2.0 and 2


def _items(items: Any) -> bytes:
    encoded = [_encode(item) for item in items]
    return b"".join(_LENGTH.pack(len(item)) + item for item in encoded)


def _rarer(key: Any) -> bytes:
    if key is None:
        raise NotAKey("None is not a key")
    for plain, convert in _PLAIN:
        # Subclasses such as numpy.float64, a namedtuple or an IntEnum member equal their plain value.
        if isinstance(key, plain):
            return _encode(convert(key))
    if isinstance(key, datetime):
        return _datetime(key)
    if isinstance(key, date):
        return b"d" + _INT.pack(key.toordinal())
    if isinstance(key, time) and key.tzinfo is None:
        micros = ((key.hour * 60 + key.minute) * 60 + key.second) * 1_000_000 + key.microsecond
        return b"c" + _INT.pack(micros)
    if isinstance(key, UUID):
        return b"u" + key.bytes
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        if not type(key).__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise NotAKey(f"{type(key).__name__} is a dataclass that is not frozen, so it could change")
        if not type(key).__dataclass_params__.eq:  # type: ignore[attr-defined]
            raise NotAKey(f"{type(key).__name__} is a dataclass with eq=False, so no two of them are equal")
        values = [getattr(key, f.name) for f in dataclasses.fields(key) if f.compare]
        return b"D" + _items([type(key).__qualname__, *values])
    if isinstance(key, Enum):
        return b"e" + _utf8(f"{type(key).__qualname__}\0{key.name}")
    if isinstance(key, (np.integer, np.bool_)):
        return _int(int(key))
    if isinstance(key, np.floating):
        return _float(float(key))
    if not isinstance(key, Hashable):
        raise NotAKey(f"{type(key).__name__} is mutable")
    raise NotAKey(f"{type(key).__name__} has no stable encoding")


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
        return b"t" + _INT.pack(micros)
    micros -= offset // _MICROSECOND
    if not 0 <= micros < _YEAR_10000:
        raise NotAKey("it is out of range in UTC")
    return b"T" + _INT.pack(micros)


Classes = dict[str, type]


def key_classes(key_type: Any) -> Classes:
    """The Enum and dataclass types in the declared type of a key, by the name that stands in an encoding.

    >>> key_classes(tuple[int, str])
    {}
    """
    found: Classes = {}
    todo = [key_type]
    while todo:
        one = todo.pop()
        todo += [a for a in typing.get_args(one) if a is not Ellipsis]
        if isinstance(one, type) and one.__qualname__ not in found:
            if issubclass(one, Enum):
                found[one.__qualname__] = one
            elif dataclasses.is_dataclass(one):
                found[one.__qualname__] = one
                todo += typing.get_type_hints(one).values()
    return found


def decode(encoded: bytes, classes: Classes | None = None) -> Any:
    """The key behind an encoding. Raises :class:`UnknownClass` where it needs a class that is not in ``classes``.

    Any other ``ValueError`` means that this is no encoding.
    """
    try:
        return _decode(encoded, classes or {})
    except (struct.error, OverflowError, RecursionError) as error:
        raise ValueError(f"no key has the encoding {encoded!r:.100}: {error}") from None


def _decode(encoded: bytes, classes: Classes) -> Any:
    tag, payload = encoded[:1], encoded[1:]
    match tag:
        case b"i":
            return _INT.unpack(payload)[0] - (1 << 63)
        case b"I":
            return int(payload)
        case b"f":
            return _FLOAT.unpack(payload)[0]
        case b"s":
            return payload.decode()
        case b"b":
            return payload
        case b"d":
            return date.fromordinal(_INT.unpack(payload)[0])
        case b"t":
            return _YEAR_1 + _INT.unpack(payload)[0] * _MICROSECOND
        case b"T":
            return (_YEAR_1 + _INT.unpack(payload)[0] * _MICROSECOND).replace(tzinfo=UTC)
        case b"c":
            return (_YEAR_1 + _INT.unpack(payload)[0] * _MICROSECOND).time()
        case b"u":
            return UUID(bytes=payload)
        case b"(":
            return tuple([_decode(item, classes) for item in _split(payload)])
        case b"e":
            name, _, member = payload.decode().partition("\0")
            if name not in classes:
                raise UnknownClass(name)
            if member not in classes[name].__members__:  # type: ignore[attr-defined]
                raise UnknownClass(f"{name}.{member}")
            return classes[name][member]  # type: ignore[index]
        case b"D":
            name, *values = [_decode(item, classes) for item in _split(payload)]
            if name not in classes:
                raise UnknownClass(name)
            fields = [f.name for f in dataclasses.fields(classes[name]) if f.compare]
            try:
                return classes[name](**dict(zip(fields, values, strict=True)))
            except (TypeError, ValueError) as error:  # the class has changed since
                raise UnknownClass(f"{name}, which does not take {values!r:.100}: {error}") from None
    raise ValueError(f"no key begins with {tag!r}")


def _split(payload: bytes) -> list[bytes]:
    items, at = [], 0
    while at < len(payload):
        (length,) = _LENGTH.unpack_from(payload, at)
        items.append(payload[at + 4 : at + 4 + length])
        if len(items[-1]) != length:
            raise ValueError("a key is cut short")
        at += 4 + length
    return items


def _splitmix64(number: int) -> int:
    z = number & _M64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _M64
    return z ^ (z >> 31)


def encoded_hash(encoded: bytes) -> int:
    """64 bits that are the same in every process, on every machine, for ever."""
    if encoded[:1] == b"i":
        return _splitmix64(_INT.unpack_from(encoded, 1)[0] - (1 << 63))
    return xxhash.xxh3_64_intdigest(encoded)


def encoded_key_group(encoded: bytes, max_parallelism: int) -> int:
    """The key group of an encoded key."""
    return (encoded_hash(encoded) >> 32) * max_parallelism >> 32


def key_group(key: Any, max_parallelism: int) -> int:
    """The key group of ``key``.

    >>> key_group("user-1", 128), key_group(1, 128) == key_group(True, 128)
    (14, True)
    """
    return encoded_key_group(encode(key), max_parallelism)


def int_key_groups(numbers: npt.NDArray[np.int64], max_parallelism: int) -> npt.NDArray[np.int64]:
    """:func:`key_group` for a whole column of ints."""
    z = numbers.astype(np.uint64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(32)) * np.uint64(max_parallelism) >> np.uint64(32)).astype(np.int64)
