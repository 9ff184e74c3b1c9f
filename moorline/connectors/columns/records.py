"""Records of any format of messages as columns of a schema: dicts by their keys, objects by their attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow as pa

from moorline.connectors.columns.fields import UnfitColumns, from_values, whole_batch
from moorline.connectors.columns.json import struct_columns, struct_of
from moorline.connectors.formats.base import Format
from moorline.connectors.formats.json import JsonFormat, RegisteredJsonFormat

Columns = Callable[[Sequence[Any]], pa.RecordBatch]


def decoder_of(format: Format[Any], schema: pa.Schema) -> tuple[Callable[[bytes], Any], Columns]:
    """The decoder of a message for the columns of a schema, and the maker of columns from what it gives.

    JSON of no type of its own is decoded into a struct of the schema; of any other format the records as they are have
    the columns.

    >>> decode, columns = decoder_of(JsonFormat(None), pa.schema([("cents", pa.int64())]))
    >>> columns([decode(b'{"cents":5,"more":1}')]).to_pylist()
    [{'cents': 5}]
    """
    if isinstance(format, (JsonFormat, RegisteredJsonFormat)) and format.type is None:
        return format.of_type(struct_of(schema)).decode, struct_columns(schema)
    return format.decode, record_columns(schema)


def record_columns(schema: pa.Schema) -> Columns:
    """A function from records of one kind to their columns, which raises :class:`UnfitColumns`.

    >>> record_columns(pa.schema([("cents", pa.int64())]))([{"cents": 5, "more": 1}]).to_pylist()
    [{'cents': 5}]
    """

    def columns(records: Sequence[Any]) -> pa.RecordBatch:
        try:
            arrays = [from_values(_values(records, field.name), field) for field in schema]
        except (KeyError, AttributeError, TypeError) as error:
            name = error.args[0] if isinstance(error, KeyError) else error
            raise UnfitColumns(f"it has no column {name}") from None
        return whole_batch(arrays, schema)

    return columns


def _values(records: Sequence[Any], name: str) -> list[Any]:
    if not records:
        return []
    first = records[0]
    if isinstance(first, dict):
        return list(map(itemgetter(name), records))
    values = list(map(attrgetter(name), records))
    descriptor = getattr(first, "DESCRIPTOR", None)  # of Protobuf, where a field that is not there has a default
    if descriptor is None:
        return values
    field = descriptor.fields_by_name[name]
    is_repeated = getattr(field, "is_repeated", None)  # older versions of Protobuf have a label in its place
    if field.label == field.LABEL_REPEATED if is_repeated is None else is_repeated:
        return list(map(list, values))
    if field.has_presence:
        return [value if record.HasField(name) else None for value, record in zip(values, records)]
    return values
