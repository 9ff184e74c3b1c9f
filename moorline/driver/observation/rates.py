"""Rates of subtasks: what two of their reports differ by, over the last ten seconds.

Reports hold sums since the attempt began, and time by a subtask's own clock, so neither a lost report nor a driver that
was busy makes a rate wrong. ``driver/supervision.py`` hands reports in; other threads ask.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from moorline.model.ids import SubtaskId
from moorline.model.wire.figures import OperatorFigures
from moorline.model.wire.messages import Progress

#: Rates are over so long, or since the attempt began.
SPAN_MS = 10_000
#: Of reports that are closer together one is kept.
STEP_MS = 1_000


@dataclass(frozen=True)
class Window:
    """Two reports of one subtask.

    >>> old = Progress(records_in=0, records_out=0)
    >>> new = Progress(records_in=500, records_out=0, busy_ms=750, backpressured_ms=0, idle_ms=250)
    >>> window = Window(old, new, 1_000)
    >>> window.seconds, window.per_second("records_in"), window.shares()
    (1.0, 500.0, (0.75, 0.0, 0.25))
    """

    old: Progress
    new: Progress
    #: Between their arrivals, on the driver.
    arrival_ms: int

    @property
    def seconds(self) -> float:
        return (sum(self._spent_ms()) or self.arrival_ms) / 1000

    def _spent_ms(self) -> tuple[int, int, int]:
        old, new = self.old, self.new
        return (
            new.busy_ms - old.busy_ms,
            new.backpressured_ms - old.backpressured_ms,
            new.idle_ms - old.idle_ms,
        )

    def per_second(self, figure: str) -> float:
        """The rate of one of the counts of a report."""
        return self._rate(getattr(self.new, figure) - getattr(self.old, figure))

    def of_operator(self, figures: OperatorFigures) -> tuple[float, float]:
        """Records in and out per second of an operator of the chain."""
        before = next((f for f in self.old.operators if f.uid == figures.uid), OperatorFigures(uid=figures.uid))
        return self._rate(figures.records_in - before.records_in), self._rate(figures.records_out - before.records_out)

    def shares(self) -> tuple[float, float, float]:
        """The shares of time that it was busy, back-pressured and idle."""
        spent = self._spent_ms()
        total = sum(spent)
        busy, back_pressured, idle = (round(ms / total, 3) if total > 0 else 0.0 for ms in spent)
        return busy, back_pressured, idle

    def _rate(self, count: int) -> float:
        seconds = self.seconds
        return round(max(0, count) / seconds, 1) if seconds > 0 else 0.0


class Rates:
    """The last reports of the subtasks of one attempt."""

    def __init__(self) -> None:
        self._reports: dict[SubtaskId, deque[tuple[int, Progress]]] = {}
        self._last: dict[SubtaskId, tuple[int, Progress]] = {}

    def reported(self, subtask: SubtaskId, report: Progress, now_ms: int) -> None:
        self._last[subtask] = now_ms, report
        kept = self._reports.setdefault(subtask, deque())
        if not kept or now_ms - kept[-1][0] >= STEP_MS:
            kept.append((now_ms, report))
            while len(kept) > 2 and now_ms - kept[1][0] >= SPAN_MS:
                kept.popleft()

    def windows(self) -> dict[SubtaskId, Window]:
        """Of every subtask that has reported: its last report, and the one to compare it with."""
        windows = {}
        for subtask, (now_ms, report) in dict(self._last).items():
            # Looked at once: the driver's thread may add to it meanwhile.
            kept = list(self._reports[subtask])
            then_ms, before = kept[0]
            if before is report:
                before = Progress(records_in=0, records_out=0)  # of the attempt so far
            windows[subtask] = Window(before, report, now_ms - then_ms)
        return windows
