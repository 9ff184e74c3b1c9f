"""The marks that subtasks leave in an outside store: who has written there, and how far it has come.

A mark is moved with the documents of a checkpoint, in one transaction, so it says what the store has. The contract of a
store is ``api/state/external.py``; what a subtask does with the marks that it finds, ``protocol/takeover.py`` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from moorline.errors import ExternalStateBehind, ExternalStateTaken

FreshStart = Literal["error", "clear", "keep"]

#: Of a mark whose subtask has yet to apply the checkpoint that it was restored from.
NOT_YET = -1


@dataclass(frozen=True, slots=True)
class Mark:
    """One subtask of one attempt, in the store.

    >>> mark = Mark(attempt=2, first=0, end=64, token="t", reaching=7, reached=7)
    >>> mark.covers(63), mark.covers(64)
    (True, False)
    """

    attempt: int
    #: The key groups ``[first,end)`` that it writes.
    first: int
    end: int
    #: Made anew by each subtask, so that no other can be taken for it.
    token: str
    #: The store may have something of this checkpoint; of no later one.
    reaching: int
    #: The store has all of this checkpoint. :data:`NOT_YET`: nobody can tell.
    reached: int
    #: The states and how each is stored.
    types: tuple[tuple[str, str], ...] = ()

    def covers(self, key_group: int) -> bool:
        return self.first <= key_group < self.end

    def at(self, checkpoint: int) -> Mark:
        """The mark when everything of a checkpoint has been applied."""
        return replace(self, reaching=checkpoint, reached=checkpoint)


@dataclass(frozen=True, slots=True)
class Owner:
    """The subtask that a session belongs to."""

    job: str
    uid: str
    attempt: int
    first: int
    end: int
    token: str


def own_mark(marks: Sequence[Mark], owner: Owner, where: str, reached: int | None) -> Mark:
    """The mark of ``owner`` if it may write and read; else raises. ``reached``: where the session has left the mark.

    Of the marks the own one and the one of the highest attempt are enough.
    """
    highest = max((m.attempt for m in marks), default=0)
    own = next((m for m in marks if (m.attempt, m.first, m.token) == (owner.attempt, owner.first, owner.token)), None)
    if highest > owner.attempt or (marks and own is None):
        raise ExternalStateTaken(owner.uid, where, owner.attempt, highest)
    if own is None or (reached is not None and own.reached < reached):
        stands_at = 0 if own is None else own.reached
        raise ExternalStateBehind(owner.uid, where, max(reached or 0, 0), max(stands_at, 0))
    return own


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The changes that a subtask makes to the store before it reads anything."""

    #: To be set. It replaces the one with the same attempt and first key group.
    mark: Mark
    #: Marks that are of no use any more.
    drop: tuple[Mark, ...] = ()
    #: Remove the documents of these states in the subtask's key groups.
    clear: tuple[str, ...] = ()
