"""Misspelt options, names of PyFlink and PySpark, and what things look like when they are printed."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path

import pytest

import moorline as mo
from moorline.errors import InvalidArgument, UnknownName, UnknownOption
from moorline.model.config.checkpoints import as_checkpoints
from moorline.model.config.run import RunConfig

#: Made by the library and handed out, or without options.
NOT_FOR_USERS = {
    *("BroadcastConnectedStream", "BroadcastStream", "ConnectedStreams", "KeyedStream", "Stream", "WindowedStream"),
    *(
        "Handle",
        "Result",
        "SinkContext",
        "CommitterContext",
        "EnumeratorContext",
        "SourceContext",
        "TimeWindow",
        "OutputTag",
        "RenamedFrom",
        "BrokenRecord",
    ),
    *("DeliveryGuarantee", "JobStatus", "TriggerResult"),
    # Records that sources give, made by a function or, as mo.Delete, with one value.
    *("Aggregate", "ColumnStream", "KeyedColumnStream"),
    *("KafkaRecord", "NatsMessage", "RedisEntry", "Change", "Delete", "SourceEnd", "SchemaRegistry"),
}


def keywords(function) -> list[str]:
    """The keywords that something takes."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in parameters if p.kind in kinds and p.name != "self"]


PUBLIC = [name for name in mo.__all__ if callable(getattr(mo, name)) and name not in NOT_FOR_USERS]


@pytest.mark.parametrize("name", [name for name in PUBLIC if keywords(getattr(mo, name))])
def test_a_misspelt_option_is_answered_with_the_right_one(name):
    option = keywords(getattr(mo, name))[-1]
    with pytest.raises(UnknownOption) as refused:
        getattr(mo, name)(**{option + "x": 1})
    assert refused.value.similar == option
    assert f"Did you mean {option!r}?" in str(refused.value)
    assert isinstance(refused.value, TypeError)


STREAMS = [
    mo.Stream,
    mo.KeyedStream,
    mo.ColumnStream,
    mo.KeyedColumnStream,
    mo.WindowedStream,
    mo.ConnectedStreams,
    mo.BroadcastConnectedStream,
    mo.Handle,
]
METHODS = [
    (cls, name)
    for cls in STREAMS
    for name, member in vars(cls).items()
    if inspect.isfunction(member) and not name.startswith("_") and "options" in inspect.signature(member).parameters
]


@pytest.mark.parametrize(("cls", "method"), METHODS, ids=lambda v: v if isinstance(v, str) else v.__name__)
def test_a_misspelt_option_of_a_step_is_answered_with_the_right_one(cls, method):
    with pytest.raises(UnknownOption, match="Did you mean 'parallelism'"):
        getattr(cls, method)(None, None, paralelism=2)


def test_the_options_of_run_are_those_of_start():
    with pytest.raises(UnknownOption, match="Did you mean 'checkpoints'"):
        mo.run(mo.Job("test"), checkpoint="/tmp/here")  # type: ignore[call-arg]
    with pytest.raises(UnknownOption, match="Did you mean 'restart'"):
        mo.start(mo.Job("test"), restrat=mo.NoRestart())  # type: ignore[call-arg]


# --- checkpoints ------------------------------------------------------------------------------


@pytest.mark.parametrize("location", ["/data/here", Path("/data/here"), mo.Checkpoints("/data/here")])
def test_a_location_alone_is_a_configuration_of_checkpoints(location):
    assert as_checkpoints(location) == mo.Checkpoints("/data/here")
    assert as_checkpoints(None) is None


def test_what_is_no_configuration_of_checkpoints_is_refused():
    with pytest.raises(InvalidArgument, match="Give a location or"):
        as_checkpoints(10)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="location"):
        mo.Checkpoints(10)  # type: ignore[arg-type]
    assert RunConfig(checkpoints=mo.Checkpoints(Path("/a"))).checkpoints.location == "/a"  # type: ignore[arg-type, union-attr]


# --- names of others --------------------------------------------------------------------------


def keyed() -> mo.KeyedStream:
    return mo.Job("test").source(mo.from_items([1]), uid="numbers").key_by(abs)


