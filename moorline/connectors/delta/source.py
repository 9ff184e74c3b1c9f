"""A Delta table as a source: all that is in it, and then, if it is followed, what further versions add.

A data file is a split. The driver finds them in the table's log; a reader reads one after the other and forgets those
that it has read. The enumerator's state is the version up to which the log was read:

    position of a file    rows that were read, and the values of its partition
    enumerator            the last version whose files were handed out
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import deltalake.exceptions
import pyarrow as pa
import pyarrow.parquet as pq

from moorline.api.sources import EnumeratorContext, Positions, Source, SourceContext, SourceReader, SplitEnumerator
from moorline.connectors import retry
from moorline.connectors.delta.log import DataFile, files_of, read_version
from moorline.connectors.delta.partitions import partition_value
from moorline.connectors.delta.table import TableLocation, arrow_schema, unreachable
from moorline.errors import InvalidArgument, SnapshotCorrupt, StorageError

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
            schema = arrow_schema(self.location.open())
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise unreachable(self.location.uri, "open the table", error) from error
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


class _Versions(SplitEnumerator):
    def __init__(self, source: DeltaSource, ctx: EnumeratorContext) -> None:
        self._source, self._location = source, source.location
        self.interval_ms = source.interval_ms
        self._version: int | None = ctx.restored
        if self._version is not None and not isinstance(self._version, int):
            raise SnapshotCorrupt("the manifest", f"{self._version!r:.80} is not the version of a table")

    def discover(self) -> Positions | None:
        if self._version is not None and not self._source.follow:
            return None
        try:
            return retry.call(self._look, _can_pass, self._source.patience)
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise unreachable(self._location.uri, "read the log of", error) from error

    def snapshot(self) -> int | None:
        return self._version

    def _look(self) -> Positions:
        table = self._location.open()
        newest = table.version()
        if self._version is None:
            files = [] if self._source.start == "latest" else files_of(table)
        else:
            files = [file for n in range(self._version + 1, newest + 1) for file in self._added(n)]
        # Whole or not at all: an error on the way leaves the version as it was.
        self._version = newest
        return {file.path: [0, file.partition] for file in files}

    def _added(self, number: int) -> list[DataFile]:
        version = read_version(self._location, number)
        if version.removed and self._source.on_removal == "fail":
            cause = (
                f"version {number} takes rows of {version.removed} files away, which were read before. "
                'Read on with on_removal="ignore", or begin anew'
            )
            raise StorageError(self._location.uri, "follow the table", cause, can_pass=False)
        return version.added


def _can_pass(error: Exception) -> bool:
    passing = (deltalake.exceptions.DeltaError, OSError)
    return isinstance(error, passing) and not isinstance(error, deltalake.exceptions.TableNotFoundError)


class _DeltaReader(SourceReader):
    def __init__(self, source: DeltaSource) -> None:
        self._source, self._location = source, source.location
        #: By path: rows that were read, and the values of its partition.
        self._files: dict[Any, list[Any]] = {}
        self._batches: Iterator[list[dict[str, Any]]] | None = None
        self._rows: list[dict[str, Any]] = []
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

    def read(self, limit: int) -> list[dict[str, Any]] | None:
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

    def _open(self, path: str, skip: int, partition: dict[str, str | None]) -> Iterator[list[dict[str, Any]]]:
        """The rows of a file from one on, some at a time."""
        schema = arrow_schema(self._location.open())
        wanted = self._source.columns or schema.names
        fixed = {n: partition_value(t, schema.field(n).type) for n, t in partition.items() if n in wanted}
        try:
            with self._location.open_file(path) as file:
                parquet = pq.ParquetFile(file)
                there = [name for name in wanted if name in parquet.schema_arrow.names and name not in fixed]
                # A column that the table got after the file was written.
                missing = dict.fromkeys(name for name in wanted if name not in there and name not in fixed)
                for batch in parquet.iter_batches(BATCH_ROWS, columns=there):
                    if skip >= batch.num_rows:
                        skip -= batch.num_rows
                        continue
                    rows = _as_declared(batch.slice(skip), schema, there).to_pylist()
                    skip = 0
                    yield [{name: ({**row, **fixed, **missing})[name] for name in wanted} for row in rows]
        except FileNotFoundError:
            cause = f"its file {path} is gone: it was vacuumed, or removed by hand"
            raise StorageError(self._location.uri, "read the table", cause, can_pass=False) from None


def _as_declared(batch: pa.RecordBatch, schema: pa.Schema, names: list[str]) -> pa.Table:
    """The columns in the types of the table, which may be wider than those of an old file."""
    table = pa.Table.from_batches([batch])
    return table.select(names).cast(pa.schema([schema.field(name) for name in names]))
