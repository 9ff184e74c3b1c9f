"""Connections that have proved nothing yet: who has to go when there are too many, and when their time is up.

Turning the newcomer away would let a crowd that says nothing keep everybody out. So the newcomer comes in, and the
oldest of the address with the most waiting connections goes: an honest client says who it is with its first packet and
is gone from here a moment later, so the oldest is the least likely to be one. A deadline is for the whole of the
waiting and not for a single read, or one byte now and then would extend it for ever.

Pure, and not safe for threads: those who use it (``driver/control/admission.py``, ``subtask/iteration/lines.py``,
``http/server.py``) close the connections and hold a lock where they need one.
"""

from __future__ import annotations

from collections import Counter
from typing import Generic, TypeVar

T = TypeVar("T")


class WaitingRoom(Generic[T]):
    """At most ``limit`` connections, each for at most ``seconds``.

    >>> room = WaitingRoom[str](limit=3, seconds=5.0)
    >>> [room.enter(name, "10.0.0.1", now=0.0) for name in ("a", "b")]
    [None, None]
    >>> room.enter("c", "10.0.0.2", now=1.0)
    >>> room.enter("d", "10.0.0.3", now=2.0)
    'a'
    >>> room.overdue(now=5.5)
    ['b']
    """

    def __init__(self, limit: int, seconds: float) -> None:
        self._limit, self._seconds = limit, seconds
        #: Oldest first.
        self._waiting: dict[T, tuple[str, float]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, connection: T) -> bool:
        return connection in self._waiting

    def enter(self, connection: T, address: str, now: float) -> T | None:
        """Let a connection in. Returns the one that has to be closed for it."""
        evicted = self._evict() if len(self._waiting) >= self._limit else None
        self._waiting[connection] = address, now + self._seconds
        return evicted

    def leave(self, connection: T) -> bool:
        """A connection has proved itself, or is closed. False if it was not waiting (any more)."""
        return self._waiting.pop(connection, None) is not None

    def overdue(self, now: float) -> list[T]:
        """Take out those whose time is up: they are to be closed."""
        late = [connection for connection, (_, deadline) in self._waiting.items() if now > deadline]
        for connection in late:
            del self._waiting[connection]
        return late

    def _evict(self) -> T:
        ((crowded, _),) = Counter(address for address, _ in self._waiting.values()).most_common(1)
        oldest = next(c for c, (address, _) in self._waiting.items() if address == crowded)
        del self._waiting[oldest]
        return oldest
