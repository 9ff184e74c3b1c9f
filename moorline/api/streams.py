"""Streams: what a job is put together from. Each step adds an operator to the job and returns the next stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, cast, overload

from moorline.api import foreign_names
from moorline.api.connected_streams import BroadcastConnectedStream, BroadcastStream, ConnectedStreams
from moorline.api.foreign_names import AnswersForeignNames
from moorline.api.functions.base import (
    Context,
    Diverted,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedContext,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
)
from moorline.api.functions.calls import check_call
from moorline.api.functions.overrides import check_methods
from moorline.api.functions.reduce import reduction
from moorline.api.functions.source_function import SinkFunction
from moorline.api.iteration import iterate
from moorline.api.options import StepOptions
from moorline.api.sinks import Sink
from moorline.api.state.descriptors import MapStateDescriptor
from moorline.api.type_parameters import A, B, K_co, T_co, U, W_co
from moorline.api.watermarks import WatermarkStrategy
from moorline.api.windows.assigners import GlobalWindow, WindowAssigner
from moorline.api.windows.joins import CoGroupedStreams, IntervalJoin, JoinedStreams
from moorline.api.windows.streams import WindowedStream, counted, windowed
from moorline.errors import InvalidArgument, KeyedStateWithoutKey
from moorline.model.graph import Input, OperatorKind, Partitioning
from moorline.model.options import STEP_OPTIONS, checks_options

if TYPE_CHECKING:
    from moorline.api.columns.streams import ColumnStream
    from moorline.api.job import Job


#: Nothing that their functions make goes to a side output.
_WITHOUT_SIDE_OUTPUTS = (OperatorKind.MAP, OperatorKind.FILTER, OperatorKind.FLAT_MAP, OperatorKind.TIMESTAMPS)


class Stream(AnswersForeignNames, Generic[T_co]):
    """Records on their way from one or more operators. ``Stream[Order]`` is a stream of orders."""

    _foreign_names = foreign_names.STREAM

    def __init__(
        self,
        job: Job,
        origins: tuple[tuple[str, str | None], ...],
        partitioning: Partitioning = Partitioning.FORWARD,
        key: Callable[[Any], object] | None = None,
        key_type: object = None,
    ) -> None:
        self._job, self._origins, self._partitioning, self._key = job, origins, partitioning, key
        self._key_type = key_type

    def __repr__(self) -> str:
        origins = ", ".join(f"{uid!r}" if tag is None else f"{tag!r} of {uid!r}" for uid, tag in self._origins)
        how = "" if self._partitioning is Partitioning.FORWARD else f" ({self._partitioning.value})"
        return f"<{type(self).__name__} of job {self._job.name!r} from {origins}{how}>"

    @checks_options(also=STEP_OPTIONS)
    def map(self, function: MapFunction[T_co, U] | Callable[[T_co], U], **options: Unpack[StepOptions]) -> Stream[U]:
        """One record in, one out.

        Options here and below: ``uid``, ``name``, ``parallelism``; for steps with state also ``rekey`` (an
        :class:`mo.Rekey <moorline.Rekey>`) and ``drop_states`` (names of states that a snapshot has and the function
        no longer wants).
        """
        checked = _checked(function, MapFunction, called_with=1, instead="Or use flat_map.")
        return self._step("map", checked, **options)

    @checks_options(also=STEP_OPTIONS)
    def filter(
        self, function: FilterFunction[T_co] | Callable[[T_co], object], **options: Unpack[StepOptions]
    ) -> Stream[T_co]:
        """Keep the records for which the function says true."""
        return self._step("filter", _checked(function, FilterFunction, called_with=1), **options)

    @checks_options(also=STEP_OPTIONS)
    def flat_map(
        self,
        function: FlatMapFunction[T_co, U] | Callable[[T_co], Iterable[U] | None],
        **options: Unpack[StepOptions],
    ) -> Stream[U]:
        """One record in, any number out."""
        checked = _checked(function, FlatMapFunction, called_with=1, may_yield=True)
        return self._step("flat_map", checked, **options)

    @checks_options(also=STEP_OPTIONS)
    def process(
        self,
        function: ProcessFunction[T_co, U] | Callable[[T_co, Context], Iterable[U | Diverted] | None],
        **options: Unpack[StepOptions],
    ) -> Stream[U]:
        """One record in, any number out, with a context: side outputs, and state on a keyed stream."""
        if isinstance(function, KeyedProcessFunction) and self._key is None:
            raise KeyedStateWithoutKey(options.get("uid") or describe(function), ())
        checked = _checked(function, ProcessFunction, KeyedProcessFunction, called_with=2, may_yield=True)
        return self._step("process", checked, **options)

    @checks_options()
    def key_by(self, key: Callable[[T_co], A], *, key_type: object = None) -> KeyedStream[T_co, A]:
        """Send each record to the subtask that owns its key. ``key`` is a function of the record.

        ``key_type`` is wanted only where keys are of classes of your own (Enum, frozen dataclass) and there are
        timers or windows: then keys must be made again from a snapshot before a record brings them along.
        """
        if not callable(key):
            raise InvalidArgument("key_by", key, "Give a function from a record to its key, such as lambda r: r[0].")
        check_call("key_by", key, 1)
        return KeyedStream(self._job, self._origins, Partitioning.HASH, key, key_type)

    @checks_options(also=STEP_OPTIONS)
    def assign_timestamps_and_watermarks(
        self, strategy: WatermarkStrategy, **options: Unpack[StepOptions]
    ) -> Stream[T_co]:
        """Give records a time, and the stream a notion of how far it has come."""
        if not isinstance(strategy, WatermarkStrategy):
            raise InvalidArgument("strategy", strategy, "Give a WatermarkStrategy.")
        return self._step("timestamps", strategy, **options)

    @checks_options(also=STEP_OPTIONS)
    def with_schema(self, schema: object, **options: Unpack[StepOptions]) -> ColumnStream:
        """Have the records travel as Arrow columns from here on. A record is a dict with these columns.

        ``schema`` is Spark's DDL, a ``pyarrow.Schema``, or a dataclass or ``msgspec.Struct``, whose instances may be
        the records too.

        >>> import moorline as mo
        >>> job = mo.Job("sales")
        >>> sales = job.source(mo.from_items([{"customer": "ada", "cents": 5}]))
        >>> sales.with_schema("customer string, cents bigint").schema.names
        ['customer', 'cents']
        """
        from moorline.api.columns.streams import with_schema  # noqa: PLC0415  which is made of streams

        return with_schema(self, schema, **options)

    @overload
    def connect(self, other: BroadcastStream[U]) -> BroadcastConnectedStream[T_co, U, Any]: ...
    @overload
    def connect(self, other: Stream[U]) -> ConnectedStreams[T_co, U, Any]: ...
    def connect(self, other: Any) -> Any:
        """Two streams side by side, for one function that sees both and may share state between them."""
        if isinstance(other, BroadcastStream):
            return BroadcastConnectedStream(self, other)
        if not isinstance(other, Stream):
            raise InvalidArgument("connect", other, "Give another stream, or stream.broadcast(descriptor).")
        if other._job is not self._job:
            raise InvalidArgument("connect", other, "Streams of different jobs cannot be connected.")
        return ConnectedStreams(self, other)

    @overload
    def broadcast(self) -> Stream[T_co]: ...
    @overload
    def broadcast(
        self, descriptor: MapStateDescriptor[Any, Any], /, *descriptors: MapStateDescriptor[Any, Any]
    ) -> BroadcastStream[T_co]: ...
    def broadcast(self, *descriptors: MapStateDescriptor[Any, Any]) -> Stream[T_co] | BroadcastStream[T_co]:
        """Every record to every subtask of the next operator.

        With descriptors: to be connected with another stream, for a function that keeps what it receives in broadcast
        state of these names.
        """
        for descriptor in descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise InvalidArgument("broadcast", descriptor, "Give a MapStateDescriptor: broadcast state is a map.")
        stream: Stream[T_co] = Stream(self._job, self._origins, Partitioning.BROADCAST)
        return BroadcastStream(stream, descriptors) if descriptors else stream

    def rebalance(self) -> Stream[T_co]:
        """Deal the records out to the next operator's subtasks in turn."""
        return Stream(self._job, self._origins, Partitioning.REBALANCE)

    def union(self, *others: Stream[U]) -> Stream[T_co | U]:
        """The records of all of these streams, in no particular order among them."""
        for stream in (self, *others):
            if not isinstance(stream, Stream):
                raise InvalidArgument("union", stream, "Give streams of the same job.")
            if stream._job is not self._job:
                raise InvalidArgument("union", stream, "Streams of different jobs cannot be joined.")
            if stream._partitioning is not Partitioning.FORWARD:
                raise InvalidArgument("union", stream, "Unite the streams first, then key_by or rebalance the union.")
        return Stream(self._job, tuple(origin for stream in (self, *others) for origin in stream._origins))

    @checks_options()
    def iterate(self, step: Callable[[Self], tuple[Stream[object], Stream[U]]], *, pickled: bool = False) -> Stream[U]:
        """A loop: records may flow back to an earlier step. Returns what comes out of it.

        ``step`` gets the stream that goes round, keyed as this one is, and returns two streams: what goes back, and
        what comes out. What goes back reaches the first step of the loop again, by that step's key. A bounded job
        ends when nothing goes round any more. Snapshots hold what does, as plain data; with ``pickled`` it may be
        objects of your own.

        >>> import moorline as mo
        >>> job = mo.Job("halve")
        >>> def halve(loop):
        ...     halved = loop.map(lambda n: n // 2, uid="halve")
        ...     return halved.filter(lambda n: n > 1, uid="more"), halved.filter(lambda n: n <= 1, uid="done")
        >>> job.source(mo.from_items([8, 5]), uid="n").iterate(halve).sink(mo.collect("out"), uid="out")
        >>> print(job)
        job 'halve', parallelism 1, 128 key groups
          n      source: Items             x1
          halve  map: lambda               x1  <- n (forward), more (rebalance, feedback)
          more   filter: lambda            x1  <- halve (forward)
          done   filter: lambda            x1  <- halve (forward)
          out    sink: Collect             x1  <- done (forward)
        """
        return iterate(self, step, pickled)

    def side_output(self, tag: OutputTag[A]) -> Stream[A]:
        """The records that the operator before sent to ``tag``."""
        if not isinstance(tag, OutputTag):
            raise InvalidArgument("side_output", tag, 'Give the OutputTag that the function uses: OutputTag("late").')
        for uid, _ in self._origins:
            operator = self._job._operators.get(uid)
            if operator is None:  # the beginning of a loop, which says so itself
                continue
            has_finish = (
                isinstance(operator.function, Function) and type(operator.function).finish is not Function.finish
            )
            if operator.kind in _WITHOUT_SIDE_OUTPUTS and not has_finish:
                advice = (
                    f"{uid!r} is a {operator.kind}, which has none: process() has, whose function yields tag, value."
                )
                raise InvalidArgument("side_output", tag, advice)
        return Stream(self._job, tuple((uid, tag.name) for uid, _ in self._origins))

    get_side_output = side_output

    @checks_options(also=STEP_OPTIONS)
    def sink(self, sink: Sink[T_co] | SinkFunction[T_co], **options: Unpack[StepOptions]) -> None:
        """End the stream in ``sink``."""
        if not isinstance(sink, (Sink, SinkFunction)):
            raise InvalidArgument("sink", sink, 'Give a Sink, such as mo.collect("out").')
        self._step("sink", sink, **options)

    def _step(
        self,
        kind: str,
        function: Any,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        second: Stream[Any] | None = None,
        **options: Any,
    ) -> Stream[Any]:
        """Add an operator. Its second input, if it has one, is another stream."""
        inputs = self._inputs(0) + (second._inputs(1) if second is not None else ())
        return Stream(self._job, ((self._job._add(kind, function, inputs, uid, name, parallelism, options), None),))

    def _inputs(self, side: int) -> tuple[Input, ...]:
        return tuple(
            Input(upstream, tag, self._partitioning, self._key, side, self._key_type) for upstream, tag in self._origins
        )

    def window_all(self, assigner: WindowAssigner[W_co]) -> WindowedStream[T_co, str, W_co]:
        """All records cut into windows, whatever their keys: as if keyed by a constant, so in one subtask alone."""
        return windowed(self.key_by(_everything), assigner, parallelism=1)

    def join(self, other: Stream[U]) -> JoinedStreams[T_co, U]:
        """Pairs of records with equal keys that are in the same window: ``.where().equal_to().window().apply()``."""
        return JoinedStreams(self, other)

    def co_group(self, other: Stream[U]) -> CoGroupedStreams[T_co, U]:
        """The records of both with equal keys in the same window, as two lists. Otherwise as :meth:`join`."""
        return CoGroupedStreams(self, other)


