"""The place of a reader in a stream of JetStream, and the messages that were taken away before it came to them.

    position   {"next": the sequence to go on with, "end": the last one to read, or None, "created": the stream's birth}

Limits and purges take messages away at the head of a stream. Sequences between two messages that were read, and before
the head, were taken away unread. Other gaps are no loss: there are messages of other subjects, and messages that were
deleted by themselves or replaced by a newer one of their subject. This file performs no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from moorline.errors import InvalidArgument, SnapshotCorrupt


class StreamState(NamedTuple):
    """The state of a stream at one moment, as JetStream says."""

    created: str
    first: int
    last: int

    @classmethod
    def of(cls, info: dict[str, Any]) -> StreamState:
        """From the answer about a stream. One that never had a message begins at 1."""
        state = info["state"]
        return cls(info["created"], max(1, state["first_seq"]), state["last_seq"])


@dataclass(frozen=True)
class Cursor:
    """A place in a stream."""

    next: int
    end: int | None
    created: str

    @classmethod
    def restored(cls, position: Any) -> Cursor:
        """From a snapshot, which is data like any other."""
        match position:
            case {"next": int(next), "end": None | int() as end, "created": str(created)} if next > 0:
                return cls(next, end, created)
        raise SnapshotCorrupt("the manifest", f"{position!r:.80} is not a position in a stream of NATS")

    def position(self) -> dict[str, Any]:
        """As plain data, for a snapshot."""
        return {"next": self.next, "end": self.end, "created": self.created}

    def moved(self, next: int) -> Cursor:
        """Further on, and at most behind the end: a job without one can go on from there."""
        return replace(self, next=next if self.end is None else min(next, self.end + 1))

    @property
    def is_finished(self) -> bool:
        return self.end is not None and self.next > self.end


@dataclass(frozen=True)
class MessageLoss:
    """Messages that are gone before they were read."""

    what: str
    #: How many at most, if that is known: with a filter, or where some were deleted by themselves, it may be fewer.
    count: int | None
    #: Where reading can go on.
    cursor: Cursor


def find_loss(cursor: Cursor, state: StreamState) -> MessageLoss | None:
    """The messages that were taken away after ``cursor``, at its stream's head.

    >>> find_loss(Cursor(5, None, "today"), StreamState("today", first=8, last=20)).count
    3
    """
    at_head = replace(cursor, next=state.first, created=state.created)
    if state.created != cursor.created:
        return MessageLoss("the stream was deleted and made anew", None, at_head)
    if state.last + 1 < cursor.next:
        what = f"the server has lost data: its last message is {state.last}"
        return MessageLoss(what, None, replace(cursor, next=state.last + 1))
    if state.first > cursor.next:
        what = f"messages {cursor.next} to {state.first - 1} were taken away by a limit or a purge"
        return MessageLoss(what, state.first - cursor.next, at_head)
    return None


def lost_between(next: int, sequences: list[int], first: int) -> int:
    """The number of sequences before the head ``first`` that messages in this order have passed over.

    >>> lost_between(5, [6, 9, 12], first=11)
    4
    """
    lost = 0
    for sequence in sequences:
        lost += max(0, min(sequence, first) - next)
        next = sequence + 1
    return lost


def checked_start(start: Any) -> Any:
    """The start that a user gives, checked."""
    if start in ("earliest", "latest") or (isinstance(start, datetime) and start.tzinfo is not None):
        return start
    if isinstance(start, int) and not isinstance(start, bool) and start > 0:
        return start
    advice = 'It is "earliest", "latest", the sequence of a message, or a datetime with a time zone.'
    raise InvalidArgument("start", start, advice)
