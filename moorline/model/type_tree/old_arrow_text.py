"""The text of an Arrow type as storage formats 1 to 3 have it, read as a tree.

int8 ... uint64  float16 float32 float64  bool  string binary large_string large_binary  date32
time64[us]  timestamp[us]  timestamp[us, tz=UTC]  duration[ns]  decimal128(10, 2)  fixed_size_binary[16]
list<T>  large_list<T>  fixed_size_list<T>[3]  map<K, V>  struct<name: T, "other name": T not null>
"""

from __future__ import annotations

import re
from collections.abc import Callable

from moorline.model.type_tree import arrow
from moorline.model.type_tree.printing import SAFE_FIELD
from moorline.model.type_tree.scanner import Scanner

_WORD = re.compile(r"[a-z0-9_]+(\[[a-z]+\])?")
_NUMBER = re.compile(r"-?\d{1,9}")


def read_arrow(scan: Scanner, depth: int) -> arrow.ArrowType:
    """The type that comes next, nested at most ``depth`` deep."""
    if depth < 0:
        scan.fail("it is nested too deeply")
    for start, rest in _NESTED.items():
        if scan.accept(start):
            return rest(scan, depth)
    return scan.made(arrow.Word, scan.match(_WORD, "an Arrow type"))


def _timestamp(unit: str) -> Callable[[Scanner, int], arrow.ArrowType]:
    def rest(scan: Scanner, depth: int) -> arrow.ArrowType:
        zone = scan.match(arrow.ZONE, "a time zone")
        scan.expect("]")
        return scan.made(arrow.Timestamp, unit, zone)

    return rest


def _decimal(bits: int) -> Callable[[Scanner, int], arrow.ArrowType]:
    def rest(scan: Scanner, depth: int) -> arrow.ArrowType:
        precision = _number(scan)
        scan.expect(", ")
        scale = _number(scan)
        scan.expect(")")
        return scan.made(arrow.Decimal, bits, precision, scale)

    return rest


def _fixed_bytes(scan: Scanner, depth: int) -> arrow.ArrowType:
    return scan.made(arrow.FixedBytes, _size(scan))


def _list(is_large: bool) -> Callable[[Scanner, int], arrow.ArrowType]:
    def rest(scan: Scanner, depth: int) -> arrow.ArrowType:
        item = read_arrow(scan, depth - 1)
        scan.expect(">")
        return arrow.List(item, is_large)

    return rest


def _fixed_list(scan: Scanner, depth: int) -> arrow.ArrowType:
    item = read_arrow(scan, depth - 1)
    scan.expect(">[")
    return scan.made(arrow.FixedList, item, _size(scan))


def _map(scan: Scanner, depth: int) -> arrow.ArrowType:
    key = read_arrow(scan, depth - 1)
    scan.expect(", ")
    value = read_arrow(scan, depth - 1)
    scan.expect(">")
    return arrow.Map(key, value)


def _struct(scan: Scanner, depth: int) -> arrow.ArrowType:
    def read() -> tuple[arrow.ArrowType, bool]:
        return read_arrow(scan, depth - 1), not scan.accept(" not null")

    fields = scan.fields(SAFE_FIELD, read, ">")
    return scan.made(arrow.Struct, tuple(arrow.Field(name, *rest) for name, rest in fields.items()))


def _size(scan: Scanner) -> int:
    """``n]``"""
    size = _number(scan)
    scan.expect("]")
    return size


def _number(scan: Scanner) -> int:
    return int(scan.match(_NUMBER, "a number"))


_NESTED: dict[str, Callable[[Scanner, int], arrow.ArrowType]] = {
    **{f"timestamp[{unit}, tz=": _timestamp(unit) for unit in ("ms", "us", "ns")},
    "decimal128(": _decimal(128),
    "decimal256(": _decimal(256),
    "fixed_size_binary[": _fixed_bytes,
    "list<": _list(is_large=False),
    "large_list<": _list(is_large=True),
    "fixed_size_list<": _fixed_list,
    "map<": _map,
    "struct<": _struct,
}
