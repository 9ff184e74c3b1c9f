"""Between DataFrames and jobs: a DataFrame as a source, and a job's output as a DataFrame. Both are lazy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, overload

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.conversion import LocalDataToArrowConversion
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from moorline.api.job import Job
from moorline.api.sinks import Sink, SinkContext, SinkWriter
from moorline.api.sources import ColumnSource, Source
from moorline.driver.before_start import check_ends
from moorline.errors import InvalidArgument, StateTypeMismatch
from moorline.model.columns import ColumnBatch
from moorline.model.graph import Graph
from moorline.model.ids import SubtaskId
from moorline.model.options import checks_options
from moorline.spark.batch.program import begin, plan_of, to_rows
from moorline.spark.batch.sources import DataFrameColumns, DataFrameSource, Records

#: Records become rows of a DataFrame in batches of so many.
BATCH_RECORDS = 4096


@overload
def from_dataframe(frame: DataFrame, *, records: Literal["columns"]) -> ColumnSource: ...
@overload
def from_dataframe(frame: DataFrame, *, records: Literal["row", "tuple", "dict"] = ...) -> Source: ...
@checks_options()
def from_dataframe(frame: DataFrame, *, records: Records = "row") -> Source:
    """The rows of a DataFrame, for a job that runs as a batch. Nothing is read before the job runs.

    A record is a :class:`pyspark.sql.Row`, as ``frame.collect()`` would give it; with ``records="tuple"`` a plain
    tuple, which is quicker, with ``"dict"`` a dict. Partitions are read where Spark has them, each by a subtask of
    its own; the order of rows within a partition is kept. With ``records="columns"`` it begins a stream of columns with
    the schema of the DataFrame, and no row is made where steps take batches.

    >>> import moorline as mo
    >>> job = mo.Job("visits")
    >>> visits = job.source(mo.from_dataframe(spark.table("visits")), uid="visits")  # doctest: +SKIP
    >>> visits.key_by(lambda row: row.page).sink(mo.collect("out"))  # doctest: +SKIP
    >>> mo.run(job, spark, mode="batch")  # doctest: +SKIP
    """
    return DataFrameColumns(frame) if records == "columns" else DataFrameSource(frame, records)


@checks_options()
def to_dataframe(
    job: Job,
    spark: SparkSession,
    *,
    schema: str | StructType,
    output: str | None = None,
    parallelism: int | None = None,
) -> DataFrame:
    """The records of a job's collect sink as a DataFrame. Nothing runs before an action needs its rows.

    ``schema`` says what the records are, as text (``"user string, total long"``) or as a ``StructType``: dicts,
    tuples, Rows, or single values if there is one column. ``output`` names the ``mo.collect(name)`` if there are
    several. Steps that only other outputs need do not run. Every action runs the job, as for any DataFrame; use
    ``cache()`` if there are several.

    >>> import moorline as mo
    >>> job = mo.Job("squares")
    >>> job.source(mo.from_items(range(4))).map(lambda n: (n, n * n)).sink(mo.collect("out"))
    >>> frame = mo.to_dataframe(job, spark, schema="n long, square long")  # doctest: +SKIP
    >>> frame.where("square > 1").count()  # doctest: +SKIP
    2
    """
    wanted = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(wanted, StructType) or not wanted.fields:
        raise InvalidArgument("schema", schema, 'Give columns: "user string, total long", or a StructType.')
    plan = plan_of(_only(job.graph(parallelism), output, wanted))
    check_ends(plan.graph)
    return to_rows(spark, plan, (_run_last, wanted))


def _only(graph: Graph, output: str | None, schema: StructType) -> Graph:
    """The job as far as one of its outputs needs it, with rows instead of that output."""
    sinks = [o for o in graph.operators if o.is_sink]
    for operator in sinks:
        if getattr(operator.function, "has_effects", True):
            advice = "A DataFrame cannot commit what other sinks write. Run the job with mo.run, or leave it out."
            raise InvalidArgument(f"sink {operator.uid!r}", operator.function, advice)
    outputs = {o.uid: o.function.collects for o in sinks if o.function.collects is not None}
    matching = [uid for uid, name in outputs.items() if output in (None, name)]
    if len(matching) != 1:
        names = ", ".join(map(repr, outputs.values())) or "none"
        raise InvalidArgument("output", output, f"Name one of the job's mo.collect(...): {names}.")
    sink, needed, todo = matching[0], set(), matching
    while todo:
        uid = todo.pop()
        if uid not in needed:
            needed.add(uid)
            todo += [i.upstream for i in graph.by_uid[uid].inputs]
    operators = [o for o in graph.operators if o.uid in needed]
    rows = RowsSink(schema, sink)
    return replace(graph, operators=tuple(replace(o, function=rows) if o.uid == sink else o for o in operators))


class RowsSink(Sink):
    """In the last stage of a job that becomes a DataFrame: takes records and makes Arrow batches of them."""

    takes_columns = True

    def __init__(self, schema: StructType, uid: str) -> None:
        self._schema, self._uid = schema, uid
        self._convert = partial(LocalDataToArrowConversion.convert, schema=schema, use_large_var_types=False)
        self._waiting: list[Any] = []
        self._full: list[pa.RecordBatch] = []

    def open(self, ctx: SinkContext) -> SinkWriter:
        return _RowsWriter(self)

    def write(self, records: Sequence[Any]) -> None:
        if isinstance(records, ColumnBatch):
            self.flush()
            self._full.append(self._cast(records.batch))
            return
        self._waiting += records
        if len(self._waiting) >= BATCH_RECORDS:
            self.flush()

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for start in range(0, len(waiting), BATCH_RECORDS):
            records = waiting[start : start + BATCH_RECORDS]
            try:
                table = self._convert([_row(r, self._schema) for r in records])
            except Exception as error:  # of many kinds: a record is not what the schema says
                raise StateTypeMismatch(
                    f"to_dataframe({self._uid!r})", self._schema.simpleString(), str(error)
                ) from error
            self._full += table.to_batches()

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Columns as the schema names them."""
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        try:
            columns = [batch.column(field.name).cast(field.type) for field in wanted]
            return pa.RecordBatch.from_arrays(columns, schema=wanted)
        except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            had = ", ".join(f"{f.name} {f.type}" for f in batch.schema)
            name = f"to_dataframe({self._uid!r})"
            raise StateTypeMismatch(name, self._schema.simpleString(), f"columns {had}: {error}") from error

    def take(self) -> list[pa.RecordBatch]:
        full, self._full = self._full, []
        return full


class _RowsWriter(SinkWriter):
    def __init__(self, sink: RowsSink) -> None:
        self._sink = sink

    def write(self, records: Sequence[Any]) -> None:
        self._sink.write(records)


def _row(record: Any, schema: StructType) -> Any:
    if isinstance(record, (tuple, dict, Row)) or hasattr(record, "__dict__"):
        return record
    return (record,) if len(schema.fields) == 1 else record


def _run_last(packed: bytes, stage: int | SubtaskId, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function that Spark runs in every slot of the last stage."""
    subtask, steps = begin(packed, stage, batches)
    sink = next(o.function for o in subtask.plan.graph.operators if isinstance(o.function, RowsSink))
    for _ in steps:
        yield from sink.take()
    sink.flush()
    yield from sink.take()
