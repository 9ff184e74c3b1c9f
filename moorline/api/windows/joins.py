"""Two streams joined: by the windows that their records share, or by how near they are in time.

    a.join(b).where(key_a).equal_to(key_b).window(assigner).apply(lambda left, right: ...)
    a.co_group(b).where(key_a).equal_to(key_b).window(assigner).apply(lambda lefts, rights: ...)
    a.key_by(key_a).interval_join(b.key_by(key_b)).between("-5s", "5s").process(lambda left, right, ctx: ...)

The first two are window operators (``subtask/windows/operator.py``) that keep a list of records for each side. The
third is a function with two inputs (``interval_function.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, cast

from moorline.api.functions.base import Diverted, Function, OutputTag
from moorline.api.functions.calls import check_call
from moorline.api.functions.overrides import check_methods
from moorline.api.options import StepOptions
from moorline.api.type_parameters import K_co, T2_co, T_co, U
from moorline.api.windows.assigners import WindowAssigner, signed_milliseconds
from moorline.api.windows.functions import CoGroupFunction, JoinFunction, ProcessJoinContext, ProcessJoinFunction
from moorline.api.windows.interval_function import IntervalJoinFunction
from moorline.api.windows.streams import WindowSpec, checked_assigner
from moorline.api.windows.triggers import Trigger
from moorline.errors import InvalidArgument
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import STEP_OPTIONS, checks_options

if TYPE_CHECKING:
    from moorline.api.columns.streams import ColumnStream
    from moorline.api.streams import Stream


class _Meeting(Generic[T_co, T2_co]):
    """Two streams of which records with equal keys are to meet in windows."""

    def __init__(self, first: Stream[T_co], second: Stream[T2_co]) -> None:
        if getattr(second, "_job", None) is not first._job:
            raise InvalidArgument("join", second, "Give another stream of the same job.")
        self._first, self._second = first, second
        self._where: tuple[Any, Any] | None = None
        self._equal_to: Any = None

    def where(self, key: Callable[[T_co], object] | str, *, key_type: object = None) -> Self:
        """The key of the first stream's records, a column or a function of them. ``key_type`` as in ``key_by``."""
        changed = copy(self)
        changed._where = (key, key_type)
        return changed

    def equal_to(self, key: Callable[[T2_co], object] | str) -> Self:
        """The key of the second stream's records, a column or a function of them."""
        changed = copy(self)
        changed._equal_to = key
        return changed

    def _keyed(self, assigner: WindowAssigner) -> tuple[Stream[T_co], Stream[T2_co], WindowSpec]:
        if self._where is None or self._equal_to is None:
            missing = "where(...)" if self._where is None else "equal_to(...)"
            raise InvalidArgument("window", assigner, f"Say first what the records meet by: {missing} is missing.")
        key, key_type = self._where
        first = self._first.key_by(key, key_type=key_type)
        second = self._second.key_by(self._equal_to, key_type=key_type)
        spec = WindowSpec(checked_assigner(assigner), assigner.default_trigger(), contents="sides")
        return first, second, spec


class JoinedStreams(_Meeting[T_co, T2_co]):
    """Two streams of which pairs of records with equal keys are to meet: ``where``, ``equal_to``, ``window``."""

    def window(self, assigner: WindowAssigner) -> WindowedJoin[T_co, T2_co]:
        """In which windows they meet. A session window is made of the records of both."""
        return WindowedJoin(*self._keyed(assigner))


class CoGroupedStreams(_Meeting[T_co, T2_co]):
    """Two streams whose records with equal keys are to meet as two lists: ``where``, ``equal_to``, ``window``."""

    def window(self, assigner: WindowAssigner) -> WindowedCoGroup[T_co, T2_co]:
        """In which windows they meet. A session window is made of the records of both."""
        return WindowedCoGroup(*self._keyed(assigner))


class _WindowedMeeting(Generic[T_co, T2_co]):
    """Two streams whose records meet in windows. Records that are too late are dropped and counted."""

    def __init__(self, first: Stream[T_co], second: Stream[T2_co], spec: WindowSpec) -> None:
        self._first, self._second, self._spec = first, second, spec

    def trigger(self, trigger: Trigger) -> Self:
        """Fire when this says so, instead of at the end of the window."""
        if not isinstance(trigger, Trigger) or (self._spec.assigner.is_merging and not trigger.can_merge()):
            raise InvalidArgument("trigger", trigger, "Give a Trigger; with sessions, one that has on_merge.")
        return self._with(trigger=trigger)

    def allowed_lateness(self, lateness: Duration) -> Self:
        """Keep windows for so long after the watermark has passed their end. A late record fires its window again."""
        return self._with(lateness_ms=milliseconds(lateness, "allowed lateness"))

    def _step(self, function: Any, left_type: object, right_type: object, options: StepOptions) -> Stream[Any]:
        spec = replace(self._spec, types=(left_type, right_type))
        return self._first._step("window", function, second=self._second, **options, window=spec)

    def _with(self, **changes: Any) -> Self:
        return type(self)(self._first, self._second, replace(self._spec, **changes))


