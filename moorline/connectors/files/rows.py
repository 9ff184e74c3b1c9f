"""Files of records: JSON lines, or Parquet.

A JSON line holds any record that JSON can express (a tuple becomes an array). ``connectors/row_tables.py`` says what a
record is in a Parquet file.
"""

from __future__ import annotations

from typing import IO, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from moorline.connectors.row_tables import RowTables, UnfitRecord

#: Rows collected before they become a row group.
_GROUP = 32 * 1024


class JsonLinesFile:
    """Records as JSON, one per line."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._file = file
        self._path = path
        self._encoder = msgspec.json.Encoder()

    def write(self, records: list[Any]) -> None:
        """Append the records."""
        try:
            lines = self._encoder.encode_lines(records)
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise self._fault(records) from None
        self._file.write(lines)

    def _fault(self, records: list[Any]) -> UnfitRecord:
        for record in records:
            try:
                self._encoder.encode(record)
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                advice = "Map it to what JSON has: dicts with text keys, lists, texts, numbers, booleans and None."
                return UnfitRecord(self._path, f"{record!r:.200}", str(error), advice)
        raise AssertionError("the same records were refused a moment ago")

    def finish(self) -> None:
        """Nothing is held back here."""


class ParquetRowFile:
    """Records as rows. Without a schema it follows from the first rows of the file."""

    def __init__(self, file: IO[bytes], path: str, schema: pa.Schema | None) -> None:
        self._file = file
        self._tables = RowTables(path, schema, "write_files")
        self._rows: list[Any] = []
        self._writer: pq.ParquetWriter | None = None

    def write(self, records: list[Any]) -> None:
        """Append the records."""
        self._rows += records
        if len(self._rows) >= _GROUP:
            self._write_group()

    def finish(self) -> None:
        """Write what is left, and the footer."""
        if self._rows:
            self._write_group()
        if self._writer is not None:
            self._writer.close()

    def _write_group(self) -> None:
        records, self._rows = self._rows, []
        table = self._tables.table(records)
        try:
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._file, table.schema, compression="zstd")
            self._writer.write_table(table, row_group_size=len(records))
        except pa.ArrowException as error:
            raise self._tables.unfit(records[0], f"it or one of the {len(records)} with it: {error}") from error
