"""Timestamps and watermarks: when things happened, and how far a stream has come.

A strategy says where a record's timestamp comes from and how watermarks follow from the timestamps::

    stream.assign_timestamps_and_watermarks(
        mo.WatermarkStrategy.bounded_out_of_orderness("5s", timestamp=lambda order: order.placed_at)
    )

Given to the source itself (``job.source(..., watermarks=strategy)``), each split has a generator of its own and the
slowest split counts, so that one split read ahead of another makes no record late.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from moorline.api.functions.calls import check_call
from moorline.errors import InvalidArgument
from moorline.model.columns import TimeColumn
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options
from moorline.model.times import MIN_TIME

#: A function of a record, or the name of a column.
TimestampAssigner = Callable[[Any], int | datetime] | str

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def to_ms(moment: int | datetime) -> int:
    """A point in time as milliseconds since 1970. A datetime without a zone is taken as UTC.

    >>> to_ms(datetime(1970, 1, 1, 0, 0, 1))
    1000
    """
    if isinstance(moment, datetime):
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (aware - _EPOCH) // _MILLISECOND  # down, also before 1970: a moment belongs to the window it is in
    if isinstance(moment, bool) or not isinstance(moment, int):
        raise InvalidArgument("timestamp", moment, "Give milliseconds since 1970 as an int, or a datetime.")
    return moment


class WatermarkGenerator:
    """The watermark of one split (or one subtask). Write your own for ``WatermarkStrategy.of``.

    >>> class EverySecond(WatermarkGenerator):
    ...     latest = MIN_TIME
    ...     def on_event(self, value, timestamp):
    ...         self.latest = max(self.latest, timestamp)
    ...     def watermark(self):
    ...         return self.latest // 1000 * 1000 - 1 if self.latest > MIN_TIME else None
    """

    def on_event(self, value: Any, timestamp: int, /) -> None:
        """A record has come by."""
        raise NotImplementedError

    def on_batch(self, values: list[Any], timestamps: list[int], /) -> None:
        """Several records have come by."""
        for value, timestamp in zip(values, timestamps):
            self.on_event(value, timestamp)

    def watermark(self) -> int | None:
        """No record at or before this time is expected any more. ``None``: nothing can be said yet."""
        raise NotImplementedError


class _BoundedOutOfOrderness(WatermarkGenerator):
    def __init__(self, delay_ms: int) -> None:
        self._delay_ms, self._latest = delay_ms, MIN_TIME

    def on_event(self, value: Any, timestamp: int) -> None:
        self._latest = max(self._latest, timestamp)

    def on_batch(self, values: list[Any], timestamps: Any) -> None:
        times = (
            timestamps.times.max(initial=MIN_TIME)
            if isinstance(timestamps, TimeColumn)
            else max(timestamps, default=MIN_TIME)
        )
        self._latest = max(self._latest, int(times))

    def watermark(self) -> int | None:
        # One less: another record with the latest timestamp may follow.
        return None if self._latest == MIN_TIME else self._latest - self._delay_ms - 1


class _NoWatermarks(WatermarkGenerator):
    def on_event(self, value: Any, timestamp: int) -> None:
        pass

    def on_batch(self, values: list[Any], timestamps: list[int]) -> None:
        pass

    def watermark(self) -> int | None:
        return None


@dataclass(frozen=True)
class _Bounded:
    """Makes generators; a class and not a lambda, so that it can be shipped and compared."""

    delay_ms: int

    def __call__(self) -> WatermarkGenerator:
        return _BoundedOutOfOrderness(self.delay_ms)


@checks_options()
@dataclass(frozen=True)
class WatermarkStrategy:
    """The way to timestamps, and from them to watermarks.

    >>> strategy = WatermarkStrategy.monotonous(timestamp=lambda record: record["at"])
    >>> strategy.with_idleness("1min").idle_ms
    60000
    """

    generator: Callable[[], WatermarkGenerator]
    #: From a record to milliseconds since 1970, or to a datetime; or the name of the column, or field, that has it.
    #: None: records keep the timestamps they have.
    timestamp: TimestampAssigner | None = None
    #: A split that has had no record for so long is not waited for.
    idleness: Duration | None = None
    #: A watermark is announced at most so often.
    interval: Duration = "50ms"

    def __post_init__(self) -> None:
        if not callable(self.generator):
            raise InvalidArgument("generator", self.generator, "Give a function or class that makes a generator.")
        if self.timestamp is not None and not (callable(self.timestamp) or isinstance(self.timestamp, str)):
            advice = 'Give a function from a record to its time, such as lambda record: record.at, or a column: "at".'
            raise InvalidArgument("timestamp", self.timestamp, advice)
        if callable(self.timestamp):
            check_call("timestamp", self.timestamp, 1)
        if self.idleness is not None:
            milliseconds(self.idleness, "idleness")
        milliseconds(self.interval, "watermark interval")

    @classmethod
    def monotonous(cls, timestamp: TimestampAssigner | None = None) -> WatermarkStrategy:
        """For timestamps that never go back within a split."""
        return cls(_Bounded(0), timestamp)

    @classmethod
    def bounded_out_of_orderness(cls, delay: Duration, timestamp: TimestampAssigner | None = None) -> WatermarkStrategy:
        """For timestamps that go back by ``delay`` at most; what comes later than that is late."""
        return cls(_Bounded(milliseconds(delay, "delay")), timestamp)

    @classmethod
    def none(cls, timestamp: TimestampAssigner | None = None) -> WatermarkStrategy:
        """Timestamps and no watermarks: time stands still until the end of the input."""
        return cls(_NoWatermarks, timestamp)

    @classmethod
    def of(
        cls, generator: Callable[[], WatermarkGenerator], timestamp: TimestampAssigner | None = None
    ) -> WatermarkStrategy:
        """With a :class:`WatermarkGenerator` of your own: ``generator`` is called for every split."""
        return cls(generator, timestamp)

    # PyFlink's names.
    for_monotonous_timestamps = monotonous
    for_bounded_out_of_orderness = bounded_out_of_orderness
    for_generator = of
    no_watermarks = none

    def with_timestamp_assigner(self, timestamp: TimestampAssigner) -> WatermarkStrategy:
        """The same with another way to a record's timestamp."""
        return replace(self, timestamp=timestamp)

    def with_idleness(self, idleness: Duration) -> WatermarkStrategy:
        """The same strategy; a subtask without a record for ``idleness`` is not waited for."""
        return replace(self, idleness=idleness)

    @property
    def idle_ms(self) -> int | None:
        return None if self.idleness is None else milliseconds(self.idleness, "idleness")

    @property
    def interval_ms(self) -> int:
        return milliseconds(self.interval, "watermark interval")
