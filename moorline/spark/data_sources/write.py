"""``mo.write_spark_sink``: a Python data source of PySpark as a sink.

At a barrier a worker has ``write()`` of the data source write the records since the last one, and keeps the message
that it returns. When the checkpoint is complete, the driver calls ``commit(messages, batchId)`` with the checkpoint's
number. Messages are part of snapshots as plain data: the name of their class, and their fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from moorline.api.sinks import CommitterContext, DeliveryGuarantee, GlobalCommitter, Sink, SinkContext, SinkWriter
from moorline.connectors.row_tables import RowTables
from moorline.errors import InvalidArgument, StorageError
from moorline.model.options import checks_options
from moorline.spark.data_sources.declared import Declared, declared


@checks_options()
def write_spark_sink(
    source: type[DataSource] | str,
    options: Mapping[str, str] | None = None,
    *,
    schema: pa.Schema | StructType,
    ignores_repeated_batches: bool = False,
) -> Sink:
    """Write the records with a Python data source of PySpark: its ``streamWriter()``, or else its ``writer()``.

    ``source`` and ``options`` are as for :func:`moorline.read_spark_source`. Records are dicts, dataclasses,
    ``msgspec.Struct`` or namedtuples, and are checked against ``schema``. The records of a checkpoint are in memory
    until its barrier.

    A commit is repeated after a failure, because it is unknown whether it happened. So records come at least once.
    ``ignores_repeated_batches=True`` is your word that ``commit`` of this data source does nothing for a ``batchId``
    that it has seen, and that nothing is visible before it: then they come exactly once. The ``batchId`` is the number
    of the checkpoint; a job that begins anew counts from the beginning, if its checkpoints lie in a new place.

    >>> from pyspark.sql.datasource import DataSource
    >>> class Pager(DataSource):
    ...     pass
    >>> write_spark_sink(Pager, schema=pa.schema([("text", pa.string())])).guarantee.value
    'at least once'
    """
    given = declared(source, options, None)
    if isinstance(schema, pa.Schema) and schema.names:
        return SparkSink(given, from_arrow_schema(schema), ignores_repeated_batches)
    if isinstance(schema, StructType) and schema.fieldNames():
        return SparkSink(given, schema, ignores_repeated_batches)
    raise InvalidArgument("schema", schema, "Give a pyarrow.Schema or a StructType, with columns.")


class SparkSink(Sink):
    """See :func:`moorline.write_spark_sink`."""

    commits_on_driver = True

    def __init__(self, declared: Declared, schema: StructType, ignores_repeated_batches: bool) -> None:
        self.declared, self.schema = declared, schema
        once = ignores_repeated_batches
        self.guarantee = DeliveryGuarantee.EXACTLY_ONCE if once else DeliveryGuarantee.AT_LEAST_ONCE

    def __repr__(self) -> str:
        return f"write_spark_sink({self.declared.name!r})"

    def check(self) -> None:
        """Has it a writer that can keep the promise?"""
        writer = self.writer()
        if self.guarantee is DeliveryGuarantee.EXACTLY_ONCE and not isinstance(writer, DataSourceStreamWriter):
            advice = f"{self.declared.name} has no streamWriter(), and its writer() is not told which batch it commits."
            raise InvalidArgument("ignores_repeated_batches", True, advice)

    def writer(self) -> Any:
        """A new writer of the data source."""
        writer = self.declared.find("streamWriter", self.schema, False)
        return self.declared.part("writer", self.schema, False) if writer is None else writer

    def open(self, ctx: SinkContext) -> SinkWriter:
        """A writer that has the data source write at each barrier."""
        return _Writer(self)

    def open_committer(self, ctx: CommitterContext) -> GlobalCommitter:
        """The committer, which calls ``commit`` of the data source."""
        return _Committer(self)


class _Writer(SinkWriter):
    def __init__(self, sink: SparkSink) -> None:
        self._writer = sink.writer()
        self._tables = RowTables(sink.declared.name, to_arrow_schema(sink.schema, timezone="UTC"), "write_spark_sink")
        self._written: list[pa.Table] = []

    def write(self, records: list[Any]) -> None:
        if records:
            self._written.append(self._tables.table(records))

    def prepare(self, checkpoint: int) -> list[Any]:
        tables, self._written = self._written, []
        if not tables:
            return []
        takes_batches = isinstance(self._writer, (DataSourceArrowWriter, DataSourceStreamArrowWriter))
        batches = (batch for table in tables for batch in table.to_batches())
        return [_packed(self._writer.write(batches if takes_batches else _as_spark_rows(batches)))]


class _Committer(GlobalCommitter):
    def __init__(self, sink: SparkSink) -> None:
        self._sink, self._writer = sink, sink.writer()

    def commit(self, lineage: str, checkpoint: int, committables: list[Any]) -> None:
        messages = [_unpacked(self._sink.declared.name, committable) for committable in committables]
        if isinstance(self._writer, DataSourceStreamWriter):
            self._writer.commit(messages, checkpoint)
        else:
            self._writer.commit(messages)


def _as_spark_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        for row in batch.to_pylist():
            yield Row(**row)


def _packed(message: Any) -> Any:
    """A message as plain data, as far as its fields are. (What is not plain is refused when the snapshot is taken.)"""
    if message is None:
        return None
    if not isinstance(message, WriterCommitMessage):
        raise InvalidArgument("write()", message, "It must return a WriterCommitMessage, or None.")
    is_dataclass = dataclasses.is_dataclass(message)
    fields = {f.name: getattr(message, f.name) for f in dataclasses.fields(message)} if is_dataclass else vars(message)
    return [type(message).__qualname__, dict(fields)]


def _unpacked(source: str, data: Any) -> WriterCommitMessage | None:
    """The message again. Only classes of messages that are loaded are made: a name from a snapshot imports nothing."""
    match data:
        case None:
            return None
        case [str(name), dict(fields)]:
            kind = {kind.__qualname__: kind for kind in _message_classes(WriterCommitMessage)}.get(name)
            if kind is None:
                cause = f"there is no class {name!r:.80} of commit messages here"
                raise StorageError(source, "commit to", cause, can_pass=False)
            message: WriterCommitMessage = object.__new__(kind)
            for field, value in fields.items():
                object.__setattr__(message, field, value)
            return message
    raise StorageError(source, "commit to", f"{data!r:.80} is not a commit message", can_pass=False)


def _message_classes(kind: type[WriterCommitMessage]) -> Iterator[type[WriterCommitMessage]]:
    yield kind
    for derived in kind.__subclasses__():
        yield from _message_classes(derived)
