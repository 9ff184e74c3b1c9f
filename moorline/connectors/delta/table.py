"""A Delta table as a sink sees it: its schema, its files, and the marks that say what was committed.

    <table>/_moorline/<unique>                                               being written
    <table>/part-<sink>-<lineage>-<checkpoint>-<subtask>-<unique>.parquet    staged; the table's once its log says so
    app id "moorline/<job>/<uid>/<lineage>", version <checkpoint>            in the same entry of the log as the files

A file that the log does not name is invisible, so workers stage right where files stay. The log keeps the newest
version of each app id for good, also when old entries of it are cleaned up, and refuses two writers who move the same
one.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import deltalake
import pyarrow as pa
import xxhash
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, FileType, LocalFileSystem, PyFileSystem

from moorline.connectors.files.paths import sync_folder
from moorline.errors import InvalidArgument, StorageError

#: A folder below a table that Delta's own tools leave alone.
HIDDEN = "_moorline"
_BUFFER = 1 << 20
_FILE = re.compile(r"(?:.*/)?part-([0-9a-f]{16})-([0-9a-f]+)-([0-9]{10,20})-[0-9]{5,}-[0-9a-f]{32}\.parquet")


@dataclass(frozen=True)
class StagedFile:
    """What the name of a file says about it."""

    path: str
    sink: str
    lineage: str
    checkpoint: int


def staged_file(path: str) -> StagedFile | None:
    """The file of a sink of ours, or None if its name is another."""
    found = _FILE.fullmatch(path)
    return None if found is None else StagedFile(path, found[1], found[2], int(found[3]))


def staged_name(sink: str, lineage: str, checkpoint: int, subtask: int) -> str:
    """A new name for a file of a sink."""
    return f"part-{sink}-{lineage}-{checkpoint:010}-{subtask:05}-{uuid4().hex}.parquet"


def sink_tag(job: str, uid: str) -> str:
    """The tag that marks a sink's files among those of others."""
    return xxhash.xxh3_64_hexdigest(f"{job}\0{uid}".encode("utf-8", "surrogatepass"))


def app_id(job: str, uid: str, lineage: str) -> str:
    """The name under which the log remembers how far a sink's commits have come."""
    return f"moorline/{job}/{uid}/{lineage}"


class _Files(DeltaStorageHandler):  # type: ignore[misc]
    """The files of a table that is not on a disk here."""

    def upload(self, path: str) -> Any:
        """A stream into a new file. That of ``open_output_stream`` does not take what pyarrow writes to it."""
        return self._handler.open_output_stream(path, None)


