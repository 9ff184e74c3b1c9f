"""The partitioning of an Iceberg table: what a user writes, and which rows belong together.

    "country"               identity(country)      the value itself
    "day(at)"               day(at)                also year, month, hour
    "bucket(16, customer)"  bucket[16](customer)   a hash of the value
    "truncate(3, postcode)" truncate[3](postcode)  its beginning

Values of partitions are what Iceberg calls its internal representation: a date is a number of days. In a snapshot of
ours they are the bytes by which Iceberg's format writes single values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record

from moorline.connectors.tables.writer import split_by
from moorline.errors import InvalidArgument

_SIMPLE = {
    "identity": IdentityTransform,
    "year": YearTransform,
    "month": MonthTransform,
    "day": DayTransform,
    "hour": HourTransform,
}
_WITH_NUMBER = {"bucket": BucketTransform, "truncate": TruncateTransform}
_CALL = re.compile(r"(\w+)\(\s*(?:(\d{1,9})\s*,\s*)?(.+?)\s*\)")


@dataclass(frozen=True)
class Partition:
    """A column, and what is made of its values."""

    column: str
    transform: Transform[Any, Any]

    @property
    def name(self) -> str:
        """The name of the partition field, as other writers call it."""
        if isinstance(self.transform, IdentityTransform):
            return self.column
        kind = str(self.transform).partition("[")[0]
        return f"{self.column}_{ {'truncate': 'trunc'}.get(kind, kind) }"

    def __str__(self) -> str:
        return f"{self.transform}({self.column})"


def parse_partition(text: Any) -> Partition:
    """The partition that a user has written.

    >>> str(parse_partition("bucket(16, customer)")), parse_partition("bucket(16, customer)").name
    ('bucket[16](customer)', 'customer_bucket')
    >>> str(parse_partition("country")), parse_partition("day(at)").name
    ('identity(country)', 'at_day')
    """
    if not isinstance(text, str) or not text:
        raise InvalidArgument("partition_by", text, 'Give columns, or transforms of them such as "day(at)".')
    call = _CALL.fullmatch(text)
    if call is None:
        return Partition(text, IdentityTransform())
    kind, number, column = call.groups()
    if kind in _SIMPLE and number is None:
        return Partition(column, _SIMPLE[kind]())
    if kind in _WITH_NUMBER and number is not None and int(number) > 0:
        return Partition(column, _WITH_NUMBER[kind](int(number)))
    known = "year(c), month(c), day(c), hour(c), bucket(n, c), truncate(width, c)"
    raise InvalidArgument("partition_by", text, f"Give a column c or one of {known}.")


def partitions_of(spec: PartitionSpec, schema: Schema) -> list[Partition]:
    """The partitions of a table. Fields that were dropped from it (``void``) are left out."""
    live = [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]
    return [Partition(schema.find_column_name(field.source_id) or field.name, field.transform) for field in live]


def refuse_unsupported(table: str, spec: PartitionSpec, schema: Schema) -> None:
    """Raise if rows cannot be put into the partitions of a table here."""
    top_level = {field.field_id for field in schema.fields}
    for field in spec.fields:
        if isinstance(field.transform, UnknownTransform):
            advice = f"The table {table} is partitioned by it, and PyIceberg does not know this transform."
            raise InvalidArgument("partition_by", f"{field.name}: {field.transform}", advice)
        if field.source_id not in top_level and not isinstance(field.transform, VoidTransform):
            advice = f"The table {table} is partitioned by a part of a nested column, which is not supported."
            raise InvalidArgument("partition_by", schema.find_column_name(field.source_id) or field.name, advice)


class Partitioner:
    """Puts rows into the partitions of a table, as its spec and schema are now."""

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        self._fields = []
        for field in spec.fields:
            if isinstance(field.transform, VoidTransform):
                self._fields.append(("", lambda value: None))
                continue
            source = schema.find_field(field.source_id)
            self._fields.append((source.name, field.transform.transform(source.field_type)))
        self._types = [field.field_type for field in spec.partition_type(schema).fields]
        self._names = [field.name for field in spec.fields]

    def split(self, table: pa.Table) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
        """The rows of each partition, with its values."""
        codes, values = [], []
        for number, (column, transform) in enumerate(self._fields):
            if not column:
                values.append([None])
                codes.append(pa.array([0] * table.num_rows, pa.int32()))
            else:
                in_column, code = _transformed(table[column], transform)
                values.append(in_column)
                codes.append(code)
            table = table.append_column(f"#partition {number}", codes[-1])
        names = [f"#partition {number}" for number in range(len(codes))]
        for code, part in split_by(table, names):
            yield tuple(values[number][n] for number, n in enumerate(code)), part

    def encode(self, values: tuple[Any, ...]) -> list[bytes | None]:
        """The values of a partition as plain data."""
        return [None if v is None else to_bytes(type, v) for type, v in zip(self._types, values)]

    def folder(self, values: tuple[Any, ...]) -> str:
        """Folders for people: the values themselves are in the table's manifests."""
        return "/".join(f"{_in_path(n)}={_in_path('null' if v is None else v)}" for n, v in zip(self._names, values))


def decode(spec: PartitionSpec, schema: Schema, encoded: list[bytes | None]) -> Record:
    """The values of a partition. Raises ValueError if they are not of this spec."""
    types = [field.field_type for field in spec.partition_type(schema).fields]
    if len(types) != len(encoded):
        raise ValueError(f"{len(encoded)} values for {len(types)} fields")
    try:
        return Record(*(None if data is None else from_bytes(type, data) for type, data in zip(types, encoded)))
    except Exception as error:  # struct.error, UnicodeDecodeError, ...
        raise ValueError(f"not values of {spec}: {error}") from None


def _transformed(column: pa.ChunkedArray, transform: Any) -> tuple[list[Any], pa.Array]:
    """The different results of a transform, and for each row the number of its own."""
    encoded = pc.dictionary_encode(_internal(column.combine_chunks()), null_encoding="encode")
    results: dict[Any, int] = {}
    numbers = [results.setdefault(transform(value), len(results)) for value in encoded.dictionary.to_pylist()]
    return list(results), pa.array(numbers, pa.int32()).take(encoded.indices)


def _internal(column: pa.Array) -> pa.Array:
    """The values in Iceberg's internal representation."""
    type = column.type
    if isinstance(type, pa.BaseExtensionType):
        return column.storage
    if pa.types.is_date32(type):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(type) or pa.types.is_time64(type):
        return column.cast(pa.int64())
    return column


def _in_path(value: Any) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", str(value))[:48] or "_"
