"""The control line's seals: both ends prove themselves, and nobody can slip a frame in."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.model.ids import Attempt, SubtaskId
from moorline.model.wire import handshake
from moorline.model.wire.handshake import FRAME_LIMIT, LENGTH, MAC_SIZE, Challenge, Hello, Line, Proof, Refused

SECRET = b"s" * 32
HELLO = handshake.hello(SECRET, "job", Attempt(3), SubtaskId(1, 2))


def lines(secret: bytes = SECRET) -> tuple[Line, Line]:
    """The subtask's and the driver's end after a handshake."""
    challenge = handshake.challenge(secret, HELLO)
    handshake.accept(secret, HELLO, challenge, handshake.answer(secret, HELLO, challenge))
    return Line(secret, HELLO, challenge.nonce, False), Line(secret, HELLO, challenge.nonce, True)


def opened(line: Line, frame: bytes) -> bytes:
    head = LENGTH.size + MAC_SIZE
    return line.open(frame[LENGTH.size : head], frame[head:])


def test_a_hello_says_who_is_calling():
    assert (HELLO.job, HELLO.attempt, HELLO.subtask) == ("job", 3, SubtaskId(1, 2))
    assert HELLO.nonce != handshake.hello(SECRET, "job", Attempt(3), SubtaskId(1, 2)).nonce


def test_secrets_are_long_and_never_the_same():
    assert len(handshake.new_secret()) == 32
    assert handshake.new_secret() != handshake.new_secret()


def test_both_ends_understand_each_other_in_both_directions():
    subtask, driver = lines()
    for payload in (b"", b"one", b"two" * 1000):
        assert opened(driver, subtask.seal(payload)) == payload
        assert opened(subtask, driver.seal(payload)) == payload


def test_a_driver_without_the_secret_is_refused():
    with pytest.raises(Refused, match="driver"):
        handshake.answer(SECRET, HELLO, handshake.challenge(b"x" * 32, HELLO))


def test_a_subtask_without_the_secret_is_refused():
    challenge = handshake.challenge(SECRET, HELLO)
    stolen = Proof(handshake._prove(b"x" * 32, b"subtask", HELLO, challenge.nonce))
    with pytest.raises(Refused, match="subtask"):
        handshake.accept(SECRET, HELLO, challenge, stolen)


def test_the_drivers_own_proof_is_no_proof_of_a_subtask():
    challenge = handshake.challenge(SECRET, HELLO)
    with pytest.raises(Refused):
        handshake.accept(SECRET, HELLO, challenge, Proof(challenge.proof))


def test_a_proof_is_good_for_one_challenge_only():
    first, second = handshake.challenge(SECRET, HELLO), handshake.challenge(SECRET, HELLO)
    with pytest.raises(Refused):
        handshake.accept(SECRET, HELLO, second, handshake.answer(SECRET, HELLO, first))


def test_a_challenge_is_good_for_one_hello_only():
    other = handshake.hello(SECRET, "job", Attempt(3), SubtaskId(1, 2))
    with pytest.raises(Refused):
        handshake.answer(SECRET, other, handshake.challenge(SECRET, HELLO))


@pytest.mark.parametrize("change", [{"job": "other"}, {"attempt": 4}, {"vertex": 0}, {"index": 0}])
def test_a_proof_binds_the_name_it_was_made_for(change):
    challenge = handshake.challenge(SECRET, HELLO)
    proof = handshake.answer(SECRET, HELLO, challenge)
    with pytest.raises(Refused):
        handshake.accept(SECRET, msgspec.structs.replace(HELLO, **change), challenge, proof)


def test_a_challenge_with_another_nonce_is_refused():
    challenge = handshake.challenge(SECRET, HELLO)
    with pytest.raises(Refused):
        handshake.answer(SECRET, HELLO, Challenge(b"n" * 16, challenge.proof))


def test_a_replayed_frame_is_refused():
    subtask, driver = lines()
    frame = subtask.seal(b"again")
    opened(driver, frame)
    with pytest.raises(Refused, match="seal"):
        opened(driver, frame)


def test_a_reflected_frame_is_refused():
    subtask, _ = lines()
    with pytest.raises(Refused):
        opened(subtask, subtask.seal(b"mine"))


def test_reordered_frames_are_refused():
    subtask, driver = lines()
    subtask.seal(b"first")
    with pytest.raises(Refused):
        opened(driver, subtask.seal(b"second"))


def test_a_frame_of_another_line_is_refused():
    (subtask, _), (_, driver) = lines(), lines()
    with pytest.raises(Refused):
        opened(driver, subtask.seal(b"from next door"))


@given(st.binary(max_size=40), st.data())
def test_any_flipped_bit_is_refused(payload, data):
    subtask, driver = lines()
    frame = bytearray(subtask.seal(payload))
    bit = data.draw(st.integers(8 * LENGTH.size, 8 * len(frame) - 1))
    frame[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Refused):
        opened(driver, bytes(frame))


def test_a_refused_frame_does_not_spoil_the_line():
    subtask, driver = lines()
    frame = subtask.seal(b"good")
    with pytest.raises(Refused):
        driver.open(b"\0" * MAC_SIZE, b"bad")
    assert opened(driver, frame) == b"good"


def test_a_message_that_nobody_would_take_is_not_sealed():
    subtask, driver = lines()
    with pytest.raises(Refused, match="limit"):
        subtask.seal(bytes(FRAME_LIMIT + 1))
    assert opened(driver, subtask.seal(b"next")) == b"next"


def test_a_shortened_seal_is_refused():
    subtask, driver = lines()
    frame = subtask.seal(b"x")
    with pytest.raises(Refused):
        driver.open(frame[LENGTH.size : LENGTH.size + 4], b"x")


def test_the_secret_itself_is_never_sent():
    subtask, driver = lines()
    challenge = handshake.challenge(SECRET, HELLO)
    sent = [HELLO, challenge, handshake.answer(SECRET, HELLO, challenge)]
    wire = b"".join(map(msgspec.msgpack.encode, sent)) + subtask.seal(b"x") + driver.seal(b"y")
    assert SECRET not in wire


NAUGHTY_NAME = msgspec.msgpack.encode(HELLO).replace(b"\xa3job\xa3job", b"\xa3job\xa3\xff\xfe\xfd")


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\x91" * 4000, msgspec.msgpack.encode({"nonce": 3}), NAUGHTY_NAME, b"\x81\xa1x" + b"\x91" * 4000],
    ids=["nothing", "noise", "bomb", "half", "not text", "bomb in an unknown field"],
)
def test_what_a_stranger_sends_is_refused_whatever_it_is(data):
    with pytest.raises(Refused):
        handshake.read(data, Hello)


def test_a_hello_can_be_read():
    assert handshake.read(msgspec.msgpack.encode(HELLO), Hello) == HELLO


def test_a_hello_is_worth_a_challenge_once_and_only_from_a_holder_of_the_secret():
    guard = handshake.Guard(SECRET, "job", 3, {SubtaskId(1, 2)})
    guard.check(HELLO)
    with pytest.raises(Refused, match="used before"):
        guard.check(HELLO)
    changed = {"nonce": b"n" * 16, "mac": bytes(32), "index": 0, "job": "other", "attempt": 4}
    for name, value in changed.items():
        with pytest.raises(Refused):
            guard.check(
                msgspec.structs.replace(handshake.hello(SECRET, "job", Attempt(3), SubtaskId(1, 2)), **{name: value})
            )
    with pytest.raises(Refused, match="does not hold"):
        guard.check(handshake.hello(b"t" * 32, "job", Attempt(3), SubtaskId(1, 2)))
