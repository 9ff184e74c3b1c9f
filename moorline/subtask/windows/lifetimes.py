"""The lifetime of a window: which windows still take records, when one is cleaned up, and which records are late.

Clean-up time is the window's last moment, plus the allowed lateness in event time. A timer at or after it cleans up,
and any other timer sees to it that there is one for clean-up time. So a job may be restored with another allowed
lateness, and no window is kept for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moorline.api.windows.assigners import Span
from moorline.api.windows.streams import WindowSpec
from moorline.model.times import MAX_TIME
from moorline.state.backend import OperatorClock
from moorline.subtask.operators.timers import Timers


class Lifetimes:
    """The lifetimes of one operator's windows."""

    def __init__(self, spec: WindowSpec, clock: OperatorClock, timers: Timers) -> None:
        self.is_event_time = spec.assigner.is_event_time
        self.lateness_ms = spec.lateness_ms if self.is_event_time else 0
        #: The timers by which its windows end.
        self.timers = timers.event if self.is_event_time else timers.processing
        self._clock = clock

    def clean_up_time(self, span: Span) -> int:
        """The time at which everything that is kept of a window goes."""
        time = span[1] - 1 + self.lateness_ms
        # A window that ends with time itself, as the global one does, is never cleaned up.
        return time if time < MAX_TIME - 1 else MAX_TIME

    def clean_up_later(self, key: Any, span: Span) -> None:
        """Register the timer for clean-up time."""
        time = self.clean_up_time(span)
        if time < MAX_TIME:
            self.timers.register(time, key, span)

    def live(self, spans: Sequence[Span]) -> Sequence[Span]:
        """The windows among these that still take records."""
        if not self.is_event_time:
            return spans
        watermark = self._clock.watermark
        return [span for span in spans if self.clean_up_time(span) > watermark]

    def late_by(self, timestamp: int | None) -> int | None:
        """By how many milliseconds a record that is in no window is late; None: there are gaps between windows."""
        if timestamp is None or not self.is_event_time:
            return None
        late_ms = self._clock.watermark - timestamp - self.lateness_ms
        return late_ms if late_ms >= 0 else None
