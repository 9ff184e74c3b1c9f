"""Arrow types in words, the same words in every version of PyArrow, and back.

    int8 ... uint64  float16 float32 float64  bool  string binary large_string large_binary  date32
    time64[us]  timestamp[us]  timestamp[us, tz=UTC]  duration[ns]  decimal128(10, 2)  fixed_size_binary[16]
    list<T>  large_list<T>  fixed_size_list<T>[3]  map<K, V>  struct<name: T, "other name": T not null>

Types that a Parquet file does not give back as they were are left out: date64, whole seconds, decimals with a scale
below zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from moorline.state.types.scanner import Scanner, quoted

_SIMPLE: dict[str, pa.DataType] = {
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
_NAMES = {t: name for name, t in _SIMPLE.items()}
_WORD = re.compile(r"[a-z0-9_]+(\[[a-z]+\])?")
_NUMBER = re.compile(r"-?\d{1,9}")
_ZONE = re.compile(r"[\w+\-/:]{1,100}")
_FIELD = re.compile(r"\w+")


def spell_arrow(wanted: pa.DataType) -> str:
    """The words for a type. Raises ``ValueError`` for one that state cannot have.

    >>> spell_arrow(pa.struct([("at", pa.timestamp("us", "UTC")), ("sizes", pa.list_(pa.int16()))]))
    'struct<at: timestamp[us, tz=UTC], sizes: list<int16>>'
    """
    kind = pa.types
    if wanted in _NAMES:
        return _NAMES[wanted]
    if kind.is_timestamp(wanted) and wanted.unit != "s" and _ZONE.fullmatch(wanted.tz):
        return f"timestamp[{wanted.unit}, tz={wanted.tz}]"
    if (kind.is_decimal128(wanted) or kind.is_decimal256(wanted)) and 0 <= wanted.scale <= wanted.precision:
        return f"decimal{wanted.bit_width}({wanted.precision}, {wanted.scale})"
    if kind.is_fixed_size_binary(wanted):
        return f"fixed_size_binary[{wanted.byte_width}]"
    if kind.is_list(wanted):
        return f"list<{spell_arrow(wanted.value_type)}>"
    if kind.is_large_list(wanted):
        return f"large_list<{spell_arrow(wanted.value_type)}>"
    if kind.is_fixed_size_list(wanted):
        return f"fixed_size_list<{spell_arrow(wanted.value_type)}>[{wanted.list_size}]"
    if kind.is_map(wanted):
        return f"map<{spell_arrow(wanted.key_type)}, {spell_arrow(wanted.item_type)}>"
    if kind.is_struct(wanted) and wanted.num_fields and len({f.name for f in wanted}) == wanted.num_fields:
        return f"struct<{', '.join(map(_spell_field, wanted))}>"
    raise ValueError(f"the Arrow type {wanted}")


def _spell_field(field: pa.Field) -> str:
    return f"{quoted(field.name, _FIELD)}: {spell_arrow(field.type)}{'' if field.nullable else ' not null'}"


def parse_arrow(scan: Scanner, depth: int) -> pa.DataType:
    """The type that comes next, nested at most ``depth`` deep."""
    if depth < 0:
        scan.fail("it is nested too deeply")
    for start, rest in _NESTED.items():
        if scan.accept(start):
            try:
                return rest(scan, depth)
            except (pa.ArrowException, OverflowError) as error:
                scan.fail(f"{error}"[:200])
    word = scan.match(_WORD, "an Arrow type")
    if word not in _SIMPLE:
        scan.fail(f"there is no Arrow type {word!r:.100}")
    return _SIMPLE[word]


def _timestamp(unit: str) -> Callable[[Scanner, int], pa.DataType]:
    def rest(scan: Scanner, depth: int) -> pa.DataType:
        zone = scan.match(_ZONE, "a time zone")
        scan.expect("]")
        return pa.timestamp(unit, zone)

    return rest


def _decimal(build: Callable[[int, int], pa.DataType]) -> Callable[[Scanner, int], pa.DataType]:
    def rest(scan: Scanner, depth: int) -> pa.DataType:
        precision = _number(scan)
        scan.expect(", ")
        scale = _number(scan)
        scan.expect(")")
        if not 0 <= scale <= precision:
            scan.fail("a scale lies between 0 and the precision")
        try:
            return build(precision, scale)
        except ValueError as error:
            scan.fail(str(error))

    return rest


def _fixed_size_binary(scan: Scanner, depth: int) -> pa.DataType:
    width = _size(scan)
    return pa.binary(width)


def _list(build: Callable[[pa.DataType], pa.DataType]) -> Callable[[Scanner, int], pa.DataType]:
    def rest(scan: Scanner, depth: int) -> pa.DataType:
        item = parse_arrow(scan, depth - 1)
        scan.expect(">")
        return build(item)

    return rest


def _fixed_size_list(scan: Scanner, depth: int) -> pa.DataType:
    item = parse_arrow(scan, depth - 1)
    scan.expect(">[")
    return pa.list_(item, _size(scan))


def _map(scan: Scanner, depth: int) -> pa.DataType:
    key = parse_arrow(scan, depth - 1)
    scan.expect(", ")
    value = parse_arrow(scan, depth - 1)
    scan.expect(">")
    return pa.map_(key, value)


def _struct(scan: Scanner, depth: int) -> pa.DataType:
    def read() -> tuple[pa.DataType, bool]:
        return parse_arrow(scan, depth - 1), not scan.accept(" not null")

    fields = scan.fields(_FIELD, read, ">")
    return pa.struct([pa.field(name, kind, nullable=nullable) for name, (kind, nullable) in fields.items()])


def _size(scan: Scanner) -> int:
    """``n]``"""
    size = _number(scan)
    if size < 0:
        scan.fail("a size is not negative")
    scan.expect("]")
    return size


def _number(scan: Scanner) -> int:
    return int(scan.match(_NUMBER, "a number"))


_NESTED: dict[str, Callable[[Scanner, int], pa.DataType]] = {
    **{f"timestamp[{unit}, tz=": _timestamp(unit) for unit in ("ms", "us", "ns")},
    "decimal128(": _decimal(pa.decimal128),
    "decimal256(": _decimal(pa.decimal256),
    "fixed_size_binary[": _fixed_size_binary,
    "list<": _list(pa.list_),
    "large_list<": _list(pa.large_list),
    "fixed_size_list<": _fixed_size_list,
    "map<": _map,
    "struct<": _struct,
}