class WindowedJoin(_WindowedMeeting[T_co, T2_co]):
    """Two streams of which pairs of records meet in windows. Records that are too late are dropped and counted."""

    @checks_options(also=STEP_OPTIONS)
    def apply(
        self,
        function: JoinFunction[T_co, T2_co, U] | Callable[[T_co, T2_co], U],
        *,
        left_type: object = object,
        right_type: object = object,
        **options: Unpack[StepOptions],
    ) -> Stream[U]:
        """One result for each pair, from a callable of left and right or a :class:`JoinFunction`.

        The types are how records are stored until then.
        """
        if not isinstance(function, JoinFunction):
            function = _Joining(_called(function, JoinFunction))
        return self._step(function, left_type, right_type, options)

    @checks_options(also=STEP_OPTIONS)
    def columns(self, *, left_prefix: str = "", right_prefix: str = "", **options: Unpack[StepOptions]) -> ColumnStream:
        """For each pair of rows the columns of both. Both are streams of columns, which meet by columns.

        >>> import moorline as mo
        >>> job = mo.Job("bids")
        >>> bids, sales = (
        ...     job.source(mo.from_items([{"item": 1, "cents": 5}]), uid=uid).with_schema("item bigint, cents bigint")
        ...     for uid in ("bids", "sales")
        ... )
        >>> windows = bids.join(sales).where("item").equal_to("item").window(mo.TumblingEventTimeWindows("1h"))
        >>> windows.columns(right_prefix="sold_", uid="sold").schema.names
        ['item', 'cents', 'sold_item', 'sold_cents']
        """
        from moorline.api.columns.joins import as_columns, side_by_side  # noqa: PLC0415  which is made of streams

        function, schema = side_by_side(self._first, self._second, left_prefix, right_prefix)
        options.setdefault("name", ", ".join(schema.names))
        made: Stream[Any] = self.apply(cast(Any, function), **options)
        return as_columns(made, schema, options)


class WindowedCoGroup(_WindowedMeeting[T_co, T2_co]):
    """Two streams whose records meet in windows as two lists. Records that are too late are dropped and counted."""

    @checks_options(also=STEP_OPTIONS)
    def apply(
        self,
        function: CoGroupFunction[T_co, T2_co, U] | Callable[[list[T_co], list[T2_co]], Iterable[U] | None],
        *,
        left_type: object = object,
        right_type: object = object,
        **options: Unpack[StepOptions],
    ) -> Stream[U]:
        """Any number of results for each window, from a callable of two lists or a :class:`CoGroupFunction`.

        The types are how records are stored until then.
        """
        if not isinstance(function, CoGroupFunction):
            function = _CoGrouping(_called(function, CoGroupFunction))
        return self._step(function, left_type, right_type, options)


def _called(function: Any, wanted: type) -> Any:
    if isinstance(function, (type, Function)) or not callable(function):
        raise InvalidArgument("apply", function, f"Give a callable or an instance of {wanted.__name__}.")
    check_call("apply", function, 2, may_yield=wanted is CoGroupFunction)
    return function


