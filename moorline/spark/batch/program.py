"""A bounded job as a DataFrame program: the plan's stages, joined by Spark's regular shuffle and sorted by key.

    stage 0      one row per slot: each task reads its source to the end
    shuffle      every row names its partition; Spark sorts each partition, on disk where memory is short
    stage 1 …    each task works its rows off, one key after the other (``subtask/batch/subtask.py``)
    the end      results and committables reach the driver as rows; only then sinks commit

A source that is a DataFrame has no slots of its own: its partitions are read where Spark has them, and what comes out
joins the stage's rows. Whatever Spark computes again, it gets the same rows: nothing depends on which attempt, or on
the order in which blocks arrive. ``mo.run`` and ``spark/batch/dataframes.py`` call this.
"""

from __future__ import annotations

import gc
import os
import pickle
import re
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial, reduce
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from moorline.api.job import Job
from moorline.api.sinks import CommitterContext, Sink, SinkContext
from moorline.api.watermarks import WatermarkStrategy
from moorline.driver.before_start import check_ends
from moorline.driver.connectors.enumerating import all_splits
from moorline.errors import InvalidArgument, InvalidLoop, JobFailed
from moorline.model.config.state import StateConfig
from moorline.model.graph import Graph, Operator, Plan, Vertex
from moorline.model.ids import Attempt, SubtaskId
from moorline.model.wire.deployment import Deployment
from moorline.protocol.lowering import lower
from moorline.snapshots.compatibility import check_declared
from moorline.spark import exchange, shipping
from moorline.spark.batch.sources import DataFrameSource
from moorline.spark.session import settings
from moorline.spark.session.embedded import embedded
from moorline.subtask.batch import rows as batch_rows
from moorline.subtask.batch.rows import ORDER, SCHEMA
from moorline.subtask.batch.subtask import BatchSubtask
from moorline.subtask.environment import Environment

#: The embedded Spark runs a task that fails up to so many times, as Spark does by default on a cluster.
TASK_FAILURES = 4
MODES = ("streaming", "batch", "auto")
#: What a batch job takes beside the job itself. The others belong to checkpoints, which it has none of.
OPTIONS = {"parallelism", "object_reuse"}

#: What comes out of a subtask, to be taken at each of its steps: the rows of the last stage may be the user's own.
Taken = Callable[[bool], list[pa.RecordBatch]]


def is_batch(job: Job, mode: str, options: dict[str, Any]) -> bool:
    """Is the job to run as a batch? ``"auto"``: if all sources say that they end, without loops and restores."""
    if mode not in MODES:
        raise InvalidArgument("mode", mode, f"It is one of {', '.join(MODES)}.")
    if mode == "auto":
        graph = job.graph()
        wanted = options.get("restore") is None and all(_is_bounded(o) for o in _sources(graph)) and not graph.loops
        if wanted:
            for name in options.keys() - OPTIONS:
                del options[name]  # meant for the case that it streams
        return wanted
    if mode == "batch" and (useless := {name for name, value in options.items() if value is not None} - OPTIONS):
        names = ", ".join(f"{name}=" for name in sorted(useless))
        advice = "A batch job has no checkpoints: Spark computes again what is lost."
        raise InvalidArgument("mode", mode, f"{advice} Leave out {names}, or write mode='streaming' or 'auto'.")
    return mode == "batch"


def refuse_dataframes(graph: Graph) -> None:
    """Raises if the job reads a DataFrame: only a batch can."""
    for operator in _sources(graph):
        if isinstance(operator.function, DataFrameSource):
            advice = "mo.from_dataframe() is read by Spark before the job: run it with mode='batch' or 'auto'."
            raise InvalidArgument(f"source {operator.uid!r}", operator.function, advice)


def run(
    job: Job, spark: SparkSession | None = None, *, parallelism: int | None = None, object_reuse: bool = False
) -> dict[str, list[Any]]:
    """Run a job as a batch. What its collect sinks got, by name."""
    plan = plan_of(job.graph(parallelism))
    check_ends(plan.graph)
    check_declared(plan.graph)
    with ExitStack() as resources:
        if spark is None:
            spark = resources.enter_context(embedded(os.cpu_count() or 1, TASK_FAILURES))
        sinks = [o for o in plan.graph.operators if isinstance(o.function, Sink)]
        try:
            results = _collect(spark, plan, object_reuse)
            _commit(plan.graph.job, sinks, results)
        finally:
            # In a batch job what is staged is of no use to a later run, also if this one has failed.
            for sink in sinks:
                sink.function.clean_up(plan.graph.job, sink.uid)
    collected: dict[str, list[Any]] = {}
    for kind, name, values in results:
        if kind == "collected":
            collected.setdefault(name, []).extend(values)
    return collected