@dataclass(frozen=True)
class TableLocation:
    """Where a table is, and how to get there."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # there may be passwords in them

    def open(self) -> DeltaTable:
        """The table as it is now. Raises ``TableNotFoundError``."""
        return DeltaTable(self.uri, storage_options=dict(self.options) or None)

    def find(self) -> DeltaTable | None:
        """The table as it is now, if there is one."""
        try:
            return self.open()
        except TableNotFoundError:
            return None

    def create(self, schema: pa.Schema, partition_by: list[str]) -> None:
        """Make an empty table, unless there is one."""
        options = dict(self.options) or None
        DeltaTable.create(self.uri, schema, "ignore", partition_by=partition_by or None, storage_options=options)

    @property
    def folder(self) -> str | None:
        """The table's folder, if it is on a disk here."""
        parts = urlsplit(self.uri)
        if parts.scheme == "file":
            return unquote(parts.path)
        return None if parts.scheme else os.path.abspath(self.uri)

    def begin(self) -> tuple[str, IO[bytes]]:
        """A new file out of sight: beside the table if it is on a disk here, or else on a disk of ours."""
        if self.folder is None:
            number, path = tempfile.mkstemp(prefix="moorline-delta-")
            return path, os.fdopen(number, "w+b", buffering=_BUFFER)
        hidden = os.path.join(self.folder, HIDDEN)
        os.makedirs(hidden, exist_ok=True)
        path = os.path.join(hidden, uuid4().hex)
        return path, open(path, "x+b", buffering=_BUFFER)

    def place(self, temporary: str, file: IO[bytes], path: str) -> int:
        """Have a file of :meth:`begin` durable under its path in the table. Returns its size."""
        file.flush()
        size = file.seek(0, os.SEEK_END)
        if self.folder is None:
            file.seek(0)
            target = _Files(self.uri, dict(self.options) or None).upload(path)
            while piece := file.read(_BUFFER):
                target.write(piece)
            target.close()
            file.close()
            os.unlink(temporary)
            return size
        os.fsync(file.fileno())
        file.close()
        full = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        os.rename(temporary, full)
        sync_folder(os.path.dirname(full))
        return size

    def read(self, path: str) -> bytes:
        """All of a small file. Raises FileNotFoundError."""
        with self.open_file(path) as file:
            return bytes(file.read())

    def open_file(self, path: str) -> pa.NativeFile:
        """A file of the table, to be read at any place."""
        return self._filesystem().open_input_file(os.path.join(self._root, path) if self._root else path)

    def staged(self, sink: str) -> Iterator[StagedFile]:
        """The files of a sink that are there, whether the log names them or not."""
        for info in self._filesystem().get_file_info(FileSelector(self._root, allow_not_found=True, recursive=True)):
            path = os.path.relpath(info.path, self._root) if self._root else info.path
            file = staged_file(path)
            if info.type is FileType.File and file is not None and file.sink == sink:
                yield file

    def remove(self, paths: list[str]) -> None:
        """Delete files that the log does not name."""
        for path in paths:
            self._filesystem().delete_file(os.path.join(self._root, path) if self._root else path)

    @property
    def _root(self) -> str:
        return self.folder or ""

    def _filesystem(self) -> Any:
        if self.folder is not None:
            return LocalFileSystem()
        return PyFileSystem(_Files(self.uri, dict(self.options) or None))


def arrow_schema(table: DeltaTable) -> pa.Schema:
    """The schema of a table, for records to be converted to."""
    return pa.schema(table.schema().to_arrow())


def check_against(table: DeltaTable, uri: str, schema: pa.Schema | None, partition_by: list[str] | None) -> None:
    """Raise if a table is not the one that a sink declares."""
    there, parts = arrow_schema(table), list(table.metadata().partition_columns)
    if partition_by is not None and partition_by != parts:
        advice = f"The table {uri} is partitioned by {parts or 'nothing'}: leave it out, or write to another table."
        raise InvalidArgument("partition_by", partition_by, advice)
    for column in schema if schema is not None else ():
        if column.name not in there.names:
            advice = f"The table {uri} has the columns {there.names}: add the column to it, or leave it out."
            raise InvalidArgument("schema", column.name, advice)
        stored = there.field(column.name).type
        if not _same(stored, column.type):
            advice = f"In the table {uri} column {column.name!r} is {stored}."
            raise InvalidArgument("schema", f"{column.name}: {column.type}", advice)
    missing = [f.name for f in there if schema is not None and f.name not in schema.names and not f.nullable]
    if missing:
        raise InvalidArgument("schema", schema, f"The table {uri} must not have nulls in {missing}: write them too.")


def _same(stored: pa.DataType, declared: pa.DataType) -> bool:
    """Are these one type in a Delta table? It knows neither of the large types, nor any unit but microseconds."""
    as_stored = pa.schema(deltalake.Schema.from_arrow(pa.schema([("x", declared)])).to_arrow()).field("x").type
    return bool(stored == as_stored)


def unreachable(uri: str, operation: str, error: Exception) -> StorageError:
    """The error of a table that cannot be used, in the words of the library."""
    return StorageError(uri, operation, f"{type(error).__name__}: {error}")
