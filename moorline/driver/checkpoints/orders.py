"""The snapshots that an attempt was ordered to take: savepoints, and checkpoints before a rescale.

waiting     until it is the next checkpoint to start
under way   by the number of its checkpoint
ended       the outcome, which ``driver/supervision.py`` collects as an event for ``protocol/job``
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from moorline.protocol.supervision.requests import SnapshotFailed, SnapshotTaken

Outcome = SnapshotTaken | SnapshotFailed


@dataclass(frozen=True, slots=True)
class SnapshotOrder:
    """A snapshot that the running attempt is to take."""

    #: The number of the request; 0: none, it was due.
    request: int = 0
    #: Where the savepoint goes; empty: it is a checkpoint.
    savepoint: str = ""
    #: The sources read no further once the barrier has gone out.
    pause: bool = False
    #: Before that, time ends.
    drain: bool = False


class Orders:
    """The orders to one attempt."""

    def __init__(self) -> None:
        self._waiting: deque[SnapshotOrder] = deque()
        self._under_way: dict[int, SnapshotOrder] = {}
        #: Where each savepoint was to go, also after its end: late acknowledgements name files there.
        self._savepoints: dict[int, str] = {}
        self._outcomes: list[Outcome] = []

    def add(self, order: SnapshotOrder) -> None:
        """Have a snapshot taken as soon as can be."""
        self._waiting.append(order)

    def start(self, checkpoint: int) -> SnapshotOrder:
        """The next order, which becomes this checkpoint."""
        order = self._waiting.popleft()
        self._under_way[checkpoint] = order
        if order.savepoint:
            self._savepoints[checkpoint] = order.savepoint
        return order

    def savepoint_of(self, checkpoint: int) -> str:
        """The place of a savepoint; empty for a checkpoint."""
        return self._savepoints.get(checkpoint, "")

    def taken(self, checkpoint: int) -> None:
        """It is published."""
        if (order := self._under_way.pop(checkpoint, None)) is not None:
            self._outcomes.append(SnapshotTaken(order.request, checkpoint))

    def failed(self, checkpoint: int, why: str) -> None:
        """It was given up."""
        if (order := self._under_way.pop(checkpoint, None)) is not None:
            self._outcomes.append(SnapshotFailed(order.request, why))

    def pop_outcomes(self) -> list[Outcome]:
        """Snapshots that have ended since the last call."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes
