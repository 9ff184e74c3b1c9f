"""Batches of changes between the thread that follows the log and the subtask that reads: bounded, in order."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from msgspec.structs import replace

from moorline.connectors.postgres.changes.position import Key, Position
from moorline.connectors.row_changes import Change

#: So many changes may wait.
CAPACITY = 20_000


@dataclass(frozen=True)
class Undecoded:
    """A change that could not be decoded."""

    table: str
    lsn: int
    cause: str


@dataclass(frozen=True)
class ChangeBatch:
    """Changes that belong together, and the positions between them."""

    #: After all of them.
    after: Position
    records: list[Change | Undecoded] = field(default_factory=list)
    #: For each of them, how many changes of the transaction were read with it; of the first load, its key.
    counts: list[int] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    #: Before all of them.
    before: Position | None = None
    #: Milliseconds since 1970.
    timestamp: int = 0

    def position(self, number: int) -> Position:
        """After so many of them, at least one."""
        if number == len(self.records):
            return self.after
        assert self.before is not None
        if self.keys:
            assert self.before.load is not None
            return replace(self.before, load=replace(self.before.load, after=self.keys[number - 1]))
        assert self.before.transaction is not None
        return replace(self.before, transaction=(self.before.transaction[0], self.counts[number - 1]))


class Batches:
    """A queue of batches. One thread puts, another one takes."""

    def __init__(self) -> None:
        self._batches: deque[ChangeBatch] = deque()
        self._size = 0
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._is_closed = False

    def __len__(self) -> int:
        """The number of changes that wait."""
        return self._size

    def put(self, batch: ChangeBatch, seconds: float) -> bool:
        """Append it; False if there was no room for so long."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_closed or self._size < CAPACITY, seconds):
                return False
            if not batch.records and self._batches and not self._batches[-1].records:
                # Only the place has changed, and nothing has come in between.
                self._batches.pop()
            self._batches.append(batch)
            self._size += len(batch.records)
            return True

    def take(self) -> ChangeBatch | None:
        """The next one; None if there is none just now. Raises what the other thread has failed of."""
        with self._changed:
            if self._batches:
                batch = self._batches.popleft()
                self._size -= len(batch.records)
                self._changed.notify_all()
                return batch
            if self._error is not None:
                raise self._error
            return None

    def fail(self, error: BaseException) -> None:
        """There will be no more, for this reason."""
        with self._changed:
            self._error = error

    def close(self) -> None:
        """End the hand-over: the reader takes no more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def pause(self, seconds: float) -> None:
        """Wait, or until it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed, seconds)
