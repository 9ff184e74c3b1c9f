"""A Delta table as a source: all that is in it, and then, if it is followed, what further versions add.

A data file is a split. The driver finds them in the table's log; a reader reads one after the other and forgets those
that it has read. The enumerator's state is the version up to which the log was read:

    position of a file    rows that were read, and the values of its partition
    enumerator            the last version whose files were handed out, the table's id, and its columns

A table that was removed and made anew has another id. Versions of the one mean nothing in the other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import deltalake.exceptions
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from moorline.api.sources import EnumeratorContext, Positions, Source, SourceContext, SourceReader, SplitEnumerator
from moorline.connectors import retry
from moorline.connectors.delta.features import unreadable
from moorline.connectors.delta.log import DataFile, files_of, read_version
from moorline.connectors.delta.partitions import partition_value
from moorline.connectors.delta.table import TableLocation, arrow_schema, unreachable
from moorline.errors import InvalidArgument, SnapshotCorrupt, StorageError
from moorline.model.columns import ColumnBatch

log = logging.getLogger("moorline")

#: Rows that are decoded at a time.
BATCH_ROWS = 8192


class DeltaSource(Source):
    """See :func:`moorline.read_delta`."""

    enumerates = True

    def __init__(
        self,
        location: TableLocation,
        columns: list[str] | None,
        follow: bool,
        start: str,
        on_removal: str,
        interval_ms: int,
        patience: float,
    ) -> None:
        self.location, self.columns, self.follow, self.start = location, columns, follow, start
        self.on_removal, self.interval_ms, self.patience = on_removal, interval_ms, patience
        self.is_bounded = not follow

    def __repr__(self) -> str:
        return f"read_delta({self.location.uri!r})"

    def check(self) -> None:
        """Is there such a table, and has it the columns?"""
        try:
            table = self.location.open()
            schema = arrow_schema(table)
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise unreachable(self.location.uri, "open the table", error) from error
        cause = unreadable(table)
        if cause is not None:
            raise InvalidArgument("table", self.location.uri, f"It cannot be read: {cause}.")
        unknown = [column for column in self.columns or () if column not in schema.names]
        if unknown:
            advice = f"The table {self.location.uri} has the columns {', '.join(schema.names)}."
            raise InvalidArgument("columns", unknown, advice)

    def open(self, ctx: SourceContext) -> SourceReader:
        """A reader of files."""
        return _DeltaReader(self)

    def open_enumerator(self, ctx: EnumeratorContext) -> SplitEnumerator:
        """The one who reads the table's log."""
        return _Versions(self, ctx)


