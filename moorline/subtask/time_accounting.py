"""Time of a subtask by activity: busy, back-pressured by the next stage, or idle.

``spark/entry.py`` switches, once per frame and never per record; :meth:`Subtask.progress` reads from another thread,
also while the subtask is back-pressured and cannot report itself.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum


class Activity(IntEnum):
    """Ways in which a subtask spends its time."""

    BUSY = 0
    BACK_PRESSURED = 1
    IDLE = 2


class TimeAccounting:
    """Milliseconds by activity.

    >>> times = TimeAccounting(iter([0, 10, 40, 100]).__next__)
    >>> times.switch_to(Activity.BACK_PRESSURED); times.switch_to(Activity.BUSY)
    >>> times.totals()
    (70, 30, 0)
    """

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._sums = [0.0, 0.0, 0.0]
        #: The activity and when it began: one object, so that another thread never sees half of a change.
        self._current = Activity.BUSY, now_ms()
        #: How often the driving loop has come round: one that works on something for ever does not.
        self.turns = 0

    def switch_to(self, activity: Activity) -> None:
        """Begin another activity."""
        now_ms = self._now_ms()
        ended, since = self._current
        self._sums[ended] += now_ms - since
        self._current = activity, now_ms

    @property
    def is_busy(self) -> bool:
        return self._current[0] is Activity.BUSY

    def worked_ms(self) -> float:
        """The time that it has not been idle."""
        busy, back_pressured, _ = self.totals()
        return busy + back_pressured

    def totals(self) -> tuple[int, int, int]:
        """Milliseconds busy, back-pressured and idle."""
        activity, since = self._current
        sums = list(self._sums)
        sums[activity] += max(0.0, self._now_ms() - since)
        busy, back_pressured, idle = map(int, sums)
        return busy, back_pressured, idle
