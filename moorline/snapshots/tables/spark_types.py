"""Arrow types for Spark: those that it lacks are replaced by wider ones."""

from __future__ import annotations

import pyarrow as pa

#: Spark has no unsigned numbers, no half floats, and one length of offsets.
_INSTEAD = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.date64(): pa.date32(),
    pa.null(): pa.string(),
}


def for_spark(columns: pa.Schema) -> pa.Schema:
    """Columns of types that Spark has. No value is lost, except that moments are cut to microseconds.

    >>> for_spark(pa.schema([("n", pa.uint32()), ("at", pa.timestamp("ms"))]))
    n: int64
    at: timestamp[us]
    """
    return pa.schema([pa.field(f.name, _type(f.type)) for f in columns])


def _type(kind: pa.DataType) -> pa.DataType:
    kinds = pa.types
    if kind in _INSTEAD:
        return _INSTEAD[kind]
    if kinds.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if kinds.is_duration(kind):
        return pa.duration("us")
    if kinds.is_time(kind):
        return pa.int64() if kinds.is_time64(kind) else pa.int32()
    if kinds.is_fixed_size_binary(kind):
        return pa.binary()
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        return pa.list_(_type(kind.value_type))
    if kinds.is_struct(kind):
        return pa.struct([pa.field(f.name, _type(f.type)) for f in kind])
    if kinds.is_map(kind):
        return pa.map_(_type(kind.key_type), _type(kind.item_type))
    return kind
