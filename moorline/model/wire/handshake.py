"""The handshake of a control line: both ends prove that they belong together.

Both hold the attempt's secret, which Spark delivers with the task. Neither ever sends it.

    subtask  ->  hello     job, attempt, vertex, index, nonce a, HMAC(secret, "hello" | the rest of it)
    driver   ->  challenge nonce b, HMAC(secret, "driver" | hello | nonce b)
    subtask  ->  proof     HMAC(secret, "subtask" | hello | nonce b)

The MAC of the hello keeps strangers from taking up room (``model/wire/waiting_room.py``): who has no secret does not
get as far as the challenge, and a hello that was overheard is good for nothing, because each is taken once. It proves
nothing else: only the answer to a challenge shows that the other end holds the secret now.

Then every message is a frame: u32 length, 16-byte MAC, payload, where the MAC covers the direction, a
sequence number and the payload under a key made from the secret and both nonces: a frame cannot be forged,
replayed, reordered or reflected. Pure: ``driver/control/server.py`` and ``subtask/control/line.py`` move the bytes. The
lines of a loop (``subtask/iteration/lines.py``) begin in the same way; there the receiver stands in the driver's place.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from collections.abc import Set
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from moorline.model.ids import Attempt, SubtaskId

LENGTH = struct.Struct(">I")
MAC_SIZE = 16
#: The most that a peer can make us hold before the handshake, and after it.
HANDSHAKE_LIMIT = 4096
FRAME_LIMIT = 16 << 20
HANDSHAKE_SECONDS = 5.0


T = TypeVar("T")


class Refused(Exception):
    """The other end does not hold the secret, or does not follow the protocol."""


class Hello(msgspec.Struct, frozen=True):
    job: str
    attempt: int
    vertex: int
    index: int
    nonce: bytes
    mac: bytes = b""

    @property
    def subtask(self) -> SubtaskId:
        return SubtaskId(self.vertex, self.index)


class Challenge(msgspec.Struct, frozen=True):
    nonce: bytes
    proof: bytes


class Proof(msgspec.Struct, frozen=True):
    proof: bytes


def read(data: bytes, kind: type[T]) -> T:
    """A message of the handshake, from an end that has proved nothing yet. Raises :class:`Refused`."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"not a {kind.__name__}: {error}") from None


def new_secret() -> bytes:
    return secrets.token_bytes(32)


def feedback_secret(secret: bytes, receiver: SubtaskId) -> bytes:
    """The secret of the lines that lead back to a subtask of a loop: what is sealed for one is of no use elsewhere."""
    return hmac.digest(secret, b"feedback" + msgspec.msgpack.encode((receiver.vertex, receiver.index)), "sha256")


def hello(secret: bytes, job: str, attempt: Attempt, subtask: SubtaskId) -> Hello:
    nonce = secrets.token_bytes(16)
    mac = _mac_of(secret, Hello(job, attempt, subtask.vertex, subtask.index, nonce))
    return Hello(job, attempt, subtask.vertex, subtask.index, nonce, mac)


def _mac_of(secret: bytes, hello: Hello) -> bytes:
    return hmac.digest(secret, b"hello" + msgspec.msgpack.encode(msgspec.structs.replace(hello, mac=b"")), "sha256")


class Guard:
    """The filter of hellos that get a challenge: of this attempt, by a holder of the secret, not heard before."""

    def __init__(self, secret: bytes, job: str, attempt: int, callers: Set[SubtaskId]) -> None:
        self._secret, self._job, self._attempt, self._callers = secret, job, attempt, callers
        #: Only holders of the secret add to it.
        self._heard: set[bytes] = set()

    def check(self, hello: Hello) -> None:
        """Raises :class:`Refused`."""
        if (hello.job, hello.attempt) != (self._job, self._attempt) or hello.subtask not in self._callers:
            raise Refused("it does not belong to this attempt")
        if not hmac.compare_digest(hello.mac, _mac_of(self._secret, hello)):
            raise Refused("the subtask does not hold this attempt's secret")
        if hello.nonce in self._heard:
            raise Refused("its hello has been used before")
        self._heard.add(hello.nonce)


def challenge(secret: bytes, hello: Hello) -> Challenge:
    nonce = secrets.token_bytes(16)
    return Challenge(nonce, _prove(secret, b"driver", hello, nonce))


def answer(secret: bytes, hello: Hello, challenge: Challenge) -> Proof:
    """The subtask's proof, once the driver's holds. Raises :class:`Refused`."""
    if not hmac.compare_digest(challenge.proof, _prove(secret, b"driver", hello, challenge.nonce)):
        raise Refused("the driver does not hold this attempt's secret")
    return Proof(_prove(secret, b"subtask", hello, challenge.nonce))


def accept(secret: bytes, hello: Hello, challenge: Challenge, proof: Proof) -> None:
    """Raises :class:`Refused` unless the subtask's proof holds."""
    if not hmac.compare_digest(proof.proof, _prove(secret, b"subtask", hello, challenge.nonce)):
        raise Refused("the subtask does not hold this attempt's secret")


def _prove(secret: bytes, who: bytes, hello: Hello, nonce: bytes) -> bytes:
    return hmac.digest(secret, who + msgspec.msgpack.encode(hello) + nonce, "sha256")


@dataclass(slots=True)
class Line:
    """Sealing and opening of frames once the handshake is done. One for each end."""

    secret: bytes
    hello: Hello
    nonce: bytes
    is_driver: bool
    _key: bytes = field(init=False)
    _sent: int = 0
    _received: int = 0

    def __post_init__(self) -> None:
        self._key = hmac.digest(self.secret, b"line" + self.hello.nonce + self.nonce, "sha256")

    def seal(self, payload: bytes) -> bytes:
        if len(payload) > FRAME_LIMIT:
            raise Refused(f"a message of {len(payload)} bytes is over the limit of {FRAME_LIMIT}")
        mac = self._mac(self.is_driver, self._sent, payload)
        self._sent += 1
        return LENGTH.pack(len(payload)) + mac + payload

    def open(self, mac: bytes, payload: bytes) -> bytes:
        if not hmac.compare_digest(mac, self._mac(not self.is_driver, self._received, payload)):
            raise Refused("a message has a wrong seal")
        self._received += 1
        return payload

    def _mac(self, from_driver: bool, number: int, payload: bytes) -> bytes:
        head = (b"d" if from_driver else b"s") + number.to_bytes(8, "big")
        return hmac.digest(self._key, head + payload, "sha256")[:MAC_SIZE]
