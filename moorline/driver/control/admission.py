"""The admission of connections as control lines: the handshake, and how long and how many may be in the middle of it.

Connections that do not get through the handshake in time, or send too much before it, are cut off, and nothing else
happens. A crowd that says nothing keeps no subtask out: its oldest go (``model/wire/waiting_room.py``), and one that
shows the secret in its first message is not among them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container

import msgspec

from moorline.driver.control.connection import ControlConnection
from moorline.model.ids import SubtaskId
from moorline.model.wire import handshake
from moorline.model.wire.handshake import LENGTH, Hello, Line, Proof, Refused
from moorline.model.wire.waiting_room import WaitingRoom

log = logging.getLogger("moorline")

#: Connections that have shown nothing yet. For one more, one of them goes.
MAX_UNAUTHENTICATED = 128
#: Strangers may come by the thousand: the log gets a line about the first one of so many seconds.
_LOG_SECONDS = 1.0


class Admission:
    """The handshakes of one attempt. ``drop`` closes a connection, for a reason."""

    def __init__(
        self,
        secret: bytes,
        job: str,
        attempt: int,
        subtasks: set[SubtaskId],
        seconds: float,
        drop: Callable[[ControlConnection, str], None],
    ) -> None:
        self._secret, self._guard, self._drop = secret, handshake.Guard(secret, job, attempt, subtasks), drop
        #: Those that have not said whose they are, and those that have and must still prove that it is not a record.
        self._silent: WaitingRoom[ControlConnection] = WaitingRoom(MAX_UNAUTHENTICATED, seconds)
        self._challenged: WaitingRoom[ControlConnection] = WaitingRoom(2 * len(subtasks) + 1, seconds)

    def enter(self, connection: ControlConnection, host: str) -> None:
        """Give a new connection its time for the handshake."""
        evicted = self._silent.enter(connection, host, time.monotonic())
        if evicted is not None:
            self._drop(evicted, "too many connections say nothing")

    def challenge(self, connection: ControlConnection, payload: bytes) -> bytes:
        """Check a hello. Returns the frame with the challenge to it. Raises :class:`Refused`."""
        hello = handshake.read(payload, Hello)
        self._guard.check(hello)
        self._silent.leave(connection)
        evicted = self._challenged.enter(connection, connection.peer, time.monotonic())
        if evicted is not None:
            self._drop(evicted, "too many connections owe a proof")
        connection.hello, connection.challenge = hello, handshake.challenge(self._secret, hello)
        encoded = msgspec.msgpack.encode(connection.challenge)
        return LENGTH.pack(len(encoded)) + encoded

    def admit(self, connection: ControlConnection, payload: bytes, connected: Container[SubtaskId]) -> SubtaskId:
        """Check a proof, and make the connection the line of its subtask. Raises :class:`Refused`."""
        assert connection.hello is not None and connection.challenge is not None
        proof = handshake.read(payload, Proof)
        handshake.accept(self._secret, connection.hello, connection.challenge, proof)
        if connection.hello.subtask in connected:
            raise Refused("this subtask has a line already")
        self._challenged.leave(connection)
        connection.line = Line(self._secret, connection.hello, connection.challenge.nonce, is_driver=True)
        return connection.hello.subtask

    def leave(self, connection: ControlConnection) -> None:
        """Forget a connection that is closed."""
        self._silent.leave(connection)
        self._challenged.leave(connection)

    def drop_overdue(self) -> None:
        """Turn those away whose time is up."""
        now = time.monotonic()
        for connection in self._silent.overdue(now) + self._challenged.overdue(now):
            self._drop(connection, "no handshake in time")


class Refusals:
    """The connections that were turned away: their number, and a line in the log now and then."""

    def __init__(self) -> None:
        self.count = 0
        self._unlogged, self._logged_at = 0, float("-inf")

    def add(self, peer: str, why: str) -> None:
        """Count one more."""
        self.count += 1
        now = time.monotonic()
        if now < self._logged_at + _LOG_SECONDS:
            self._unlogged += 1
            return
        more = f" ({self._unlogged:,} more since the last such line)" if self._unlogged else ""
        self._logged_at, self._unlogged = now, 0
        log.warning("control line from %s refused: %s%s", peer, why, more)