def _collect(spark: SparkSession, plan: Plan, object_reuse: bool) -> list[tuple[str, str, list[Any]]]:
    """Run everything and fetch what is for the driver, in the order of the subtasks it comes from."""
    group = f"moorline-{plan.graph.job}-batch-{uuid.uuid4().hex[:8]}"

    def work() -> list[Any]:
        # Threads of py4j are pinned, so the group holds for this thread's job alone.
        spark.sparkContext.setJobGroup(group, f"moorline batch job {plan.graph.job}")
        return list(to_rows(spark, plan, object_reuse=object_reuse).select("seq", "payload").collect())

    with ThreadPoolExecutor(1, thread_name_prefix="moorline-batch") as thread:
        running = thread.submit(work)
        try:
            rows = running.result()
        except KeyboardInterrupt:
            exchange.cancel(spark, group)
            raise
        except Exception as failure:  # whatever Spark, py4j or the plan raises
            reason = "Spark gave up on a task"
            raise JobFailed(plan.graph.job, reason, _failure_text(failure)) from failure
    return [pickle.loads(row.payload) for row in sorted(rows, key=lambda row: row.seq)]


def _failure_text(failure: Exception) -> str:
    """The message of a worker's failure: of one of our errors all of it, its record among it."""
    ours = re.findall(r"^moorline\.errors\.(\w+: .*?)(?=^\S*JVM stacktrace|^ SQLSTATE|\Z)", str(failure), re.M | re.S)
    return ours[-1].strip() if ours else exchange.in_short(failure)


def _commit(job: str, sinks: list[Operator], results: list[tuple[str, str, list[Any]]]) -> None:
    """Everything has been computed and staged: make it visible."""
    for sink in sinks:
        staged = [
            c for kind, uid, committables in results if kind == "staged" and uid == sink.uid for c in committables
        ]
        if staged and sink.function.commits_on_driver:
            lineage = staged[0][0]
            committer = sink.function.open_committer(CommitterContext(job, sink.uid, 1, lineage))
            try:
                committer.commit(lineage, 1, [committable for _, committable in staged])
            finally:
                committer.close()
        elif staged:
            committer = sink.function.open_subtask_committer(SinkContext(job, sink.uid, 0, 1, 1))
            try:
                committer.commit(staged)
            finally:
                committer.close()


# --- the program ----------------------------------------------------------------------------------


def plan_of(graph: Graph) -> Plan:
    """The plan of a graph as a batch: as when it streams, but time does not come before the end."""
    for head in graph.loops:
        cause = "a batch works off one key after the other, so nothing can come back to a key that it is through with"
        raise InvalidLoop(head, cause, "run the job with mode='streaming'")
    for operator in _sources(graph):
        if getattr(operator.function, "is_bounded", None) is False:
            advice = "A batch job reads its sources to the end. Bound it, such as by count=, or let it stream."
            raise InvalidArgument(f"source {operator.uid!r}", operator.function, advice)
    operators = tuple(_without_watermarks(operator) for operator in graph.operators)
    return lower(replace(graph, operators=operators))


def to_rows(
    spark: SparkSession,
    plan: Plan,
    last: tuple[Callable[..., Any], Any] | None = None,
    *,
    object_reuse: bool = False,
) -> DataFrame:
    """The whole job. ``last``: what runs in the last stage instead of :func:`run_stage`, and what its rows are."""
    settings.check(spark, is_pipelined=False)
    settings.same_python(spark)
    state = StateConfig(one_key=True, object_reuse=object_reuse)
    lineage = uuid.uuid4().hex
    packed = shipping.pack(Deployment(plan, Attempt(1), restores=all_splits(plan), state=state, lineage=lineage))
    rows: DataFrame | None = None
    for stage, width in enumerate(plan.widths):
        run_in, schema = (run_stage, SCHEMA) if last is None or stage + 1 < len(plan.widths) else last
        vertices = [v for v in plan.vertices if v.stage == stage]
        parts = []
        if rows is not None:
            rows = rows.unionAll(_hellos(spark, stage, width))
            sorted_rows = rows.repartitionById(width, "slot").sortWithinPartitions(*ORDER)
            parts.append(sorted_rows.mapInArrow(partial(run_in, packed, stage), schema))
        elif not all(_dataframe_of(plan, vertex) for vertex in vertices):
            slots = _hellos(spark, stage, width, partitions=width)
            parts.append(slots.mapInArrow(partial(run_in, packed, stage), schema))
        for vertex in vertices:
            source = _dataframe_of(plan, vertex)
            if source is not None:
                parts.append(source.frame().mapInArrow(partial(_read_frame, run_in, packed, vertex.id), schema))
        rows = reduce(DataFrame.unionAll, parts)
    assert rows is not None
    return rows


