"""Files read in turn by one subtask: how far into which one, and which are done. Wherever they lie.

``local/reader.py`` and ``remote/reader.py`` say which files there are.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from moorline.api.sources import SourceContext, SourceReader, SplitId
from moorline.connectors.broken import BrokenRecords, OnError
from moorline.connectors.files.formats.choosing import Format, RecordFile, format_of, open_file
from moorline.connectors.files.identity import shown
from moorline.connectors.files.opened import OpenedFile, Position
from moorline.connectors.files.partition_columns import with_folder_columns, without_columns
from moorline.connectors.files.partition_folders import NoPartition, columns_of
from moorline.errors import StorageError, UnreadableRecord
from moorline.model.columns import ColumnBatch


@dataclass(frozen=True)
class Reading:
    """The options by which files are read, wherever they lie."""

    #: None: each file's extension tells.
    format: Format | None
    on_error: OnError
    #: Do folders say columns? All of them, or those of a schema.
    partitions: bool | pa.Schema
    #: The columns that records are read as; None: records as the format has them.
    schema: pa.Schema | None = None


class FilesReader(SourceReader):
    """The reader of the files of one subtask, one after the other."""

    #: How many files without records one call of read() goes through before it lets the subtask look around.
    files_per_read = 64

    def __init__(self, reading: Reading, ctx: SourceContext) -> None:
        self._reading, self._ctx = reading, ctx
        self._broken = BrokenRecords(reading.on_error, ctx)
        #: What the folders of the file say that is being read.
        self._columns: dict[str, Any] = {}
        #: The splits of files with something to read, and of the one being read.
        self._queue: deque[str] = deque()
        self._split = ""
        self._file: RecordFile | None = None
        #: The position of every file that was begun, but for the one being read.
        self._positions: dict[SplitId, Any] = {}

    # --- what depends on where files lie ----------------------------------------------------------

    #: May files grow at their end? Then none on lines is ever finished.
    grows = False

    def _open_split(self, split: str) -> tuple[OpenedFile, Position | None]:
        """Open a file, and say from which position on it is read. FileNotFoundError if it is gone."""
        raise NotImplementedError

    def _is_gone(self, split: str) -> None:
        """A file was there when it was queued, and is not any more. Raises, or lets it go."""
        raise NotImplementedError

    def _is_done(self, split: str, position: Position) -> None:
        """A file is read for good; ``position`` has what it looked like."""
        raise NotImplementedError

    def _when_idle(self) -> list[Any] | None:
        """The answer of ``read`` if there is no file to read: nothing for now, or the end."""
        raise NotImplementedError

    # --- reading ----------------------------------------------------------------------------------

    def read(self, limit: int) -> Sequence[Any] | None:
        records = self._read(limit)
        self.side_outputs = self._broken.take()
        return records

    def _read(self, limit: int) -> Sequence[Any] | None:
        for _ in range(self.files_per_read):
            if self._file is None and not self._open_next():
                return self._when_idle()
            if self._file is None:
                continue
            try:
                with naming_file(self._split):
                    records = self._with_columns(self._file.read(limit))
            except UnreadableRecord as error:
                self._give_up_file(error)
                continue
            except FileNotFoundError:
                self._close_file()
                self._is_gone(self._split)
                continue
            if records is None:
                self._set_aside(self._file)
            elif records:
                self.split = self._split
                return records
        return []

    def _open_next(self) -> bool:
        """Begin the next file. False if there is none for now."""
        if not self._queue:
            return False
        self._split = split = self._queue.popleft()
        try:
            self._columns = self._columns_of(split)
            file, position = self._open_split(split)
            with naming_file(file.path):
                format = self._reading.format or format_of(file.path)
                schema = self._schema_of_file()
                self._file = open_file(file, format, position, self._broken, final=not self.grows, schema=schema)
        except UnreadableRecord as error:
            self._give_up_file(error)
        except FileNotFoundError:
            self._is_gone(split)
        return True

    def _columns_of(self, split: str) -> dict[str, Any]:
        partitions = self._reading.partitions
        if partitions is False:
            return {}
        try:
            return columns_of(split, None if partitions is True else partitions)
        except NoPartition as error:
            raise UnreadableRecord(shown(split), "read", str(error)) from None

    def _schema_of_file(self) -> pa.Schema | None:
        """The declared columns that folders do not say."""
        if self._reading.schema is None:
            return None
        schema = without_columns(self._reading.schema, self._columns)
        if not schema.names:
            cause = "its folders say all columns of the schema: declare one of those in the files too"
            raise UnreadableRecord(shown(self._split), "read", cause)
        return schema

    def _with_columns(self, records: Sequence[Any] | None) -> Sequence[Any] | None:
        if not records or not self._columns:
            return records
        if isinstance(records, ColumnBatch):
            types = self._reading.partitions
            return with_folder_columns(records, self._columns, self._reading.schema or types, self._split)
        try:
            return [{**record, **self._columns} for record in records]
        except TypeError:
            cause = f"it has records without columns, and its folders say {', '.join(self._columns)}"
            raise UnreadableRecord(shown(self._split), "read", cause) from None

    def _give_up_file(self, error: UnreadableRecord) -> None:
        """Nothing (more) of a file can be read."""
        if self._broken.fails:
            raise error
        self._broken.add(error.path, error.position, b"", error.cause)
        self._close_file()
        self._is_done(self._split, {})

    def _set_aside(self, file: RecordFile) -> None:
        position = file.position()
        file.close()
        self._file = None
        if file.is_final:
            self._is_done(self._split, {name: position[name] for name in ("print", "seen") if name in position})
        else:
            self._positions[self._split] = position

    def splits(self) -> Collection[SplitId]:
        return set() if self._file is None else {self._split}

    def positions(self) -> dict[SplitId, Any]:
        positions = dict(self._positions)
        if self._file is not None:
            positions[self._split] = self._file.position()
        return positions

    def close(self) -> None:
        self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@contextlib.contextmanager
def naming_file(path: str) -> Iterator[None]:
    """Name the file where the file system refuses. That it is not there is for the caller."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageError.of(shown(path), "read", error) from error
