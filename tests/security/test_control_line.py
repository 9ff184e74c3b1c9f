"""The control port against whoever may reach it: strangers get nothing, and real lines go on all the while."""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest
from waiting import eventually

from moorline.driver.control.admission import MAX_UNAUTHENTICATED
from moorline.driver.control.server import ControlServer
from moorline.model.ids import Attempt, SubtaskId
from moorline.model.wire import handshake, messages
from moorline.model.wire.handshake import LENGTH, MAC_SIZE, Challenge, Hello, Line, Refused
from moorline.model.wire.messages import Acknowledged, Confirm, Order, Progress, Report, Trigger
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
        made = socket.create_connection(self.server.address, timeout=20)
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


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    yield from _world(World(), caplog)


@pytest.fixture
def hasty_world(caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    """One where strangers have hardly any time."""
    yield from _world(World(handshake_seconds=0.3), caplog)


def _world(made: World, caplog: pytest.LogCaptureFixture) -> Iterator[World]:
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


# --- before the handshake -----------------------------------------------------------------------


def test_a_wrong_secret_is_refused_however_often_it_is_tried(world: World, caplog):
    with pytest.raises(ConnectionAbortedError, match="has not let subtask"):
        world.connect(OTHER, secret=handshake.new_secret(), dial_seconds=0.3)
    eventually(lambda: world.server.refused >= 2, "it has tried again")
    assert "does not hold this attempt's secret" in caplog.text


def test_one_who_cannot_prove_the_secret_gets_no_line(world: World, caplog):
    made, hello = world.stranger(), hello_of()
    made.sendall(plain(msgspec.msgpack.encode(hello)))
    challenge = handshake.read(receive_plain(made), Challenge)
    guess = handshake.Proof(secrets.token_bytes(32))
    made.sendall(plain(msgspec.msgpack.encode(guess)))
    assert is_closed(made)
    eventually(lambda: world.server.refused == 1, "it is counted")
    assert "does not hold this attempt's secret" in caplog.text
    assert challenge.proof.hex() not in caplog.text
    # The place is still free for the real one.
    world.connect(OTHER).report(Progress(records_in=0, records_out=0))
    eventually(lambda: world.reports and world.reports[-1][0] == OTHER, "the real one is in")


@pytest.mark.parametrize(
    "hello",
    [
        hello_of(job="another-job"),
        hello_of(attempt=ATTEMPT - 1),
        hello_of(attempt=ATTEMPT + 1),
        hello_of(SubtaskId(0, 2)),
        hello_of(SubtaskId(-1, 10**15)),
        hello_of(secret=bytes(32)),
        msgspec.structs.replace(hello_of(), mac=b""),
    ],
    ids=["job", "older attempt", "newer attempt", "subtask", "numbers", "secret", "nothing"],
)
def test_whoever_does_not_belong_here_is_refused_before_a_challenge(world: World, hello: Hello):
    made = world.stranger()
    made.sendall(plain(msgspec.msgpack.encode(hello)))
    assert is_closed(made)
    eventually(lambda: world.server.refused == 1, "it is counted")


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "random": bytes(range(256)) * 64,
    "4 GiB": LENGTH.pack(0xFFFFFFFF),
    "just over the limit": LENGTH.pack(handshake.HANDSHAKE_LIMIT + 1),
    "empty": plain(b""),
    "no msgpack": plain(b"\xc1" * 20),
    "invalid UTF-8": plain(b"\x85\xa3job\xa2\xff\xfe" + b"\xa7attempt\x01"),
    "UTF-8 in the job": plain(
        msgspec.msgpack.encode(hello_of(job="xx")).replace(b"\xa2xx", b"\xa2\xff\xfe"),
    ),
    "deeply nested": plain(b"\x91" * 4_000),
    "a list": plain(msgspec.msgpack.encode([1, 2, 3])),
    "wrong types": plain(msgspec.msgpack.encode({"job": 1, "attempt": "x", "vertex": [], "index": {}, "nonce": None})),
    "an extension type": plain(msgspec.msgpack.encode(msgspec.msgpack.Ext(1, b"pickle"))),
    "a pickle": plain(b"cos\nsystem\n(S'true'\ntR."),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_cut_off_at_once(world: World, garbage: bytes):
    made = world.stranger()
    made.sendall(garbage)
    assert is_closed(made)
    eventually(lambda: world.server.refused == 1, "it is counted")


def test_garbage_instead_of_a_proof_is_cut_off(world: World):
    for garbage in (b"\xc1", b"\x91" * 4_000, msgspec.msgpack.encode({"proof": "text"}), b""):
        made = world.stranger()
        made.sendall(plain(msgspec.msgpack.encode(hello_of())))
        receive_plain(made)
        made.sendall(plain(garbage))
        assert is_closed(made)
    eventually(lambda: world.server.refused == 4, "they are counted")


def test_one_who_says_nothing_or_half_a_hello_or_drips_is_turned_away_in_time(hasty_world: World):
    world = hasty_world
    silent, half, dripping = (world.stranger() for _ in range(3))
    encoded = plain(msgspec.msgpack.encode(hello_of()))
    half.sendall(encoded[:10])
    stop = threading.Event()

    def drip() -> None:
        for byte in encoded:
            try:
                dripping.sendall(bytes((byte,)))
            except OSError:
                return
            if stop.wait(0.1):
                return

    thread = threading.Thread(target=drip)
    thread.start()
    assert all(is_closed(made) for made in (silent, half, dripping))
    stop.set()
    thread.join()
    eventually(lambda: world.server.refused == 3, "they are counted")


def test_one_who_waits_after_the_challenge_is_turned_away_too(hasty_world: World):
    world = hasty_world
    made = world.stranger()
    made.sendall(plain(msgspec.msgpack.encode(hello_of())))
    receive_plain(made)
    assert is_closed(made)


def test_a_replayed_handshake_proves_nothing(world: World):
    """Somebody has listened to a real subtask's hello and proof, and says both again."""
    heard: list[bytes] = []
    made, hello = world.stranger(), hello_of(SubtaskId(1, 0))
    heard.append(plain(msgspec.msgpack.encode(hello)))
    made.sendall(heard[0])
    challenge = handshake.read(receive_plain(made), Challenge)
    heard.append(plain(msgspec.msgpack.encode(handshake.answer(world.secret, hello, challenge))))
    made.sendall(heard[1])
    sealed = Line(world.secret, hello, challenge.nonce, is_driver=False).seal(
        messages.encode(Progress(records_in=77, records_out=0))
    )
    made.sendall(sealed)
    eventually(lambda: (SubtaskId(1, 0), Progress(records_in=77, records_out=0)) in world.reports, "the real one")
    made.close()
    eventually(lambda: world.lost == [SubtaskId(1, 0)], "the real one has gone")
    world.lost.clear()

    replay = world.stranger()
    replay.sendall(b"".join([*heard, sealed]))
    assert is_closed(replay), "not even a challenge: a hello is taken once"
    assert world.lost == []
    assert len([r for _, r in world.reports if r.records_in == 77]) == 1


def test_a_crowd_of_strangers_is_bounded_and_disturbs_nobody(hasty_world: World, caplog):
    world = hasty_world
    crowd = [world.stranger() for _ in range(300)]
    world.check_the_real_line()
    eventually(lambda: world.server.refused >= 300 - MAX_UNAUTHENTICATED, "those beyond the limit")
    assert sum(c.line is None for c in list(world.server._connections)) <= MAX_UNAUTHENTICATED
    assert all(is_closed(made) for made in crowd)
    eventually(lambda: world.server.refused == 300, "all of them")
    assert len([r for r in caplog.records if "refused" in r.message]) < 100, "the log is not flooded"
    # And the door is open again.
    world.connect(OTHER).report(Progress(records_in=5, records_out=0))
    eventually(lambda: (OTHER, Progress(records_in=5, records_out=0)) in world.reports, "a real one gets in")


def test_rightful_subtasks_get_in_while_a_crowd_that_says_nothing_comes_again_and_again():
    """More idle connections than there is room for, each opened anew as soon as it is closed; nobody has to try twice
    except by bad luck, and none has to give up."""
    wanted = {SubtaskId(0, index) for index in range(30)}
    secret, reports = handshake.new_secret(), []
    server = ControlServer(
        "127.0.0.1", JOB, ATTEMPT, secret, wanted, lambda subtask, report: reports.append(subtask), lambda subtask: None
    )
    stop = threading.Event()

    def crowd() -> None:
        mine: list[socket.socket] = []
        while not stop.is_set():
            with contextlib.suppress(OSError):
                mine.append(socket.create_connection(server.address, timeout=20))
            if len(mine) > MAX_UNAUTHENTICATED:
                mine.pop(0).close()
        for made in mine:
            made.close()

    threads = [threading.Thread(target=crowd, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    eventually(lambda: server.refused > MAX_UNAUTHENTICATED, "the crowd is there")
    lines = []
    for subtask in wanted:
        lines.append(ControlLine(server.address, secret, JOB, ATTEMPT, subtask, lambda order: None, lambda: None))
        lines[-1].report(Progress(records_in=1, records_out=0))
    eventually(lambda: set(reports) == wanted, "all of them report")
    stop.set()
    for thread in threads:
        thread.join(30)
    for line in lines:
        line.close()
    server.close()


def test_one_subtask_has_one_line(world: World, caplog):
    second = hello_of(REAL)
    made = world.stranger()
    made.sendall(plain(msgspec.msgpack.encode(second)))
    challenge = handshake.read(receive_plain(made), Challenge)
    made.sendall(plain(msgspec.msgpack.encode(handshake.answer(world.secret, second, challenge))))
    assert is_closed(made)
    eventually(lambda: world.server.refused == 1, "it is counted")
    assert "has a line already" in caplog.text


# --- after the handshake ------------------------------------------------------------------------


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


def flipped(frame: bytes, at: int) -> bytes:
    changed = bytearray(frame)
    changed[at] ^= 1
    return bytes(changed)


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


# --- the subtask's side -------------------------------------------------------------------------


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
        accepted.settimeout(20)
        with accepted:
            hello = handshake.read(receive_plain(accepted), Hello)
            accepted.sendall(self._answer(hello))
            while data := accepted.recv(4096):
                self.received += data

    def close(self) -> None:
        self.listener.close()
        self.thread.join(20)
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
                connected.wait(20)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    line = ControlLine(listener.getsockname(), secret, JOB, ATTEMPT, REAL, orders.append, lost.set)
    assert lost.wait(20)
    assert orders == [Confirm(checkpoint=1)]
    connected.set()
    line.report(Progress(records_in=1, records_out=0))  # into the void, without a complaint
    line.close()
    listener.close()
    thread.join(20)


def test_a_line_that_is_closed_in_order_is_not_lost():
    world = World()
    lost = threading.Event()
    line = world.connect(OTHER, lost=lost.set)
    line.close()
    assert not lost.wait(0.05)
    world.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("moorline-control")]
