"""A Delta table as a sink sees it: its schema, its files, and the marks that say what was committed.

    <table>/...                                                    staged files, see ``tables/staging.py``
    app id "moorline/<job>/<uid>/<lineage>", version <checkpoint>  in the same entry of the log as the files

The log keeps the newest version of each app id for good, also when old entries of it are cleaned up, and refuses two
writers who move the same one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import deltalake
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import LocalFileSystem, PyFileSystem

from moorline.connectors.tables import declared
from moorline.connectors.tables.staging import StagingArea
from moorline.errors import StorageError


class _Files(DeltaStorageHandler):  # type: ignore[misc]
    """The files of a table that is not on a disk here."""

    def upload(self, path: str) -> Any:
        """A stream into a new file. That of ``open_output_stream`` does not take what pyarrow writes to it."""
        return self._handler.open_output_stream(path, None)


@dataclass(frozen=True)
class TableLocation(StagingArea):
    """The location of a table, and the options to reach it."""

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

    def filesystem(self) -> Any:
        """The table's files, wherever they are."""
        if self.folder is not None:
            return LocalFileSystem()
        return PyFileSystem(_Files(self.uri, dict(self.options) or None))

    def upload(self, path: str) -> Any:
        """A stream into a new file of a table that is not on a disk here."""
        return _Files(self.uri, dict(self.options) or None).upload(path)

    def read(self, path: str) -> bytes:
        """All of a small file. Raises FileNotFoundError."""
        with self.open_file(path) as file:
            return bytes(file.read())

    def open_file(self, path: str) -> pa.NativeFile:
        """A file of the table, to be read at any place."""
        return self.filesystem().open_input_file(self._full(path))


def arrow_schema(table: DeltaTable) -> pa.Schema:
    """The schema of a table, for records to be converted to."""
    return pa.schema(table.schema().to_arrow())


def check_against(table: DeltaTable, uri: str, schema: pa.Schema | None, partition_by: list[str] | None) -> None:
    """Raise if a table is not the one that a sink declares."""
    declared.check_partitions(uri, partition_by, list(table.metadata().partition_columns))
    declared.check_columns(uri, schema, arrow_schema(table), _as_stored)


def _as_stored(type: pa.DataType) -> pa.DataType:
    """A type as a Delta table has it: it knows neither of the large types, nor any unit but microseconds."""
    return pa.schema(deltalake.Schema.from_arrow(pa.schema([("x", type)])).to_arrow()).field("x").type


def unreachable(uri: str, operation: str, error: Exception) -> StorageError:
    """The error of a table that cannot be used, in the words of the library."""
    return StorageError(uri, operation, f"{type(error).__name__}: {error}")
