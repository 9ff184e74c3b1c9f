"""The schema of a stream, from whatever a user has: Spark's DDL, a pyarrow schema, a dataclass, a msgspec.Struct."""

from __future__ import annotations

import dataclasses
import keyword
import re
import types
import typing
import unicodedata
from datetime import date, datetime
from decimal import Context, Decimal
from typing import Any

import msgspec
import pyarrow as pa

from moorline.errors import InvalidArgument
from moorline.model.spelling import nearest

#: What a schema is made of: Spark's DDL, pyarrow's own, or a dataclass or ``msgspec.Struct``.
SchemaLike = str | pa.Schema | type
#: What a type of a column is made of: Spark's name of it, pyarrow's own, or Python's.
TypeLike = str | pa.DataType | type

#: Spark's names of types, in lower case.
_DDL = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "double": pa.float64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_PYTHON = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    date: pa.date32(),
    datetime: pa.timestamp("us"),
}
#: Decimals of 256 bits have 76 digits.
_EXACT = Context(prec=76)
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", re.ASCII)
_ADVICE = (
    'Give Spark\'s DDL ("customer string, cents bigint"), a pyarrow.Schema, or a dataclass or msgspec.Struct with '
    "fields of int, float, str, bool, bytes, date or datetime."
)


def schema_of(given: Any) -> pa.Schema:
    """The pyarrow schema that is meant. Raises :class:`InvalidArgument`.

    >>> schema_of("customer string, cents bigint not null").names
    ['customer', 'cents']
    """
    if isinstance(given, pa.Schema):
        schema = given
    elif isinstance(given, str):
        schema = pa.schema([_ddl_field(text) for text in _columns(given)])
    elif isinstance(given, type) and (dataclasses.is_dataclass(given) or issubclass(given, msgspec.Struct)):
        hints = typing.get_type_hints(given)
        names = [
            f.name
            for f in (dataclasses.fields(given) if dataclasses.is_dataclass(given) else msgspec.structs.fields(given))
        ]
        schema = pa.schema([_field(given, name, hints[name]) for name in names])
    else:
        raise InvalidArgument("schema", given, _ADVICE)
    if not schema.names:
        raise InvalidArgument("schema", given, "It has no columns.")
    views = [f for f in schema if pa.types.is_string_view(f.type) or pa.types.is_binary_view(f.type)]
    if views:
        advice = "Arrow cannot take rows of such a column: cast it to string or binary."
        raise InvalidArgument("schema", f"{views[0].name} {views[0].type}", advice)
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise InvalidArgument("schema", given, f"It has two columns {twice[0]!r}.")
    return schema.remove_metadata()


def type_of(given: Any) -> pa.DataType:
    """The pyarrow type that is meant: Spark's name of it, pyarrow's own, or Python's. Raises :class:`InvalidArgument`.

    >>> type_of("bigint"), type_of(float)
    (DataType(int64), DataType(double))
    """
    if isinstance(given, pa.DataType):
        return given
    if isinstance(given, str):
        return _ddl_field(f"type {given}").type
    if isinstance(given, type) and given in _PYTHON:
        return _PYTHON[given]
    raise InvalidArgument("type", given, "Give Spark's name of a type, such as \"bigint\", or one of pyarrow's.")


def check_columns(schema: pa.Schema | None, names: typing.Iterable[str], where: str) -> None:
    """Raise for the first name that is no column of ``schema``. None: it is not known."""
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgument(where, name, "Give the names of columns.")
        if schema is not None and name not in schema.names:
            meant = nearest(name, schema.names)
            advice = f"The stream has the columns {', '.join(schema.names)}."
            raise InvalidArgument(where, name, f"Did you mean {meant!r}? {advice}" if meant else advice)


def check_keys(schema: pa.Schema | None, names: tuple[str, ...]) -> None:
    """Raise if these are no columns whose values, one or several together, can be keys."""
    check_columns(schema, names, "key_by")
    if len(set(names)) < len(names):
        raise InvalidArgument("key_by", names, "A column is named twice.")
    for field in [] if schema is None else map(schema.field, names):
        if pa.types.is_nested(field.type) or pa.types.is_null(field.type):
            advice = "Its values are no keys: name columns of numbers, texts, moments or bytes."
            raise InvalidArgument("key_by", f"{field.name} {field.type}", advice)


