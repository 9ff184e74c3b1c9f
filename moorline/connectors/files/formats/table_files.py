"""Files with columns that a sink writes: Parquet, ORC, CSV and Avro.

``connectors/row_tables.py`` says what a record is in a table. Without a schema, the columns follow from the first rows
of each file.

    parquet   a row group at a time
    orc       stripes as large as the library makes them
    csv       a header with the names; texts in quotes, so that an empty one differs from none, which is an empty field
    avro      blocks of some hundred kilobytes; with an Avro schema of the user's, records go to fastavro as they are
"""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq

from moorline.connectors.files.formats.avro import fastavro
from moorline.connectors.files.formats.avro_schema import NoAvroType, avro_schema
from moorline.connectors.row_tables import RowTables, UnfitRecord, as_row
from moorline.model.columns import ColumnBatch

#: Rows collected before they are written, as a row group.
_GROUP = 32 * 1024
#: Bytes of a table that are written at once, if rows are so large that fewer of them make it.
_GROUP_BYTES = 64 << 20
#: Bytes in a block of an Avro file, before it is compressed.
_BLOCK = 256 * 1024


class TableFileWriter(Protocol):
    """A library's writer of one file."""

    def write_table(self, table: pa.Table) -> None:
        """Append the rows."""

    def close(self) -> None:
        """Write the end of the file."""


#: Makes the writer of a file with this schema.
OpenTableWriter = Callable[[IO[bytes], pa.Schema], TableFileWriter]


class TableFile:
    """Records as rows."""

    takes_columns = True

    def __init__(self, file: IO[bytes], path: str, schema: pa.Schema | None, open_writer: OpenTableWriter) -> None:
        self._file, self._open_writer = file, open_writer
        self._tables = RowTables(path, schema, "write_files")
        self._rows: list[Any] = []
        #: Columns that wait, and come after :attr:`_rows`: of the two only one ever waits.
        self._columns: list[pa.Table] = []
        self._group = _GROUP
        self._writer: TableFileWriter | None = None

    def write(self, records: list[Any] | ColumnBatch) -> None:
        """Append the records."""
        if isinstance(records, ColumnBatch):
            self._write_rows()
            self._columns.append(self._tables.columns(records.batch))
            if sum(table.num_rows for table in self._columns) >= _GROUP:
                self._write_columns()
            return
        self._write_columns()
        self._rows += records
        if len(self._rows) >= self._group:
            self._write_rows()

    def finish(self) -> None:
        """Write what is left, and the footer."""
        self._write_rows()
        self._write_columns()
        if self._writer is not None:
            self._writer.close()

    def _write_rows(self) -> None:
        if not self._rows:
            return
        records, self._rows = self._rows, []
        table = self._tables.table(records)
        self._group = max(1, min(_GROUP, _GROUP_BYTES * len(records) // max(table.nbytes, 1)))
        self._write_table(table, records[0])

    def _write_columns(self) -> None:
        if self._columns:
            table, self._columns = pa.concat_tables(self._columns).combine_chunks(), []
            self._write_table(table, table.slice(0, 1).to_pylist()[0])

    def _write_table(self, table: pa.Table, first: Any) -> None:
        try:
            if self._writer is None:
                self._writer = self._open_writer(self._file, table.schema)
            self._writer.write_table(table)
        except (pa.ArrowException, NoAvroType) as error:
            raise self._tables.unfit(first, f"it or one of the {table.num_rows} with it: {error}") from error


class AvroFile:
    """Records by an Avro schema of the user's."""

    takes_columns = False

    def __init__(self, file: IO[bytes], path: str, schema: Any, codec: str) -> None:
        self._path = path
        # Fields that the schema does not have are refused, and such that are missing without a default.
        options = {"strict_allow_default": True}
        self._writer = fastavro().write.Writer(file, schema, codec, _BLOCK, validator=True, options=options)

    def write(self, records: list[Any]) -> None:
        """Append the records."""
        for record in records:
            row = as_row(record)
            try:
                self._writer.write(record if row is None else dict(row))
            except Exception as error:  # validation, and whatever a value of another type leads to
                advice = "Map the records to the Avro schema, or change it."
                raise UnfitRecord(self._path, f"{record!r:.200}", f"{error}"[:500], advice) from error

    def finish(self) -> None:
        """Write the last block."""
        self._writer.flush()


class ParquetTables:
    """Row groups of a Parquet file."""

    def __init__(self, file: IO[bytes], schema: pa.Schema, compression: str) -> None:
        self._writer = pq.ParquetWriter(file, schema, compression=compression)

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def close(self) -> None:
        self._writer.close()


class OrcTables:
    """Rows of an ORC file."""

    def __init__(self, file: IO[bytes], compression: str) -> None:
        self._writer = pyarrow.orc.ORCWriter(file, compression=compression)

    def write_table(self, table: pa.Table) -> None:
        self._writer.write(table)

    def close(self) -> None:
        self._writer.close()


class CsvTables:
    """A CSV file with a header."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._writer = pyarrow.csv.CSVWriter(file, schema)

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()


class AvroTables:
    """Blocks of an Avro file."""

    def __init__(self, file: IO[bytes], schema: pa.Schema, codec: str) -> None:
        self._writer = fastavro().write.Writer(file, avro_schema(schema), codec, _BLOCK)

    def write_table(self, table: pa.Table) -> None:
        for row in table.to_pylist(maps_as_pydicts="strict"):
            self._writer.write(row)

    def close(self) -> None:
        self._writer.flush()
