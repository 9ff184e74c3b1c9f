"""Values of Python as fields of PostgreSQL's binary COPY: what goes into which type of column, and what is refused.

    smallint, integer, bigint        int in its range
    real, double precision           float; int that a float holds exactly
    numeric, numeric(p, s)           Decimal, int, float (by its shortest text); not more digits than it has
    boolean                          bool
    text, varchar(n), char(n), …     str, without the character 0, not longer than n
    an enum                          str, one of its labels
    bytea                            bytes, bytearray, memoryview
    date                             date, and no datetime
    time, timestamp                  time, datetime without a time zone
    timestamp with time zone         datetime with a time zone
    interval                         timedelta
    uuid                             UUID, or its text
    json, jsonb                      what JSON has; None is null, as everywhere
    arrays of these                  list or tuple, nested evenly for more dimensions

A value that does not fit is refused when it is written, not when the database is given it: by then the checkpoint is
complete, and there is no way back. Nothing is rounded or cut in silence. A field is its length and its bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
from psycopg.types.numeric import DecimalBinaryDumper

from moorline.connectors.postgres.table import ColumnType
from moorline.model.value_kinds import MICROSECOND, python_number

#: A value as a field, with its length in front. Raises :class:`ValueRefused`.
Encode = Callable[[Any], bytes]

NULL = b"\xff\xff\xff\xff"

_length = struct.Struct("!i").pack
_EPOCH, _EPOCH_UTC = datetime(2000, 1, 1), datetime(2000, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(2000, 1, 1).toordinal()
_NUMERIC = DecimalBinaryDumper(Decimal)
_MAX_DIMENSIONS = 6
#: PostgreSQL's numbers have up to 1,000 digits if a precision is declared.
_CONTEXT = Context(prec=4000)
#: If none is declared, it has up to so many before the point, and behind it.
_WHOLE_DIGITS, _DECIMALS = 131_072, 16_383


class ValueRefused(ValueError):
    """The value does not fit the column; the text says why."""


def encoder(type: ColumnType) -> Encode | None:
    """The way from a value that is not None to a field of such a column; None if there is none.

    >>> encoder(ColumnType(23, "integer"))(7)
    b'\\x00\\x00\\x00\\x04\\x00\\x00\\x00\\x07'
    """
    if type.element is not None:
        # The number of an enum's type is another one in every database.
        inner = None if type.element.labels is not None else _scalar(type.element)
        return None if inner is None else _array(type.element.oid, _retrying(inner))
    encode = _scalar(type)
    return None if encode is None else _retrying(encode)


def _scalar(type: ColumnType) -> Encode | None:
    if type.labels is not None:
        return _enum(type.name, type.labels)
    if type.oid in _MAKERS:
        return _MAKERS[type.oid](type.modifier)
    return _text(type.modifier if type.oid in _WITH_LENGTH else -1) if type.category == "S" else None


def _retrying(encode: Encode) -> Encode:
    """Numbers of NumPy and members of enums as what they stand for, if they are refused as they are."""

    def encoded(value: Any) -> bytes:
        try:
            return encode(value)
        except ValueRefused:
            plain = value.value if isinstance(value, Enum) else python_number(value)
            if plain is value or plain is None:
                raise
            return encode(plain)

    return encoded


def _integer(code: str, size: int) -> Callable[[int], Encode]:
    pack = struct.Struct(f"!i{code}").pack

    def encode(value: Any) -> bytes:
        if type(value) is not int:
            raise ValueRefused(f"{_named(value)} is not a whole number")
        try:
            return pack(size, value)
        except struct.error:
            raise ValueRefused(f"{value} is out of its range") from None

    return lambda modifier: encode


def _floating(code: str, size: int) -> Callable[[int], Encode]:
    pack = struct.Struct(f"!i{code}").pack

    def encode(value: Any) -> bytes:
        if type(value) is not float:
            value = _exact_float(value)
        try:
            return pack(size, value)
        except OverflowError:
            raise ValueRefused(f"{value} is out of its range") from None

    return lambda modifier: encode


def _exact_float(value: Any) -> float:
    if type(value) is int:
        try:
            if int(float(value)) == value:
                return float(value)
        except OverflowError:
            pass
        raise ValueRefused(f"{value!r:.80} has more digits than it holds")
    raise ValueRefused(f"{_named(value)} is not a number")


def _numeric(modifier: int) -> Encode:
    digits, scale = ((modifier - 4) >> 16) & 0xFFFF, (((modifier - 4) & 0x7FF) ^ 1024) - 1024
    limit, step = Decimal(10) ** (digits - scale), Decimal(1).scaleb(-scale)
    zero = Decimal(0).scaleb(-scale)

    def encode(value: Any) -> bytes:
        if type(value) is float:
            value = Decimal(repr(value))
        elif type(value) is int:
            value = Decimal(value)
        elif type(value) is not Decimal:
            raise ValueRefused(f"{_named(value)} is not a number")
        if modifier >= 0 and not value.is_nan():
            if value.is_infinite() or abs(value) >= limit:
                raise ValueRefused(f"{value} is out of its range")
            rounded = _CONTEXT.quantize(value, step)
            if rounded != value:
                raise ValueRefused(f"{value} has more than {scale} decimals")
            value = rounded if rounded else zero
        elif value.is_finite() and (value.adjusted() >= _WHOLE_DIGITS or _exponent(value) < -_DECIMALS):
            raise ValueRefused(f"{value!r:.80} is out of its range")
        data = _NUMERIC.dump(value)
        assert data is not None
        return _length(len(data)) + bytes(data)

    return encode


def _exponent(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return exponent if isinstance(exponent, int) else 0


def _boolean(modifier: int) -> Encode:
    def encode(value: Any) -> bytes:
        if value is True:
            return b"\0\0\0\1\1"
        if value is False:
            return b"\0\0\0\1\0"
        raise ValueRefused(f"{_named(value)} is neither True nor False")

    return encode


def _text(modifier: int) -> Encode:
    longest = modifier - 4

    def encode(value: Any) -> bytes:
        if not isinstance(value, str):
            raise ValueRefused(f"{_named(value)} is not a text")
        if modifier >= 0 and len(value) > longest:
            raise ValueRefused(f"a text of {len(value)} characters is longer than {longest}")
        data = _utf8(value)
        return _length(len(data)) + data

    return encode


def _utf8(text: str) -> bytes:
    if "\0" in text:
        raise ValueRefused("PostgreSQL has no text with the character 0 in it")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueRefused(f"it is not Unicode: {error.reason}") from None


def _enum(name: str, labels: tuple[str, ...]) -> Encode:
    fields = {label: _length(len(label.encode())) + label.encode() for label in labels}

    def encode(value: Any) -> bytes:
        field = fields.get(value) if isinstance(value, str) else None
        if field is None:
            raise ValueRefused(f"{value!r:.80} is none of the labels {', '.join(map(repr, labels))} of {name}")
        return field

    return encode


def _bytea(modifier: int) -> Encode:
    def encode(value: Any) -> bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise ValueRefused(f"{_named(value)} is not bytes")
        data = bytes(value)
        return _length(len(data)) + data

    return encode


def _date(modifier: int) -> Encode:
    pack = struct.Struct("!ii").pack

    def encode(value: Any) -> bytes:
        if type(value) is not date:
            raise ValueRefused(f"{_named(value)} is not a date")
        return pack(4, value.toordinal() - _EPOCH_DAY)

    return encode


def _time(modifier: int) -> Encode:
    pack = struct.Struct("!iq").pack
    check = _fraction(modifier)

    def encode(value: Any) -> bytes:
        if type(value) is not time or value.tzinfo is not None:
            raise ValueRefused(f"{_named(value)} is not a time without a time zone")
        check(value)
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return pack(8, seconds * 1_000_000 + value.microsecond)

    return encode


def _timestamp(epoch: datetime, words: str) -> Callable[[int], Encode]:
    pack = struct.Struct("!iq").pack
    is_aware = epoch.tzinfo is not None

    def maker(modifier: int) -> Encode:
        check = _fraction(modifier)

        def encode(value: Any) -> bytes:
            if not isinstance(value, datetime) or (value.utcoffset() is not None) is not is_aware:
                raise ValueRefused(f"{_named(value)} is not a datetime {words} a time zone")
            check(value)
            since = value - epoch
            return pack(8, (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)

        return encode

    return maker


def _fraction(modifier: int) -> Callable[[Any], None]:
    """Refuse what a ``timestamp(3)`` would round."""
    if not 0 <= modifier < 6:
        return lambda value: None
    step = 10 ** (6 - modifier)

    def check(value: Any) -> None:
        if value.microsecond % step:
            raise ValueRefused(f"{value} is finer than its {modifier} decimals of a second")

    return check


def _interval(modifier: int) -> Encode:
    pack = struct.Struct("!iqii").pack
    day = timedelta(days=1)

    def encode(value: Any) -> bytes:
        if not isinstance(value, timedelta):
            raise ValueRefused(f"{_named(value)} is not a timedelta")
        return pack(16, (value % day) // MICROSECOND, value.days, 0)

    return encode


def _uuid(modifier: int) -> Encode:
    def encode(value: Any) -> bytes:
        if type(value) is str:
            try:
                value = UUID(value)
            except ValueError:
                raise ValueRefused(f"{value!r:.80} is not a UUID") from None
        if type(value) is not UUID:
            raise ValueRefused(f"{_named(value)} is not a UUID")
        return b"\0\0\0\x10" + value.bytes

    return encode


def _json(prefix: bytes) -> Callable[[int], Encode]:
    def encode(value: Any) -> bytes:
        try:
            data = msgspec.json.encode(value)
            if b"null" in data:
                # Numbers that JSON does not have may hide behind it.
                json.dumps(msgspec.to_builtins(value, str_keys=True), allow_nan=False)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ValueRefused(f"JSON cannot express it: {error}") from None
        if prefix and b"\\u0000" in data:
            raise ValueRefused("jsonb has no text with the character 0 in it")
        return _length(len(prefix) + len(data)) + prefix + data

    return lambda modifier: encode


def _array(oid: int, inner: Encode) -> Encode:
    """dimensions, whether there are nulls, type of the elements; size and first index of each dimension; elements."""
    head = struct.Struct("!iiI").pack
    dimension = struct.Struct("!ii").pack

    def encode(value: Any) -> bytes:
        sizes, elements = _flat(value)
        fields = [NULL if element is None else inner(element) for element in elements]
        body = head(len(sizes), int(None in elements), oid) + b"".join(dimension(size, 1) for size in sizes)
        data = body + b"".join(fields)
        return _length(len(data)) + data

    return encode


def _flat(value: Any) -> tuple[list[int], list[Any]]:
    """The sizes of all dimensions, and the elements in one row.

    >>> _flat([[1, 2], [3, 4]]), _flat([])
    (([2, 2], [1, 2, 3, 4]), ([], []))
    """
    if not isinstance(value, (list, tuple)):
        raise ValueRefused(f"{_named(value)} is not a list")
    sizes: list[int] = []
    elements: list[Any] = [value]
    while elements and all(isinstance(element, (list, tuple)) for element in elements):
        if len({len(element) for element in elements}) > 1:
            raise ValueRefused("the lists in it are not equally long")
        sizes.append(len(elements[0]))
        elements = [inner for element in elements for inner in element]
        if len(sizes) > _MAX_DIMENSIONS:
            raise ValueRefused(f"an array has at most {_MAX_DIMENSIONS} dimensions")
    if any(isinstance(element, (list, tuple)) for element in elements):
        raise ValueRefused("some of its elements are lists and some are not")
    return (sizes if elements else []), elements


def _named(value: Any) -> str:
    return f"the {type(value).__name__} {value!r:.80}"


#: varchar and char: their modifier is a length.
_WITH_LENGTH = frozenset({1042, 1043})
_MAKERS: Mapping[int, Callable[[int], Encode]] = {
    16: _boolean,
    17: _bytea,
    **{21: _integer("h", 2), 23: _integer("i", 4), 20: _integer("q", 8)},
    **{700: _floating("f", 4), 701: _floating("d", 8), 1700: _numeric},
    **{114: _json(b""), 3802: _json(b"\x01")},
    **{1082: _date, 1083: _time, 1186: _interval},
    **{1114: _timestamp(_EPOCH, "without"), 1184: _timestamp(_EPOCH_UTC, "with")},
    2950: _uuid,
}
#: Types whose values are equal if and only if their fields are.
_EQUAL_AS_BYTES = frozenset({16, 17, 20, 21, 23, 25, 1043, 1082, 1083, 1114, 1184, 1186, 2950})
_NUMERIC_OID = 1700


def can_be_key(type: ColumnType) -> bool:
    """Are values of such a column as different here as in the database?

    >>> can_be_key(ColumnType(23, "integer")), can_be_key(ColumnType(701, "double precision"))
    (True, False)
    """
    return type.oid in _EQUAL_AS_BYTES or type.labels is not None or (type.oid == _NUMERIC_OID and type.modifier >= 0)
