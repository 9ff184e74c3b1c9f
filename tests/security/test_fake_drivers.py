"""The subtask at its end of the control line: a driver that is none learns nothing."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest
from control_line_worlds import ATTEMPT, JOB, OTHER, REAL, World, checked, flipped, plain, receive_plain
from waiting import PATIENCE

from moorline.model.wire import handshake, messages
from moorline.model.wire.handshake import LENGTH, Challenge, Hello, Line, Refused
from moorline.model.wire.messages import Confirm, Progress
from moorline.subtask.control.line import ControlLine


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    yield from checked(World(), caplog)


class FakeDriver:
    """Somebody who listens where the driver should, and says what it is told to."""

    def __init__(self, answer: Callable[[Hello], bytes]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.received = b""
        self._answer = answer
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        accepted, _ = self.listener.accept()
        accepted.settimeout(PATIENCE)
        with accepted:
            hello = handshake.read(receive_plain(accepted), Hello)
            accepted.sendall(self._answer(hello))
            while data := accepted.recv(4096):
                self.received += data

    def close(self) -> None:
        self.listener.close()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


def guessed(hello: Hello) -> bytes:
    return plain(msgspec.msgpack.encode(Challenge(secrets.token_bytes(16), secrets.token_bytes(32))))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (guessed, Refused),
        (lambda hello: plain(b"\xc1"), Refused),
        (lambda hello: plain(b"\x91" * 4_000), Refused),
        (lambda hello: LENGTH.pack(0xFFFFFFFF), Refused),
        (lambda hello: plain(msgspec.msgpack.encode(hello)), Refused),
    ],
    ids=["guess", "garbage", "depth", "4 GiB", "echo"],
)
def test_a_subtask_tells_a_fake_driver_nothing(answer, error):
    secret, driver = handshake.new_secret(), FakeDriver(answer)
    with pytest.raises(error):
        ControlLine(driver.listener.getsockname(), secret, JOB, ATTEMPT, REAL, lambda order: None, lambda: None)
    driver.close()
    assert driver.received == b"", "no proof, no report"


def test_a_subtask_that_meets_nobody_fails_and_does_not_hang():
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    listener.close()
    with pytest.raises(OSError):
        ControlLine(address, b"x" * 32, JOB, ATTEMPT, REAL, lambda order: None, lambda: None)


@pytest.mark.parametrize("tamper", ["flip", "cut", "close"])
def test_a_subtask_whose_line_is_tampered_with_notices(tamper: str):
    secret, connected = handshake.new_secret(), threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    lost, orders = threading.Event(), []

    def serve() -> None:
        accepted, _ = listener.accept()
        with accepted:
            hello = handshake.read(receive_plain(accepted), Hello)
            challenge = handshake.challenge(secret, hello)
            accepted.sendall(plain(msgspec.msgpack.encode(challenge)))
            receive_plain(accepted)
            line = Line(secret, hello, challenge.nonce, is_driver=True)
            accepted.sendall(line.seal(messages.encode(Confirm(checkpoint=1))))
            bad = line.seal(messages.encode(Confirm(checkpoint=2)))
            if tamper == "flip":
                accepted.sendall(flipped(bad, -1))
            elif tamper == "cut":
                accepted.sendall(bad[:-1])
            if tamper == "flip":
                connected.wait(PATIENCE)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    line = ControlLine(listener.getsockname(), secret, JOB, ATTEMPT, REAL, orders.append, lost.set)
    assert lost.wait(PATIENCE)
    assert orders == [Confirm(checkpoint=1)]
    connected.set()
    line.report(Progress(records_in=1, records_out=0))  # into the void, without a complaint
    line.close()
    listener.close()
    thread.join(PATIENCE)


def test_a_line_that_is_closed_in_order_is_not_lost():
    world = World()
    lost = threading.Event()
    line = world.connect(OTHER, lost=lost.set)
    line.close()
    assert not lost.wait(0.05)
    world.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("moorline-control")]
