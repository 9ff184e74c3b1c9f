"""Moorline: Apache Flink's state management and fault tolerance on Apache Spark, in Python."""

import importlib
from typing import TYPE_CHECKING, Any

from moorline.api.functions import (
    AggregateFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
)
from moorline.api.job import Job
from moorline.api.sinks import DeliveryGuarantee, Sink, SinkContext, SinkWriter
from moorline.api.sources import Source, SourceContext, SourceReader
from moorline.api.states import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from moorline.api.streams import KeyedStream, Stream
from moorline.connectors.collect import collect
from moorline.connectors.console import discard
from moorline.connectors.console import print_ as print
from moorline.connectors.file_sink import write_files
from moorline.connectors.files import read_files
from moorline.connectors.generator import generate
from moorline.connectors.items import from_items
from moorline.errors import MoorlineError
from moorline.model.config import Checkpoints, ExponentialDelay, FailureRate, FixedDelay, NoRestart
from moorline.protocol.lifecycle import JobStatus

if TYPE_CHECKING:
    from moorline.spark.run import Handle, Result, run, start
    from moorline.spark.session import spark_config

__version__ = "0.1.0"

#: Loaded at first use: everything else, the test kit above all, works without loading Spark.
_ON_SPARK = {
    "Handle": "moorline.spark.run",
    "Result": "moorline.spark.run",
    "run": "moorline.spark.run",
    "start": "moorline.spark.run",
    "spark_config": "moorline.spark.session",
}


def __getattr__(name: str) -> Any:
    if name in _ON_SPARK:
        return getattr(importlib.import_module(_ON_SPARK[name]), name)
    raise AttributeError(f"module 'moorline' has no attribute {name!r}")


__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "Checkpoints",
    "DeliveryGuarantee",
    "ExponentialDelay",
    "FailureRate",
    "FilterFunction",
    "FixedDelay",
    "FlatMapFunction",
    "Function",
    "Handle",
    "Job",
    "JobStatus",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListState",
    "ListStateDescriptor",
    "MapFunction",
    "MapState",
    "MapStateDescriptor",
    "MoorlineError",
    "NoRestart",
    "OutputTag",
    "ProcessFunction",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "Result",
    "RuntimeContext",
    "Sink",
    "SinkContext",
    "SinkWriter",
    "Source",
    "SourceContext",
    "SourceReader",
    "Stream",
    "ValueState",
    "ValueStateDescriptor",
    "__version__",
    "collect",
    "discard",
    "from_items",
    "generate",
    "print",
    "read_files",
    "run",
    "spark_config",
    "start",
    "write_files",
]
