"""Streams: what a job is put together from. Each step adds an operator to the job and returns the next stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from moorline.api.functions import (
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
)
from moorline.api.sinks import Sink
from moorline.api.states import ValueState
from moorline.errors import InvalidArgument, KeyedStateWithoutKey
from moorline.model.graph import Input, Partitioning

if TYPE_CHECKING:
    from moorline.api.job import Job

_Self = TypeVar("_Self", bound="Stream")


class Stream:
    """Records on their way from one or more operators."""

    def __init__(
        self,
        job: Job,
        origins: tuple[tuple[str, str | None], ...],
        partitioning: Partitioning = Partitioning.FORWARD,
        key: Callable[[Any], Any] | None = None,
    ) -> None:
        self._job, self._origins, self._partitioning, self._key = job, origins, partitioning, key

    def map(self, function: MapFunction | Callable[[Any], Any], **options: Any) -> Stream:
        """One record in, one out. Options here and below: ``uid``, ``name``, ``parallelism``."""
        return self._step("map", _checked(function, MapFunction), **options)

    def filter(self, function: FilterFunction | Callable[[Any], bool], **options: Any) -> Stream:
        """Keep the records for which the function says true."""
        return self._step("filter", _checked(function, FilterFunction), **options)

    def flat_map(self, function: FlatMapFunction | Callable[[Any], Iterable[Any] | None], **options: Any) -> Stream:
        """One record in, any number out."""
        return self._step("flat_map", _checked(function, FlatMapFunction), **options)

    def process(
        self,
        function: ProcessFunction | KeyedProcessFunction | Callable[[Any, Any], Iterable[Any] | None],
        **options: Any,
    ) -> Stream:
        """One record in, any number out, with a context: side outputs, and state on a keyed stream."""
        if isinstance(function, KeyedProcessFunction) and self._key is None:
            raise KeyedStateWithoutKey(options.get("uid") or describe(function), ())
        return self._step("process", _checked(function, ProcessFunction, KeyedProcessFunction), **options)

    def key_by(self, key: Callable[[Any], Any]) -> KeyedStream:
        """Send each record to the subtask that owns its key. ``key`` is a function of the record."""
        if not callable(key):
            raise InvalidArgument("key_by", key, "Give a function from a record to its key, such as lambda r: r[0].")
        return KeyedStream(self._job, self._origins, Partitioning.HASH, key)

    def rebalance(self) -> Stream:
        """Deal the records out to the next operator's subtasks in turn."""
        return Stream(self._job, self._origins, Partitioning.REBALANCE)

    def union(self, *others: Stream) -> Stream:
        """The records of all of these streams, in no particular order among them."""
        for stream in (self, *others):
            if not isinstance(stream, Stream):
                raise InvalidArgument("union", stream, "Give streams of the same job.")
            if stream._job is not self._job:
                raise InvalidArgument("union", stream, "Streams of different jobs cannot be joined.")
            if stream._partitioning is not Partitioning.FORWARD:
                raise InvalidArgument("union", stream, "Unite the streams first, then key_by or rebalance the union.")
        return Stream(self._job, tuple(origin for stream in (self, *others) for origin in stream._origins))

    def side_output(self, tag: OutputTag) -> Stream:
        """What the operator before sent to ``tag``."""
        if not isinstance(tag, OutputTag):
            raise InvalidArgument("side_output", tag, 'Give the OutputTag that the function uses: OutputTag("late").')
        return Stream(self._job, tuple((uid, tag.name) for uid, _ in self._origins))

    get_side_output = side_output

    def sink(self, sink: Sink, **options: Any) -> None:
        """End the stream in ``sink``."""
        if not isinstance(sink, Sink):
            raise InvalidArgument("sink", sink, 'Give a Sink, such as mo.collect("out").')
        self._step("sink", sink, **options)

    def _step(
        self,
        kind: str,
        function: Any,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        inputs = tuple(Input(upstream, tag, self._partitioning, self._key) for upstream, tag in self._origins)
        return Stream(self._job, ((self._job._add(kind, function, inputs, uid, name, parallelism), None),))


class KeyedStream(Stream):
    """A stream whose records each have a key. What comes next may keep state per key."""

    def reduce(self, function: ReduceFunction | Callable[[Any, Any], Any], **options: Any) -> Stream:
        """For each record, the reduction of all records of its key so far."""
        function = _checked(function, ReduceFunction)
        return self._step("process", _Reduce(function), **{"name": f"reduce {describe(function)}", **options})


class _Reduce(KeyedProcessFunction):
    """:meth:`KeyedStream.reduce` as a process function."""

    reduced: ValueState[Any] = ValueState()

    def __init__(self, function: ReduceFunction | Callable[[Any, Any], Any]) -> None:
        self._function = function

    def open(self, runtime_context: Any) -> None:
        if isinstance(self._function, ReduceFunction):
            self._function.open(runtime_context)
            self._reduce: Callable[[Any, Any], Any] = self._function.reduce
        else:
            self._reduce = self._function

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        before = self.reduced.value()
        value = value if before is None else self._reduce(before, value)
        self.reduced.update(value)
        return (value,)

    def close(self) -> None:
        if isinstance(self._function, ReduceFunction):
            self._function.close()


def describe(function: object) -> str:
    """A short name for a function, for people."""
    name = getattr(function, "__name__", None) or type(function).__name__
    return "lambda" if name == "<lambda>" else name.strip("_")


def _checked(function: Any, *wanted: type) -> Any:
    if isinstance(function, wanted):
        return function
    if callable(function) and not isinstance(function, type):
        return function
    if isinstance(function, type) and not issubclass(function, Function):
        return function  # a class used as a callable, such as int or str
    names = " or ".join(w.__name__ for w in wanted)
    raise InvalidArgument("function", function, f"Give a callable or an instance of {names}.")
