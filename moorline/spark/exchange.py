"""Everything private that we use of Spark, in one place. Each item is listed in ``docs/internals/spark.md``.

A batch plan's exchanges become pipelined when ``ShuffleExchangeExec.pipelined`` is set on the very plan that the
action will run. Spark then starts all stages together and records flow between them as they are produced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

SCHEMA = "slot int, frame binary"
ARROW_SCHEMA = pa.schema([pa.field("slot", pa.int32()), pa.field("frame", pa.binary())])

StageFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def pipeline(spark: SparkSession, widths: tuple[int, ...], stages: Sequence[StageFunction]) -> DataFrame:
    """A chain of Python stages with a pipelined exchange between each two."""
    frames = spark.range(0, widths[0], 1, widths[0]).mapInArrow(stages[0], SCHEMA)
    for width, stage in zip(widths[1:], stages[1:], strict=True):
        frames = frames.repartitionById(width, "slot").mapInArrow(stage, SCHEMA)
    marked = _make_pipelined(frames)
    if marked != len(widths) - 1:
        raise RuntimeError(f"expected {len(widths) - 1} exchanges in the plan and found {marked}")
    return frames


def _make_pipelined(frames: DataFrame) -> int:
    """Set the flag on every exchange of the plan; returns how many there are."""
    nodes, marked = [frames._jdf.queryExecution().executedPlan()], 0
    while nodes:
        node = nodes.pop()
        if node.getClass().getSimpleName() == "ShuffleExchangeExec":
            flag = node.getClass().getDeclaredField("pipelined")
            flag.setAccessible(True)
            flag.setBoolean(node, True)
            marked += 1
        children = node.children().iterator()
        while children.hasNext():
            nodes.append(children.next())
    return marked


def free_slots(spark: SparkSession) -> int:
    """The number of tasks that Spark could run at once, with the executors it has now."""
    context: Any = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))


def cancel(spark: SparkSession, group: str) -> None:
    """End the jobs of a group, also one that is just about to start."""
    spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(group, "moorline ends this attempt")


def interrupt_tasks(spark: SparkSession, group: str) -> None:
    """Interrupt all tasks of a group that are still there. Nothing happens if Spark has stopped."""
    try:
        context: Any = spark.sparkContext._jsc.sc()
        tracker = spark.sparkContext.statusTracker()
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                tasks = context.statusStore().taskList(stage, 0, 1_000_000)
                for number in range(tasks.size()):
                    if tasks.apply(number).status() == "RUNNING":
                        context.killTaskAttempt(tasks.apply(number).taskId(), True, "moorline has ended this attempt")
    except (Py4JError, OSError, AttributeError):
        return


def in_short(failure: Exception) -> str:
    """Spark's message without py4j's line in front, which says only that Java has failed."""
    text = str(failure)
    if text.startswith("An error occurred while calling ") and "\n: " in text:
        return _without_frames(text.partition("\n: ")[2])
    # What a worker died of before it could tell us itself stands at the end of its traceback.
    causes = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception): .*$", text, re.MULTILINE)
    return f"{type(failure).__name__}: {causes[-1] if causes else text}"


def _without_frames(text: str) -> str:
    """A stack of Java's without the places in Spark's code; its causes stay."""
    return "\n".join(line for line in text.splitlines() if not re.match(r"\s+(at |\.\.\. \d+ more)", line))
