"""Names of PyFlink and PySpark that are something else here: asking for one is answered with ours.

A name that is not known is an ``AttributeError`` all the same, so ``hasattr`` and ``getattr`` with a default hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from moorline.errors import UnknownName
from moorline.model.spelling import nearest

_SOURCE = "job.source(mo.from_items([...]), uid=...)"
_DURATION = 'a text such as "10s" or a timedelta'
_BACKEND = 'mo.run(job, backend="rocksdb"), or "heap"'
_CHECKPOINTS = "mo.run(job, checkpoints=mo.Checkpoints(location, interval=...))"
_RESTARTS = "mo.run(job, restart=mo.FixedDelay(...)), mo.FailureRate or mo.ExponentialDelay"
_OPTION = "an option of the step, such as .map(function, uid=..., name=..., parallelism=...)"
_REDUCE = ".key_by(...).reduce(function of two records)"
_TYPES = "Python's own types, such as mo.ValueState(int) or mo.ListState(tuple[str, float])"

MODULE = {
    "from_collection": _SOURCE,
    "parallelize": _SOURCE,
    "StreamExecutionEnvironment": 'mo.Job("name", parallelism=...)',
    "StreamingContext": 'mo.Job("name", parallelism=...)',
    "get_execution_environment": 'mo.Job("name", parallelism=...)',
    "SparkSession": "mo.run(job, spark) with a session made from mo.spark_config(), or mo.run(job)",
    "execute": "mo.run(job), or mo.start(job) for a handle",
    "submit": "mo.run(job), or mo.start(job) for a handle",
    "DataStream": "mo.Stream",
    "readStream": "job.source(mo.read_files(...))",
    "read_text_file": "job.source(mo.read_files(...))",
    "FileSource": "mo.read_files(...)",
    "FileSink": "mo.write_files(...)",
    "StreamingFileSink": "mo.write_files(...)",
    "NumberSequenceSource": "mo.generate(function, count=...)",
    "PrintSink": "mo.print()",
    "Types": _TYPES,
    "TypeInformation": _TYPES,
    "Time": _DURATION,
    "Duration": _DURATION,
    "CheckpointConfig": _CHECKPOINTS,
    "CheckpointingMode": _CHECKPOINTS,
    "EmbeddedRocksDBStateBackend": _BACKEND,
    "RocksDBStateBackend": _BACKEND,
    "HashMapStateBackend": _BACKEND,
    "MemoryStateBackend": _BACKEND,
    "RestartStrategies": _RESTARTS,
    "TimestampAssigner": "a function of the record: mo.WatermarkStrategy.monotonous(timestamp=lambda r: r.at)",
    "KeySelector": "a function of the record: .key_by(lambda r: r.user)",
    "StatefulProcessor": "mo.KeyedProcessFunction",
    "applyInPandasWithState": "mo.KeyedProcessFunction",
    "transformWithState": "mo.KeyedProcessFunction",
    "Row": "a dict, a tuple or a dataclass: records are Python's own objects",
    "udf": "the function itself: .map(function)",
    "writeStream": "stream.sink(mo.write_files(...))",
    "read_csv": "job.source(mo.read_files(path, format='csv'))",
    "read_json": "job.source(mo.read_files(path))",
    "read_parquet": "job.source(mo.read_files(path, format='parquet'))",
    "functions": "mo.col, mo.when, mo.sum and so on, on streams with a schema",
    "expr": 'an expression such as mo.col("cents") / 100',
    "mean": "mo.avg(column)",
    "countDistinct": "mo.approx_count_distinct(column)",
    "count_distinct": "mo.approx_count_distinct(column)",
    "collect_list": "mo.KeyedBatchFunction, or mo.ListState in a mo.KeyedProcessFunction",
    "row_number": ".key_by(...).top(n, by=column)",
    "window": ".key_by(...).window(mo.TumblingEventTimeWindows(...))",
    "to_timestamp": 'mo.col(column).cast("timestamp"), or .as_timestamp_ms() of whole numbers',
    "desc": "top(n, by=column, descending=True)",
    "asc": "top(n, by=column, descending=False)",
    "StreamingQueryListener": "mo.JobListener",
    "KafkaSource": "mo.read_kafka(...)",
    "FlinkKafkaConsumer": "mo.read_kafka(...)",
    "KafkaSink": "mo.write_kafka(...)",
    "FlinkKafkaProducer": "mo.write_kafka(...)",
    "JdbcSink": "mo.write_sql(...), or mo.write_postgres(...)",
    "HybridSource": "mo.hybrid(first, then)",
}

JOB = {
    "execute": "mo.run(job)",
    "execute_async": "mo.start(job)",
    "run": "mo.run(job)",
    "start": "mo.start(job)",
    "from_collection": _SOURCE,
    "from_items": _SOURCE,
    "add_source": "job.source(source, uid=...)",
    "from_source": "job.source(source, uid=..., watermarks=...)",
    "read_text_file": "job.source(mo.read_files(...))",
    "readStream": "job.source(mo.read_files(...))",
    "set_parallelism": 'mo.Job("name", parallelism=...)',
    "set_max_parallelism": 'mo.Job("name", max_parallelism=...)',
    "enable_checkpointing": _CHECKPOINTS,
    "get_checkpoint_config": _CHECKPOINTS,
    "set_state_backend": _BACKEND,
    "set_restart_strategy": _RESTARTS,
    "add_python_file": "spark.sparkContext.addPyFile(...), or --py-files",
    "get_execution_plan": "print(job)",
}

#: Of the environment or the session, which is a job and its options here.
MODULE |= {
    name: ours for name, ours in JOB.items() if name not in MODULE and name not in ("run", "start", "from_items")
}

STREAM = {
    "execute": "mo.run(job)",
    "start": "mo.start(job)",
    "write": ".sink(mo.write_files(...))",
    "toPandas": '.sink(mo.collect("out")), then mo.run(job).collected("out")',
    "add_sink": ".sink(sink, uid=...)",
    "sink_to": ".sink(sink, uid=...)",
    "print": ".sink(mo.print())",
    "show": ".sink(mo.print())",
    "collect": '.sink(mo.collect("out")), then mo.run(job).collected("out")',
    "execute_and_collect": '.sink(mo.collect("out")), then mo.run(job).collected("out")',
    "writeStream": ".sink(mo.write_files(...))",
    "foreach": ".sink(...) with a mo.SinkFunction",
    "foreachBatch": ".sink(...) with a mo.Sink",
    "uid": _OPTION,
    "name": _OPTION,
    "set_parallelism": _OPTION,
    "set_max_parallelism": 'mo.Job("name", max_parallelism=...)',
    "group_by": ".key_by(function)",
    "groupBy": ".key_by(function)",
    "groupByKey": ".key_by(function)",
    "select": ".map(function), or .with_schema(...).select(...) on columns",
    "withColumn": ".map(function)",
    "where": ".filter(function), or .with_schema(...).where(...) on columns",
    "withWatermark": ".assign_timestamps_and_watermarks(mo.WatermarkStrategy...), or .with_watermark on columns",
    "assign_timestamps": ".assign_timestamps_and_watermarks(mo.WatermarkStrategy...)",
    "transformWithState": ".key_by(...).process(a mo.KeyedProcessFunction)",
    "shuffle": ".rebalance()",
    "rescale": ".rebalance()",
    "partition_custom": ".key_by(function)",
    "repartition": ".rebalance(), and parallelism= of the next step",
    "sum": _REDUCE,
    "min": _REDUCE,
    "max": _REDUCE,
    "min_by": _REDUCE,
    "max_by": _REDUCE,
    "reduce": _REDUCE,
    "window": ".key_by(...).window(assigner), or .window_all(assigner)",
    "time_window": ".key_by(...).window(mo.TumblingEventTimeWindows(...))",
    "count_window": ".key_by(...).count_window(size)",
    "interval_join": ".key_by(...).interval_join(other.key_by(...))",
}

_AGGREGATE = '.key_by("column").aggregate(total=mo.sum("cents"), orders=mo.count())'
_FIRST = '.key_by("column").deduplicate(), or .top(n, by="column")'
#: Of a stream of columns, where there is a column for what is a function elsewhere.
COLUMNS = STREAM | {
    "withColumn": '.with_columns(euros=mo.col("cents") / 100)',
    "withColumns": '.with_columns(euros=mo.col("cents") / 100)',
    "withColumnRenamed": ".rename({old: new})",
    "withWatermark": ".with_watermark(column, delay)",
    "selectExpr": '.select("customer", euros=mo.col("cents") / 100)',
    "group_by": '.key_by("column")',
    "groupBy": '.key_by("column")',
    "groupby": '.key_by("column")',
    "agg": _AGGREGATE,
    "count": _AGGREGATE,
    "sum": _AGGREGATE,
    "min": _AGGREGATE,
    "max": _AGGREGATE,
    "avg": _AGGREGATE,
    "mean": _AGGREGATE,
    "dropDuplicates": _FIRST,
    "dropDuplicatesWithinWatermark": _FIRST,
    "distinct": _FIRST,
    "unionAll": ".union(other)",
    "unionByName": ".union(other)",
    "mapInPandas": '.map_batches(function, frames="pandas", schema=...)',
    "mapInArrow": ".map_batches(function, schema=...)",
    "applyInPandas": '.key_by("column").process_batches(a mo.KeyedBatchFunction)',
    "applyInPandasWithState": '.key_by("column").process_batches(a mo.KeyedBatchFunction)',
}
_NO_ORDER = '.key_by(...).top(n, by="column"): a stream has no other order than that of arrival'
#: Of an expression.
EXPRESSION = {
    "isNull": ".is_null()",
    "isNotNull": ".is_not_null()",
    "isna": ".is_null()",
    "notna": ".is_not_null()",
    "is_valid": ".is_not_null()",
    "isNaN": ".is_nan()",
    "isin": ".is_in([...])",
    "eqNullSafe": "(a == b) | (a.is_null() & b.is_null())",
    "astype": '.cast("bigint")',
    "name": ".alias(name)",
    "otherwise": "mo.when(condition).then(value).otherwise(value)",
    "when": "mo.when(condition).then(value).otherwise(value)",
    "like": ".str.like(pattern)",
    "rlike": ".str.matches(pattern)",
    "contains": ".str.contains(text)",
    "startswith": ".str.starts_with(text)",
    "endswith": ".str.ends_with(text)",
    "substr": ".str.slice(first, end), whose first character is 0",
    "upper": ".str.upper()",
    "lower": ".str.lower()",
    "length": ".str.length()",
    "year": ".dt.year()",
    "asc": _NO_ORDER,
    "desc": _NO_ORDER,
    "over": ".key_by(...).aggregate(...), .window(...) or .top(...)",
    "sum": 'mo.sum("column") within .aggregate(...)',
    "mean": 'mo.avg("column") within .aggregate(...)',
}

VALUE = {
    "get": ".value()",
    "exists": ".value() is not None",
    "getOption": ".value()",
    "set": ".update(value)",
    "put": ".update(value)",
    "remove": ".clear()",
}
LIST = {
    "value": ".get()",
    "append": ".add(value)",
    "appendValue": ".add(value)",
    "appendList": ".add_all(values)",
    "extend": ".add_all(values)",
    "put": ".update(values)",
    "exists": "any(state)",
}
MAP = {
    "value": ".get(key)",
    "getValue": ".get(key)",
    "updateValue": ".put(key, value)",
    "update": ".put_all(entries)",
    "pop": ".get(key), then .remove(key)",
    "setdefault": ".get(key, default), then .put(key, value)",
    "entries": ".items()",
    "iterator": ".items()",
    "containsKey": ".contains(key)",
    "removeKey": ".remove(key)",
}
REDUCED = {"value": ".get()", "update": ".add(value)", "append": ".add(value)"}


def unknown_name(where: str, name: str, table: Mapping[str, str], known: Iterable[str]) -> AttributeError:
    """The error for a name that is not there: with ours for the same thing, or with the nearest one."""
    if name.startswith("_"):
        return AttributeError(f"{where} has no attribute {name!r}")
    ours = table.get(name, "")
    return UnknownName(where, name, ours, "" if ours else nearest(name, known) or "")


class AnswersForeignNames:
    """Base of what users call methods on: a name that it has not is answered with the name of ours."""

    _foreign_names: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # for type checkers, what is not there is not there

        def __getattr__(self, name: str) -> Any:
            known = [n for n in dir(type(self)) if not n.startswith("_")]
            raise unknown_name(_what(self), name, type(self)._foreign_names, known)


def _what(thing: object) -> str:
    """The class as users know it: ``ValueState``, and not the one of a backend."""
    public = [c for c in type(thing).__mro__ if c.__module__.startswith("moorline.api.")]
    return public[0].__name__ if public else type(thing).__name__
