"""Plain data as bytes: the safe default for state whose type was not declared, and for operator state.

msgpack, with extension types for what msgpack lacks. It never builds anything but the types listed here,
and never runs code; what it does not know it refuses when it is *written*, so nothing unreadable is stored.

    0 tuple   1 set   2 frozenset   3 int beyond 64 bits   4 date      5 datetime (ISO text)
    6 time    7 timedelta (µs)      8 Decimal              9 UUID     10 dict with keys that are not text
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any

import msgspec

from moorline.model.value_kinds import LOWERED, NATIVE_TYPES

_PLAIN = NATIVE_TYPES | {NoneType}
#: The kinds that msgpack lacks: the number of the extension type, and its content.
_LOWERED = {kind.type: (kind.extension, (kind.packed or kind.json).lower) for kind in LOWERED}
#: By the number of an extension type, the value behind its content.
_LIFTS: dict[int, Callable[[Any], Any]] = {
    **{0: tuple, 1: set, 2: frozenset, 3: int, 10: dict},
    **{kind.extension: (kind.packed or kind.json).lift for kind in LOWERED},
}


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
    if kind in _LOWERED:
        code, lower = _LOWERED[kind]
        content = lower(value)
        return _ext(code, content if type(content) is not int else _lower(content))
    raise NotPlain(f"a {kind.__qualname__} ({value!r:.100}) is not plain data")


def _ext(code: int, value: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, msgspec.msgpack.encode(value))


def decode(data: bytes | memoryview) -> Any:
    """The value behind the bytes. Raises ``ValueError`` (``msgspec.DecodeError`` is one) for anything else."""
    try:
        return _decoder.decode(data)
    except (TypeError, ArithmeticError, AttributeError, RecursionError) as error:
        raise ValueError(f"not plain data: {error}") from None


def _lift(code: int, data: memoryview) -> Any:
    value = _decoder.decode(data)
    lift = _LIFTS.get(code)
    if lift is None:
        raise ValueError(f"no plain type has the number {code}")
    return lift(value)


_decoder = msgspec.msgpack.Decoder(ext_hook=_lift)
