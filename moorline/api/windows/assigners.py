"""Windows, and which of them a record belongs to: assigners.

A window is a stretch of time, ``[start,end)`` in milliseconds since 1970, and is kept for each key apart. Inside the
runtime it is a *span*: the pair of its start and end, which is also what its state is stored under.

    tumbling   one after the other                    a record is in one
    sliding    of a size, a new one every slide       a record is in size / slide of them
    session    as long as records keep coming         a record opens one of its own, which merges with those it touches
    global     one for everything                     until a trigger fires

Lengths are durations as everywhere: ``"5s"``, a ``timedelta``, or a number of seconds. Windows are aligned as Flink
aligns them: ``start = time - (time - offset) mod size``, with a remainder that is never negative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Generic

from moorline.api.type_parameters import W_co
from moorline.api.windows.triggers import (
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    Trigger,
)
from moorline.errors import InvalidArgument
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options
from moorline.model.times import MAX_TIME, MIN_TIME

#: A window inside the runtime: start and end.
Span = tuple[int, int]
#: The span of the one window that has neither.
GLOBAL: Span = (MIN_TIME, MAX_TIME)
#: All times in [first,end) are in the same windows.
Pane = tuple[int, int, Sequence[Span]]


@dataclass(frozen=True, slots=True, order=True)
class TimeWindow:
    """The records of ``[start,end)``, in milliseconds since 1970.

    >>> TimeWindow(0, 5000).max_timestamp()
    4999
    """

    start: int
    end: int

    def max_timestamp(self) -> int:
        """The last millisecond that is in the window."""
        return self.end - 1


@dataclass(frozen=True, slots=True)
class GlobalWindow:
    """The window that everything is in.

    >>> GlobalWindow().max_timestamp() == MAX_TIME
    True
    """

    @property
    def start(self) -> int:
        return MIN_TIME

    @property
    def end(self) -> int:
        return MAX_TIME

    def max_timestamp(self) -> int:
        """The end of time."""
        return MAX_TIME


Window = TimeWindow | GlobalWindow


def window_of(span: Span) -> Window:
    """The window that users see."""
    return GlobalWindow() if span == GLOBAL else TimeWindow(*span)


def signed_milliseconds(duration: Duration, what: str) -> int:
    """A length of time that may be negative, such as ``"-5s"``.

    >>> signed_milliseconds("-5s", "bound"), signed_milliseconds(timedelta(hours=-8), "offset")
    (-5000, -28800000)
    """
    if isinstance(duration, str) and duration.lstrip().startswith("-"):
        return -milliseconds(duration.lstrip()[1:], what)
    if isinstance(duration, timedelta) and duration < timedelta(0):
        return -milliseconds(-duration, what)
    if isinstance(duration, (int, float)) and duration < 0:
        return -milliseconds(-duration, what)
    return milliseconds(duration, what)


class WindowAssigner(Generic[W_co]):
    """The rule that assigns a record to windows. Subclass it for windows of your own.

    >>> class Odd(WindowAssigner):
    ...     def assign_windows(self, element, timestamp):
    ...         yield TimeWindow(timestamp - timestamp % 7, timestamp + 1)
    >>> Odd().spans("record", 9)
    [(7, 10)]
    """

    #: Is it the records' time that counts, or the clock's?
    is_event_time: ClassVar[bool] = True
    #: Do windows that touch become one?
    is_merging: ClassVar[bool] = False

    def assign_windows(self, element: Any, timestamp: int, /) -> Iterable[TimeWindow]:
        """The windows of a record. ``timestamp`` is its own, or the clock's if that is the time that counts."""
        raise NotImplementedError

    def default_trigger(self) -> Trigger:
        """The trigger that is used unless another one is set."""
        return EventTimeTrigger() if self.is_event_time else ProcessingTimeTrigger()

    def spans(self, element: Any, timestamp: int) -> Sequence[Span]:
        """The windows of a record, as the runtime knows them."""
        return [(window.start, window.end) for window in self.assign_windows(element, timestamp)]


