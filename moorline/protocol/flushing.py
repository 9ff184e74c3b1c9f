"""The sending of records that do not fill a frame.

A flush costs the same for one record as for a thousand: a frame for every receiver and a chaser behind it, some tenths
of a millisecond of processor time on their way. So records wait for each other for ``flush_ms``. A subtask that has
work without a pause makes full frames anyway, and partial ones would take time that it needs for records: there they
wait for ``BUSY_MS``.

    has had nothing to do within the last CALM_MS    flush after flush_ms, be there work to do just now or not
    has had work all the time                        flush after BUSY_MS

So a record waits long only where the subtask has more to do than it can, and not where it happens to be busy.

This file performs no I/O and reads no clock. ``subtask/output.py`` drives it.
"""

from __future__ import annotations

from dataclasses import dataclass

#: How long a record waits at most in a subtask that always has work.
BUSY_MS = 100
#: A subtask that has had nothing to do within this time has time for a flush.
CALM_MS = 100


@dataclass(slots=True)
class Flushing:
    """The flushes of one subtask.

    >>> flushing = Flushing(flush_ms=10)
    >>> flushing.flushed_ms = flushing.idle_ms = 1_000
    >>> flushing.is_due(1_009), flushing.is_due(1_010)
    (False, True)
    >>> flushing.idle_ms = 0  # it has had work all the time since
    >>> flushing.is_due(1_010), flushing.is_due(1_100)
    (False, True)
    """

    flush_ms: int
    #: When it was flushed last; and when there was last nothing to do.
    flushed_ms: float = float("-inf")
    idle_ms: float = float("-inf")

    def is_due(self, now_ms: float) -> bool:
        """Is it time to flush?"""
        is_calm = now_ms - self.idle_ms < CALM_MS
        return now_ms - self.flushed_ms >= (self.flush_ms if is_calm else max(self.flush_ms, BUSY_MS))

    def wait_ms(self, now_ms: float) -> float:
        """The time until a flush is due in a subtask that has nothing to do."""
        return max(0.0, self.flushed_ms + self.flush_ms - now_ms)
