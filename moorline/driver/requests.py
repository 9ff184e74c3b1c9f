"""A snapshot that was asked for: the request with its future, and the order that an attempt gets for it."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field


@dataclass(eq=False)
class SnapshotRequest:
    """A savepoint now, or before the job is stopped."""

    #: Where it goes.
    savepoint: str
    #: Before that, time ends: everything that waits for it fires.
    drain: bool = False
    #: The number of the snapshot, or why there is none.
    answer: Future[int] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class SnapshotOrder:
    """A snapshot that the running attempt is to take: a savepoint, or a checkpoint before a rescale."""

    #: The number of the request; 0: nobody has asked, it was due.
    request: int = 0
    #: Where the savepoint goes; empty: it is a checkpoint.
    savepoint: str = ""
    #: The sources read no further once the barrier has gone out.
    pause: bool = False
    #: Before that, time ends.
    drain: bool = False
