"""The lines of a loop: whole frames in order, and strangers are turned away before anything of theirs is looked at."""

from __future__ import annotations

import pickle
import socket
import time

import msgspec
import pytest
from waiting import eventually

from moorline.model.ids import Attempt, SubtaskId
from moorline.model.wire import handshake
from moorline.model.wire.handshake import LENGTH
from moorline.subtask.control.dialing import DIAL_SECONDS
from moorline.subtask.iteration.lines import (
    MAX_UNAUTHENTICATED,
    PIECE_BYTES,
    FeedbackLost,
    FeedbackReceiver,
    FeedbackSender,
)

SECRET, HEAD, TAIL = b"s" * 32, SubtaskId(1, 0), SubtaskId(2, 1)


@pytest.fixture
def receiver():
    got, lost = [], []
    made = FeedbackReceiver("127.0.0.1", "job", Attempt(3), SECRET, HEAD, {TAIL}, got.append, lambda: lost.append(True))
    made.got, made.lost = got, lost
    yield made
    made.close()


def sender(receiver, *, job="job", attempt=3, secret=SECRET, subtask=TAIL, dial_seconds=DIAL_SECONDS):
    made = FeedbackSender(job, Attempt(attempt), secret, subtask, dial_seconds=dial_seconds)
    made.connect({HEAD: receiver.address})
    return made


def test_frames_arrive_whole_and_in_order_however_large(receiver):
    frames = [b"a", b"b" * (3 * PIECE_BYTES + 1), b"c" * PIECE_BYTES, b"d"]
    line = sender(receiver)
    for frame in frames:
        line.send(HEAD, frame)
    eventually(lambda: len(receiver.got) == len(frames), "what was sent arrives")
    assert receiver.got == frames


def test_what_is_sent_before_the_address_is_known_waits(receiver):
    line = FeedbackSender("job", Attempt(3), SECRET, TAIL)
    line.send(HEAD, b"early")
    line.connect({HEAD: receiver.address})
    line.send(HEAD, b"late")
    eventually(lambda: receiver.got == [b"early", b"late"], "what was sent arrives")


def test_a_line_that_breaks_is_lost(receiver):
    broken = sender(receiver)
    broken.send(HEAD, b"x")
    broken._lines[HEAD][0].close()
    eventually(lambda: receiver.lost, "the line is lost")


def test_a_line_that_says_farewell_is_not_lost(receiver):
    line = sender(receiver)
    line.send(HEAD, b"x")
    line.close()
    eventually(lambda: receiver.got, "what was sent arrives")
    time.sleep(0.05)
    assert not receiver.lost


@pytest.mark.parametrize(
    "who",
    [
        {"job": "another"},
        {"attempt": 2},
        {"secret": b"t" * 32},
        {"subtask": SubtaskId(2, 0)},
    ],
)
def test_who_does_not_belong_to_the_loop_gets_no_line(receiver, who):
    with pytest.raises(FeedbackLost):
        sender(receiver, **who, dial_seconds=0.5).send(HEAD, b"x")
    eventually(lambda: receiver.refused, "the line is refused")
    assert not receiver.got
    assert not receiver.lost


def test_nobody_gets_a_second_line(receiver):
    sender(receiver).send(HEAD, b"x")
    eventually(lambda: receiver.got, "what was sent arrives")
    again = sender(receiver)
    again.send(HEAD, b"y")  # its handshake is over before it is turned away
    eventually(lambda: receiver.refused, "the line is refused")
    assert receiver.got == [b"x"]


class Bomb:
    exploded = False

    def __reduce__(self):
        return setattr, (Bomb, "exploded", True)


def test_a_frame_without_a_seal_is_never_handed_on(receiver):
    """Somebody who can write into a line that is open, but does not hold the secret."""
    line = sender(receiver)
    line.send(HEAD, b"good")
    eventually(lambda: receiver.got, "what was sent arrives")
    payload = b"\1" + pickle.dumps(Bomb())
    line._lines[HEAD][0].sendall(LENGTH.pack(len(payload)) + b"\0" * 16 + payload)
    eventually(lambda: receiver.lost, "the line is lost")
    assert receiver.got == [b"good"]
    assert not Bomb.exploded


def test_what_is_sealed_for_a_control_line_is_of_no_use_here(receiver):
    """The driver's secret itself opens no line: each receiver has one that is made from it."""
    own = handshake.feedback_secret(SECRET, HEAD)
    for key, is_answered in ((SECRET, False), (own, True)):
        with socket.create_connection(receiver.address) as line:
            encoded = msgspec.msgpack.encode(handshake.hello(key, "job", Attempt(3), TAIL))
            line.sendall(LENGTH.pack(len(encoded)) + encoded)
            assert bool(line.recv(LENGTH.size)) is is_answered
    eventually(lambda: receiver.refused == 2, "the lines are refused")


def test_a_crowd_that_says_nothing_or_drips_keeps_no_sender_out(receiver):
    crowd = [socket.create_connection(receiver.address) for _ in range(3 * MAX_UNAUTHENTICATED)]
    try:
        for line in crowd[-MAX_UNAUTHENTICATED:]:
            line.sendall(b"\0")
        sender(receiver).send(HEAD, b"x")
        eventually(lambda: receiver.got == [b"x"], "the sender gets through")
    finally:
        for line in crowd:
            line.close()


def test_one_that_drips_is_turned_away_in_time():
    made = FeedbackReceiver(
        "127.0.0.1", "job", Attempt(3), SECRET, HEAD, {TAIL}, lambda frame: None, lambda: None, handshake_seconds=0.3
    )
    with socket.create_connection(made.address) as line, pytest.raises(OSError):
        line.sendall(LENGTH.pack(4000))
        while True:  # until it is closed at the other end
            line.sendall(b"x")
            time.sleep(0.05)
    made.close()


def test_strangers_that_say_nothing_or_too_much_are_turned_away(receiver):
    with socket.create_connection(receiver.address) as line:
        line.sendall(LENGTH.pack(1 << 30))
        assert line.recv(1) == b""
    eventually(lambda: receiver.refused == 1, "it is counted")
