"""A sink into an Iceberg table: one snapshot of it for each checkpoint, made by the driver.

Workers write Parquet files into the table's data folder, which nobody sees. The driver adds all files of a checkpoint
to the table in one commit, which also sets a property of the table to the checkpoint's number:

    property "moorline/<job>/<uid>/<lineage>" = <checkpoint>     outlives snapshots that are expired

A commit that is repeated finds the number there. Two drivers that commit at the same moment start from the same
snapshot, and the catalog lets one of them; the other one looks at the property again. PyIceberg by itself would put the
commit on top of the other's instead, and add the files twice: here it is kept from that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileType
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import (
    PyArrowFileIO,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import Table, TableProperties

from moorline.api.sinks import CommitterContext, GlobalCommitter, Sink, SinkContext, SinkWriter
from moorline.connectors import retry
from moorline.connectors.iceberg.catalog import TableAddress, TableFiles, arrow_schema, as_stored, can_pass
from moorline.connectors.iceberg.partitions import (
    Partition,
    Partitioner,
    decode,
    parse_partition,
    partitions_of,
    refuse_unsupported,
)
from moorline.connectors.row_tables import RowTables
from moorline.connectors.tables import declared
from moorline.connectors.tables.staging import mark_name, refusal, shown_in_history, sink_tag, staged_file
from moorline.connectors.tables.writer import TableWriter
from moorline.errors import InvalidArgument, MoorlineError, StorageError
from moorline.failpoints import failpoint

log = logging.getLogger("moorline")

__all__ = ["IcebergSink", "TableAddress", "parse_partition"]


class _Committable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A staged file, as plain data: it goes through snapshots. Numbers by column are pairs of its id and the number."""

    path: str
    size: int
    spec: int
    partition: list[bytes | None]
    rows: int
    column_sizes: list[tuple[int, int]]
    value_counts: list[tuple[int, int]]
    null_counts: list[tuple[int, int]]
    nan_counts: list[tuple[int, int]]
    lower_bounds: list[tuple[int, bytes]]
    upper_bounds: list[tuple[int, bytes]]
    split_offsets: list[int]
    #: The table's id, and id and name of each of its columns; empty in snapshots of earlier versions.
    table: str = ""
    columns: list[tuple[int, str]] = []


class IcebergSink(Sink):
    """See :func:`moorline.write_iceberg`."""

    commits_on_driver = True
    takes_columns = True

    def __init__(
        self, address: TableAddress, schema: pa.Schema | None, partitions: list[Partition] | None, patience: float
    ) -> None:
        self.address, self.schema, self.partitions = address, schema, partitions
        self.patience = patience

    def __repr__(self) -> str:
        return f"write_iceberg({self.address.table!r}, catalog={self.address.catalog!r})"

    def check(self) -> None:
        """Compare the table with what is declared; make it, if there is none."""
        if self.address.options.get("type") == "in-memory":
            raise InvalidArgument("catalog", "in-memory", "Workers are other processes and cannot reach it.")
        for column in self.schema if self.schema is not None else ():
            as_stored(column.type)
        table = self.retried(self._find_or_create, "open the table")
        name, schema = str(self.address), table.schema()
        if table.format_version > 2:
            advice = f"The table {name} has format version {table.format_version}, and PyIceberg writes 1 and 2."
            raise InvalidArgument("table", self.address.table, advice)
        if not isinstance(table.io, (PyArrowFileIO, FsspecFileIO)):
            raise InvalidArgument(
                "catalog_options", "py-io-impl", f"Files by {type(table.io).__name__} are not listed."
            )
        if TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL in table.properties:
            advice = f"The table {name} has places of its own for its files, which are not supported."
            raise InvalidArgument("table", TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL, advice)
        refuse_unsupported(name, table.spec(), schema)
        given = None if self.partitions is None else [str(partition) for partition in self.partitions]
        declared.check_partitions(name, given, [str(p) for p in partitions_of(table.spec(), schema)])
        declared.check_columns(name, self.schema, arrow_schema(table), as_stored)

    def open(self, ctx: SinkContext) -> SinkWriter:
        """A writer that stages Parquet files in the table's data folder."""
        return _IcebergWriter(self, ctx)

    def open_committer(self, ctx: CommitterContext) -> GlobalCommitter:
        """The committer, which alone makes snapshots of the table."""
        return _IcebergCommitter(self, ctx)

    def roll_back(self, job: str, uid: str, checkpoint: int, lineages: tuple[str, ...] = ()) -> None:
        """Take the files of later checkpoints out of the table.

        Called before a restore that goes back. The marks stay where they are: what is staged for the
        restored checkpoint may not be committed yet, and the number of one that was never published is used again.
        """
        self.retried(lambda: self._roll_back(job, uid, checkpoint, lineages), "roll back")

    def _roll_back(self, job: str, uid: str, checkpoint: int, lineages: tuple[str, ...]) -> None:
        table = self.address.find()
        if table is None:
            return
        sink, removed = sink_tag(job, uid), []
        for file in _files_of(table):
            staged = staged_file(file.file_path)
            if staged is not None and staged.sink == sink and staged.is_after(checkpoint, lineages):
                removed.append(file)
        if removed:
            transaction = _without_retries(table).transaction()
            with transaction.update_snapshot(shown_in_history(job, uid)).overwrite() as overwrite:
                for file in removed:
                    overwrite.delete_data_file(file)
            transaction.commit_transaction()

    def clean_up(self, job: str, uid: str) -> None:
        """Remove files that were staged and never became part of the table."""
        self.retried(lambda: self._clean_up(job, uid), "clean up")

    def _clean_up(self, job: str, uid: str) -> None:
        table = self.address.find()
        if table is None:
            return
        files = TableFiles(table)
        files.remove_unfinished(sink_tag(job, uid))
        # Not all that the table does not name now: it may have named them, and readers of older snapshots still do.
        files.remove(
            [f.path for f in files.staged(sink_tag(job, uid)) if f.checkpoint > _reached(table, job, uid, f.lineage)]
        )

    def _find_or_create(self) -> Table:
        table = self.address.find()
        if table is None:
            if self.schema is None:
                advice = f"There is no table {self.address}: give the schema= that it is to be made with."
                raise InvalidArgument("schema", None, advice)
            try:
                self.address.create(self.schema, self.partitions or [])
            except ValueError as error:
                partitions = ", ".join(map(str, self.partitions or ())) or "no partitions"
                raise InvalidArgument("schema", f"{self.schema.names} with {partitions}", f"{error}.") from None
            table = self.address.load()
        return table

    def retried(self, work: Callable[[], Any], operation: str) -> Any:
        """The result of ``work``, repeated while catalog or storage are away."""
        try:
            return retry.call(work, can_pass, self.patience)
        except MoorlineError:
            raise
        except Exception as error:  # every catalog has errors of its own
            raise self.address.unusable(operation, error) from error


