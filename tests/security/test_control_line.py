"""The control line after the handshake: frames that were tampered with, lines that are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest
from control_line_worlds import OTHER, REAL, World, checked, flipped, hello_of, is_closed, plain, receive, receive_plain
from waiting import eventually

from moorline.model.ids import SubtaskId
from moorline.model.wire import handshake, messages
from moorline.model.wire.handshake import LENGTH, MAC_SIZE, Challenge, Line
from moorline.model.wire.messages import Acknowledged, Confirm, Progress, Report, Trigger


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    yield from checked(World(), caplog)


class Sealed:
    """A subtask's end of a line, by hand."""

    def __init__(self, world: World, subtask: SubtaskId) -> None:
        self.socket, hello = world.stranger(), hello_of(subtask)
        self.socket.sendall(plain(msgspec.msgpack.encode(hello)))
        challenge = handshake.read(receive_plain(self.socket), Challenge)
        self.socket.sendall(plain(msgspec.msgpack.encode(handshake.answer(world.secret, hello, challenge))))
        self.line = Line(world.secret, hello, challenge.nonce, is_driver=False)

    def frame(self, report: Report) -> bytes:
        return self.line.seal(messages.encode(report))


def unsealed(payload: bytes) -> bytes:
    return LENGTH.pack(len(payload)) + bytes(MAC_SIZE) + payload


FIRST, SECOND = Progress(records_in=1, records_out=0), Progress(records_in=2, records_out=0)
TAMPERED: dict[str, Callable[[Sealed], bytes]] = {
    "a flipped byte of the message": lambda s: flipped(s.frame(FIRST), -1),
    "a flipped byte of the seal": lambda s: flipped(s.frame(FIRST), LENGTH.size + 3),
    "a frame twice": lambda s: s.frame(FIRST) * 2,
    "frames out of order": lambda s: b"".join(reversed([s.frame(FIRST), s.frame(SECOND)])),
    "no seal": lambda s: unsealed(messages.encode(FIRST)),
    "an order instead of a report": lambda s: s.line.seal(messages.encode(Trigger(checkpoint=1, triggered_ms=0))),
    "sealed garbage": lambda s: s.line.seal(b"\xc1"),
    "sealed depth": lambda s: s.line.seal(b"\x91" * 100_000),
    "sealed bad text": lambda s: s.line.seal(b"\x81\xa4type\xa2\xff\xfe"),
    "4 GiB": lambda s: LENGTH.pack(0xFFFFFFFF) + bytes(MAC_SIZE),
}


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=TAMPERED.keys())
def test_a_line_that_was_tampered_with_is_dropped_and_the_driver_is_told(world: World, tamper):
    subtask = SubtaskId(1, 0)
    sealed = Sealed(world, subtask)
    sealed.socket.sendall(sealed.frame(Acknowledged(checkpoint=1, operators=[])))
    eventually(lambda: (subtask, Acknowledged(checkpoint=1, operators=[])) in world.reports, "it works so far")
    sealed.socket.sendall(tamper(sealed))
    assert is_closed(sealed.socket)
    eventually(lambda: world.lost == [subtask], "the driver is told")
    eventually(lambda: world.server.refused == 1, "it is counted")
    assert len([r for s, r in world.reports if s == subtask]) <= 2, "nothing forged was believed"
    world.lost.clear()


def test_a_frame_cannot_be_reflected(world: World):
    subtask = SubtaskId(1, 0)
    sealed = Sealed(world, subtask)
    eventually(lambda: subtask in world.server._lines, "the line is there")
    world.server.send(subtask, Confirm(checkpoint=9))
    head = receive(sealed.socket, LENGTH.size + MAC_SIZE)
    sealed.socket.sendall(head + receive(sealed.socket, LENGTH.unpack_from(head)[0]))
    assert is_closed(sealed.socket)
    eventually(lambda: world.lost == [subtask], "the driver is told")
    world.lost.clear()


def test_a_subtask_that_goes_is_lost_and_may_come_back(world: World):
    line = world.connect(OTHER)
    eventually(lambda: OTHER in world.server._lines, "it is there")
    line.close()
    eventually(lambda: world.lost == [OTHER], "the driver is told")
    world.lost.clear()
    world.connect(OTHER).report(Progress(records_in=9, records_out=0))
    eventually(lambda: (OTHER, Progress(records_in=9, records_out=0)) in world.reports, "it is back")


def test_an_order_to_somebody_who_is_not_there_is_lost_like_on_any_line(world: World):
    world.server.send(SubtaskId(1, 0), Confirm(checkpoint=1))
    world.server.send(SubtaskId(9, 9), Confirm(checkpoint=1))


def test_what_is_waiting_is_sent_before_the_server_closes():
    world = World()
    world.check_the_real_line()
    for checkpoint in range(100, 150):
        world.server.send(REAL, Confirm(checkpoint=checkpoint))
    world.server.close()
    eventually(lambda: Confirm(checkpoint=149) in world.orders, "the last order")
    world.close()
