"""Records of Parquet, ORC and Avro as the columns that are declared: chosen by name, in the declared types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from moorline.connectors.broken import BrokenRecords
from moorline.connectors.columns.fields import ARROW_ERRORS, UnfitColumns, batch_of_fitting, from_values, whole_batch
from moorline.connectors.files.identity import shown
from moorline.connectors.files.opened import Position
from moorline.errors import UnreadableRecord
from moorline.model.arrow_values import cast_column
from moorline.model.columns import ColumnBatch

if TYPE_CHECKING:
    from moorline.connectors.files.formats.choosing import RecordFile


class ShapedRecords:
    """The records of a file, as columns of a schema."""

    def __init__(self, file: RecordFile, path: str, broken: BrokenRecords, schema: pa.Schema) -> None:
        self._file, self._path, self._broken, self._schema = file, path, broken, schema

    @property
    def is_final(self) -> bool:
        return self._file.is_final

    def read(self, limit: int) -> Sequence[Any] | None:
        records = self._file.read(limit)
        return ColumnBatch(batch_of_fitting(records, self._columns, self._unfit)) if records else records

    def position(self) -> Position:
        return self._file.position()

    def close(self) -> None:
        self._file.close()

    def _columns(self, records: Sequence[Any]) -> pa.RecordBatch:
        if isinstance(records, ColumnBatch):
            return whole_batch((self._column(records.batch, field) for field in self._schema), self._schema)
        if not all(isinstance(record, dict) for record in records):
            raise UnfitColumns("it has no columns")
        for name in self._schema.names:
            if records and name not in records[0]:
                raise self._no_column(name, records[0])
        columns = (from_values([record[field.name] for record in records], field) for field in self._schema)
        return whole_batch(columns, self._schema)

    def _column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if field.name not in batch.schema.names:
            raise self._no_column(field.name, batch.schema.names)
        try:
            return cast_column(batch.column(field.name), field.type)
        except ARROW_ERRORS as error:
            raise UnfitColumns(f"column {field.name!r}: {error}") from None

    def _no_column(self, name: str, names: Any) -> UnreadableRecord:
        return UnreadableRecord(shown(self._path), "read", f"it has no column {name!r}: it has {', '.join(names)}")

    def _unfit(self, place: int, error: UnfitColumns) -> None:
        at = self._file.position()
        where = ", ".join(f"{unit} {at[unit]}" for unit in ("row", "stripe", "offset", "record") if unit in at)
        self._broken.add(self._path, where, b"", f"a record before {where} does not fit the schema: {error}")