def _reached(table: Table, job: str, uid: str, lineage: str) -> int:
    """The last checkpoint that was committed to a table."""
    return int(table.properties.get(mark_name(job, uid, lineage), 0))


def _without_retries(table: Table) -> Table:
    """The table for one commit that is not repeated by the library. Its properties in the catalog stay as they are."""
    properties = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


def _files_of(table: Table) -> Iterator[DataFile]:
    snapshot = table.current_snapshot()
    for manifest in snapshot.manifests(table.io) if snapshot is not None else ():
        if manifest.content == ManifestContent.DATA:
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file


class _IcebergCommitter(GlobalCommitter):
    def __init__(self, sink: IcebergSink, ctx: CommitterContext) -> None:
        self._sink, self._ctx = sink, ctx

    def commit(self, lineage: str, checkpoint: int, committables: list[Any]) -> None:
        files = [self._checked(committable, checkpoint) for committable in committables]
        self._sink.retried(lambda: self._commit(lineage, checkpoint, files), f"commit checkpoint {checkpoint} to")

    def _commit(self, lineage: str, checkpoint: int, files: list[_Committable]) -> None:
        # The table and the mark are read together: the commit succeeds only on top of this very snapshot.
        ctx, table = self._ctx, self._sink.address.load()
        if not files or _reached(table, ctx.job, ctx.uid, lineage) >= checkpoint:
            return
        added = self._data_files(table, files)
        transaction = _without_retries(table).transaction()
        shown = shown_in_history(ctx.job, ctx.uid, checkpoint)
        snapshot = transaction.update_snapshot(shown)
        merges = table.properties.get(TableProperties.MANIFEST_MERGE_ENABLED, "false").lower() == "true"
        with snapshot.merge_append() if merges else snapshot.fast_append() as append:
            for file in added:
                append.append_data_file(file)
        transaction.set_properties({mark_name(ctx.job, ctx.uid, lineage): str(checkpoint)})
        failpoint("committer.middle")
        transaction.commit_transaction()

    def _data_files(self, table: Table, files: list[_Committable]) -> list[DataFile]:
        area, spec, schema = TableFiles(table), table.spec(), table.schema()
        if any(file.table not in ("", str(table.metadata.table_uuid)) for file in files):
            cause = "the table was removed and made anew since files for this checkpoint were staged"
            raise StorageError(str(self._sink.address), "commit to", cause, can_pass=False)
        self._tell_dropped_columns(table, files)
        other = [file.path for file in files if file.spec != spec.spec_id]
        if other:
            cause = (
                f"{other[0]} was staged when the table was partitioned in another way. Give the table its old "
                "partitioning back until this checkpoint is committed; change it while the job is stopped"
            )
            raise StorageError(str(self._sink.address), "commit to", cause, can_pass=False)
        # A table that names a file which is not there cannot be read by anybody.
        there = area.filesystem().get_file_info([f"{area.root}/{file.path}" for file in files])
        gone = [file.path for file, info in zip(files, there) if info.type is not FileType.File]
        if gone:
            cause = f"{gone[0]} and {len(gone) - 1} more staged files are gone" if gone[1:] else f"{gone[0]} is gone"
            raise StorageError(str(self._sink.address), "commit to", cause, can_pass=False)
        try:
            partitions = [decode(spec, schema, file.partition) for file in files]
        except ValueError as error:
            raise self._strange(files[0].partition, str(error)) from None
        return [
            DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=f"{area.location}/{file.path}",
                file_format=FileFormat.PARQUET,
                partition=partition,
                record_count=file.rows,
                file_size_in_bytes=file.size,
                column_sizes=dict(file.column_sizes),
                value_counts=dict(file.value_counts),
                null_value_counts=dict(file.null_counts),
                nan_value_counts=dict(file.nan_counts),
                lower_bounds=dict(file.lower_bounds),
                upper_bounds=dict(file.upper_bounds),
                split_offsets=file.split_offsets,
                spec_id=spec.spec_id,
                sort_order_id=None,
                equality_ids=None,
                key_metadata=None,
            )
            for file, partition in zip(files, partitions)
        ]

    def _tell_dropped_columns(self, table: Table, files: list[_Committable]) -> None:
        written = {id: name for file in files for id, name in file.columns}
        gone = sorted(name for id, name in written.items() if table.schema().find_column_name(id) is None)
        if gone:
            text = "%s: columns were dropped, and their values in files that are committed now cannot be read: %s"
            log.warning(text, self._sink.address, ", ".join(gone))

    def _checked(self, committable: Any, checkpoint: int) -> _Committable:
        try:
            file = msgspec.convert(committable, _Committable)
        except msgspec.ValidationError as error:
            raise self._strange(committable, str(error)) from None
        refused = refusal(file.path, sink_tag(self._ctx.job, self._ctx.uid), checkpoint)
        if refused is not None:
            raise self._strange(committable, refused)
        return file

    def _strange(self, committable: Any, cause: str) -> StorageError:
        return StorageError(str(self._sink.address), "commit to", f"{committable!r:.200}: {cause}", can_pass=False)


