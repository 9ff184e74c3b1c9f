"""The lines that carry records back to the head of a loop, from worker to worker.

Spark's plan has no way back, so each subtask of a head listens, and each subtask that sends something back connects to
all of them; the driver tells it where (docs/decisions/0019). A line begins with the same handshake as a control line,
under a secret of its own that both ends make from the attempt's. After it every message bears a seal, and nothing that
does not is looked at: what is in a frame is unpickled later. A line belongs to one attempt and dies with it.

    message   u32 length, 16-byte seal, u8 kind, payload
    kind      0 a piece of a frame   1 the last piece of it   2 the end of the line: nothing follows

The receiver reads whatever comes, always: if it waited until the head had time, and the head for those who send to it,
nothing would move again. ``spark/entry.py`` makes them; each line has a thread at its receiving end.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from moorline.model.ids import Attempt, SubtaskId
from moorline.model.wire import handshake
from moorline.model.wire.handshake import FRAME_LIMIT, HANDSHAKE_SECONDS, LENGTH, MAC_SIZE, Hello, Line, Proof, Refused
from moorline.model.wire.waiting_room import WaitingRoom
from moorline.subtask.control.dialing import DIAL_SECONDS, dial, receive, receive_plain, send_plain

#: A large frame goes in pieces of this size.
PIECE_BYTES = 1 << 20
#: Connections that have shown nothing yet, each with a thread. For one more, one of them goes.
MAX_UNAUTHENTICATED = 32

_PIECE, _LAST, _END = b"\0", b"\1", b"\2"

Address = tuple[str, int]


class FeedbackLost(RuntimeError):
    """A line of a loop has broken: the worker at the other end is gone, and this attempt with it."""


class FeedbackReceiver:
    """Accepts the lines that lead back to one subtask, and hands every frame on as it comes."""

    def __init__(
        self,
        host: str,
        job: str,
        attempt: Attempt,
        secret: bytes,
        subtask: SubtaskId,
        senders: set[SubtaskId],
        received: Callable[[bytes], None],
        lost: Callable[[], None],
        handshake_seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        self._secret = handshake.feedback_secret(secret, subtask)
        self._guard = handshake.Guard(self._secret, job, attempt, senders)
        self._handshake_seconds = handshake_seconds
        self._received, self._lost = received, lost
        self._lock = threading.Lock()
        self._lines: dict[SubtaskId, socket.socket] = {}
        self._silent: WaitingRoom[socket.socket] = WaitingRoom(MAX_UNAUTHENTICATED, handshake_seconds)
        self._closed = False
        #: Strangers turned away so far.
        self.refused = 0
        self._listener = socket.create_server((host, 0), backlog=128)
        self.address: Address = self._listener.getsockname()[:2]
        threading.Thread(target=self._accept, name="moorline-feedback", daemon=True).start()

    def close(self) -> None:
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for line in self._lines.values():
                with suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closed:
            try:
                line, peer = self._listener.accept()
            except OSError:
                return
            with self._lock:
                evicted = self._silent.enter(line, peer[0], time.monotonic())
                if evicted is not None:
                    with suppress(OSError):  # its thread sees the end of it
                        evicted.shutdown(socket.SHUT_RDWR)
            threading.Thread(target=self._serve, args=(line,), name="moorline-feedback-line", daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        with line:
            try:
                opened = self._shake_hands(line)
            except (OSError, EOFError, Refused):
                with self._lock:
                    self._silent.leave(line)
                    self.refused += 1
                return
            try:
                self._read(line, opened)
            except (OSError, EOFError, Refused):
                # Something may have been on its way: it is not known, so it is lost.
                if not self._closed:
                    self._lost()

    def _shake_hands(self, line: socket.socket) -> Line:
        deadline = time.monotonic() + self._handshake_seconds
        hello = handshake.read(receive_plain(line, deadline), Hello)
        with self._lock:
            self._guard.check(hello)
            self._silent.leave(line)
        challenge = handshake.challenge(self._secret, hello)
        send_plain(line, challenge)
        handshake.accept(self._secret, hello, challenge, handshake.read(receive_plain(line, deadline), Proof))
        with self._lock:
            if hello.subtask in self._lines:
                raise Refused("this subtask has a line already")
            self._lines[hello.subtask] = line
        line.settimeout(None)
        return Line(self._secret, hello, challenge.nonce, is_driver=True)

    def _read(self, line: socket.socket, opened: Line) -> None:
        pieces: list[bytes] = []
        while True:
            head = receive(line, LENGTH.size + MAC_SIZE)
            (length,) = LENGTH.unpack_from(head)
            if length > FRAME_LIMIT:
                raise Refused(f"a message of {length} bytes is over the limit")
            payload = opened.open(head[LENGTH.size :], receive(line, length))
            if payload[:1] == _END:
                return
            pieces.append(payload[1:])
            if payload[:1] == _LAST:
                self._received(b"".join(pieces))
                pieces = []


class FeedbackSender:
    """The lines from one subtask to the subtasks of its loop's head. What is sent before it knows them waits."""

    def __init__(
        self, job: str, attempt: Attempt, secret: bytes, subtask: SubtaskId, dial_seconds: float = DIAL_SECONDS
    ) -> None:
        self._job, self._attempt, self._secret, self._subtask = job, attempt, secret, subtask
        self._dial_seconds = dial_seconds
        self._addresses: dict[SubtaskId, Address] = {}
        self._waiting: list[tuple[SubtaskId, bytes]] = []
        self._lines: dict[SubtaskId, tuple[socket.socket, Line]] = {}

    def connect(self, addresses: dict[SubtaskId, Address]) -> None:
        """Note the addresses at which the subtasks of the head listen."""
        self._addresses = addresses
        waiting, self._waiting = self._waiting, []
        for receiver, frame in waiting:
            self.send(receiver, frame)

    def send(self, receiver: SubtaskId, frame: bytes) -> None:
        """Send a frame back. Raises :class:`FeedbackLost`."""
        if receiver not in self._addresses:
            self._waiting.append((receiver, frame))
            return
        try:
            line, sealing = self._lines.get(receiver) or self._open(receiver)
            for at in range(0, len(frame), PIECE_BYTES):
                kind = _LAST if at + PIECE_BYTES >= len(frame) else _PIECE
                line.sendall(sealing.seal(kind + frame[at : at + PIECE_BYTES]))
        except (OSError, EOFError, Refused) as error:
            raise FeedbackLost(f"the line back to subtask {receiver} of the loop's head is broken: {error}") from error

    def close(self) -> None:
        """Nothing follows."""
        for line, sealing in self._lines.values():
            with suppress(OSError):
                line.sendall(sealing.seal(_END))
            line.close()
        self._lines.clear()

    def _open(self, receiver: SubtaskId) -> tuple[socket.socket, Line]:
        secret = handshake.feedback_secret(self._secret, receiver)
        address, who = self._addresses[receiver], (self._job, self._attempt, self._subtask)
        line, sealing = dial(address, secret, *who, seconds=self._dial_seconds)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._lines[receiver] = line, sealing
        return self._lines[receiver]