class _Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a table whose files were handed out."""

    version: int
    id: str
    #: Name and type of each column.
    columns: list[tuple[str, str]]


class _Versions(SplitEnumerator):
    def __init__(self, source: DeltaSource, ctx: EnumeratorContext) -> None:
        self._source, self._location = source, source.location
        self.interval_ms = source.interval_ms
        self._known = _restored(ctx.restored)

    def discover(self) -> Positions | None:
        if self._known is not None and not self._source.follow:
            return None
        try:
            return retry.call(self._look, _can_pass, self._source.patience)
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise unreachable(self._location.uri, "read the log of", error) from error

    def snapshot(self) -> Any:
        return None if self._known is None else msgspec.to_builtins(self._known)

    def _look(self) -> Positions:
        table = self._location.open()
        columns = [(field.name, str(field.type)) for field in arrow_schema(table)]
        now = _Known(table.version(), table.metadata().id, columns)
        cause = unreadable(table)
        if cause is not None:
            raise StorageError(self._location.uri, "read the table", cause, can_pass=False)
        if self._known is None:
            files = [] if self._source.start == "latest" else files_of(table)
        else:
            self._compare(self._known, now)
            files = [file for n in range(self._known.version + 1, now.version + 1) for file in self._added(n)]
        # Whole or not at all: an error on the way leaves the version as it was.
        self._known = now
        return {file.path: [0, file.partition] for file in files}

    def _compare(self, before: _Known, now: _Known) -> None:
        """Refuse another table in the place of the one that was read."""
        cause = None
        if before.id and before.id != now.id:
            cause = "it was removed and made anew: what is in it cannot be told from what was read"
        elif now.version < before.version:
            cause = f"its newest version is {now.version}, and version {before.version} was read: it has gone back"
        if cause is not None:
            raise StorageError(self._location.uri, "follow the table", f"{cause}. Begin anew", can_pass=False)
        if before.columns and before.columns != now.columns:
            was, has = (", ".join(f"{name} {type}" for name, type in k.columns) for k in (before, now))
            log.warning("%s: the columns have changed: they were (%s) and are (%s)", self._location.uri, was, has)

    def _added(self, number: int) -> list[DataFile]:
        version = read_version(self._location, number)
        if version.removed and self._source.on_removal == "fail":
            cause = (
                f"version {number} takes rows of {version.removed} files away, which were read before. "
                'Read on with on_removal="ignore", or begin anew'
            )
            raise StorageError(self._location.uri, "follow the table", cause, can_pass=False)
        return version.added


def _restored(state: Any) -> _Known | None:
    if state is None or isinstance(state, int):
        # A number alone is what earlier snapshots have.
        return None if state is None else _Known(state, "", [])
    try:
        return msgspec.convert(state, _Known)
    except msgspec.ValidationError as error:
        raise SnapshotCorrupt("the manifest", f"{state!r:.80} is not what is known of a table: {error}") from None


def _can_pass(error: Exception) -> bool:
    passing = (deltalake.exceptions.DeltaError, OSError)
    return isinstance(error, passing) and not isinstance(error, deltalake.exceptions.TableNotFoundError)


class _DeltaReader(SourceReader):
    def __init__(self, source: DeltaSource) -> None:
        self._source, self._location = source, source.location
        #: By path: rows that were read, and the values of its partition.
        self._files: dict[Any, list[Any]] = {}
        self._batches: Iterator[ColumnBatch] | None = None
        self._rows: Sequence[Any] = []
        self._has_all = False

    def add_splits(self, splits: Positions) -> None:
        for path, position in splits.items():
            match position:
                case [int(rows), dict(partition)]:
                    self._files[path] = [rows, partition]
                case _:
                    raise SnapshotCorrupt("the manifest", f"{position!r:.80} is not a position in a file of a table")

    def no_more_splits(self) -> None:
        self._has_all = True

    def splits(self) -> list[int | str]:
        return list(self._files)

    def read(self, limit: int) -> Sequence[Any] | None:
        self.split = path = next(iter(self._files), None)
        if path is None:
            return None if self._has_all else []
        if not self._rows:
            if self._batches is None:
                self._batches = self._open(path, *self._files[path])
            self._rows = next(self._batches, [])
        if not self._rows:
            del self._files[path]
            self._batches = None
            return []
        records, self._rows = self._rows[:limit], self._rows[limit:]
        self._files[path][0] += len(records)
        return records

    def positions(self) -> Positions:
        return {path: [rows, partition] for path, (rows, partition) in self._files.items()}

    def _open(self, path: str, skip: int, partition: dict[str, str | None]) -> Iterator[ColumnBatch]:
        """The rows of a file from one on, some at a time."""
        schema = arrow_schema(self._location.open())
        chosen = self._source.columns or schema.names
        gone = [name for name in chosen if name not in schema.names]
        if gone:
            cause = f"it has no column {', '.join(gone)} any more. Name others with columns="
            raise StorageError(self._location.uri, "read the table", cause, can_pass=False)
        wanted = pa.schema([schema.field(name) for name in chosen])
        fixed = {n: partition_value(t, schema.field(n).type) for n, t in partition.items() if n in wanted.names}
        try:
            with self._location.open_file(path) as file:
                parquet = pq.ParquetFile(file)
                there = [name for name in wanted.names if name in parquet.schema_arrow.names and name not in fixed]
                for batch in parquet.iter_batches(BATCH_ROWS, columns=there):
                    if skip >= batch.num_rows:
                        skip -= batch.num_rows
                        continue
                    yield ColumnBatch(_as_declared(batch.slice(skip), wanted, fixed))
                    skip = 0
        except FileNotFoundError:
            cause = f"its file {path} is gone: it was vacuumed, or removed by hand"
            raise StorageError(self._location.uri, "read the table", cause, can_pass=False) from None


def _as_declared(batch: pa.RecordBatch, schema: pa.Schema, fixed: dict[str, Any]) -> pa.RecordBatch:
    """The columns in the types of the table, which may be wider than those of an old file.

    ``fixed``: columns with the same value in each row. What is in neither, the table got after the file was written.
    """
    arrays = []
    for field in schema:
        if field.name in fixed:
            arrays.append(pa.repeat(pa.scalar(fixed[field.name], field.type), batch.num_rows))
        elif field.name in batch.schema.names:
            arrays.append(batch.column(field.name).cast(field.type))
        else:
            arrays.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema.remove_metadata())
