"""Before the handshake: nobody gets a line, or holds others up, without the secret of the attempt."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Iterator

import msgspec
import pytest
from control_line_worlds import ATTEMPT, JOB, OTHER, REAL, World, checked, hello_of, is_closed, plain, receive_plain
from waiting import PATIENCE, eventually

from moorline.driver.control.admission import MAX_UNAUTHENTICATED
from moorline.driver.control.server import ControlServer
from moorline.model.ids import SubtaskId
from moorline.model.wire import handshake, messages
from moorline.model.wire.handshake import LENGTH, Challenge, Hello, Line
from moorline.model.wire.messages import Progress
from moorline.subtask.control.line import ControlLine


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    yield from checked(World(), caplog)


@pytest.fixture
def hasty_world(caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    """One where strangers have hardly any time; but a rightful subtask on a busy machine has enough."""
    yield from checked(World(handshake_seconds=2.0), caplog)


def test_a_wrong_secret_is_refused_however_often_it_is_tried(world: World, caplog):
    with pytest.raises(ConnectionAbortedError, match="has not let subtask"):
        world.connect(OTHER, secret=handshake.new_secret(), dial_seconds=2.0)
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
                mine.append(socket.create_connection(server.address, timeout=PATIENCE))
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
        thread.join(PATIENCE)
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