def _hellos(spark: SparkSession, stage: int, width: int, partitions: int = 1) -> DataFrame:
    """A row for every slot: a task learns from it which one it is, wherever Spark or a later plan puts it."""
    return spark.range(0, width, 1, partitions).selectExpr(
        "cast(id as int) as slot",
        f"cast({stage << 16} + id as int) as place",
        f"cast({batch_rows.HELLO} as long) as rank",
        "cast('' as binary) as key",
        "0L as time",
        "0L as seq",
        "cast('' as binary) as payload",
    )


def _sources(graph: Graph) -> list[Operator]:
    return [o for o in graph.operators if o.is_source]


def _is_bounded(operator: Operator) -> bool:
    return getattr(operator.function, "is_bounded", None) is True


def _dataframe_of(plan: Plan, vertex: Vertex) -> DataFrameSource | None:
    function = plan.graph.by_uid[vertex.operators[0]].function
    return function if isinstance(function, DataFrameSource) else None


def _without_watermarks(operator: Operator) -> Operator:
    """Timestamps are kept; a generator's watermarks mean nothing where all records of a key come at once."""
    if isinstance(operator.function, WatermarkStrategy):
        return replace(operator, function=WatermarkStrategy.none(operator.function.timestamp))
    strategy = operator.options.get("watermarks")
    if strategy is None:
        return operator
    return replace(operator, options={**operator.options, "watermarks": WatermarkStrategy.none(strategy.timestamp)})


# --- in the workers -------------------------------------------------------------------------------


def run_stage(packed: bytes, stage: int | SubtaskId, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function that Spark runs in every slot of a stage."""
    subtask, steps = begin(packed, stage, batches)
    for _ in steps:
        yield from subtask.rows.take()
    yield from subtask.rows.take_all()


def begin(
    packed: bytes, stage: int | SubtaskId, batches: Iterator[pa.RecordBatch]
) -> tuple[BatchSubtask, Iterator[None]]:
    """The subtask of this Spark task, and its steps.

    ``stage``: or the subtask, if ``batches`` is a partition of the DataFrame that it reads.
    """
    # As in a streaming job: records come and go by the thousand and hardly ever form cycles.
    gc.set_threshold(200_000, 20, 50)
    context = TaskContext.get()
    assert context is not None
    # Spark begins at 0 again when it computes a whole stage again, so two attempts may share a number: sinks put
    # something unique into the names of what they stage.
    deployment = replace(shipping.unpack(packed), attempt=Attempt(1 + context.attemptNumber()))
    plan = deployment.plan
    environment = Environment(time.monotonic, lambda report: None, _in_no_background, None)
    if isinstance(stage, SubtaskId):
        source = _dataframe_of(plan, plan.vertices[stage.vertex])
        assert source is not None
        source.batches = batches
        return (subtask := BatchSubtask(deployment, stage, environment)), subtask.steps(iter(()))
    first = next(iter(batches))
    slot = first.column(1)[0].as_py() & 0xFFFF
    subtask = BatchSubtask(deployment, plan.at(stage, slot), environment)
    rows = chain([first], batches)
    is_elsewhere = _dataframe_of(plan, plan.vertices[plan.at(stage, slot).vertex]) is not None
    return subtask, subtask.pass_on(rows) if is_elsewhere else subtask.steps(rows)


def _read_frame(
    run_in: Callable[..., Iterator[pa.RecordBatch]], packed: bytes, vertex: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The function that Spark runs on every partition of a DataFrame that is a source."""
    context = TaskContext.get()
    assert context is not None
    return run_in(packed, SubtaskId(vertex, context.partitionId()), batches)


def _in_no_background(work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
    raise RuntimeError("a batch job has no snapshots to write")
