"""Connecting to the driver, or to the head of a loop: the caller's half of the handshake (``model/wire/handshake.py``).

A line that is closed before it was answered is tried again: the other end may have had too many strangers at its door.
One that is refused, or answered without the secret, is not.
"""

from __future__ import annotations

import random
import socket
import time

import msgspec

from moorline.model.ids import Attempt, SubtaskId
from moorline.model.wire import handshake
from moorline.model.wire.handshake import HANDSHAKE_LIMIT, HANDSHAKE_SECONDS, LENGTH, Challenge, Line, Refused

#: So long a line that is not answered is tried again.
DIAL_SECONDS = 30.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 2.0


def dial(
    address: tuple[str, int],
    secret: bytes,
    job: str,
    attempt: Attempt,
    subtask: SubtaskId,
    *,
    seconds: float = DIAL_SECONDS,
) -> tuple[socket.socket, Line]:
    """An open line. Raises ``OSError`` if it is not answered in time, :class:`Refused` by an impostor."""
    deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE_SECONDS
    while True:
        try:
            return _try(address, secret, job, attempt, subtask)
        except ConnectionRefusedError:
            raise
        except (OSError, EOFError) as error:
            # With some chance in it, so that all subtasks of an attempt do not come back at once.
            wait = pause * random.uniform(0.5, 1.0)
            if time.monotonic() + wait > deadline:
                raise ConnectionAbortedError(
                    f"{address[0]}:{address[1]} has not let subtask {subtask} of attempt {attempt} in within "
                    f"{seconds:g} s, the last time because of {error!r}. Either the attempt is over, or somebody "
                    f"crowds that port."
                ) from error
            time.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _try(
    address: tuple[str, int], secret: bytes, job: str, attempt: Attempt, subtask: SubtaskId
) -> tuple[socket.socket, Line]:
    made = socket.create_connection(address, timeout=2 * HANDSHAKE_SECONDS)
    deadline = time.monotonic() + 2 * HANDSHAKE_SECONDS
    try:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        hello = handshake.hello(secret, job, attempt, subtask)
        send_plain(made, hello)
        challenge = handshake.read(receive_plain(made, deadline), Challenge)
        send_plain(made, handshake.answer(secret, hello, challenge))
        made.settimeout(None)
    except BaseException:
        made.close()
        raise
    return made, Line(secret, hello, challenge.nonce, is_driver=False)


def receive(line: socket.socket, size: int, deadline: float | None = None) -> bytes:
    """Exactly so many bytes. Raises ``EOFError`` if the line ends before, ``TimeoutError`` if the deadline passes."""
    received = bytearray()
    while len(received) < size:
        if deadline is not None:
            line.settimeout(max(deadline - time.monotonic(), 0.001))
        data = line.recv(size - len(received))
        if not data:
            raise EOFError("the line was closed")
        received += data
    return bytes(received)


def receive_plain(line: socket.socket, deadline: float) -> bytes:
    """A message of the handshake."""
    (length,) = LENGTH.unpack(receive(line, LENGTH.size, deadline))
    if length > HANDSHAKE_LIMIT:
        raise Refused("a message of the handshake is too long")
    return receive(line, length, deadline)


def send_plain(line: socket.socket, message: msgspec.Struct) -> None:
    """Send a message of the handshake."""
    encoded = msgspec.msgpack.encode(message)
    line.sendall(LENGTH.pack(len(encoded)) + encoded)
