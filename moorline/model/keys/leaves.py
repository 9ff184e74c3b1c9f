"""Keys without parts: how a number, text, time or UUID is encoded, and read back.

The layout of each is in the table of ``model/keys/encoding.py``, its kind and its tags in ``model/value_kinds.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from moorline.model.value_kinds import MICROSECOND

INT = struct.Struct(">Q")
_FLOAT = struct.Struct(">d")
_YEAR_1 = datetime(1, 1, 1)
_YEAR_10000 = 315_537_897_600_000_000
#: A Decimal of more digits before the point is not made a number of.
MOST_DIGITS = 4000


class NotAKey(ValueError):
    """The value cannot be a key; the text says why."""


# --- encoding -----------------------------------------------------------------------------------


def utf8(text: str) -> bytes:
    """A text as bytes. Raises :class:`NotAKey` for one that has none."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise NotAKey(f"it is not valid Unicode: {error.reason}") from None


def encode_int(number: int) -> bytes:
    """The encoding of a whole number of any size."""
    if -(1 << 63) <= number < 1 << 63:
        return b"i" + INT.pack(number + (1 << 63))
    try:
        return b"I" + str(number).encode()
    except ValueError:
        raise NotAKey("it has too many digits") from None


def encode_float(number: float) -> bytes:
    """The encoding of a float: that of the whole number, if it equals one."""
    if number != number:
        raise NotAKey("NaN is not equal to itself, so it would never be found again")
    if number in (float("inf"), float("-inf")) or not number.is_integer():
        return b"f" + _FLOAT.pack(number)
    return encode_int(int(number))  # -0.0 and 0.0 are equal, and so are 2.0 and 2


def _decimal(number: Decimal) -> bytes:
    if number.is_nan():
        raise NotAKey("NaN is not equal to itself, so it would never be found again")
    if number.is_infinite():
        return encode_float(float(number))
    if number.adjusted() > MOST_DIGITS:
        raise NotAKey("it has too many digits")
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    exponent += len(text) - len(short)
    if not short or exponent >= 0:
        return encode_int((-1 if sign else 1) * int(short or "0") * 10 ** max(exponent, 0))
    if Decimal.from_float(as_float := float(number)) == number:
        return encode_float(as_float)
    return b"m" + f"{'-' if sign else ''}{short}e{exponent}".encode()


def _timedelta(key: timedelta) -> bytes:
    if getattr(key, "nanoseconds", 0):  # pandas' Timedelta has them
        raise NotAKey("it is not a time in whole microseconds")
    micros = (key.days * 86_400 + key.seconds) * 1_000_000 + key.microseconds
    return b"l" + (micros + (1 << 127)).to_bytes(16)


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


def _date(key: date) -> bytes:
    return b"d" + INT.pack(key.toordinal())


def _time(key: time) -> bytes | None:
    if key.tzinfo is not None:
        return None
    micros = ((key.hour * 60 + key.minute) * 60 + key.second) * 1_000_000 + key.microsecond
    return b"c" + INT.pack(micros)


def _uuid(key: UUID) -> bytes:
    return b"u" + key.bytes


#: The encoding of a key of this type, or None if it has none. Not in here are the types that ``encoding.py`` asks for
#: first. A datetime is a date, so it comes before.
LEAF_ENCODERS: dict[type, Callable[[Any], bytes | None]] = {
    datetime: _datetime,
    date: _date,
    time: _time,
    UUID: _uuid,
    Decimal: _decimal,
    timedelta: _timedelta,
}
#: Those that have been keys from the beginning, and those that came later.
FIRST_LEAVES, LATER_LEAVES = (datetime, date, time, UUID), (Decimal, timedelta)


def encode_leaf(key: Any) -> bytes | None:
    """The encoding of a key of one of these types or of a subclass, or None if it has none."""
    return next(encode(key) for base, encode in LEAF_ENCODERS.items() if isinstance(key, base))


# --- decoding -----------------------------------------------------------------------------------


def _moment(payload: bytes) -> datetime:
    micros: int = INT.unpack(payload)[0]
    return _YEAR_1 + micros * MICROSECOND


#: By the tag, the key behind a payload.
LEAF_DECODERS: dict[bytes, Callable[[bytes], Any]] = {
    b"i": lambda payload: INT.unpack(payload)[0] - (1 << 63),
    b"I": int,
    b"f": lambda payload: _FLOAT.unpack(payload)[0],
    b"m": lambda payload: Decimal(payload.decode()),
    b"s": bytes.decode,
    b"b": lambda payload: payload,
    b"d": lambda payload: date.fromordinal(INT.unpack(payload)[0]),
    b"t": _moment,
    b"T": lambda payload: _moment(payload).replace(tzinfo=UTC),
    b"c": lambda payload: _moment(payload).time(),
    b"l": lambda payload: timedelta(microseconds=int.from_bytes(payload) - (1 << 127)),
    b"u": lambda payload: UUID(bytes=payload),
}