class AlignedWindows(WindowAssigner[W_co]):
    """Windows that follow from the time alone, so that they need not be found out for every record."""

    def pane(self, time: int) -> Pane:
        """The windows of ``time``, and around it all times that have the same."""
        raise NotImplementedError

    def assign_windows(self, element: Any, timestamp: int) -> Iterable[TimeWindow]:
        return [TimeWindow(*span) for span in self.pane(timestamp)[2]]

    def spans(self, element: Any, timestamp: int) -> Sequence[Span]:
        return self.pane(timestamp)[2]


class _Tumbling(AlignedWindows[TimeWindow]):
    def __init__(self, size: Duration, offset: Duration = 0) -> None:
        self.size_ms = _length("size", size)
        self.offset_ms = _offset(offset, self.size_ms, "size")

    def pane(self, time: int) -> Pane:
        start = time - (time - self.offset_ms) % self.size_ms
        span = _stored(start, start + self.size_ms)
        return *span, (span,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size_ms}ms)"


@checks_options()
class TumblingEventTimeWindows(_Tumbling):
    """Windows of one size, one after the other, by the records' timestamps.

    >>> TumblingEventTimeWindows("5s").assign_windows("record", -1)
    [TimeWindow(start=-5000, end=0)]
    >>> TumblingEventTimeWindows("1d", offset="-8h").assign_windows("record", 0)
    [TimeWindow(start=-28800000, end=57600000)]
    """

    @classmethod
    def of(cls, size: Duration, offset: Duration = 0) -> TumblingEventTimeWindows:
        """The same, by PyFlink's name."""
        return cls(size, offset)


@checks_options()
class TumblingProcessingTimeWindows(_Tumbling):
    """Windows of one size, one after the other, by the clock.

    >>> TumblingProcessingTimeWindows("1min")
    TumblingProcessingTimeWindows(60000ms)
    """

    is_event_time = False

    @classmethod
    def of(cls, size: Duration, offset: Duration = 0) -> TumblingProcessingTimeWindows:
        """The same, by PyFlink's name."""
        return cls(size, offset)


class _Sliding(AlignedWindows[TimeWindow]):
    def __init__(self, size: Duration, slide: Duration, offset: Duration = 0) -> None:
        self.size_ms, self.slide_ms = _length("size", size), _length("slide", slide)
        self.offset_ms = _offset(offset, self.slide_ms, "slide")

    def pane(self, time: int) -> Pane:
        size, slide = self.size_ms, self.slide_ms
        latest = time - (time - self.offset_ms) % slide
        # Latest first, as in Flink. None at all, if there are gaps between windows and the time is in one.
        starts = range(latest, time - size, -slide)
        # The windows change where one starts and where one ends.
        passed = starts[-1] - slide if starts else latest
        first = max(latest, passed + size)
        end = min(latest + slide, starts[-1] + size) if starts else latest + slide
        return first, end, [_stored(start, start + size) for start in starts]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size_ms}ms, {self.slide_ms}ms)"


@checks_options()
class SlidingEventTimeWindows(_Sliding):
    """Windows of one size, a new one every ``slide``, by the records' timestamps.

    >>> SlidingEventTimeWindows("10s", "5s").assign_windows("record", 7000)
    [TimeWindow(start=5000, end=15000), TimeWindow(start=0, end=10000)]
    """

    @classmethod
    def of(cls, size: Duration, slide: Duration, offset: Duration = 0) -> SlidingEventTimeWindows:
        """The same, by PyFlink's name."""
        return cls(size, slide, offset)


@checks_options()
class SlidingProcessingTimeWindows(_Sliding):
    """Windows of one size, a new one every ``slide``, by the clock.

    >>> SlidingProcessingTimeWindows("1min", "10s")
    SlidingProcessingTimeWindows(60000ms, 10000ms)
    """

    is_event_time = False

    @classmethod
    def of(cls, size: Duration, slide: Duration, offset: Duration = 0) -> SlidingProcessingTimeWindows:
        """The same, by PyFlink's name."""
        return cls(size, slide, offset)


