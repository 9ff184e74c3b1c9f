"""For the operator: storage, other drivers, Spark, questions; and, at the end, what is a bug of ours."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

from moorline.errors.common import MoorlineError

#: What the operating system refuses until someone changes a path or a permission.
_LASTING = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOENT,
        errno.EEXIST,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
    }
)


@dataclass(eq=False)
class StorageError(MoorlineError):
    """Storage failed, or refused an operation."""

    path: str
    operation: str
    cause: str
    can_pass: bool | None = True

    def __str__(self) -> str:
        return f"could not {self.operation} {self.path}: {self.cause}"

    @classmethod
    def of(cls, path: str, operation: str, error: OSError) -> StorageError:
        """The error for a refusal of the operating system; says whether waiting can help.

        >>> StorageError.of("/data/in", "read", PermissionError(13, "Permission denied")).can_pass
        False
        """
        return cls(path, operation, error.strerror or f"{type(error).__name__}: {error}", error.errno not in _LASTING)


@dataclass(eq=False)
class UnreadableRecord(StorageError):
    """A file or a message has content that is not of its format."""

    can_pass: bool | None = False
    #: The byte at which the record begins, or the row; in a stream, its offset or number.
    position: int | str = 0


@dataclass(eq=False)
class OffsetsLost(MoorlineError):
    """Messages that were not read yet are gone from the system that had them."""

    origin: str
    #: The first offset that was not read yet.
    wanted: int
    #: What is there: the first offset, and the one after the last.
    first: int
    end: int
    can_pass: bool | None = False

    @property
    def lost(self) -> int | None:
        """The number of offsets that are gone and may have had a message. None: that cannot be known.

        >>> OffsetsLost("orders/0", wanted=5, first=8, end=20).lost
        3
        """
        return self.first - self.wanted if self.wanted < self.first else None

    def __str__(self) -> str:
        there = f"It has [{self.first},{self.end}) now"
        if self.lost is None:
            cause = f"{there}, which ends before: it was cut off, or deleted and created anew"
        else:
            cause = f"{there}: up to {self.lost} messages are lost, which were deleted before they were read"
        return (
            f"{self.origin} is to be read from offset {self.wanted} on. {cause}. Go on with what is there by "
            f'on_lost_offsets="earliest", or with what comes by "latest".'
        )


@dataclass(eq=False)
class BlobMissing(StorageError):
    """A file that was asked for is not there."""


@dataclass(eq=False)
class JobNotEnded(MoorlineError):
    """A job is to begin anew, and an earlier run of it has not ended."""

    job: str
    location: str
    #: Its process runs on this machine; otherwise that cannot be seen from here.
    lives: bool
    attempt: int

    def __str__(self) -> str:
        state = "is still running on this machine" if self.lives else "has not ended, and may be running elsewhere"
        return (
            f"job {self.job!r} in {self.location} {state} (attempt {self.attempt}). Starting it anew would take its "
            f'storage away and begin without its state. To go on with its state, start with restore="latest"; to run '
            f"beside it, give the job another name; to begin anew all the same, pass take_over=True."
        )


@dataclass(eq=False)
class SavepointFailed(MoorlineError):
    """A savepoint could not be taken. A job that is running goes on."""

    path: str
    cause: str

    def __str__(self) -> str:
        return f"the savepoint {self.path} was not taken: {self.cause}. Ask again while the job is running."


@dataclass(eq=False)
class SavepointNotPermitted(MoorlineError):
    """A client has asked for a savepoint at a place that the job was not started with."""

    path: str
    permitted: tuple[str, ...]

    def __str__(self) -> str:
        places = ", ".join(self.permitted) or "nowhere: the job has no checkpoint location"
        return (
            f"no savepoint can be asked for at {self.path!r:.200}: it holds all state, and nothing permits that place. "
            f"Name a new folder, in plain letters, below one of these: {places}. Others are permitted when the job is "
            f"started: mo.HttpEndpoint(..., savepoints=[...]) or moorline run --savepoints."
        )


@dataclass(eq=False)
class QueryFailed(MoorlineError):
    """A query of state has no answer. That there is nothing under the key is an answer: None."""

    uid: str
    state: str
    cause: str

    def __str__(self) -> str:
        return f"state {self.state!r} of operator {self.uid!r} cannot be queried: {self.cause}"


@dataclass(eq=False)
class QueryUnavailable(QueryFailed):
    """The running job has not answered in time. The same query may succeed later."""


@dataclass(eq=False)
class ConsoleRefused(MoorlineError):
    """A job's console has turned a request down, or cannot be reached."""

    url: str
    cause: str

    def __str__(self) -> str:
        return f"the console at {self.url}: {self.cause}"


@dataclass(eq=False)
class ExternalStateTaken(MoorlineError):
    """Another attempt has taken over the state that an outside store keeps for this one."""

    uid: str
    store: str
    ours: int
    theirs: int

    def __str__(self) -> str:
        whose = f"attempt {self.theirs}" if self.theirs else "somebody else"
        return (
            f"{whose} has taken over the state of operator {self.uid!r} in {self.store} from our attempt {self.ours}. "
            f"Nothing was written. If no other run of this job is alive and its checkpoints were removed on purpose, "
            f"have the store forget the job (its forget() method)."
        )


@dataclass(eq=False)
class Fenced(MoorlineError):
    """Another driver has taken over this job's storage."""

    location: str
    ours: int
    theirs: int

    def __str__(self) -> str:
        return (
            f"attempt {self.theirs} of another driver has taken over {self.location} from our attempt {self.ours}. "
            f"This driver stops and changes nothing; give each running job a name or a location of its own."
        )


@dataclass(eq=False)
class LeadershipLost(MoorlineError):
    """This driver may no longer lead the job: another one does, or may from now on."""

    job: str
    reason: str

    def __str__(self) -> str:
        return (
            f"this driver no longer leads job {self.job!r}: {self.reason}. It stops and changes nothing; the driver "
            f"that leads goes on from the newest checkpoint. Start this one again to have it stand by."
        )


@dataclass(eq=False)
class SparkUnsuitable(MoorlineError):
    """This Spark cannot carry a streaming job as it is set up."""

    problems: list[str]

    def __str__(self) -> str:
        return "Spark cannot run this job:\n" + "\n".join(f"  - {p}" for p in self.problems)


@dataclass(eq=False)
class JobFailed(MoorlineError):
    """The job gave up."""

    job: str
    reason: str
    last: str
    history: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        story = "".join(f"\n  {line}" for line in self.history)
        return f"job {self.job!r} failed: {self.reason}{story}\n{self.last}"


@dataclass(eq=False)
class JobCancelled(MoorlineError):
    """The job was cancelled while its result was waited for."""

    job: str

    def __str__(self) -> str:
        return f"job {self.job!r} was cancelled."


@dataclass(eq=False)
class InvalidTransition(MoorlineError):
    """A machine of ours met an event that cannot happen. Please report it with the story."""

    machine: str
    state: str
    event: str
    story: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        story = "".join(f"\n  {line}" for line in self.story)
        return f"{self.machine} in state {self.state} cannot take: {self.event}{story}"