def columns() -> mo.ColumnStream:
    return mo.Job("test").source(mo.from_items([{"cents": 1}]), uid="rows").with_schema("cents bigint", uid="columns")


@pytest.mark.parametrize(
    ("thing", "name", "ours"),
    [
        (mo, "from_collection", "mo.from_items"),
        (mo, "StreamExecutionEnvironment", "mo.Job"),
        (mo, "RocksDBStateBackend", 'backend="rocksdb"'),
        (mo.Job("test"), "execute", "mo.run(job)"),
        (mo.Job("test"), "enable_checkpointing", "mo.Checkpoints"),
        (keyed(), "sink_to", ".sink("),
        (keyed(), "print", "mo.print()"),
        (keyed().rebalance(), "reduce", ".key_by("),
        (keyed().count_window(2), "print", "mo.print()"),
        (mo.ValueState(int), "get", ".value()"),
        (mo.ListState(int), "append", ".add("),
        (mo.MapState(str, int), "pop", ".remove("),
        (mo.ReducingState(int, max), "value", ".get()"),
        (mo, "countDistinct", "mo.approx_count_distinct"),
        (columns(), "withColumn", ".with_columns("),
        (columns(), "groupBy", '.key_by("column")'),
        (columns().key_by("cents"), "agg", ".aggregate("),
        (columns().key_by("cents"), "sum", "mo.sum("),
        (mo.col("cents"), "isNull", ".is_null()"),
        (mo.col("cents"), "otherwise", "mo.when("),
    ],
    ids=lambda v: v if isinstance(v, str) else type(v).__name__,
)
def test_a_name_of_pyflink_or_pyspark_is_answered_with_ours(thing, name, ours):
    with pytest.raises(UnknownName) as refused:
        getattr(thing, name)
    assert ours in str(refused.value)
    assert not hasattr(thing, name)
    assert getattr(thing, name, "default") == "default"


@pytest.mark.parametrize(
    ("thing", "name", "meant"),
    [(mo, "Checkpionts", "Checkpoints"), (keyed(), "keyBy", "key_by"), (mo.Job("test"), "sources", "source")],
    ids=lambda v: v if isinstance(v, str) else type(v).__name__,
)
def test_a_misspelt_name_is_answered_with_the_nearest(thing, name, meant):
    with pytest.raises(AttributeError, match=f"Did you mean '{meant}'"):
        getattr(thing, name)


def test_a_name_that_is_answered_survives_pickling():
    with pytest.raises(UnknownName) as refused:
        mo.from_collection  # noqa: B018
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


# --- what is shown ----------------------------------------------------------------------------


def test_dir_shows_the_public_names_alone():
    assert dir(mo) == sorted(mo.__all__)


def test_streams_say_what_they_are_when_they_are_printed():
    stream = keyed()
    assert repr(stream) == "<KeyedStream of job 'test' from 'numbers' (hash)>"
    assert (
        repr(stream.process(lambda n, ctx: [n], uid="abs").side_output(mo.OutputTag("late")))
        == "<Stream of job 'test' from 'late' of 'abs'>"
    )
    assert repr(stream.count_window(2)) == f"<WindowedStream {stream!r} in GlobalWindows>"
    assert repr(stream.connect(stream)) == f"<ConnectedStreams {stream!r} and {stream!r}>"
    rules = stream.broadcast(mo.MapStateDescriptor("rules", str, int))
    assert repr(rules).endswith(" with rules>")
    assert repr(stream.connect(rules)) == f"<BroadcastConnectedStream {stream!r} and {rules!r}>"
    assert repr(mo.Job("test")) == "<Job 'test' with 0 operators>"


def test_a_result_says_what_is_in_it_when_it_is_printed():
    assert repr(mo.Result({"out": [1, 2], "late": []})) == (
        "<Result of 'late': 0 records, 'out': 2 records; 0 checkpoints, 0 failures>"
    )
    assert repr(mo.Result({})) == "<Result of no collect sinks; 0 checkpoints, 0 failures>"
