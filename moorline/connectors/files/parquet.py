"""Parquet as a source: rows of one row group at a time."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from moorline.connectors.broken import BrokenRecords
from moorline.connectors.files.identity import Position, Print, check_same, replaced, seen_of, shown
from moorline.connectors.files.lines import is_utf8
from moorline.errors import StorageError, UnreadableRecord


class ParquetRecords:
    """A dict per row. One row group is in memory at a time."""

    def __init__(self, path: str, position: Position | None, broken: BrokenRecords, *, final: bool) -> None:
        self._path, self._broken = path, broken
        self._row = row = 0 if position is None else int(position["row"])
        self._group = pa.table({})
        #: The rows [first, end) that :attr:`_group` holds.
        self._first = self._end = 0
        self._groups = 0
        self._identity: Position = {}
        self._file: pq.ParquetFile | None = None
        if not final and not _has_footer(path):
            return  # still being written; the next listing looks at it again
        with open(path, "rb") as file:
            if row:
                check_same(file.fileno(), path, position)
            status = os.fstat(file.fileno())
            self._identity = {"print": str(Print(file.fileno(), status.st_size)), "seen": seen_of(status)}
        try:
            # Arrow takes no names that are not UTF-8.
            self._file = pq.ParquetFile(path if is_utf8(path) else open(path, "rb"))  # noqa: SIM115
        except (pa.ArrowException, OSError) as error:
            raise _refused(path, f"it is not a whole Parquet file: {error}", error) from error
        if row > self._file.metadata.num_rows:
            has = self._file.metadata.num_rows
            self.close()
            raise replaced(path, f"it has {has} rows, but {row} were read before")

    def read(self, limit: int) -> list[Any] | None:
        if self._file is None:
            return None
        try:
            while self._row >= self._end:
                if self._groups == self._file.metadata.num_row_groups:
                    return None
                self._next_group(self._file)
            rows = self._group.slice(self._row - self._first, limit).to_pylist()
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise StorageError.of(shown(self._path), "read", error) from error
            cause = f"rows {self._row} to {self._end - 1} cannot be read: {error}"
            self._broken.add(self._path, self._row, b"", cause, self._end - self._row)
            self._row = self._end
            return []
        self._row += len(rows)
        return list(rows)

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
        return {"row": self._row, **self._identity}

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _has_footer(path: str) -> bool:
    with open(path, "rb") as file:
        if file.seek(0, os.SEEK_END) < 12:
            return False
        file.seek(-4, os.SEEK_END)
        return file.read(4) == b"PAR1"


def _refused(path: str, cause: str, error: Exception) -> StorageError:
    """An error of the operating system, or of what is in the file."""
    if isinstance(error, OSError) and error.errno is not None:
        return StorageError.of(shown(path), "read", error)
    return UnreadableRecord(shown(path), "read", cause)
