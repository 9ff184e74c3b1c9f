"""The signs of life of an attempt's subtasks: which of them has stopped answering, from the launch to the end.

Every subtask has a deadline at every moment, so no attempt waits for ever:

    launched, not heard of yet     ``start_timeout`` from the launch: Spark finds a worker, the worker loads the job
    connected                      ``heartbeat_timeout`` from its last report. A thread of its own sends them, also
                                   while state is read back or ``open()`` takes an hour: a long start is no silence
    in one read of storage         ``start_timeout`` for that read, while it restores: it answers, and never comes back
    gone after the last checkpoint ``start_timeout`` for Spark to end the attempt

Reads no clock and acts on nothing: ``driver/supervision.py`` asks, and fails the attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from moorline.model.ids import SubtaskId
from moorline.model.wire.messages import Progress, Report

log = logging.getLogger("moorline")

#: A subtask whose thread has not moved on for so long is worth a word in the log; then again after twice as long.
STALL_MS = 60_000
#: Not looked for so long: the driver itself was away, and what was sent meanwhile has yet to be read.
AWAY_MS = 3_000


class Overdue(NamedTuple):
    """A deadline that a subtask has missed."""

    subtask: SubtaskId
    text: str


class Heartbeats:
    """The signs of life of one attempt.

    >>> a, b = SubtaskId(0, 0), SubtaskId(1, 0)
    >>> beats = Heartbeats([a, b], heartbeat_ms=5_000, start_ms=60_000, launched_ms=0)
    >>> beats.heard(a, Progress(records_in=0, records_out=0), 1_000)
    >>> for now_ms in range(0, 7_000, 1_000):
    ...     overdue = beats.overdue(now_ms)
    >>> overdue.text
    'subtask 0/0 has not been heard of for 5.0 s'
    """

    def __init__(self, subtasks: Iterable[SubtaskId], heartbeat_ms: int, start_ms: int, launched_ms: int) -> None:
        self._heartbeat_ms, self._start_ms = heartbeat_ms, start_ms
        self._away_ms = max(AWAY_MS, heartbeat_ms // 2)
        #: Since when nothing has been heard of each; the launch, for those that have never been heard of.
        self._silent_since = dict.fromkeys(subtasks, launched_ms)
        self._unheard = set(self._silent_since)
        #: Not heard of any more since they have nothing left to do.
        self._gone: set[SubtaskId] = set()
        self._looked_ms = launched_ms
        self._warn_at: dict[SubtaskId, int] = {}
        self._hanging: Overdue | None = None

    def heard(self, subtask: SubtaskId, report: Report, now_ms: int) -> None:
        """A subtask has reported something."""
        self._silent_since[subtask] = now_ms
        self._unheard.discard(subtask)
        if isinstance(report, Progress):
            self._look_for_stall(subtask, report)

    def gone(self, subtask: SubtaskId) -> None:
        """It has closed its line after the final checkpoint, as it should."""
        self._gone.add(subtask)

    def overdue(self, now_ms: int) -> Overdue | None:
        """A subtask that has missed a deadline, and which one."""
        away_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        if away_ms > self._away_ms:
            # What they sent while the driver slept, or wrote to slow storage, is read first.
            for subtask in self._silent_since:
                self._silent_since[subtask] += away_ms
        for subtask, since in self._silent_since.items():
            silent_ms = now_ms - since
            if subtask in self._gone:
                if silent_ms > self._start_ms:
                    text = f"Spark has not ended the attempt {_seconds(silent_ms)} after subtask {subtask} was done"
                    return Overdue(subtask, text)
            elif subtask in self._unheard:
                if silent_ms >= self._start_ms:
                    text = f"subtask {subtask} has not called in within {_seconds(silent_ms)} of its launch"
                    return Overdue(subtask, text)
            elif silent_ms >= self._heartbeat_ms:
                return Overdue(subtask, f"subtask {subtask} has not been heard of for {_seconds(silent_ms)}")
        return self._hanging

    def _look_for_stall(self, subtask: SubtaskId, report: Progress) -> None:
        if report.stalled_ms < self._warn_at.get(subtask, STALL_MS):
            if not report.stalled_ms:
                self._warn_at.pop(subtask, None)
        else:
            self._warn_at[subtask] = 2 * report.stalled_ms
            log.warning(
                "subtask %s answers, but has not moved on for %s: it is at %s",
                subtask,
                _seconds(report.stalled_ms),
                report.stalled_at,
            )
        if report.reading and report.stalled_ms >= self._start_ms:
            text = f"subtask {subtask} has been reading {report.reading} for {_seconds(report.stalled_ms)}"
            self._hanging = Overdue(subtask, text)


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.1f} s"
