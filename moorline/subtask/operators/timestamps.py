"""The beginning of event time: timestamps for records, and watermarks that follow from them.

At a source there is a generator per split, and the slowest split that is not idle counts; anywhere else there is one.
Watermarks go out at most every ``interval``; all of it starts anew after a restart, because watermarks are not state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from moorline.api.watermarks import WatermarkGenerator, WatermarkStrategy, to_ms
from moorline.errors import InvalidArgument, MoorlineError
from moorline.model.columns import ColumnBatch, TimeColumn, times_of
from moorline.model.times import MAX_TIME, MIN_TIME
from moorline.subtask.columns.times import assigned
from moorline.subtask.operators.base import ChainedOperator, OperatorContext, user_code_failed


class _Split:
    """The progress of one split, and when it was last heard of."""

    def __init__(self, generator: WatermarkGenerator, now_ms: int) -> None:
        self.generator, self.heard_ms = generator, now_ms


class EventTime:
    """Stamps batches, and says when a watermark is due. ``announce`` and ``idle`` are called to send them on."""

    def __init__(
        self,
        strategy: WatermarkStrategy,
        wall_ms: Callable[[], int],
        announce: Callable[[int], None],
        idle: Callable[[], None],
    ) -> None:
        self._strategy, self._wall_ms, self._announce, self._idle = strategy, wall_ms, announce, idle
        self._interval_ms, self._idle_ms = strategy.interval_ms, strategy.idle_ms
        self._splits: dict[Any, _Split] = {}
        self._started_ms = wall_ms()
        # Not at once: a reader that does not say what splits it has shall have had time to read from all of them.
        self._announced, self._announced_ms = MIN_TIME, self._started_ms
        self._is_idle = self._has_ended = False
        #: Says which splits may still have records; None: it is not known.
        self.open_splits: Callable[[], Collection[Any] | None] = lambda: None
        #: Does a reader without splits hold nobody up? Not before the driver has looked for splits.
        self._may_have_none = False

    def splits_are_known(self) -> None:
        """The driver has looked for splits: a reader that has none does not hold up the others' time."""
        self._may_have_none = True

    def stamp(self, records: Any, timestamps: Any, split: Any = None) -> Any:
        """The records' timestamps, having taken note of them."""
        assign = self._strategy.timestamp
        if assign is not None:
            timestamps = self._assigned(records, assign)
        elif timestamps is None:
            timestamps = [self._wall_ms()] * len(records)
        elif isinstance(records, ColumnBatch) and not isinstance(timestamps, TimeColumn):
            timestamps = TimeColumn(times_of(timestamps))
        known = self._splits.get(split)
        if known is None:
            known = self._splits[split] = _Split(self._strategy.generator(), 0)
        known.heard_ms = self._wall_ms()
        known.generator.on_batch(records, timestamps)
        if self._is_idle:
            # Before the records: those who wait for us must not take them for late.
            self._is_idle = False
            self._announce(self._announced)
        return timestamps

    def _assigned(self, records: Any, assign: Any) -> Sequence[int]:
        times: Any = assigned(records, assign)
        if isinstance(times, TimeColumn):
            first, last = int(times.times.min()), int(times.times.max())
        else:
            if set(map(type, times)) - {int}:
                times = [_in_ms(moment, record) for moment, record in zip(times, records)]
            first, last = min(times, default=0), max(times, default=0)
        if not MIN_TIME < first <= last < MAX_TIME:
            wrong = next(n for n, time in enumerate(times) if not MIN_TIME < time < MAX_TIME)
            raise _noted(InvalidArgument("timestamp", times[wrong], "That is beyond all time."), records[wrong])
        return times  # type: ignore[no-any-return]

    def tick(self, now_ms: int) -> None:
        """Announce what there is to announce."""
        if self._has_ended or now_ms - self._announced_ms < self._interval_ms:
            return
        self._announced_ms = now_ms
        idle_ms = self._idle_ms
        self._look_at_splits(now_ms)
        if self._may_have_none and not self._splits:
            if not self._is_idle:
                self._is_idle = True
                self._idle()
            return
        active = [s for s in self._splits.values() if idle_ms is None or now_ms - s.heard_ms < idle_ms]
        if idle_ms is not None and not active:
            if not self._is_idle and now_ms - self._started_ms >= idle_ms:
                self._is_idle = True
                self._idle()
            return
        time = min((_said(s.generator) for s in active), default=MIN_TIME)
        time = min(time, MAX_TIME - 1)  # the end of time is not for a generator to announce
        if time > self._announced:
            self._announced = time
            self._announce(time)

    def _look_at_splits(self, now_ms: int) -> None:
        """Wait for splits that have not been heard of yet, and no longer for those that are finished."""
        splits = self.open_splits()
        since_ms = now_ms if self._may_have_none else self._started_ms
        if splits is not None and splits != self._splits.keys():
            if None in self._splits:
                advice = "A reader with splits() says with its attribute split which of them read() has read from."
                raise InvalidArgument("split", None, advice)
            has_new = any(s not in self._splits for s in splits)
            self._splits = {s: self._splits.get(s) or _Split(self._strategy.generator(), since_ms) for s in splits}
            if has_new and self._is_idle and self._may_have_none:
                # Others wait for us again, before the first record of a split that was just found.
                self._is_idle = False
                self._announce(self._announced)

    def next_tick_ms(self) -> int | None:
        return None if self._has_ended else self._announced_ms + self._interval_ms

    def end(self) -> None:
        """The input has ended: so has time."""
        self._has_ended = True
        self._announce(MAX_TIME)


def _in_ms(moment: Any, record: Any) -> int:
    try:
        return to_ms(moment)
    except InvalidArgument as error:
        raise _noted(error, record) from None


def _noted(error: InvalidArgument, record: Any) -> InvalidArgument:
    error.add_note(f"the record: {record!r:.500}")
    return error


def _said(generator: WatermarkGenerator) -> int:
    """The progress of a split, by its generator."""
    try:
        time = generator.watermark()
        return MIN_TIME if time is None else to_ms(time)
    except Exception as error:  # the user's
        advice = f"Its watermark() failed with {type(error).__name__}: {error}"
        raise InvalidArgument("watermark generator", generator, advice) from error


class TimestampsOperator(ChainedOperator):
    """assign_timestamps_and_watermarks in the middle of a stream. What came before it knows is forgotten."""

    def __init__(self, place: OperatorContext) -> None:
        super().__init__(place)
        strategy: WatermarkStrategy = self.operator.function
        self._time = EventTime(strategy, self.wall_ms, self._pass_watermark, super().idle)

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        try:
            stamped = self._time.stamp(records, timestamps)
        except MoorlineError as error:
            error.add_note(f"in operator {self.operator.uid!r} ({self.operator.name}), subtask {self.subtask}")
            raise
        except Exception as error:  # the user's code
            raise user_code_failed(self.operator, self.subtask, error, self.records_in) from error
        self.records_in += len(records)
        if stamped:
            self.event_time = stamped[-1]
        self.emit(records, stamped)

    def watermark(self, time: int) -> None:
        if time == MAX_TIME:  # of the time upstream, only its end counts here
            self._time.end()

    def idle(self) -> None:
        """Idleness upstream is not ours to judge by: we see for ourselves."""

    def next_tick_ms(self) -> int | None:
        return self._time.next_tick_ms()

    def tick(self, now_ms: int) -> None:
        self._time.tick(now_ms)