class _Joining(JoinFunction):
    """A plain callable as a :class:`JoinFunction`."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function, self.__name__ = function, getattr(function, "__name__", type(function).__name__)

    def join(self, left: Any, right: Any) -> Any:
        return self._function(left, right)


class _CoGrouping(CoGroupFunction):
    """A plain callable as a :class:`CoGroupFunction`."""

    def __init__(self, function: Callable[[list[Any], list[Any]], Iterable[Any] | None]) -> None:
        self._function, self.__name__ = function, getattr(function, "__name__", type(function).__name__)

    def co_group(self, lefts: list[Any], rights: list[Any]) -> Iterable[Any] | None:
        return self._function(lefts, rights)


# --- by distance in time ------------------------------------------------------------------------


@dataclass(frozen=True)
class IntervalSpec:
    """The bounds of an interval: how far after a left record a right one may be, both ends included."""

    lower_ms: int
    upper_ms: int
    left_late: OutputTag | None = None
    right_late: OutputTag | None = None


class IntervalJoin(Generic[T_co, T2_co, K_co]):
    """Two keyed streams whose records meet if they are near in time: say how near with :meth:`between`.

    >>> import moorline as mo
    >>> job = mo.Job("clicks")
    >>> shown = job.source(mo.from_items([])).key_by(lambda ad: ad["id"])
    >>> clicked = job.source(mo.from_items([])).key_by(lambda click: click["ad"])
    >>> joined = shown.interval_join(clicked).between("0s", "10min")
    >>> pairs = joined.process(lambda ad, click, ctx: [(ad["id"], ctx.right_timestamp - ctx.left_timestamp)])
    """

    def __init__(self, first: Stream[T_co], second: Stream[T2_co], spec: IntervalSpec | None = None) -> None:
        self._first, self._second, self._spec = first, second, spec
        if not isinstance(second, type(first)) or second._job is not first._job:
            raise InvalidArgument("interval_join", second, "Give another keyed stream of the same job.")

    def between(
        self,
        lower: Duration,
        upper: Duration,
        *,
        lower_exclusive: bool = False,
        upper_exclusive: bool = False,
    ) -> IntervalJoin[T_co, T2_co, K_co]:
        """A pair meets if ``left + lower <= right <= left + upper``, by their timestamps."""
        lower_ms = signed_milliseconds(lower, "lower bound") + lower_exclusive
        upper_ms = signed_milliseconds(upper, "upper bound") - upper_exclusive
        if lower_ms > upper_ms:
            raise InvalidArgument("between", (lower, upper), "The lower bound is not above the upper one.")
        return IntervalJoin(self._first, self._second, IntervalSpec(lower_ms, upper_ms))

    def side_output_left_late_data(self, tag: OutputTag[Any]) -> IntervalJoin[T_co, T2_co, K_co]:
        """Send late records of the first stream to a side output, instead of dropping them."""
        return self._with("side_output_left_late_data", left_late=tag)

    def side_output_right_late_data(self, tag: OutputTag[Any]) -> IntervalJoin[T_co, T2_co, K_co]:
        """Send late records of the second stream to a side output, instead of dropping them."""
        return self._with("side_output_right_late_data", right_late=tag)

    @checks_options(also=STEP_OPTIONS)
    def process(
        self,
        function: ProcessJoinFunction[T_co, T2_co, U]
        | Callable[[T_co, T2_co, ProcessJoinContext[K_co]], Iterable[U | Diverted] | None],
        *,
        left_type: object = object,
        right_type: object = object,
        **options: Unpack[StepOptions],
    ) -> Stream[U]:
        """The results of the function for each pair (or of a callable of left, right and context).

        Results carry the later of the two timestamps. The types are how records are stored until then.
        """
        is_other = isinstance(function, (type, Function)) and not isinstance(function, ProcessJoinFunction)
        if is_other or not (isinstance(function, ProcessJoinFunction) or callable(function)):
            raise InvalidArgument("process", function, "Give a callable or an instance of ProcessJoinFunction.")
        if not isinstance(function, ProcessJoinFunction):
            check_call("process", function, 3, may_yield=True)
        check_methods(function, "interval join")
        spec = self._known("process")
        wrapped = IntervalJoinFunction(function, spec, left_type, right_type)
        return self._first._step("window", wrapped, second=self._second, **options, window=spec)

    @checks_options(also=STEP_OPTIONS)
    def columns(self, *, left_prefix: str = "", right_prefix: str = "", **options: Unpack[StepOptions]) -> ColumnStream:
        """For each pair of rows the columns of both, with the later of their timestamps. Both are keyed by columns.

        >>> import moorline as mo
        >>> job = mo.Job("clicks")
        >>> shown, clicked = (
        ...     job.source(mo.from_items([{"ad": 1}]), uid=uid).with_schema("ad bigint").key_by("ad")
        ...     for uid in ("shown", "clicked")
        ... )
        >>> pairs = shown.interval_join(clicked).between("0s", "10min")
        >>> pairs.columns(right_prefix="clicked_", uid="pairs").schema.names
        ['ad', 'clicked_ad']
        """
        from moorline.api.columns.joins import as_columns, side_by_side  # noqa: PLC0415  which is made of streams

        self._known("columns")
        function, schema = side_by_side(self._first, self._second, left_prefix, right_prefix)
        options.setdefault("name", ", ".join(schema.names))
        made: Stream[Any] = self.process(cast(Any, function.of_interval), **options)
        return as_columns(made, schema, options)

    def _known(self, what: str) -> IntervalSpec:
        if self._spec is None:
            raise InvalidArgument(what, "no interval", 'Say first how near records are to be: .between("-5s", "5s").')
        return self._spec

    def _with(self, what: str, **tags: Any) -> IntervalJoin[T_co, T2_co, K_co]:
        for tag in tags.values():
            if not isinstance(tag, OutputTag):
                raise InvalidArgument(what, tag, 'Give an OutputTag, such as OutputTag("late").')
        return IntervalJoin(self._first, self._second, replace(self._known(what), **tags))
