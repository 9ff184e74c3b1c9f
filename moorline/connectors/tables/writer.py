"""The writer of a sink into a table: records become Parquet files, one for each partition, staged at each barrier."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Hashable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from moorline.api.sinks import SinkContext, SinkWriter
from moorline.connectors.row_tables import RowTables
from moorline.connectors.tables.staging import StagingArea, sink_tag, staged_name
from moorline.model.columns import ColumnBatch

#: Rows collected before they become a row group.
GROUP = 32 * 1024


class _OpenFile:
    """A file that is being written, out of sight."""

    def __init__(self, area: StagingArea, sink: str, schema: pa.Schema, **options: Any) -> None:
        self._area = area
        self._temporary, self._file = area.begin(sink)
        self._metadata: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(self._file, schema, metadata_collector=self._metadata, **options)

    def write(self, table: pa.Table) -> None:
        """Append a row group."""
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def stage(self, path: str) -> tuple[int, pq.FileMetaData]:
        """Make it whole and durable, under its path. Returns its size and its footer."""
        self._writer.close()
        return self._area.place(self._temporary, self._file, path), self._metadata[0]

    def discard(self) -> None:
        """Give it up."""
        with contextlib.suppress(OSError, ValueError, pa.ArrowException):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)


class TableWriter(SinkWriter):
    """Subclasses say how rows fall into partitions and what the table wants to know about a file."""

    #: For ``pyarrow.parquet.ParquetWriter``.
    parquet_options: dict[str, Any] = {"compression": "zstd"}

    def __init__(self, ctx: SinkContext, area: StagingArea, tables: RowTables, in_files: pa.Schema) -> None:
        self._ctx, self._area, self._tables, self._in_files = ctx, area, tables, in_files
        self._tag = sink_tag(ctx.job, ctx.uid)
        self._rows: list[Any] = []
        #: Columns that wait, and come after :attr:`_rows`: of the two only one ever waits.
        self._columns: list[pa.Table] = []
        #: By partition.
        self._open: dict[Hashable, _OpenFile] = {}

    def partitions(self, table: pa.Table) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
        """The rows of each partition, with its values."""
        raise NotImplementedError

    def path(self, partition: Any, name: str) -> str:
        """The place in the area of a file of a partition."""
        raise NotImplementedError

    def committable(self, partition: Any, path: str, size: int, metadata: pq.FileMetaData) -> dict[str, Any]:
        """The facts of a staged file that the table wants, as plain data."""
        raise NotImplementedError

    def write(self, records: list[Any] | ColumnBatch) -> None:
        if isinstance(records, ColumnBatch):
            self._write_rows()
            self._columns.append(self._tables.columns(records.batch))
            if sum(table.num_rows for table in self._columns) >= GROUP:
                self._write_columns()
            return
        self._write_columns()
        self._rows += records
        if len(self._rows) >= GROUP:
            self._write_rows()

    def prepare(self, checkpoint: int) -> list[Any]:
        self._write_rows()
        self._write_columns()
        ctx, staged = self._ctx, []
        for partition in list(self._open):
            path = self.path(partition, staged_name(self._tag, ctx.lineage, checkpoint, ctx.subtask))
            size, metadata = self._open.pop(partition).stage(path)
            staged.append(self.committable(partition, path, size, metadata))
        return staged

    def close(self) -> None:
        for opened in self._open.values():
            opened.discard()
        self._open = {}

    def _write_rows(self) -> None:
        if self._rows:
            rows, self._rows = self._rows, []
            self._write_group(self._tables.table(rows))

    def _write_columns(self) -> None:
        if self._columns:
            table, self._columns = pa.concat_tables(self._columns).combine_chunks(), []
            self._write_group(table)

    def _write_group(self, table: pa.Table) -> None:
        for values, part in self.partitions(table):
            if values not in self._open:
                self._open[values] = _OpenFile(self._area, self._tag, self._in_files, **self.parquet_options)
            self._open[values].write(part.select(self._in_files.names))


def split_by(table: pa.Table, columns: list[str]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """The rows that have the same values in these columns, with these values. Rows keep their order.

    >>> rows = pa.table({"n": [1, 2, 3], "k": [7, 8, 7]})
    >>> [(values, part["n"].to_pylist()) for values, part in split_by(rows, ["k"])]
    [((7,), [1, 3]), ((8,), [2])]
    """
    if not columns:
        yield (), table
        return
    numbered = table.append_column("#row", pa.array(range(table.num_rows), pa.int64()))
    grouped = numbered.group_by(columns).aggregate([("#row", "list")])
    for row in grouped.to_pylist():
        yield tuple(row[column] for column in columns), table.take(pa.array(row["#row_list"], pa.int64()))
