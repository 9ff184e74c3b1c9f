"""Moorline: Apache Flink's state management and fault tolerance on Apache Spark, in Python."""

import importlib
from typing import TYPE_CHECKING, Any

from moorline import connectors
from moorline.api import foreign_names
from moorline.api.columns.aggregates import Aggregate, approx_count_distinct, avg, count, first, last, max, min, sum
from moorline.api.columns.batch_functions import BatchKeys, BatchState, BatchStates, KeyedBatchFunction
from moorline.api.columns.expressions.expression import Expression, coalesce, col, greatest, least, lit, when
from moorline.api.columns.streams import ColumnStream, KeyedColumnStream
from moorline.api.connected_streams import BroadcastConnectedStream, BroadcastStream, ConnectedStreams
from moorline.api.foreign_names import unknown_name
from moorline.api.functions.base import (
    AggregateFunction,
    Context,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedContext,
    KeyedProcessFunction,
    MapFunction,
    OnTimerContext,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
)
from moorline.api.functions.connected import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
)
from moorline.api.functions.source_function import SinkFunction, SourceFunction
from moorline.api.job import Job
from moorline.api.listeners import JobEvent, JobListener
from moorline.api.metrics import Counter, Distribution, Gauge, Histogram, Meter, MetricGroup
from moorline.api.sinks import (
    CommitterContext,
    DeliveryGuarantee,
    GlobalCommitter,
    Sink,
    SinkCommitter,
    SinkContext,
    SinkWriter,
)
from moorline.api.sources import EnumeratorContext, Source, SourceContext, SourceReader, SplitEnumerator
from moorline.api.state.combining import AggregatingState, FoldingState, ReducingState
from moorline.api.state.descriptors import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from moorline.api.state.external import ExternalStore
from moorline.api.state.operator_state import CheckpointedFunction, CheckpointListener, ListCheckpointed
from moorline.api.state.rekey import Rekey
from moorline.api.state.states import ListState, MapState, ValueState
from moorline.api.state.ttl import StateTtlConfig
from moorline.api.streams import KeyedStream, Stream
from moorline.api.watermarks import WatermarkGenerator, WatermarkStrategy
from moorline.api.windows.assigners import (
    EventTimeSessionWindows,
    GlobalWindow,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from moorline.api.windows.evictors import CountEvictor, Evictor, TimeEvictor
from moorline.api.windows.functions import (
    CoGroupFunction,
    JoinFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from moorline.api.windows.streams import WindowedStream
from moorline.api.windows.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerResult,
)
from moorline.connectors.batch_generator import generate_batches
from moorline.connectors.broken import BrokenRecord
from moorline.connectors.collect import collect
from moorline.connectors.delta.read import read_delta
from moorline.connectors.delta.write import write_delta
from moorline.connectors.files.sink import write_files
from moorline.connectors.files.source import read_files
from moorline.connectors.formats.avro import avro_format
from moorline.connectors.formats.base import Format
from moorline.connectors.formats.json import json_format
from moorline.connectors.formats.protobuf import protobuf_format
from moorline.connectors.formats.registry import SchemaRegistry, schema_registry
from moorline.connectors.generator import generate
from moorline.connectors.hybrid.parts import SourceEnd
from moorline.connectors.hybrid.source import hybrid
from moorline.connectors.iceberg.write import write_iceberg
from moorline.connectors.items import from_items
from moorline.connectors.kafka.read import read_kafka
from moorline.connectors.kafka.record import KafkaRecord
from moorline.connectors.kafka.write import write_kafka
from moorline.connectors.memory_state import memory_state
from moorline.connectors.nats.read import read_nats
from moorline.connectors.nats.records import NatsMessage
from moorline.connectors.nats.write import write_nats
from moorline.connectors.postgres.read import read_postgres, read_postgres_changes
from moorline.connectors.postgres.state import postgres_state
from moorline.connectors.postgres.write import write_postgres
from moorline.connectors.printing import discard
from moorline.connectors.printing import print_ as print
from moorline.connectors.redis.read import read_redis_stream
from moorline.connectors.redis.records import RedisEntry
from moorline.connectors.redis.state import redis_state
from moorline.connectors.redis.write import write_redis_stream
from moorline.connectors.row_changes import UNCHANGED, Change, Delete
from moorline.connectors.sql.write import write_sql
from moorline.errors import MoorlineError
from moorline.model.config.checkpoints import Checkpoints
from moorline.model.config.control import ControlPort
from moorline.model.config.leadership import StorageLease, ZooKeeper
from moorline.model.config.restarts import ExponentialDelay, FailureRate, FixedDelay, NoRestart
from moorline.model.config.run import Autoscale
from moorline.model.config.state import RocksDb
from moorline.protocol.supervision.lifecycle import JobStatus
from moorline.state.types.annotations import RenamedFrom
from moorline.state.types.pickle import Pickled

if TYPE_CHECKING:
    from moorline import client, snapshots
    from moorline.driver.giving_up import give_up
    from moorline.driver.observation.delivery import add_listener, remove_listener
    from moorline.driver.observation.tracing import TracingListener
    from moorline.http.console import Console, HttpEndpoint
    from moorline.http.otel_metrics import MetricsListener
    from moorline.snapshots.checking import fsck, sweep
    from moorline.snapshots.explanation.explain import explain_snapshot
    from moorline.snapshots.explanation.report import Explanation, Growth, KeyRate, KeySize, OperatorSize, StateSize
    from moorline.snapshots.lookup import query_snapshot
    from moorline.snapshots.planning import plan
    from moorline.snapshots.tables.diff import diff_snapshots
    from moorline.snapshots.tables.writing.writer import SnapshotWriter
    from moorline.spark.batch.dataframes import from_dataframe, to_dataframe
    from moorline.spark.data_sources.read import read_spark_source
    from moorline.spark.data_sources.write import write_spark_sink
    from moorline.spark.handle import Handle, Result
    from moorline.spark.run import run, start
    from moorline.spark.session.settings import spark_config
    from moorline.spark.tables import read_snapshot, register

__version__ = "0.1.0"

#: Loaded at first use. Workers need none of it, and load what is above before each first job; everything else, the
#: test kit above all, works without loading Spark.
_AT_FIRST_USE = {
    "Console": "moorline.http.console",
    "HttpEndpoint": "moorline.http.console",
    "add_listener": "moorline.driver.observation.delivery",
    "MetricsListener": "moorline.http.otel_metrics",
    "TracingListener": "moorline.driver.observation.tracing",
    "remove_listener": "moorline.driver.observation.delivery",
    "fsck": "moorline.snapshots.checking",
    "give_up": "moorline.driver.giving_up",
    "plan": "moorline.snapshots.planning",
    "query_snapshot": "moorline.snapshots.lookup",
    "explain_snapshot": "moorline.snapshots.explanation.explain",
    "Explanation": "moorline.snapshots.explanation.report",
    "Growth": "moorline.snapshots.explanation.report",
    "KeyRate": "moorline.snapshots.explanation.report",
    "KeySize": "moorline.snapshots.explanation.report",
    "OperatorSize": "moorline.snapshots.explanation.report",
    "StateSize": "moorline.snapshots.explanation.report",
    "sweep": "moorline.snapshots.checking",
    "Handle": "moorline.spark.handle",
    "Result": "moorline.spark.handle",
    "from_dataframe": "moorline.spark.batch.dataframes",
    "read_spark_source": "moorline.spark.data_sources.read",
    "write_spark_sink": "moorline.spark.data_sources.write",
    "run": "moorline.spark.run",
    "start": "moorline.spark.run",
    "spark_config": "moorline.spark.session.settings",
    "read_snapshot": "moorline.spark.tables",
    "register": "moorline.spark.tables",
    "SnapshotWriter": "moorline.snapshots.tables.writing.writer",
    "diff_snapshots": "moorline.snapshots.tables.diff",
    "to_dataframe": "moorline.spark.batch.dataframes",
}


def __getattr__(name: str) -> Any:
    if name in _AT_FIRST_USE:
        return getattr(importlib.import_module(_AT_FIRST_USE[name]), name)
    if name in ("client", "snapshots"):
        return importlib.import_module(f"moorline.{name}")
    raise unknown_name("moorline", name, foreign_names.MODULE, __all__)


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "UNCHANGED",
    "Aggregate",
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "Autoscale",
    "BatchKeys",
    "BatchState",
    "BatchStates",
    "BroadcastConnectedStream",
    "BroadcastProcessFunction",
    "BroadcastStream",
    "BrokenRecord",
    "Change",
    "CheckpointListener",
    "CheckpointedFunction",
    "Checkpoints",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "ColumnStream",
    "CommitterContext",
    "ConnectedStreams",
    "Console",
    "Context",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "ControlPort",
    "CountEvictor",
    "CountTrigger",
    "Counter",
    "Delete",
    "DeliveryGuarantee",
    "Distribution",
    "EndOfStreamTrigger",
    "EnumeratorContext",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "Evictor",
    "Explanation",
    "ExponentialDelay",
    "Expression",
    "ExternalStore",
    "FailureRate",
    "FilterFunction",
    "FixedDelay",
    "FlatMapFunction",
    "FoldingState",
    "FoldingStateDescriptor",
    "Format",
    "Function",
    "Gauge",
    "GlobalCommitter",
    "GlobalWindow",
    "GlobalWindows",
    "Growth",
    "Handle",
    "Histogram",
    "HttpEndpoint",
    "Job",
    "JobEvent",
    "JobListener",
    "JobStatus",
    "JoinFunction",
    "KafkaRecord",
    "KeyRate",
    "KeySize",
    "KeyedBatchFunction",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedColumnStream",
    "KeyedContext",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListCheckpointed",
    "ListState",
    "ListStateDescriptor",
    "MapFunction",
    "MapState",
    "MapStateDescriptor",
    "Meter",
    "MetricGroup",
    "MetricsListener",
    "MoorlineError",
    "NatsMessage",
    "NeverTrigger",
    "NoRestart",
    "OnTimerContext",
    "OperatorSize",
    "OutputTag",
    "Pickled",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "RedisEntry",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "Rekey",
    "RenamedFrom",
    "Result",
    "RocksDb",
    "RuntimeContext",
    "SchemaRegistry",
    "Sink",
    "SinkCommitter",
    "SinkContext",
    "SinkFunction",
    "SinkWriter",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "SnapshotWriter",
    "Source",
    "SourceContext",
    "SourceEnd",
    "SourceFunction",
    "SourceReader",
    "SplitEnumerator",
    "StateSize",
    "StateTtlConfig",
    "StorageLease",
    "Stream",
    "TimeEvictor",
    "TimeWindow",
    "TracingListener",
    "Trigger",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "ValueState",
    "ValueStateDescriptor",
    "WatermarkGenerator",
    "WatermarkStrategy",
    "WindowAssigner",
    "WindowFunction",
    "WindowedStream",
    "ZooKeeper",
    "__version__",
    "add_listener",
    "approx_count_distinct",
    "avg",
    "avro_format",
    "client",
    "coalesce",
    "col",
    "collect",
    "connectors",
    "count",
    "diff_snapshots",
    "discard",
    "explain_snapshot",
    "first",
    "from_dataframe",
    "from_items",
    "fsck",
    "generate",
    "generate_batches",
    "give_up",
    "greatest",
    "hybrid",
    "json_format",
    "last",
    "least",
    "lit",
    "max",
    "memory_state",
    "min",
    "plan",
    "postgres_state",
    "print",
    "protobuf_format",
    "query_snapshot",
    "read_delta",
    "read_files",
    "read_kafka",
    "read_nats",
    "read_postgres",
    "read_postgres_changes",
    "read_redis_stream",
    "read_snapshot",
    "read_spark_source",
    "redis_state",
    "register",
    "remove_listener",
    "run",
    "schema_registry",
    "snapshots",
    "spark_config",
    "start",
    "sum",
    "sweep",
    "to_dataframe",
    "when",
    "write_delta",
    "write_files",
    "write_iceberg",
    "write_kafka",
    "write_nats",
    "write_postgres",
    "write_redis_stream",
    "write_spark_sink",
    "write_sql",
]
