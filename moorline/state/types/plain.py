"""Plain data as bytes: the safe default for state whose type was not declared, and for operator state.

msgpack, with extension types for what msgpack lacks. It never builds anything but the types listed here,
and never runs code; what it does not know it refuses when it is *written*, so nothing unreadable is stored.

    0 tuple   1 set   2 frozenset   3 int beyond 64 bits   4 date      5 datetime (ISO text)
    6 time    7 timedelta (µs)      8 Decimal              9 UUID     10 dict with keys that are not text
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

_MICROSECOND = timedelta(microseconds=1)
_PLAIN = (type(None), bool, int, float, str, bytes)


class NotPlain(TypeError):
    """The value is not plain data; the text says what it is."""


def encode(value: Any) -> bytes:
    """``value`` as bytes. Raises :class:`NotPlain`.

    >>> decode(encode({"at": (1, 2.5), 7: {"x"}})) == {"at": (1, 2.5), 7: {"x"}}
    True
    """
    try:
        return msgspec.msgpack.encode(_lower(value))
    except RecursionError:
        raise NotPlain("a value that contains itself, or is nested too deeply") from None
    except (ValueError, OverflowError) as error:  # a lone surrogate, an int of thousands of digits
        raise NotPlain(f"a {type(value).__qualname__} cannot be stored: {error}") from None


def _lower(value: Any) -> Any:
    kind = type(value)
    if kind is int:
        return value if -(1 << 63) <= value < 1 << 64 else _ext(3, str(value))
    if kind in _PLAIN:
        return value
    if kind is list:
        return [_lower(v) for v in value]
    if kind is tuple:
        return _ext(0, [_lower(v) for v in value])
    if kind is dict:
        if all(type(k) is str for k in value):
            return {k: _lower(v) for k, v in value.items()}
        return _ext(10, [[_lower(k), _lower(v)] for k, v in value.items()])
    if kind is set or kind is frozenset:
        return _ext(1 if kind is set else 2, [_lower(v) for v in value])
    if kind is datetime:
        return _ext(5, value.isoformat())
    if kind is date:
        return _ext(4, value.isoformat())
    if kind is time:
        return _ext(6, value.isoformat())
    if kind is timedelta:
        return _ext(7, _lower(value // _MICROSECOND))
    if kind is Decimal:
        return _ext(8, str(value))
    if kind is UUID:
        return _ext(9, value.bytes)
    raise NotPlain(f"a {kind.__qualname__} ({value!r:.100}) is not plain data")


def _ext(code: int, value: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, msgspec.msgpack.encode(value))


def decode(data: bytes | memoryview) -> Any:
    """The value behind the bytes. Raises ``ValueError`` (``msgspec.DecodeError`` is one) for anything else."""
    try:
        return _decoder.decode(data)
    except (TypeError, ArithmeticError, AttributeError, RecursionError) as error:
        raise ValueError(f"not plain data: {error}") from None


def _raise(code: int, data: memoryview) -> Any:
    value = _decoder.decode(data)
    match code:
        case 0:
            return tuple(value)
        case 1:
            return set(value)
        case 2:
            return frozenset(value)
        case 3:
            return int(value)
        case 4:
            return date.fromisoformat(value)
        case 5:
            return datetime.fromisoformat(value)
        case 6:
            return time.fromisoformat(value)
        case 7:
            return value * _MICROSECOND
        case 8:
            return Decimal(value)
        case 9:
            return UUID(bytes=value)
        case 10:
            return dict(value)
    raise ValueError(f"no plain type has the number {code}")


_decoder = msgspec.msgpack.Decoder(ext_hook=_raise)