def check_field_name(where: str, name: str) -> None:
    """Raise for a name that no field of state can have."""
    is_plain = unicodedata.normalize("NFKC", name) == name  # Python reads others as what they are normalized to
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("__") or not is_plain:
        advice = (
            "State cannot have such a field: take a name of plain letters and digits, and rename({...}) if need be."
        )
        raise InvalidArgument(where, name, advice)


def check_time_column(schema: pa.Schema | None, name: str, where: str) -> None:
    """Raise if ``name`` is no column of ``schema`` that can hold the time of a row."""
    check_columns(schema, [name], where)
    if schema is None:
        return
    arrow = schema.field(name).type
    if not any(fits(arrow) for fits in (pa.types.is_integer, pa.types.is_timestamp, pa.types.is_date)):
        advice = f"The column is {arrow}: give one of timestamps, of dates, or of ints of milliseconds since 1970."
        raise InvalidArgument(where, name, advice)


def _columns(ddl: str) -> list[str]:
    """The declarations between commas, those in brackets aside."""
    return [part.strip() for part in re.split(r",(?![^()<>]*[)>])", ddl) if part.strip()]


def _ddl_field(text: str) -> pa.Field:
    match = re.fullmatch(r"(`[^`]+`|\w+)\s*:?\s*(.+?)(\s+not\s+null)?", text.strip(), re.IGNORECASE | re.DOTALL)
    if match is None:
        raise InvalidArgument("schema", text, _ADVICE)
    name, declared = match[1].strip("`"), match[2].strip().lower()
    if declared in _DDL:
        return pa.field(name, _DDL[declared], match[3] is None)
    if decimal := _DECIMAL.fullmatch(declared):
        precision, scale = int(decimal[1] or 10), int(decimal[2] or 0)
        if not 1 <= precision <= 38 or scale > precision:
            advice = "A decimal(p, s) has from 1 to 38 digits, s of them after the point."
            raise InvalidArgument("schema", text, advice)
        return pa.field(name, pa.decimal128(precision, scale), match[3] is None)
    meant = nearest(declared, _DDL)
    advice = f"Types are {', '.join(_DDL)} and decimal(p, s); for others give a pyarrow.Schema."
    raise InvalidArgument("schema", text, f"Did you mean {meant!r}? {advice}" if meant else advice)


def _field(cls: type, name: str, hint: Any) -> pa.Field:
    arguments, is_nullable = typing.get_args(hint), False
    if typing.get_origin(hint) in (typing.Union, types.UnionType) and type(None) in arguments and len(arguments) == 2:
        hint, is_nullable = next(a for a in arguments if a is not type(None)), True
    if hint not in _PYTHON:
        shown = getattr(hint, "__name__", hint)
        raise InvalidArgument("schema", f"{cls.__name__}.{name}: {shown}", _ADVICE)
    return pa.field(name, _PYTHON[hint], is_nullable)


def python_type(arrow: pa.DataType, where: str) -> type:
    """The Python type that values of a column are kept as in state. Raises :class:`InvalidArgument`."""
    checks: list[tuple[typing.Callable[[pa.DataType], bool], type]] = [
        (pa.types.is_boolean, bool),
        (pa.types.is_integer, int),
        (pa.types.is_floating, float),
        (pa.types.is_string, str),
        (pa.types.is_large_string, str),
        (pa.types.is_binary, bytes),
        (pa.types.is_date32, date),
        (pa.types.is_timestamp, datetime),
        (pa.types.is_decimal, Decimal),
    ]
    for is_one, python in checks:
        if is_one(arrow):
            return python
    raise InvalidArgument(where, str(arrow), "Columns of this type cannot be aggregated.")


def key_values(values: typing.Iterable[Any], types: typing.Sequence[pa.DataType]) -> list[Any]:
    """The parts of a key as their columns have them. In state what is equal is one: True, 1.0 and 1 come back as 1.

    >>> key_values([1, 1, None], [pa.bool_(), pa.float64(), pa.int64()])
    [True, 1.0, None]
    """
    made: list[Any] = []
    for value, arrow in zip(values, types, strict=True):
        of = arrow.value_type if pa.types.is_dictionary(arrow) else arrow
        if value is None:
            made.append(None)
        elif pa.types.is_boolean(of):
            made.append(bool(value))
        elif pa.types.is_floating(of):
            made.append(float(value))
        elif pa.types.is_decimal(of):
            made.append(Decimal(value).quantize(Decimal(1).scaleb(-of.scale), context=_EXACT))
        else:
            made.append(value)
    return made
