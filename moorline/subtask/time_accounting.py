"""Where a subtask's time goes: working, held back by the next stage, or waiting for something to do.

Told by whoever drives the subtask, once per frame and never per record; read by another thread, also while the
subtask is held back and cannot say so itself. ``spark/entry.py`` tells, :meth:`Subtask.progress` reads.
"""

from __future__ import annotations

from collections.abc import Callable

BUSY, HELD_BACK, IDLE = 0, 1, 2


class TimeSpent:
    """Three sums of milliseconds.

    >>> now = iter([0, 10, 40, 100]).__next__
    >>> spent = TimeSpent(now)
    >>> spent.now(HELD_BACK); spent.now(BUSY)
    >>> spent.so_far()
    (70, 30, 0)
    """

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._sums = [0.0, 0.0, 0.0]
        #: What it does, and since when: one object, so that another thread never sees half of a change.
        self._doing = BUSY, now_ms()
        #: How often the driving loop has come round: one that works on something for ever does not.
        self.turns = 0

    def now(self, what: int) -> None:
        """From now on it does something else."""
        now_ms = self._now_ms()
        doing, since = self._doing
        self._sums[doing] += now_ms - since
        self._doing = what, now_ms

    @property
    def is_busy(self) -> bool:
        return self._doing[0] == BUSY

    def so_far(self) -> tuple[int, int, int]:
        """Busy, held back, idle."""
        doing, since = self._doing
        sums = list(self._sums)
        sums[doing] += max(0.0, self._now_ms() - since)
        busy, held_back, idle = map(int, sums)
        return busy, held_back, idle
