"""The public names of Moorline in groups, as the names page and the API reference show them.

    python tools/public_names.py    writes docs/reference/names.md, which a test compares

A name that is in no group, or in two, fails a test.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ROLE = re.compile(r":\w+:`(?:([\w.]+) <[\w.]+>|(~?)([\w.]+))`")
PAGE = ROOT / "docs/reference/names.md"

#: Of ``moorline`` itself, by what one does with them.
GROUPS = {
    "Jobs": "Job run start Handle Result JobStatus plan spark_config MoorlineError",
    "Streams": """Stream KeyedStream ConnectedStreams BroadcastStream BroadcastConnectedStream WindowedStream OutputTag
        Rekey""",
    "Columns": """ColumnStream KeyedColumnStream Expression col lit when coalesce least greatest
        KeyedBatchFunction BatchKeys BatchState BatchStates
        Aggregate count sum avg min max first last
        approx_count_distinct generate_batches""",
    "Functions": """Function MapFunction FilterFunction FlatMapFunction ProcessFunction KeyedProcessFunction
        ReduceFunction AggregateFunction CoMapFunction CoFlatMapFunction CoProcessFunction KeyedCoProcessFunction
        BroadcastProcessFunction KeyedBroadcastProcessFunction RuntimeContext Context KeyedContext OnTimerContext
        CheckpointedFunction ListCheckpointed CheckpointListener""",
    "State": """ValueState ListState MapState ReducingState AggregatingState FoldingState StateTtlConfig Pickled
        RenamedFrom ValueStateDescriptor ListStateDescriptor MapStateDescriptor ReducingStateDescriptor
        AggregatingStateDescriptor FoldingStateDescriptor""",
    "Time": "WatermarkStrategy WatermarkGenerator",
    "Windows and joins": """WindowAssigner TumblingEventTimeWindows TumblingProcessingTimeWindows
        SlidingEventTimeWindows SlidingProcessingTimeWindows EventTimeSessionWindows
        ProcessingTimeSessionWindows GlobalWindows TimeWindow GlobalWindow
        Trigger TriggerResult EventTimeTrigger ProcessingTimeTrigger ContinuousEventTimeTrigger
        ContinuousProcessingTimeTrigger CountTrigger PurgingTrigger EndOfStreamTrigger NeverTrigger Evictor CountEvictor
        TimeEvictor WindowFunction ProcessWindowFunction JoinFunction CoGroupFunction ProcessJoinFunction""",
    "Sources": """from_items generate read_files read_delta read_kafka KafkaRecord from_dataframe BrokenRecord Source
        SourceReader SourceContext SplitEnumerator EnumeratorContext SourceFunction Change UNCHANGED
        read_postgres read_postgres_changes read_redis_stream RedisEntry hybrid SourceEnd read_spark_source
        read_nats NatsMessage""",
    "Formats of messages": """Format json_format avro_format protobuf_format schema_registry SchemaRegistry""",
    "Sinks": """collect print discard write_files write_delta write_kafka to_dataframe Sink SinkWriter SinkCommitter
        SinkContext GlobalCommitter CommitterContext DeliveryGuarantee write_postgres write_sql Delete
        write_redis_stream write_iceberg write_spark_sink write_nats
        SinkFunction""",
    "State in outside stores": "memory_state postgres_state redis_state ExternalStore",
    "Configuration": """Checkpoints RocksDb NoRestart FixedDelay FailureRate ExponentialDelay Autoscale StorageLease
        ZooKeeper HttpEndpoint Console ControlPort""",
    "Metrics and listeners": """MetricGroup Counter Gauge Meter Distribution Histogram JobListener JobEvent add_listener
        remove_listener MetricsListener TracingListener""",
    "Modules": "connectors snapshots client",
    "Snapshots": """read_snapshot register diff_snapshots SnapshotWriter query_snapshot explain_snapshot Explanation
        OperatorSize StateSize KeySize KeyRate Growth fsck sweep give_up""",
}
#: Modules whose names are all public.
MODULES = {
    "moorline.snapshots": "Snapshots by short names",
    "moorline.client": "A running job from another process",
    "moorline.testing": "The test kit",
    "moorline.errors": "Errors",
}
#: These come with ``import moorline as mo``.
OF_MO = ("moorline.snapshots.", "moorline.client.")


def grouped() -> dict[str, list[str]]:
    """The names of each group, in order, such as ``moorline.Job``."""
    groups = {title: [f"moorline.{name}" for name in names.split()] for title, names in GROUPS.items()}
    for module, title in MODULES.items():
        groups[title] = [f"{module}.{name}" for name in names_in(module)]
    return groups


def names_in(module: str) -> list[str]:
    loaded = importlib.import_module(module)
    listed = getattr(loaded, "__all__", None)
    if listed is not None:
        return sorted(listed)
    defined = inspect.getmembers(loaded, lambda o: getattr(o, "__module__", "") == module)
    return [name for name, _ in defined if not name.startswith("_")]


def found(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def first_sentence(name: str) -> str:
    """The first paragraph of a docstring, on one line; empty if it has none of its own."""
    value = found(name)
    other = getattr(value, "__name__", name)
    if inspect.isclass(value) and not name.endswith(other) and other in names_in(name.rpartition(".")[0]):
        return f"The old name of ``{other}``."
    own = vars(value).get("__doc__") if inspect.isclass(value) else getattr(value, "__doc__", None)
    if not own:
        return ""
    return " ".join(inspect.cleandoc(own).partition("\n\n")[0].split())


def page() -> str:
    """The text of the names page."""
    lines = [
        "# Public names",
        "",
        "Every public name and the first paragraph of its docstring. Names of `moorline` itself are written `mo.Job`",
        "after `import moorline as mo`. This page is written by `python tools/public_names.py`; a test compares it.",
        "",
    ]
    for title, names in grouped().items():
        lines += [f"## {title}", "", "| name | |", "| --- | --- |"]
        for name in names:
            is_of_mo = name.count(".") == 1 or name.startswith(OF_MO)
            shown = name.replace("moorline.", "mo.", 1) if is_of_mo else name.rpartition(".")[2]
            lines.append(f"| `{shown}` | {_plain(first_sentence(name))} |")
        lines.append("")
    return "\n".join(lines)


def _plain(sentence: str) -> str:
    """A sentence of a docstring as Markdown in a cell of a table."""
    return without_roles(sentence).replace("``", "`").replace("|", "\\|")


def without_roles(text: str) -> str:
    """Docstrings mark names as ``:class:`~a.b.C``` or ``:class:`C <a.b.C>```; a page shows ``C``."""
    return ROLE.sub(lambda role: f"`{role[1] or (role[3].rpartition('.')[2] if role[2] else role[3])}`", text)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)}")
