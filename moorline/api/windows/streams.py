"""A keyed stream cut into windows: what fires them, how long they wait, and what is made from their contents.

Each setting returns a new :class:`WindowedStream`; ``reduce``, ``aggregate``, ``process`` and ``apply`` add the
operator. All that ``subtask/windows/operator.py`` has to know travels with the operator as one :class:`WindowSpec`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, overload

from moorline.api import foreign_names
from moorline.api.foreign_names import AnswersForeignNames
from moorline.api.functions.base import AggregateFunction, Diverted, OutputTag, ReduceFunction
from moorline.api.functions.calls import check_call
from moorline.api.functions.overrides import check_methods
from moorline.api.options import StepOptions
from moorline.api.state.states import declared_states
from moorline.api.type_parameters import A, K_co, T_co, U, W_co
from moorline.api.windows.assigners import GlobalWindow, GlobalWindows, WindowAssigner
from moorline.api.windows.evictors import CountEvictor, Evictor
from moorline.api.windows.functions import ProcessWindowFunction, WindowContext, WindowFunction
from moorline.api.windows.triggers import CountTrigger, PurgingTrigger, Trigger
from moorline.errors import InvalidArgument
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import STEP_OPTIONS, checks_options

if TYPE_CHECKING:
    from moorline.api.streams import KeyedStream, Stream


@dataclass(frozen=True)
class WindowSpec:
    """The windows of an operator: assigner, trigger, evictor and lateness, beside its function."""

    assigner: WindowAssigner
    trigger: Trigger
    #: How long after its end a window still takes records.
    lateness_ms: int = 0
    #: Where records go that are later than that; None: nowhere, they are counted.
    late_tag: OutputTag[Any] | None = None
    evictor: Evictor | None = None
    #: What is kept of a window: ``list`` (all records), ``reduce``, ``aggregate``, ``sides`` (a list for each input).
    contents: str = "list"
    #: The reduce or aggregate function, if a window function has taken its place as the operator's function.
    combine: Any = None
    #: The types of what is kept: of the records (of each side), or of the accumulator.
    types: tuple[Any, ...] = (object,)


class WindowedStream(AnswersForeignNames, Generic[T_co, K_co, W_co]):
    """A keyed stream cut into windows.

    >>> import moorline as mo
    >>> from moorline.api.windows.assigners import TumblingEventTimeWindows
    >>> job = mo.Job("per-minute")
    >>> clicks = job.source(mo.from_items([("ada", 1), ("ada", 2)])).key_by(lambda click: click[0])
    >>> counted = clicks.window(TumblingEventTimeWindows("1min")).allowed_lateness("10s").reduce(max)
    """

    _foreign_names = foreign_names.STREAM

    def __init__(self, stream: Stream[T_co], spec: WindowSpec, options: dict[str, Any] | None = None) -> None:
        self._stream, self._spec, self._options = stream, spec, options or {}

    def __repr__(self) -> str:
        return f"<WindowedStream {self._stream!r} in {type(self._spec.assigner).__name__}>"

    def trigger(self, trigger: Trigger) -> Self:
        """Fire when this says so, instead of at the end of the window."""
        if not isinstance(trigger, Trigger):
            raise InvalidArgument("trigger", trigger, "Give a Trigger, such as CountTrigger(10).")
        if self._spec.assigner.is_merging and not trigger.can_merge():
            advice = "Sessions merge: the trigger has to say what happens then, in on_merge."
            raise InvalidArgument("trigger", trigger, advice)
        return self._with(trigger=trigger)

    def evictor(self, evictor: Evictor) -> Self:
        """Take records out of the window before or after it fires. All records are kept then."""
        if not isinstance(evictor, Evictor):
            raise InvalidArgument("evictor", evictor, "Give an Evictor, such as CountEvictor(10).")
        return self._with(evictor=evictor)

    def allowed_lateness(self, lateness: Duration) -> Self:
        """Keep windows for so long after the watermark has passed their end. A late record fires its window again."""
        return self._with(lateness_ms=milliseconds(lateness, "allowed lateness"))

    def side_output_late_data(self, tag: OutputTag[Any]) -> Self:
        """Send records that are too late for any of their windows to a side output, instead of dropping them."""
        if not isinstance(tag, OutputTag):
            raise InvalidArgument("side_output_late_data", tag, 'Give an OutputTag, such as OutputTag("late").')
        return self._with(late_tag=tag)

    @overload
    def reduce(
        self,
        function: ReduceFunction[T_co] | Callable[[T_co, T_co], object],
        window_function: None = None,
        *,
        element_type: object = object,
        **options: Unpack[StepOptions],
    ) -> Stream[T_co]: ...
    @overload
    def reduce(
        self,
        function: ReduceFunction[T_co] | Callable[[T_co, T_co], object],
        window_function: ProcessWindowFunction[T_co, U, K_co, W_co]
        | WindowFunction[T_co, U, K_co, W_co]
        | Callable[[K_co, W_co, list[T_co]], Iterable[U] | None],
        *,
        element_type: object = object,
        **options: Unpack[StepOptions],
    ) -> Stream[U]: ...
    @checks_options(also=STEP_OPTIONS)
    def reduce(
        self,
        function: ReduceFunction[Any] | Callable[[Any, Any], Any],
        window_function: Any = None,
        *,
        element_type: object = object,
        **options: Unpack[StepOptions],
    ) -> Stream[Any]:
        """One record for each window, made from two at a time as they come: only the reduction is kept.

        With a window function (or a callable of key, window and elements), what that makes from it. ``element_type``
        is how it is stored; options are those of every step: ``uid``, ``name``, ``parallelism``, ...
        """
        if isinstance(function, type) or not (isinstance(function, ReduceFunction) or callable(function)):
            raise InvalidArgument("reduce", function, "Give a function of two records, or a ReduceFunction.")
        if not isinstance(function, ReduceFunction):
            check_call("reduce", function, 2)
        return self._incremental("reduce", function, window_function, element_type, options)

    @overload
    def aggregate(
        self,
        function: AggregateFunction[T_co, Any, U],
        window_function: None = None,
        accumulator_type: object = object,
        *,
        element_type: object = object,
        **options: Unpack[StepOptions],
    ) -> Stream[U]: ...
    @overload
    def aggregate(
        self,
        function: AggregateFunction[T_co, Any, A],
        window_function: ProcessWindowFunction[A, U, K_co, W_co]
        | WindowFunction[A, U, K_co, W_co]
        | Callable[[K_co, W_co, list[A]], Iterable[U] | None],
        accumulator_type: object = object,
        *,
        element_type: object = object,
        **options: Unpack[StepOptions],
    ) -> Stream[U]: ...
    @checks_options(also=STEP_OPTIONS)
    def aggregate(
        self,
        function: AggregateFunction[Any, Any, Any],
        window_function: Any = None,
        accumulator_type: object = object,
        *,
        element_type: object = object,
        **options: Unpack[StepOptions],
    ) -> Stream[Any]:
        """One result for each window: only the accumulator is kept. ``accumulator_type`` is how it is stored.

        ``element_type`` matters with an evictor alone, which needs the records themselves.
        """
        if not isinstance(function, AggregateFunction):
            raise InvalidArgument("aggregate", function, "Give an AggregateFunction.")
        if self._spec.assigner.is_merging and type(function).merge is AggregateFunction.merge:
            raise InvalidArgument("aggregate", function, "Sessions merge: give the AggregateFunction a merge method.")
        kept = accumulator_type if self._spec.evictor is None else element_type
        return self._incremental("aggregate", function, window_function, kept, options)

    @checks_options(also=STEP_OPTIONS)
    def process(
        self,
        function: ProcessWindowFunction[T_co, U, K_co, W_co]
        | Callable[[K_co, WindowContext[W_co], list[T_co]], Iterable[U | Diverted] | None],
        *,
        element_type: object = object,
        **options: Unpack[StepOptions],
    ) -> Stream[U]:
        """The results of the function for all records of a window (or of a callable of key, context and elements)."""
        if not isinstance(function, ProcessWindowFunction):
            function = _Processing(_called("process", function, "ProcessWindowFunction"))
        return self._collected(function, element_type, options)

    @checks_options(also=STEP_OPTIONS)
    def apply(
        self,
        function: WindowFunction[T_co, U, K_co, W_co] | Callable[[K_co, W_co, list[T_co]], Iterable[U] | None],
        *,
        element_type: object = object,
        **options: Unpack[StepOptions],
    ) -> Stream[U]:
        """The results of the function for all records of a window (or of a callable of key, window and elements)."""
        return self._collected(_window_function(function), element_type, options)

    def _incremental(self, contents: str, function: Any, window_function: Any, kept: Any, options: Any) -> Stream[Any]:
        check_methods(function, contents)
        if states := declared_states(function):
            advice = f"The window keeps the state of a {contents} function: put others on a window function."
            raise InvalidArgument(contents, ", ".join(states), advice)
        if window_function is None:
            return self._step(function, contents, None, kept, options)
        if not isinstance(window_function, ProcessWindowFunction):
            window_function = _window_function(window_function)
        return self._step(window_function, contents, function, kept, options)

    def _collected(self, function: Any, element_type: object, options: Any) -> Stream[Any]:
        return self._step(function, "list", None, element_type, options)

    def _step(self, function: Any, contents: str, combine: Any, kept: Any, options: Any) -> Stream[Any]:
        if self._spec.assigner.is_merging and isinstance(function, ProcessWindowFunction) and function.window_states:
            advice = "Windows that merge have no state of their own: two would have to become one. Use global_states."
            raise InvalidArgument("window_states", type(function).__name__, advice)
        spec = replace(self._spec, contents=contents, combine=combine, types=(kept,))
        return self._stream._step("window", function, **{**self._options, **options}, window=spec)

    def _with(self, **changes: Any) -> Self:
        return type(self)(self._stream, replace(self._spec, **changes), self._options)


def windowed(
    stream: KeyedStream[T_co, K_co], assigner: WindowAssigner[W_co], **options: Any
) -> WindowedStream[T_co, K_co, W_co]:
    """``stream``, which is keyed, cut into windows."""
    return WindowedStream(stream, WindowSpec(checked_assigner(assigner), assigner.default_trigger()), options)


def counted(stream: KeyedStream[T_co, K_co], size: int, slide: int | None) -> WindowedStream[T_co, K_co, GlobalWindow]:
    """``stream``, which is keyed, cut into windows of so many records."""
    if slide is None:
        return windowed(stream, GlobalWindows()).trigger(PurgingTrigger(CountTrigger(size)))
    return windowed(stream, GlobalWindows()).trigger(CountTrigger(slide)).evictor(CountEvictor(size))


def checked_assigner(assigner: Any) -> WindowAssigner:
    if not isinstance(assigner, WindowAssigner):
        raise InvalidArgument("window", assigner, 'Give a window assigner, such as TumblingEventTimeWindows("5s").')
    return assigner


def _window_function(function: Any) -> WindowFunction[Any, Any, Any, Any]:
    if isinstance(function, WindowFunction):
        return function
    return _Applying(_called("window function", function, "WindowFunction"))


def _called(what: str, function: Any, wanted: str) -> Any:
    if callable(function) and not isinstance(function, type):
        check_call(what, function, 3, may_yield=True)
        return function
    raise InvalidArgument(what, function, f"Give a callable or an instance of {wanted}.")


class _Processing(ProcessWindowFunction):
    """A plain callable as a :class:`ProcessWindowFunction`."""

    def __init__(self, function: Callable[[Any, WindowContext, list[Any]], Iterable[Any] | None]) -> None:
        self._function, self.__name__ = function, getattr(function, "__name__", type(function).__name__)

    def process(self, key: Any, context: WindowContext, elements: list[Any]) -> Iterable[Any] | None:
        return self._function(key, context, elements)


class _Applying(WindowFunction):
    """A plain callable as a :class:`WindowFunction`."""

    def __init__(self, function: Callable[[Any, Any, list[Any]], Iterable[Any] | None]) -> None:
        self._function, self.__name__ = function, getattr(function, "__name__", type(function).__name__)

    def apply(self, key: Any, window: Any, elements: list[Any]) -> Iterable[Any] | None:
        return self._function(key, window, elements)
