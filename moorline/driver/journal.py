"""The life of a job in its log: one line for each start, restore, checkpoint, restart and end, with job and attempt.

Goes to the logger ``moorline``: INFO for what is as it should be, WARNING for what an operator may want to look into. A
traceback is logged once, however often the same error comes back; if the job gives up it stands in the exception that
``wait()`` raises, and not in the log as well. ``driver/supervision.py`` and ``driver/checkpoints/coordinator.py`` write
it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from moorline.driver.checkpoints.stats import CheckpointStats
from moorline.model.ids import SubtaskId
from moorline.model.wire.deployment import Deployment
from moorline.protocol.supervision.events import AwaitRestart, first_line

log = logging.getLogger("moorline")

#: A machine that has lost subtasks so often, and more than all others together, is named.
SUSPICIOUS = 3


class Journal:
    """Writes the lines of one job."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._tracebacks: set[str] = set()
        #: Operators and kinds of what was said about them.
        self._noticed: set[tuple[str, str]] = set()
        #: Outside systems that do not answer: by operator, the subtasks that say so.
        self._outages: dict[str, set[SubtaskId]] = {}

    def starts(self, deployment: Deployment) -> None:
        restored, location = deployment.restored, deployment.restore_location
        origin = "empty" if restored is None else f"from {location or f'checkpoint {restored}'}"
        self._info(deployment.attempt, "starts %d subtasks, %s", len(list(deployment.plan.subtasks())), origin)

    def runs(self, attempt: int, took_ms: int, read_bytes: int) -> None:
        self._info(attempt, "runs after %.1f s, with %s read from storage", took_ms / 1000, size(read_bytes))

    def completed(self, attempt: int, stats: CheckpointStats) -> None:
        name = "final checkpoint" if stats.final else "checkpoint"
        self._info(
            attempt,
            "%s %d is complete: %s, %s of it new, in %.1f s",
            name,
            stats.checkpoint,
            size(stats.size),
            size(stats.uploaded),
            stats.duration_ms / 1000,
        )

    def fails(self, attempt: int, why: str) -> None:
        log.warning("job %s, attempt %d: fails: %s", self._job, attempt, first_line(why))

    def loses(self, host: str, losses: Mapping[str, int]) -> None:
        """A machine has lost a subtask. ``losses``: by machine, how often that has ended an attempt."""
        often, all_ = losses.get(host, 0), sum(losses.values())
        if often >= SUSPICIOUS and 2 * often > all_:
            advice = "If it goes on, take that machine out: stop its worker daemon, or cordon the node."
            log.warning("job %s: %d of %d losses of subtasks were on %s. %s", self._job, often, all_, host, advice)

    def gives_way(self, attempt: int) -> None:
        self._info(attempt, "ends, to go on with another parallelism")

    def restarts(self, decision: AwaitRestart, why: str) -> None:
        """``why``: also its traceback, if there is one that has not been shown yet."""
        _, _, traceback = why.strip().partition("\n")
        is_new = bool(traceback) and traceback not in self._tracebacks
        self._tracebacks.add(traceback)
        log.warning("job %s: %s (%s)", self._job, decision, why.strip() if is_new else first_line(why))

    def noticed(self, uid: str, kind: str, text: str) -> None:
        """Something that a subtask wants people to know: once for each operator and kind."""
        if (uid, kind) not in self._noticed:
            self._noticed.add((uid, kind))
            log.warning("job %s: operator %r %s", self._job, uid, text)

    def outages(self, subtask: SubtaskId, outages: Mapping[str, str]) -> None:
        """Outside systems that a subtask waits for just now: a line when one is away, and one when it is back."""
        for uid, cause in outages.items():
            if uid not in self._outages:
                log.warning("job %s: operator %r waits for its outside system: %s", self._job, uid, first_line(cause))
            self._outages.setdefault(uid, set()).add(subtask)
        for uid, subtasks in list(self._outages.items()):
            if uid not in outages and subtask in subtasks:
                subtasks.discard(subtask)
                if not subtasks:
                    del self._outages[uid]
                    log.info("job %s: operator %r waits no longer: its outside system answers", self._job, uid)

    def forget_outages(self) -> None:
        """The attempt is over, and with it what its subtasks waited for."""
        self._outages = {}

    def ended(self, status: str, attempts: int, error: object) -> None:
        level = logging.WARNING if status == "failed" else logging.INFO
        why = f": {first_line(str(error))}" if error is not None and status == "failed" else ""
        log.log(level, "job %s: %s after %d attempt%s%s", self._job, status, attempts, "s" * (attempts != 1), why)

    def _info(self, attempt: int, text: str, *values: object) -> None:
        log.info("job %s, attempt %d: " + text, self._job, attempt, *values)


def size(count: int) -> str:
    """A number of bytes.

    >>> size(999), size(1_500_000)
    ('999 B', '1.5 MB')
    """
    amount, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{count} B" if units[0] == "B" else f"{amount:.1f} {units[0]}"