class KeyedStream(Stream[T_co], Generic[T_co, K_co]):
    """A stream whose records each have a key. The step that comes next may keep state per key.

    ``KeyedStream[Order, str]`` is a stream of orders with texts as keys.
    """

    @checks_options(also=STEP_OPTIONS)
    def process(
        self,
        function: KeyedProcessFunction[K_co, T_co, U]
        | ProcessFunction[T_co, U]
        | Callable[[T_co, KeyedContext[K_co]], Iterable[U | Diverted] | None],
        **options: Unpack[StepOptions],
    ) -> Stream[U]:
        """One record in, any number out, with a context: side outputs, state and timers of the record's key."""
        return super().process(cast(Any, function), **options)

    @overload  # type: ignore[override]  # of the same shape, and more precise: mypy does not see through the key
    def connect(self, other: BroadcastStream[U]) -> BroadcastConnectedStream[T_co, U, K_co]: ...
    @overload
    def connect(self: KeyedStream[A, B], other: KeyedStream[U, B]) -> ConnectedStreams[A, U, B]: ...
    @overload
    def connect(self, other: Stream[U]) -> ConnectedStreams[T_co, U, Any]: ...
    def connect(self, other: Any) -> Any:
        """As for any stream. Two that are keyed share the state and timers of equal keys."""
        return super().connect(other)

    @checks_options(also=STEP_OPTIONS)
    def reduce(
        self,
        function: ReduceFunction[T_co] | Callable[[T_co, T_co], object],
        *,
        type: object = None,
        **options: Unpack[StepOptions],
    ) -> Stream[T_co]:
        """For each record, the reduction of all records of its key so far; in a batch job, the last one of each key.

        ``type`` is how it is stored, as that of any state: plain data needs none, a class of your own does. Without
        it, it is the type that the function is annotated to return.

        >>> import moorline as mo
        >>> job = mo.Job("spent")
        >>> orders = job.source(mo.from_items([("ada", 10), ("ada", 5)])).key_by(lambda order: order[0])
        >>> spent = orders.reduce(lambda a, b: (a[0], a[1] + b[1]), type=tuple[str, int], uid="spent")
        """
        function = _checked(function, ReduceFunction, called_with=2)
        check_methods(function, "reduce")
        options.setdefault("name", f"reduce {describe(function)}")
        return self._step("process", reduction(function, type), **options)

    def window(self, assigner: WindowAssigner[W_co]) -> WindowedStream[T_co, K_co, W_co]:
        """The records of each key cut into windows, such as ``mo.TumblingEventTimeWindows("5s")``."""
        return windowed(self, assigner)

    def count_window(self, size: int, slide: int | None = None) -> WindowedStream[T_co, K_co, GlobalWindow]:
        """A window for every ``size`` records of a key; with ``slide``, every so often one of the last ``size``."""
        return counted(self, size, slide)

    def interval_join(self: KeyedStream[A, B], other: KeyedStream[U, B]) -> IntervalJoin[A, U, B]:
        """Pairs of records with equal keys that are near in time: ``.between("-5s", "5s").process(...)``."""
        return IntervalJoin(self, other)


def _everything(record: Any) -> str:
    """The key of all records in :meth:`Stream.window_all`."""
    return "all"


def describe(function: object) -> str:
    """A short name for a function, for people."""
    name = getattr(function, "__name__", None) or type(function).__name__
    return "lambda" if name == "<lambda>" else name.strip("_")


def _checked(function: Any, *wanted: type, called_with: int, may_yield: bool = False, instead: str = "") -> Any:
    """The function, if it is one. A plain callable is looked at here, one of ours by ``check_methods``."""
    if isinstance(function, wanted):
        return function
    # A class may be used as a callable, such as int or str.
    if not callable(function) or (isinstance(function, type) and issubclass(function, Function)):
        names = " or ".join(w.__name__ for w in wanted)
        raise InvalidArgument("function", function, f"Give a callable or an instance of {names}.")
    check_call("function", function, called_with, may_yield=may_yield, instead=instead)
    return function
