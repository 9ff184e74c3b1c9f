"""A sink into a Delta table: one entry of its log for each checkpoint, made by the driver.

Workers write Parquet files into the table's folder, which nobody sees. The driver adds all files of a checkpoint to the
table in one entry of its log, together with the checkpoint's number under the sink's own name. A commit that is
repeated finds the number there. Two drivers that commit at the same moment move the same name, and the log lets one of
them.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import deltalake.exceptions
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from moorline.api.sinks import CommitterContext, GlobalCommitter, Sink, SinkContext, SinkWriter
from moorline.connectors import retry
from moorline.connectors.delta import statistics
from moorline.connectors.delta.features import unwritable
from moorline.connectors.delta.partitions import partition_text
from moorline.connectors.delta.table import TableLocation, arrow_schema, check_against, unreachable
from moorline.connectors.row_tables import RowTables
from moorline.connectors.tables.staging import mark_name, refusal, shown_in_history, sink_tag, staged_file
from moorline.connectors.tables.writer import TableWriter, split_by
from moorline.errors import InvalidArgument, StorageError

log = logging.getLogger("moorline")

#: The folder of a partition without a value, as other writers call it.
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


class _Committable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A staged file, as plain data: it goes through snapshots."""

    path: str
    size: int
    partition: dict[str, str | None]
    modified_ms: int
    stats: str
    #: The table's id, and name and type of each column of the file; empty in snapshots of earlier versions.
    table: str = ""
    columns: list[tuple[str, str]] = []


class DeltaSink(Sink):
    """See :func:`moorline.write_delta`."""

    commits_on_driver = True
    takes_columns = True

    def __init__(
        self, location: TableLocation, schema: pa.Schema | None, partition_by: list[str] | None, patience: float
    ) -> None:
        self.location, self.schema, self.partition_by = location, schema, partition_by
        self.patience = patience

    def __repr__(self) -> str:
        return f"write_delta({self.location.uri!r})"

    def check(self) -> None:
        """Compare the table with what is declared; make it, if there is none."""
        try:
            table = self.location.find()
            if table is None and self.schema is None:
                advice = f"There is no table {self.location.uri}: give the schema= that it is to be made with."
                raise InvalidArgument("schema", None, advice)
            if table is None:
                self.location.create(self.schema, self.partition_by or [])
                table = self.location.open()
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise unreachable(self.location.uri, "open the table", error) from error
        cause = unwritable(table)
        if cause is not None:
            raise InvalidArgument("table", self.location.uri, f"It cannot be written to: {cause}.")
        check_against(table, self.location.uri, self.schema, self.partition_by)

    def open(self, ctx: SinkContext) -> SinkWriter:
        """A writer that stages Parquet files in the table's folder."""
        return _DeltaWriter(self, ctx)

    def open_committer(self, ctx: CommitterContext) -> GlobalCommitter:
        """The committer, which alone writes to the table's log."""
        return _DeltaCommitter(self, ctx)

    def roll_back(self, job: str, uid: str, checkpoint: int, lineages: tuple[str, ...] = ()) -> None:
        """Take the files of later checkpoints out of the table.

        Called before a restore that goes back. The marks stay where they are: what is staged for the
        restored checkpoint may not be committed yet, and the number of one that was never published is used again.
        """
        self._retried(lambda: self._roll_back(job, uid, checkpoint, lineages), "roll back")

    def _roll_back(self, job: str, uid: str, checkpoint: int, lineages: tuple[str, ...]) -> None:
        table = self.location.find()
        if table is None:
            return
        sink, removed = sink_tag(job, uid), []
        for path, action in _active_files(table).items():
            file = staged_file(path)
            if file is not None and file.sink == sink and file.is_after(checkpoint, lineages):
                removed.append(action)
        if removed:
            _append(table, removed, {}, shown_in_history(job, uid))

    def clean_up(self, job: str, uid: str) -> None:
        """Remove files that were staged and never became part of the table."""
        self.location.remove_unfinished(sink_tag(job, uid))
        staged = list(self.location.staged(sink_tag(job, uid)))
        if not staged:
            return
        table = self.location.open()
        # Not all that the table does not name now: it may have named them, and readers of older versions still do.
        reached = {f.lineage: table.transaction_version(mark_name(job, uid, f.lineage)) or 0 for f in staged}
        self.location.remove([file.path for file in staged if file.checkpoint > reached[file.lineage]])

    def _retried(self, work: Any, operation: str) -> None:
        try:
            retry.call(work, _can_pass, self.patience)
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise unreachable(self.location.uri, operation, error) from error


def _can_pass(error: Exception) -> bool:
    """Another writer was quicker, or the storage is away for a moment. What the table refuses it refuses again."""
    refused = (deltalake.exceptions.SchemaMismatchError, deltalake.exceptions.DeltaProtocolError, FileNotFoundError)
    return isinstance(error, (deltalake.exceptions.DeltaError, OSError)) and not isinstance(error, refused)


