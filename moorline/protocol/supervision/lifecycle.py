"""The states a job goes through, as its handle shows them.

    CREATED -> STARTING -> RUNNING -> FINISHED
       |       ^  |   ^       |  \\-> STOPPING -> FINISHED
       v       |  v   |       v
      WAITING -+ RESTARTING <-+        (a failure, and the strategy allows another attempt)
                  |
                  v
               FAILED

WAITING is for a driver that stands by while another one leads (``leadership.py``). If the job ends there, it ends here
in the same way.
From any state up to RESTARTING: cancel -> CANCELLING -> CANCELLED, give up -> FAILED. A cancelled job does not fail.
``protocol/job.py`` moves along this table; to wait for a job is to wait for a terminal state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from moorline.errors import InvalidTransition


class JobStatus(Enum):
    """The status of a job."""

    CREATED = "created"
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    RESTARTING = "restarting"
    CANCELLING = "cancelling"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        return self in (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELLED)


_S = JobStatus
#: Where each state may lead.
TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    _S.CREATED: frozenset({_S.WAITING, _S.STARTING, _S.FAILED, _S.CANCELLING}),
    _S.WAITING: frozenset({_S.STARTING, _S.FINISHED, _S.FAILED, _S.CANCELLING}),
    _S.STARTING: frozenset({_S.RUNNING, _S.STOPPING, _S.RESTARTING, _S.FAILED, _S.CANCELLING}),
    _S.RUNNING: frozenset({_S.STOPPING, _S.RESTARTING, _S.FINISHED, _S.FAILED, _S.CANCELLING}),
    _S.STOPPING: frozenset({_S.FINISHED, _S.RESTARTING, _S.FAILED, _S.CANCELLING}),
    _S.RESTARTING: frozenset({_S.STARTING, _S.FAILED, _S.CANCELLING}),
    _S.CANCELLING: frozenset({_S.CANCELLED}),
    _S.FINISHED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}


@dataclass(slots=True)
class Lifecycle:
    """The state of one job, and the story of how it got there."""

    status: JobStatus = JobStatus.CREATED
    story: list[str] = field(default_factory=list)

    def move(self, to: JobStatus, why: str) -> None:
        """Go to another state. Raises :class:`InvalidTransition` and stays if there is no such way."""
        if to not in TRANSITIONS[self.status]:
            raise InvalidTransition("lifecycle", self.status.value, f"{to.value} ({why})", self.story)
        self.story.append(f"{self.status.value} -> {to.value}: {why}")
        self.status = to
