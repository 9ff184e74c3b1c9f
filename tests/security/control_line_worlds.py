"""A driver with its control server, and lines to it by hand."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import pytest
from waiting import PATIENCE, eventually

from moorline.driver.control.server import ControlServer
from moorline.model.ids import Attempt, SubtaskId
from moorline.model.wire import handshake
from moorline.model.wire.handshake import LENGTH, Hello
from moorline.model.wire.messages import Confirm, Order, Progress, Report
from moorline.subtask.control.dialing import DIAL_SECONDS
from moorline.subtask.control.line import ControlLine

JOB, ATTEMPT = "secret-job", Attempt(3)
SUBTASKS = {SubtaskId(0, 0), SubtaskId(0, 1), SubtaskId(1, 0)}
REAL, OTHER = SubtaskId(0, 0), SubtaskId(0, 1)
SECRET = handshake.new_secret()


class World:
    """A server, a real subtask with a line to it, and as many strangers as a test likes."""

    def __init__(self, handshake_seconds: float = handshake.HANDSHAKE_SECONDS) -> None:
        self.secret = SECRET
        self.reports: list[tuple[SubtaskId, Report]] = []
        self.lost: list[SubtaskId] = []
        self.server = ControlServer(
            "127.0.0.1",
            JOB,
            ATTEMPT,
            self.secret,
            SUBTASKS,
            lambda subtask, report: self.reports.append((subtask, report)),
            self.lost.append,
            handshake_seconds=handshake_seconds,
        )
        self.lines: list[ControlLine] = []
        self.sockets: list[socket.socket] = []
        self.orders: list[Order] = []
        self.line = self.connect(REAL)
        self._sent = 0

    def connect(self, subtask: SubtaskId, secret: bytes | None = None, **other) -> ControlLine:
        line = ControlLine(
            self.server.address,
            secret or self.secret,
            other.get("job", JOB),
            other.get("attempt", ATTEMPT),
            subtask,
            other.get("ordered", self.orders.append),
            other.get("lost", lambda: None),
            other.get("dial_seconds", DIAL_SECONDS),
        )
        self.lines.append(line)
        return line

    def stranger(self) -> socket.socket:
        made = socket.create_connection(self.server.address, timeout=PATIENCE)
        self.sockets.append(made)
        return made

    def check_the_real_line(self) -> None:
        """A report gets through, and so does an order."""
        self._sent += 1
        self.line.report(Progress(records_in=self._sent, records_out=0))
        eventually(lambda: (REAL, Progress(records_in=self._sent, records_out=0)) in self.reports, "the report")
        self.server.send(REAL, Confirm(checkpoint=self._sent))
        eventually(lambda: Confirm(checkpoint=self._sent) in self.orders, "the order")
        assert self.lost == []

    def close(self) -> None:
        for made in self.sockets:
            made.close()
        for line in self.lines:
            line.close()
        self.server.close()


def checked(made: World, caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    caplog.set_level(logging.DEBUG)
    yield made
    made.check_the_real_line()
    made.close()
    # Whatever happened, the secret is in no log: not as bytes, not in hex.
    assert repr(made.secret) not in caplog.text
    assert made.secret.hex() not in caplog.text


def plain(payload: bytes) -> bytes:
    return LENGTH.pack(len(payload)) + payload


def receive_plain(made: socket.socket) -> bytes:
    return receive(made, LENGTH.unpack(receive(made, LENGTH.size))[0])


def receive(made: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        data = made.recv(size - len(found))
        assert data, "closed"
        found += data
    return found


def is_closed(made: socket.socket) -> bool:
    try:
        return made.recv(1) == b""
    except ConnectionError:
        return True


def hello_of(subtask: SubtaskId = OTHER, **other) -> Hello:
    secret, job, attempt = (other.get(*given) for given in (("secret", SECRET), ("job", JOB), ("attempt", ATTEMPT)))
    return handshake.hello(secret, job, attempt, subtask)


def flipped(frame: bytes, at: int) -> bytes:
    changed = bytearray(frame)
    changed[at] ^= 1
    return bytes(changed)
