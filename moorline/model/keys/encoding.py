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
import typing
from collections.abc import Callable, Hashable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from types import FunctionType
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
#: A Decimal of more digits before the point is not made a number of.
MOST_DIGITS = 4000


class NotAKey(ValueError):
    """The value cannot be a key; the text says why."""


class UnknownClass(ValueError):
    """The key is an Enum member or dataclass, and a snapshot cannot name the class it came from."""


class Encoded:
    """Base of what stands for a key in memory and knows its encoding."""

    __slots__ = ("encoded",)

    encoded: bytes


class ClassKey(Encoded):
    """Stands for an Enum member or dataclass of which only the encoding is known."""

    __slots__ = ()

    def __init__(self, encoded: bytes) -> None:
        self.encoded = encoded

    def __hash__(self) -> int:
        return hash(self.encoded)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoded) and other.encoded == self.encoded

    def __repr__(self) -> str:
        return f"<a key of class {class_of(self.encoded)}>"


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


def _items(items: Any, rarer: _Rarer) -> bytes:
    return _joined([_encode(item, rarer) for item in items])


def _joined(encoded: list[bytes]) -> bytes:
    return b"".join(_LENGTH.pack(len(item)) + item for item in encoded)


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
    return _decoded(encoded, classes or {})


def decode_identity(encoded: bytes) -> Any:
    """What stands for a key in memory, from its encoding alone. ``ValueError`` means that this is no encoding.

    >>> decode_identity(encode(("a", 1))), decode_identity(b"eColour\\0RED")
    (('a', 1), <a key of class Colour>)
    """
    return _decoded(encoded, None)


def class_of(encoded: bytes) -> str:
    """The class that is missing to make a key from its encoding."""
    try:
        return type(decode(encoded)).__qualname__
    except UnknownClass as unknown:
        return str(unknown)


def _decoded(encoded: bytes, classes: Classes | None) -> Any:
    try:
        return _decode(encoded, classes)
    except (struct.error, ArithmeticError, RecursionError) as error:
        raise ValueError(f"no key has the encoding {encoded!r:.100}: {error}") from None


def _decode(encoded: bytes, classes: Classes | None) -> Any:
    """``classes`` None: what needs a class is left as it is."""
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
        case b"{":
            return frozenset([_decode(item, classes) for item in _split(payload)])
        case b"n":
            return None
        case b"m":
            return Decimal(payload.decode())
        case b"l":
            return timedelta(microseconds=int.from_bytes(payload) - (1 << 127))
        case b"e" | b"D" if classes is None:
            return ClassKey(encoded)
        case b"e":
            assert classes is not None
            name, _, member = payload.decode().partition("\0")
            if name not in classes:
                raise UnknownClass(name)
            if member not in classes[name].__members__:  # type: ignore[attr-defined]
                raise UnknownClass(f"{name}.{member}")
            return classes[name][member]  # type: ignore[index]
        case b"D":
            assert classes is not None
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


def items_of(encoded: bytes) -> list[bytes]:
    """The encodings inside of that of a tuple, frozenset or dataclass. Of a dataclass the first is its name."""
    try:
        return _split(encoded[1:])
    except struct.error as error:
        raise ValueError(f"no key has the encoding {encoded!r:.100}: {error}") from None


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