class _Folder:
    """A partition, as far as PyIceberg asks for it to find a place for a file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def to_path(self) -> str:
        return self._path


class _IcebergWriter(TableWriter):
    #: As PyIceberg writes them: statistics of decimals are read as those of integers.
    parquet_options = {"compression": "zstd", "store_decimal_as_integer": True}

    def __init__(self, sink: IcebergSink, ctx: SinkContext) -> None:
        table = self._table = sink.retried(sink.address.load, "open the table")
        self._partitioner = Partitioner(table.spec(), table.schema())
        self._places = table.location_provider()
        schema = arrow_schema(table)
        written = schema if sink.schema is None else pa.schema([schema.field(name) for name in sink.schema.names])
        super().__init__(ctx, TableFiles(table), RowTables(str(sink.address), written, "write_iceberg"), schema)

    def partitions(self, table: pa.Table) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
        # Columns that are not written are null, and not left out of the file: the table may have a default for them.
        for column in self._in_files:
            if column.name not in table.column_names:
                table = table.append_column(column, pa.nulls(table.num_rows, column.type))
        return self._partitioner.split(table)

    def path(self, partition: Any, name: str) -> str:
        folder = _Folder(self._partitioner.folder(partition)) if partition else None
        location: str = self._places.new_data_location(name, folder)
        return location.removeprefix(f"{self._places.data_path}/")

    def committable(self, partition: Any, path: str, size: int, metadata: pq.FileMetaData) -> dict[str, Any]:
        schema = self._table.schema()
        found = data_file_statistics_from_parquet_metadata(
            metadata,
            stats_columns=compute_statistics_plan(schema, self._table.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        ).to_serialized_dict()

        def pairs(name: str) -> list[tuple[int, Any]]:
            return list((found[name] or {}).items())

        file = _Committable(
            path=path,
            size=size,
            spec=self._table.spec().spec_id,
            partition=self._partitioner.encode(partition),
            rows=found["record_count"],
            column_sizes=pairs("column_sizes"),
            value_counts=pairs("value_counts"),
            null_counts=pairs("null_value_counts"),
            nan_counts=pairs("nan_value_counts"),
            lower_bounds=pairs("lower_bounds"),
            upper_bounds=pairs("upper_bounds"),
            split_offsets=found["split_offsets"] or [],
            table=str(self._table.metadata.table_uuid),
            columns=[(field.field_id, field.name) for field in schema.fields],
        )
        plain: dict[str, Any] = msgspec.to_builtins(file, builtin_types=(bytes,))
        return plain
