"""The columns that folders say, beside those of the files in them: each has one value for all rows of a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from moorline.connectors.columns.fields import UnfitColumns, from_texts, from_values
from moorline.connectors.files.identity import shown
from moorline.errors import UnreadableRecord
from moorline.model.columns import ColumnBatch


def without_columns(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """The columns of a schema that are in the files.

    >>> without_columns(pa.schema([("day", pa.string()), ("n", pa.int64())]), {"day"}).names
    ['n']
    """
    return pa.schema([field for field in schema if field.name not in names])


def with_folder_columns(
    rows: ColumnBatch, values: Mapping[str, Any], schema: pa.Schema | bool, split: str
) -> ColumnBatch:
    """The rows of a file, with what its folders say.

    ``schema``: all columns in their order, or the types of the folders' alone, or a bool: their values are texts.

    >>> rows = ColumnBatch(pa.RecordBatch.from_pydict({"n": [1]}))
    >>> with_folder_columns(rows, {"day": "2"}, pa.schema([("day", pa.int64()), ("n", pa.int64())]), "day=2/a.csv")[0]
    {'day': 2, 'n': 1}
    """
    batch = rows.batch
    columns = dict(zip(batch.schema.names, batch.columns))
    fields = {field.name: field for field in batch.schema}
    declared = schema if isinstance(schema, pa.Schema) else pa.schema([])
    for name, value in values.items():
        field = declared.field(name) if name in declared.names else pa.field(name, pa.string())
        columns[name], fields[name] = _repeated(value, field, len(rows), split), field
    names = declared.names if set(declared.names) >= set(batch.schema.names) else list(columns)
    arrays = [columns[name] for name in names]
    return ColumnBatch(pa.RecordBatch.from_arrays(arrays, schema=pa.schema([fields[name] for name in names])))


def _repeated(value: Any, field: pa.Field, count: int, split: str) -> pa.Array:
    try:
        if isinstance(value, str):
            array = from_texts(pa.array([value]), field, empty_is_null=True)
        else:
            array = from_values([value], field)
        if array.null_count and not field.nullable:
            raise UnfitColumns(f"column {field.name!r} has no value, and the schema wants one")
    except UnfitColumns as error:
        raise UnreadableRecord(shown(split), "read", f"what its folders say does not fit the schema: {error}") from None
    return pa.repeat(array[0], count)