class _DeltaCommitter(GlobalCommitter):
    def __init__(self, sink: DeltaSink, ctx: CommitterContext) -> None:
        self._sink, self._ctx = sink, ctx

    def commit(self, lineage: str, checkpoint: int, committables: list[Any]) -> None:
        files = [self._checked(committable, lineage, checkpoint) for committable in committables]
        self._sink._retried(lambda: self._commit(lineage, checkpoint, files), f"commit checkpoint {checkpoint} to")

    def _commit(self, lineage: str, checkpoint: int, files: list[_Committable]) -> None:
        ctx, table = self._ctx, self._sink.location.open()
        mark = mark_name(ctx.job, ctx.uid, lineage)
        reached = table.transaction_version(mark)
        if reached is not None and reached >= checkpoint:
            return
        self._check_table(table, checkpoint, files)
        added = [AddAction(f.path, f.size, f.partition, f.modified_ms, True, f.stats) for f in files]
        _append(table, added, {mark: checkpoint}, shown_in_history(ctx.job, ctx.uid, checkpoint))

    def _check_table(self, table: DeltaTable, checkpoint: int, files: list[_Committable]) -> None:
        """Refuse files that were staged for a table that is another one now: its readers would not find their rows."""
        id, partitions = table.metadata().id, set(table.metadata().partition_columns)
        there = {field.name: str(field.type) for field in arrow_schema(table)}
        cause, gone = unwritable(table), set()
        for file in files:
            if file.table and file.table != id:
                cause = "the table was removed and made anew since files for this checkpoint were staged"
            elif set(file.partition) != partitions:
                cause = (
                    f"{file.path} was staged when the table was partitioned by {', '.join(file.partition) or 'nothing'}"
                )
            for name, type in file.columns:
                if there.get(name, type) != type:
                    cause = f"column {name} is {there[name]} now, and {type} in files that were staged before"
            gone |= {name for name, _ in file.columns if name not in there}
        if cause is not None:
            raise StorageError(self._sink.location.uri, f"commit checkpoint {checkpoint} to", cause, can_pass=False)
        if gone:
            log.warning(
                "%s: it has no column %s any more: its values in checkpoint %d cannot be read",
                *(self._sink.location.uri, ", ".join(sorted(gone)), checkpoint),
            )

    def _checked(self, committable: Any, lineage: str, checkpoint: int) -> _Committable:
        try:
            file = msgspec.convert(committable, _Committable)
        except msgspec.ValidationError as error:
            raise self._strange(committable, str(error)) from None
        refused = refusal(file.path, sink_tag(self._ctx.job, self._ctx.uid), checkpoint)
        if refused is not None:
            raise self._strange(committable, refused)
        return file

    def _strange(self, committable: Any, cause: str) -> StorageError:
        return StorageError(self._sink.location.uri, "commit to", f"{committable!r:.200}: {cause}", can_pass=False)


def _append(table: DeltaTable, actions: list[Any], marks: dict[str, int], metadata: dict[str, str]) -> None:
    """One entry of the table's log."""
    transactions = [Transaction(name, version) for name, version in marks.items()]
    table.create_write_transaction(
        actions,
        "append",
        table.schema(),
        partition_by=list(table.metadata().partition_columns),
        commit_properties=CommitProperties(custom_metadata=metadata, app_transactions=transactions),
    )


def _active_files(table: DeltaTable) -> dict[str, RemoveAction]:
    """The files of the table, each with what takes it out of it."""
    now = int(time.time() * 1000)
    found = {}
    for row in pa.table(table.get_add_actions()).to_pylist():
        partition = {name: partition_text(value) for name, value in (row.get("partition") or {}).items()}
        found[row["path"]] = RemoveAction(
            path=row["path"],
            deletion_timestamp=now,
            data_change=True,
            partition_values=partition,
            size=row["size_bytes"],
        )
    return found


class _DeltaWriter(TableWriter):
    def __init__(self, sink: DeltaSink, ctx: SinkContext) -> None:
        table = sink.location.open()
        schema = arrow_schema(table)
        if sink.schema is not None:
            schema = pa.schema([schema.field(name) for name in sink.schema.names])
        self._partition_by, self._id = list(table.metadata().partition_columns), table.metadata().id
        in_files = pa.schema([field for field in schema if field.name not in self._partition_by])
        super().__init__(ctx, sink.location, RowTables(sink.location.uri, schema, "write_delta"), in_files)

    def partitions(self, table: pa.Table) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
        return split_by(table, self._partition_by)

    def path(self, partition: Any, name: str) -> str:
        folders = [f"{column}={_in_path(value)}" for column, value in self._texts(partition).items()]
        return "/".join([*folders, name])

    def committable(self, partition: Any, path: str, size: int, metadata: pq.FileMetaData) -> dict[str, Any]:
        now_ms, stats = int(time.time() * 1000), statistics.of_file(metadata)
        columns = [(field.name, str(field.type)) for field in self._in_files]
        staged = _Committable(path, size, self._texts(partition), now_ms, stats, self._id, columns)
        file: dict[str, Any] = msgspec.to_builtins(staged)
        return file

    def _texts(self, partition: Any) -> dict[str, str | None]:
        return dict(zip(self._partition_by, map(partition_text, partition)))


def _in_path(text: str | None) -> str:
    """A name for people: the value itself is in the table's log."""
    return NULL_PARTITION if text is None else re.sub(r"[^A-Za-z0-9_.-]", "_", text)[:48] or "_"
