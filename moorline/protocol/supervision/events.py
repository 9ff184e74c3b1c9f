"""The events of a job and the actions that they lead to: the words of ``protocol/job.py``.

Those about requests are in ``protocol/supervision/requests.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from moorline.errors import MoorlineError
from moorline.protocol.supervision.lifecycle import JobStatus
from moorline.protocol.supervision.requests import (
    Answer,
    RescaleRequested,
    SnapshotFailed,
    SnapshotRequested,
    SnapshotTaken,
    StoppedWith,
    StopRequested,
    TakeFinalCheckpoint,
    TakeSnapshot,
)

# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cause:
    """The error that ended an attempt, as far as two of them can be compared."""

    error: str
    record: str = ""
    can_pass: bool | None = True


@dataclass(frozen=True, slots=True)
class LeaderAwaited:
    """Another driver may lead the job."""


@dataclass(frozen=True, slots=True)
class StartAllowed:
    """No other driver leads."""


@dataclass(frozen=True, slots=True)
class AttemptLaunched:
    attempt: int


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """There is no attempt. ``cause``: of an error that the next try may not meet; None: it would."""

    error: MoorlineError
    cause: Cause | None
    now_ms: int


@dataclass(frozen=True, slots=True)
class AttemptRuns:
    """All its subtasks have their state and run."""

    attempt: int


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    attempt: int
    why: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """Nothing of the attempt runs any more."""

    attempt: int
    now_ms: int
    #: All subtasks came to their end.
    succeeded: bool = False
    #: The error that the cluster reports, and its cause.
    error: str = ""
    cause: Cause | None = None
    #: The newest checkpoint that it had, and whether it has completed any.
    reached: int = 0
    has_completed: bool = False
    #: The checkpoint that it was restored from is damaged, and there may be an older one.
    is_damaged: bool = False


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """End now, without a checkpoint."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """Another driver leads the job, or may from now on: nothing of it may be changed here."""

    error: MoorlineError


@dataclass(frozen=True, slots=True)
class EndedElsewhere:
    """The driver that was waited for has seen the job to its end."""

    outcome: JobStatus


@dataclass(frozen=True, slots=True)
class TimePassed:
    now_ms: int


RequestEvent = SnapshotRequested | StopRequested | RescaleRequested | SnapshotTaken | SnapshotFailed
LeaderEvent = LeaderAwaited | StartAllowed | Superseded | EndedElsewhere
AttemptEvent = AttemptLaunched | LaunchFailed | AttemptRuns | AttemptFailed | AttemptEnded
Event = RequestEvent | LeaderEvent | AttemptEvent | CancelRequested | TimePassed

# --- actions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launch:
    """Start an attempt. The next event is its success or failure."""

    #: Go on with the parallelism of this request.
    rescale: int | None = None
    #: The savepoint that the job was stopped with: restore it, read nothing, commit what it covers.
    stopped: StoppedWith | None = None

    def __str__(self) -> str:
        rescaled = f", rescaled by request {self.rescale}" if self.rescale is not None else ""
        stopped = f", paused at savepoint {self.stopped.savepoint}" if self.stopped is not None else ""
        return f"launch an attempt{rescaled}{stopped}"


@dataclass(frozen=True, slots=True)
class Begin:
    """All subtasks of the attempt run: connect its loops, measure its loads."""

    attempt: int
    #: Its parallelism is new, or will be soon.
    rescaled: bool = False

    def __str__(self) -> str:
        return f"begin attempt {self.attempt}"


@dataclass(frozen=True, slots=True)
class CancelAttempt:
    attempt: int
    why: str

    def __str__(self) -> str:
        return f"cancel attempt {self.attempt}: {first_line(self.why)}"


@dataclass(frozen=True, slots=True)
class NoteFailure:
    """Of an attempt that has ended without having been cancelled."""

    attempt: int
    why: str

    def __str__(self) -> str:
        return f"note that attempt {self.attempt} failed: {first_line(self.why)}"


@dataclass(frozen=True, slots=True)
class AwaitRestart:
    delay_ms: int
    why: str

    def __str__(self) -> str:
        return f"restart in {self.delay_ms} ms"


@dataclass(frozen=True, slots=True)
class End:
    """The job is over."""

    status: JobStatus
    error: MoorlineError | None
    #: The savepoint that it was stopped with.
    stopped: StoppedWith | None = None

    def __str__(self) -> str:
        return f"end, {self.status.value}" + (f": {first_line(str(self.error))}" if self.error is not None else "")


Action = Launch | Begin | CancelAttempt | NoteFailure | AwaitRestart | TakeSnapshot | TakeFinalCheckpoint | Answer | End


def first_line(why: str) -> str:
    """
    >>> first_line("ValueError: no\\nTraceback ..."), first_line("")
    ('ValueError: no', 'unknown')
    """
    return why.strip().splitlines()[0] if why.strip() else "unknown"