class _Sessions(WindowAssigner[TimeWindow]):
    is_merging = True

    def __init__(self, gap: Duration | Callable[[Any], Duration]) -> None:
        self._gap_of = gap if callable(gap) else None
        self.gap_ms = None if callable(gap) else _length("gap", gap)

    def spans(self, element: Any, timestamp: int) -> Sequence[Span]:
        gap_ms = self.gap_ms
        if gap_ms is None:
            assert self._gap_of is not None
            gap_ms = _length("gap of a session", self._gap_of(element))
        return (_stored(timestamp, timestamp + gap_ms),)

    def assign_windows(self, element: Any, timestamp: int) -> Iterable[TimeWindow]:
        return [TimeWindow(*span) for span in self.spans(element, timestamp)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'a gap for each record' if self.gap_ms is None else f'{self.gap_ms}ms'})"


@checks_options()
class EventTimeSessionWindows(_Sessions):
    """A window for as long as records of a key keep coming, at most ``gap`` apart by their timestamps.

    >>> EventTimeSessionWindows("30min")
    EventTimeSessionWindows(1800000ms)
    >>> EventTimeSessionWindows(lambda record: record["timeout"]).assign_windows({"timeout": "2s"}, 1000)
    [TimeWindow(start=1000, end=3000)]
    """

    @classmethod
    def with_gap(cls, gap: Duration) -> EventTimeSessionWindows:
        """The same, by PyFlink's name."""
        return cls(gap)

    @classmethod
    def with_dynamic_gap(cls, gap: Callable[[Any], Duration]) -> EventTimeSessionWindows:
        """With a gap for each record, by PyFlink's name."""
        return cls(gap)


@checks_options()
class ProcessingTimeSessionWindows(_Sessions):
    """A window for as long as records of a key keep coming, at most ``gap`` apart by the clock.

    >>> ProcessingTimeSessionWindows("30min")
    ProcessingTimeSessionWindows(1800000ms)
    """

    is_event_time = False

    @classmethod
    def with_gap(cls, gap: Duration) -> ProcessingTimeSessionWindows:
        """The same, by PyFlink's name."""
        return cls(gap)

    @classmethod
    def with_dynamic_gap(cls, gap: Callable[[Any], Duration]) -> ProcessingTimeSessionWindows:
        """With a gap for each record, by PyFlink's name."""
        return cls(gap)


@checks_options()
class GlobalWindows(AlignedWindows[GlobalWindow]):
    """One window for all records of a key. It never ends, so give it a trigger; ``fire_at_end`` is one.

    >>> GlobalWindows(fire_at_end=True)
    GlobalWindows()
    """

    is_event_time = False

    def __init__(self, *, fire_at_end: bool = False) -> None:
        self._fire_at_end = fire_at_end

    @classmethod
    def create(cls) -> GlobalWindows:
        """The same, by PyFlink's name."""
        return cls()

    @classmethod
    def create_with_end_of_stream_trigger(cls) -> GlobalWindows:
        """With what is in it passed on when the input has ended, by Flink's name."""
        return cls(fire_at_end=True)

    def pane(self, time: int) -> Pane:
        return MIN_TIME, MAX_TIME, (GLOBAL,)

    def assign_windows(self, element: Any, timestamp: int) -> Iterable[Any]:
        return [GlobalWindow()]

    def default_trigger(self) -> Trigger:
        return EndOfStreamTrigger() if self._fire_at_end else NeverTrigger()

    def __repr__(self) -> str:
        return "GlobalWindows()"


def _length(what: str, duration: Duration) -> int:
    ms = milliseconds(duration, what)
    if ms < 1:
        raise InvalidArgument(what, duration, "Give a length of at least 1ms.")
    return ms


def _offset(offset: Duration, period_ms: int, period: str) -> int:
    ms = signed_milliseconds(offset, "offset")
    if abs(ms) >= period_ms:
        raise InvalidArgument("offset", offset, f"It is less than the {period}, forward or back.")
    return ms


def _stored(start: int, end: int) -> Span:
    """A window that reaches beyond the first or last moment that can be stored ends there."""
    if start >= MIN_TIME and end <= MAX_TIME:
        return start, end
    return max(start, MIN_TIME), min(end, MAX_TIME)
