"""The start of checkpoints.

- Every ``interval``, counted from start to start, but not before ``min_pause`` after the last completion,
  and never more than ``max_concurrent`` at a time.
- A *final* checkpoint, when all input has ended or the job is to stop, goes before all others and is not held
  back by interval or pause; nothing is started beside it or after it completes.
- If the final one fails it is started again: the job cannot end without it.

Ids count up from the restored one and are never reused, also not those of failed checkpoints.
No clock: ``now`` is milliseconds of a clock that never goes back. ``driver/checkpoints/coordinator.py`` drives it.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StartCheckpoint:
    """Start this checkpoint: tell the sources."""

    checkpoint: int
    final: bool
    #: By request: a savepoint, or a checkpoint for a rescale.
    requested: bool = False

    def __str__(self) -> str:
        kind = "final " if self.final else "requested " if self.requested else ""
        return f"start {kind}checkpoint {self.checkpoint}"


@dataclass(slots=True)
class Triggering:
    """Feed it time and the ends of checkpoints; start what it says."""

    #: None: no periodic checkpoints, only the final one.
    interval_ms: int | None
    min_pause_ms: int
    max_concurrent: int
    next_id: int
    started_ms: int
    completed_ms: int | None = None
    pending: set[int] = field(default_factory=set)
    final_wanted: bool = False
    final_pending: int | None = None
    is_over: bool = False
    #: How many have been asked for and not started. They go before periodic ones, one at a time.
    requests: int = 0

    def time_passed(self, now: int) -> StartCheckpoint | None:
        """The checkpoint to start now, if any."""
        if self.is_over or self.final_pending is not None:
            return None
        if self.requests:
            # Alone: a barrier behind it would make subtasks give it up.
            return None if self.pending else self._start(now, requested=True)
        if self.final_wanted:
            return self._start(now, final=True)
        due = self.next_due_ms()
        if due is None or now < due or len(self.pending) >= self.max_concurrent:
            return None
        return self._start(now, final=False)

    def next_due_ms(self) -> int | None:
        """The time at which the next periodic checkpoint may start; None if there is none to come."""
        if self.interval_ms is None or self.final_wanted or self.is_over:
            return None
        due = self.started_ms + self.interval_ms
        if self.completed_ms is not None:
            due = max(due, self.completed_ms + self.min_pause_ms)
        return due

    def final_requested(self) -> None:
        """All input has ended, or the job is to stop."""
        self.final_wanted = True

    def requested(self) -> None:
        """A snapshot is wanted now."""
        self.requests += 1

    def ended(self, checkpoint: int, completed: bool, now: int) -> None:
        """A checkpoint was completed or given up."""
        self.pending.discard(checkpoint)
        if completed:
            self.completed_ms = now
        if checkpoint == self.final_pending:
            self.final_pending = None
            self.is_over = completed

    def _start(self, now: int, *, final: bool = False, requested: bool = False) -> StartCheckpoint:
        checkpoint = self.next_id
        self.next_id += 1
        self.started_ms = now
        self.pending.add(checkpoint)
        if final:
            self.final_pending = checkpoint
        self.requests -= requested
        return StartCheckpoint(checkpoint, final, requested)
