"""Parquet as a source: rows of one row group at a time, in columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from moorline.connectors.broken import BrokenRecords
from moorline.connectors.files.identity import replaced, shown
from moorline.connectors.files.opened import OpenedFile, Position
from moorline.errors import UnreadableRecord
from moorline.model.columns import ColumnBatch

_MAGIC = b"PAR1"


class ParquetRecords:
    """A dict per row. One row group is in memory at a time."""

    def __init__(self, file: OpenedFile, position: Position | None, broken: BrokenRecords, *, final: bool) -> None:
        self._opened, self._broken = file, broken
        self._row = row = 0 if position is None else int(position["row"])
        self._group = pa.table({})
        #: The rows [first, end) that :attr:`_group` holds.
        self._first = self._end = 0
        self._groups = 0
        self._file: pq.ParquetFile | None = None
        if not final and not _has_footer(file):
            return  # still being written; the next listing looks at it again
        if row:
            file.check_same(position)
        file.begin(file.size)
        try:
            self._file = pq.ParquetFile(file.arrow)
        except (pa.ArrowException, OSError) as error:
            if (fault := file.fault(error)) is not None:
                raise fault from error
            cause = f"it is not a whole Parquet file: {error}"
            raise UnreadableRecord(shown(file.path), "read", cause) from error
        if row > self._file.metadata.num_rows:
            has = self._file.metadata.num_rows
            raise replaced(file.path, f"it has {has} rows, but {row} were read before")

    def read(self, limit: int) -> Sequence[Any] | None:
        if self._file is None:
            return None
        try:
            while self._row >= self._end:
                if self._groups == self._file.metadata.num_row_groups:
                    return None
                self._next_group(self._file)
            rows = whole_columns(self._group.slice(self._row - self._first, limit))
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            if (fault := self._opened.fault(error)) is not None:
                raise fault from error
            cause = f"rows {self._row} to {self._end - 1} cannot be read: {error}"
            self._broken.add(self._opened.path, self._row, b"", cause, self._end - self._row)
            self._row = self._end
            return []
        self._row += len(rows)
        return rows

    def _next_group(self, file: pq.ParquetFile) -> None:
        number, self._groups = self._groups, self._groups + 1
        self._first, self._end = self._end, self._end + file.metadata.row_group(number).num_rows
        if self._row < self._end:  # groups that lie before the position need not be read
            self._group = file.read_row_group(number)

    @property
    def is_final(self) -> bool:
        # A Parquet file is whole or it is not there yet: its footer is written last.
        return self._file is not None

    def position(self) -> Position:
        return {"row": self._row, **self._opened.identity()}

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._opened.close()


def whole_columns(table: pa.Table) -> ColumnBatch:
    """The rows as they lie in the file. Texts that are none are found here, and not by the first that makes rows."""
    (batch,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    batch.validate(full=True)
    return ColumnBatch(batch.replace_schema_metadata(None))


def _has_footer(file: OpenedFile) -> bool:
    if file.size < 3 * len(_MAGIC):
        return False
    file.stream.seek(-len(_MAGIC), os.SEEK_END)
    return file.stream.read(len(_MAGIC)) == _MAGIC
