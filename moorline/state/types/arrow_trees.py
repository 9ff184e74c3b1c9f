"""Arrow's own types from the trees that a manifest has of them (``model/type_tree/arrow.py``), and back."""

from __future__ import annotations

from typing import assert_never

import pyarrow as pa

from moorline.model.type_tree import arrow as tree

_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "large_string": pa.large_string(),
    "large_binary": pa.large_binary(),
    "date32": pa.date32(),
    "time32[ms]": pa.time32("ms"),
    "time64[us]": pa.time64("us"),
    "time64[ns]": pa.time64("ns"),
    **{f"duration[{unit}]": pa.duration(unit) for unit in ("s", "ms", "us", "ns")},
    **{f"timestamp[{unit}]": pa.timestamp(unit) for unit in ("ms", "us", "ns")},
}
_WORDS = {data_type: word for word, data_type in _TYPES.items()}


def arrow_tree(data_type: pa.DataType) -> tree.ArrowType:
    """The tree of an Arrow type. Raises ``ValueError`` for one that state cannot have.

    >>> print(arrow_tree(pa.struct([("at", pa.timestamp("us", "UTC")), ("sizes", pa.list_(pa.int16()))])))
    struct<at: timestamp[us, tz=UTC], sizes: list<int16>>
    """
    kind = pa.types
    if data_type in _WORDS:
        return tree.Word(_WORDS[data_type])
    if kind.is_timestamp(data_type) and data_type.unit != "s":
        return tree.Timestamp(data_type.unit, data_type.tz)
    if kind.is_decimal128(data_type) or kind.is_decimal256(data_type):
        return tree.Decimal(data_type.bit_width, data_type.precision, data_type.scale)
    if kind.is_fixed_size_binary(data_type):
        return tree.FixedBytes(data_type.byte_width)
    if kind.is_list(data_type) or kind.is_large_list(data_type):
        return tree.List(arrow_tree(data_type.value_type), is_large=kind.is_large_list(data_type))
    if kind.is_fixed_size_list(data_type):
        return tree.FixedList(arrow_tree(data_type.value_type), data_type.list_size)
    if kind.is_map(data_type):
        return tree.Map(arrow_tree(data_type.key_type), arrow_tree(data_type.item_type))
    if kind.is_struct(data_type):
        return tree.Struct(tuple(tree.Field(f.name, arrow_tree(f.type), f.nullable) for f in data_type))
    raise ValueError(f"the Arrow type {data_type}")


def data_type(arrow: tree.ArrowType) -> pa.DataType:
    """The Arrow type of a tree.

    >>> data_type(tree.List(tree.Word("int16"), is_large=False))
    ListType(list<item: int16>)
    """
    match arrow:
        case tree.Word(word):
            return _TYPES[word]
        case tree.Timestamp(unit, zone):
            return pa.timestamp(unit, zone)
        case tree.Decimal(bits, precision, scale):
            return (pa.decimal128 if bits == 128 else pa.decimal256)(precision, scale)
        case tree.FixedBytes(width):
            return pa.binary(width)
        case tree.List(item, is_large):
            return (pa.large_list if is_large else pa.list_)(data_type(item))
        case tree.FixedList(item, size):
            return pa.list_(data_type(item), size)
        case tree.Map(key, value):
            return pa.map_(data_type(key), data_type(value))
        case tree.Struct(fields):
            return pa.struct([pa.field(f.name, data_type(f.type), nullable=f.nullable) for f in fields])
        case _:
            assert_never(arrow)
