"""The history of a job's attempts: when each began and ran, from where, and how it ended, with the traceback.

Filled by the driver's thread (``driver/supervision.py``), read by others.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

from moorline.model.wire.deployment import Deployment
from moorline.protocol.supervision.events import first_line

#: So many are kept.
KEPT = 50
#: Characters kept of an error with its traceback.
ERROR_CHARACTERS = 10_000

Outcome = Literal["starting", "running", "finished", "failed", "rescaled", "cancelled"]


@dataclass
class AttemptRecord:
    """One attempt. Times are of the wall clock, in milliseconds since 1970."""

    attempt: int
    started_ms: int
    #: The checkpoint or savepoint that it was restored from; None and empty: from none.
    restored: int | None
    restore_location: str
    subtasks: int
    outcome: Outcome = "starting"
    #: How long it took until all subtasks ran, and how much of the snapshot they read.
    start_took_ms: int | None = None
    read_bytes: int = 0
    ended_ms: int | None = None
    #: Why it failed: one line, and all of it with the traceback.
    error: str = ""
    traceback: str = ""
    #: The operator and subtask that failed or was lost first, if one was, and the machine of one that was lost.
    uid: str = ""
    subtask: str = ""
    host: str = ""


class AttemptHistory:
    """The attempts of one run of a job."""

    def __init__(self) -> None:
        self._records: deque[AttemptRecord] = deque(maxlen=KEPT)
        #: How many began, and how many of them failed.
        self.count = self.failures = 0
        #: By machine, how many of them ended because a subtask there was lost.
        self.losses: dict[str, int] = {}

    def launched(self, deployment: Deployment, wall_ms: int) -> None:
        self.count += 1
        restored = None if deployment.restored is None else int(deployment.restored)
        subtasks = sum(vertex.parallelism for vertex in deployment.plan.vertices)
        location = deployment.restore_location or ""
        self._records.append(AttemptRecord(int(deployment.attempt), wall_ms, restored, location, subtasks))

    def runs(self, attempt: int, took_ms: int, read_bytes: int) -> None:
        if (record := self._of(attempt)) is not None:
            record.outcome, record.start_took_ms, record.read_bytes = "running", took_ms, read_bytes

    def blamed(self, attempt: int, uid: str, subtask: str) -> None:
        """A subtask says that it has failed. The first one counts."""
        record = self._of(attempt)
        if record is not None and not record.subtask:
            record.uid, record.subtask = uid, subtask

    def lost(self, attempt: int, uid: str, subtask: str, host: str) -> bool:
        """Note that an attempt has failed because it lost a subtask. The first one counts: others go because of it.

        Was it counted?
        """
        record = self._of(attempt)
        if record is None or record.outcome != "failed" or record.subtask or not host:
            return False
        record.uid, record.subtask, record.host = uid, subtask, host
        self.losses[host] = self.losses.get(host, 0) + 1
        return True

    def failed(self, attempt: int, why: str) -> None:
        record = self._of(attempt)
        if record is not None and record.outcome != "failed":
            self.failures += 1
            record.outcome, record.error, record.traceback = "failed", first_line(why), why.strip()[:ERROR_CHARACTERS]

    def gives_way(self, attempt: int) -> None:
        """It ends because the job goes on with another parallelism."""
        if (record := self._of(attempt)) is not None:
            record.outcome = "rescaled"

    def ended(self, attempt: int, succeeded: bool, wall_ms: int) -> None:
        record = self._of(attempt)
        if record is not None and record.ended_ms is None:
            record.ended_ms = wall_ms
            if record.outcome in ("starting", "running"):
                record.outcome = "finished" if succeeded else "cancelled"

    def records(self) -> list[dict[str, Any]]:
        """The last of them, newest first, as JSON."""
        return [dict(vars(record)) for record in reversed(list(self._records))]

    def _of(self, attempt: int) -> AttemptRecord | None:
        return next((record for record in reversed(self._records) if record.attempt == attempt), None)
