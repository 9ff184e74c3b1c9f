"""The timers of one keyed operator, and the clock that its user code sees."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from numbers import Integral
from typing import Any

from moorline.errors import InvalidArgument, TimersNeedKey
from moorline.model.times import MAX_TIME, MIN_TIME
from moorline.state.backend import NO_KEY, CurrentKey, KeyedBackend, Namespace, OperatorClock


class Clock:
    """The clock of user code without a key, and so without timers."""

    def __init__(self, uid: str, moment: OperatorClock, wall_ms: Callable[[], int]) -> None:
        self._uid, self._moment, self._wall_ms = uid, moment, wall_ms

    def current_processing_time(self) -> int:
        # Never behind what states with a time to live have seen.
        return max(self._moment.processing_ms, self._wall_ms())

    def current_watermark(self) -> int:
        return self._moment.watermark

    def register_event_time_timer(self, time: int) -> None:
        raise TimersNeedKey(self._uid)

    register_processing_time_timer = register_event_time_timer
    delete_event_time_timer = register_event_time_timer
    delete_processing_time_timer = register_event_time_timer

    def event_time_timers(self) -> list[int]:
        raise TimersNeedKey(self._uid)

    processing_time_timers = event_time_timers


class Timers(Clock):
    """Timers per key. ``fire(domain, time, key, namespace)`` is called with the current key set."""

    def __init__(
        self,
        uid: str,
        moment: OperatorClock,
        wall_ms: Callable[[], int],
        backend: KeyedBackend,
        fire: Callable[[str, int, Any, Namespace], None],
    ) -> None:
        super().__init__(uid, moment, wall_ms)
        self.event, self.processing = backend.timers("event"), backend.timers("processing")
        self._backend, self._fire = backend, fire
        self._current: CurrentKey = backend.current

    # --- for user code ---------------------------------------------------------------------------

    def register_event_time_timer(self, time: int) -> None:
        self.event.register(_checked(time), self._key())

    def register_processing_time_timer(self, time: int) -> None:
        self.processing.register(_checked(time), self._key())

    def delete_event_time_timer(self, time: int) -> None:
        self.event.delete(_checked(time), self._key())

    def delete_processing_time_timer(self, time: int) -> None:
        self.processing.delete(_checked(time), self._key())

    def event_time_timers(self) -> list[int]:
        return [time for time, namespace in self.event.of_key(self._key()) if namespace is None]

    def processing_time_timers(self) -> list[int]:
        return [time for time, namespace in self.processing.of_key(self._key()) if namespace is None]

    def refuse_new_ones(self, error: Callable[[], Exception]) -> None:
        """Raise ``error()`` whenever one is to be registered: nothing would happen when it is due."""

        def refuse(time: int) -> None:
            self._key()
            raise error()

        self.register_event_time_timer = self.register_processing_time_timer = refuse  # type: ignore[method-assign]

    def _key(self) -> Any:
        key = self._current.key
        if key is NO_KEY:
            raise TimersNeedKey(self._uid)
        return key

    # --- for the operator ------------------------------------------------------------------------

    def advance(self, watermark: int) -> None:
        """Fire every event-time timer up to ``watermark``, also those that are registered on the way."""
        while (due := self.event.pop_due(watermark)) is not None:
            self._call("event", *due)

    def advance_clock(self, now_ms: int) -> None:
        """Fire every processing-time timer that is due at ``now_ms``."""
        while (due := self.processing.pop_due(now_ms)) is not None:
            self._call("processing", *due)

    def end_key(self) -> None:
        """Fire all timers of the only key there is, those of event time first, as if time had jumped to its end.

        Timers of processing time that are set on the way are left out: one that sets the next one would never end.
        """
        self._moment.watermark = MAX_TIME  # before the timers, which may ask for it
        self.advance(MAX_TIME)
        due = self.processing.pop_due(MAX_TIME)
        if due is not None:
            left = {(due[0], due[2]), *self.processing.of_key(self._backend.identities.of(due[1]))}
            while due is not None:
                if (due[0], due[2]) in left:
                    self._call("processing", *due)
                due = self.processing.pop_due(MAX_TIME)
            self.advance(MAX_TIME)
        self._moment.watermark = MIN_TIME

    def _call(self, domain: str, time: int, key: Any, namespace: Namespace) -> None:
        self._current.key = identity = self._backend.identities.of(key)
        self._backend.prefetch((identity,))
        try:
            self._fire(domain, time, identity, namespace)
        finally:
            self._current.key = NO_KEY


def _checked(time: Any) -> int:
    if type(time) is int and MIN_TIME <= time <= MAX_TIME:
        return time
    # A float would be stored as another time than the one that is deleted later.
    is_number = isinstance(time, (float, Integral)) and type(time) not in (bool, int)
    if is_number and MIN_TIME <= time <= MAX_TIME and time == time // 1:
        return int(time)
    raise InvalidArgument("time of a timer", time, _advice(time))


def _advice(time: Any) -> str:
    wanted = "Give a whole number of milliseconds since 1970"
    if time is None:
        return f"{wanted}. A record has a timestamp behind assign_timestamps_and_watermarks() alone."
    if isinstance(time, datetime):
        return f"{wanted}, of a datetime: int(time.timestamp() * 1000)."
    return f"{wanted}."
