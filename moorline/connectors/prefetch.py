"""Fetched batches that wait for their reader: a bounded buffer between a thread that may block and one that must not.

A reader's thread has checkpoints to take, so it never waits for a server. Another thread does, and puts what it gets
here. Positions move when the reader takes a batch, not when it is fetched: what is in the buffer at a crash is fetched
again.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

B = TypeVar("B")


class Prefetch(Generic[B]):
    """A queue of batches with a limit on the sum of their sizes, and at its end perhaps an error.

    >>> buffer = Prefetch[list[int]](limit=4)
    >>> buffer.put([1, 2, 3], size=3); buffer.has_room()
    True
    >>> buffer.put([4, 5], size=2); buffer.has_room()
    False
    >>> buffer.take(), buffer.take(), buffer.take()
    ([1, 2, 3], [4, 5], None)
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._batches: deque[tuple[B, int]] = deque()
        self._size = 0
        self._error: Exception | None = None
        self._changed = threading.Condition()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Has the reader gone?"""
        return self._is_closed

    def has_room(self) -> bool:
        """Is less in it than the limit? One batch more may go beyond it."""
        return self._size < self._limit

    def wait_for_room(self) -> bool:
        """Wait until there is room. False: the reader has gone."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self.has_room())
            return not self._is_closed

    def put(self, batch: B, size: int) -> None:
        """Add a batch, also beyond the limit: those who fetch wait for room before."""
        with self._changed:
            if not self._is_closed:
                self._batches.append((batch, size))
                self._size += size

    def fail(self, error: Exception) -> None:
        """Have the reader raise this when it has taken what is there."""
        with self._changed:
            self._error = error

    def take(self) -> B | None:
        """The next batch, without waiting; None if there is none just now."""
        with self._changed:
            if self._batches:
                batch, size = self._batches.popleft()
                self._size -= size
                self._changed.notify_all()
                return batch
            if self._error is not None:
                raise self._error
            return None

    def sleep(self, seconds: float) -> None:
        """Wait, but not longer than the reader is there or until it has something new to say."""
        with self._changed:
            if not self._is_closed:
                self._changed.wait(seconds)

    def wake(self) -> None:
        """End :meth:`sleep` now."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """The reader goes: whoever fetches stops."""
        with self._changed:
            self._is_closed = True
            self._batches.clear()
            self._changed.notify_all()
