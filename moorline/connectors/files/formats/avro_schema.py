"""The Avro schema for a table of Arrow's.

    Arrow                                  Avro
    bool, float32, float64, string, bytes  boolean, float, double, string, bytes
    int8 to int32, uint8, uint16           int
    int64, uint32                          long
    date32                                 int, date
    time32[ms], time64[us]                 int, time-millis; long, time-micros
    timestamp[s, ms], timestamp[us]        long, timestamp-millis, timestamp-micros; local- without a time zone
    decimal128                             bytes, decimal
    list, struct, map with text keys       array, record, map
    dictionary                             that of its values

A column that may be null is a union with null. Other types have none, and are refused before anything is written.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.types as t

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class NoAvroType(Exception):
    """A column cannot be in an Avro file."""


def avro_schema(schema: pa.Schema) -> dict[str, Any]:
    """The schema of a file with these columns. Raises :class:`NoAvroType`.

    >>> avro_schema(pa.schema([pa.field("word", pa.string(), nullable=False), ("n", pa.int64())]))["fields"]
    [{'name': 'word', 'type': 'string'}, {'name': 'n', 'type': ['null', 'long'], 'default': None}]
    """
    return _record("Record", list(schema))


def _record(name: str, fields: list[pa.Field]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_field(name, field) for field in fields]}


def _field(parent: str, field: pa.Field) -> dict[str, Any]:
    if not _NAME.fullmatch(field.name):
        raise NoAvroType(f"a column of Avro's has a name of letters, digits and _, and {field.name!r} is none")
    type = _or_null(f"{parent}_{field.name}", field)
    if type == "null" or isinstance(type, list):
        return {"name": field.name, "type": type, "default": None}
    return {"name": field.name, "type": type}


def _or_null(name: str, field: pa.Field) -> Any:
    type = _type(name, field.type)
    return ["null", type] if field.nullable and type != "null" else type


def _type(name: str, type: pa.DataType) -> Any:
    for is_plain, avro in _PLAIN:
        if is_plain(type):
            return avro
    if t.is_dictionary(type):
        return _type(name, type.value_type)
    if t.is_timestamp(type) and type.unit != "ns":
        kind = "timestamp-micros" if type.unit == "us" else "timestamp-millis"
        return {"type": "long", "logicalType": kind if type.tz else f"local-{kind}"}
    if t.is_decimal(type):
        return {"type": "bytes", "logicalType": "decimal", "precision": type.precision, "scale": type.scale}
    if t.is_map(type) and _type(name, type.key_type) == "string":
        return {"type": "map", "values": _or_null(f"{name}_value", type.item_field)}
    if t.is_struct(type):
        return _record(name, list(type))
    if t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type):
        return {"type": "array", "items": _or_null(f"{name}_item", type.value_field)}
    raise NoAvroType(f"Avro has no {type}, and {name.partition('_')[2]!r} is one")


def _is_one_of(*types: pa.DataType) -> Any:
    return lambda type: type in types


_PLAIN: list[tuple[Any, Any]] = [
    (t.is_boolean, "boolean"),
    (_is_one_of(pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()), "int"),
    (_is_one_of(pa.int64(), pa.uint32()), "long"),
    (_is_one_of(pa.float16(), pa.float32()), "float"),
    (t.is_float64, "double"),
    (_is_one_of(pa.string(), pa.large_string(), pa.string_view()), "string"),
    (_is_one_of(pa.binary(), pa.large_binary(), pa.binary_view()), "bytes"),
    (t.is_fixed_size_binary, "bytes"),
    (t.is_null, "null"),
    (t.is_date32, {"type": "int", "logicalType": "date"}),
    (_is_one_of(pa.time32("ms"), pa.time32("s")), {"type": "int", "logicalType": "time-millis"}),
    (_is_one_of(pa.time64("us")), {"type": "long", "logicalType": "time-micros"}),
]
