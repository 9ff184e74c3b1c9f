"""The driver's end of the control lines: one socket per subtask, one thread for all of them.

A line counts as a subtask's only after the handshake (``model/wire/handshake.py``). Connections that do not get through
it within five seconds, send too much before it, or break a seal later, are cut off, and nothing else happens. A crowd
that says nothing keeps no subtask out: its oldest go (``model/wire/waiting_room.py``), and what shows the secret in its
first message is not among them. The log gets a line about such things once in a while, however many there are. The
server belongs to one attempt: its secret dies with it, so an older attempt's subtasks cannot call in.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from moorline.model.ids import SubtaskId
from moorline.model.wire import handshake, messages
from moorline.model.wire.handshake import (
    FRAME_LIMIT,
    HANDSHAKE_LIMIT,
    HANDSHAKE_SECONDS,
    LENGTH,
    MAC_SIZE,
    Hello,
    Line,
    Proof,
    Refused,
)
from moorline.model.wire.messages import Order, Report
from moorline.model.wire.waiting_room import WaitingRoom

log = logging.getLogger("moorline")

#: Connections that have shown nothing yet. For one more, one of them goes.
MAX_UNAUTHENTICATED = 128
#: Strangers may come by the thousand: the log is told of the first one of so many seconds.
_LOG_SECONDS = 1.0


@dataclass(eq=False)
class _Connection:
    socket: socket.socket
    peer: str
    received: bytearray = field(default_factory=bytearray)
    to_send: deque[bytes] = field(default_factory=deque)
    hello: Hello | None = None
    challenge: handshake.Challenge | None = None
    line: Line | None = None


class ControlServer:
    """Accepts the subtasks of one attempt."""

    def __init__(
        self,
        host: str,
        job: str,
        attempt: int,
        secret: bytes,
        subtasks: set[SubtaskId],
        reported: Callable[[SubtaskId, Report], None],
        lost: Callable[[SubtaskId], None],
        port: int = 0,
        handshake_seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        self._secret, self._guard = secret, handshake.Guard(secret, job, attempt, subtasks)
        self._reported, self._lost = reported, lost
        self._listener = socket.create_server((host, port), backlog=128)
        self._listener.setblocking(False)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._lock = threading.Lock()
        self._lines: dict[SubtaskId, _Connection] = {}
        self._connections: set[_Connection] = set()
        #: Those that have not said whose they are, and those that have and must still prove that it is not a record.
        self._silent: WaitingRoom[_Connection] = WaitingRoom(MAX_UNAUTHENTICATED, handshake_seconds)
        self._challenged: WaitingRoom[_Connection] = WaitingRoom(2 * len(subtasks) + 1, handshake_seconds)
        self._unlogged, self._logged_at = 0, float("-inf")
        self._outbox: deque[tuple[SubtaskId, Order]] = deque()
        self._closing = False
        #: Strangers turned away so far.
        self.refused = 0
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_receiver, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name=f"moorline-control-{attempt}", daemon=True)
        self._thread.start()

    def send(self, subtask: SubtaskId, order: Order) -> None:
        """Send an order, soon. To a subtask that has no line it is lost, as on any line that breaks."""
        with self._lock:
            self._outbox.append((subtask, order))
        self._wake()

    def close(self) -> None:
        """Send what is waiting, then close every line."""
        self._closing = True
        self._wake()
        self._thread.join(timeout=10)

    def _wake(self) -> None:
        with suppress(OSError):  # closed already
            self._wake_sender.send(b"\0")

    def _run(self) -> None:
        try:
            while not self._closing:
                for key, events in self._selector.select(timeout=1.0):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj is self._wake_receiver:
                        self._wake_receiver.recv(4096)
                    else:
                        self._serve(key.data, events)
                self._seal_outbox()
                self._turn_away_the_slow()
        except Exception:
            log.exception("the control server has failed")
        finally:
            self._seal_outbox()
            for connection in list(self._connections):  # last words that are there already
                self._serve(connection, selectors.EVENT_READ)
            self._shut()

    def _accept(self) -> None:
        try:
            accepted, peer = self._listener.accept()
        except OSError:
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(accepted, f"{peer[0]}:{peer[1]}")
        self._connections.add(connection)
        self._selector.register(accepted, selectors.EVENT_READ, connection)
        evicted = self._silent.enter(connection, peer[0], time.monotonic())
        if evicted is not None:
            self._drop(evicted, "too many connections say nothing")

    def _serve(self, connection: _Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(connection)
            if events & selectors.EVENT_READ:
                data = connection.socket.recv(1 << 16)
                if not data:
                    self._drop(connection, None)
                    return
                connection.received += data
                self._read(connection)
        except (BlockingIOError, InterruptedError):
            return
        except (Refused, msgspec.MsgspecError) as error:
            self._drop(connection, str(error))
        except OSError:
            self._drop(connection, None)

    def _read(self, connection: _Connection) -> None:
        """Take every whole frame off what was received."""
        while True:
            sealed = connection.line is not None
            head = LENGTH.size + (MAC_SIZE if sealed else 0)
            received = connection.received
            if len(received) < head:
                return
            (length,) = LENGTH.unpack_from(received)
            if length > (FRAME_LIMIT if sealed else HANDSHAKE_LIMIT):
                raise Refused(f"a frame of {length} bytes is over the limit")
            if len(received) < head + length:
                return
            mac, payload = bytes(received[LENGTH.size : head]), bytes(received[head : head + length])
            del received[: head + length]
            if connection.line is None:
                self._shake_hands(connection, payload)
            else:
                assert connection.hello is not None
                report = messages.decode_report(connection.line.open(mac, payload))
                self._reported(connection.hello.subtask, report)

    def _shake_hands(self, connection: _Connection, payload: bytes) -> None:
        if connection.hello is None:
            hello = handshake.read(payload, Hello)
            self._guard.check(hello)
            self._silent.leave(connection)
            evicted = self._challenged.enter(connection, connection.peer, time.monotonic())
            if evicted is not None:
                self._drop(evicted, "too many connections owe a proof")
            connection.hello, connection.challenge = hello, handshake.challenge(self._secret, hello)
            encoded = msgspec.msgpack.encode(connection.challenge)
            self._send(connection, LENGTH.pack(len(encoded)) + encoded)
            return
        assert connection.challenge is not None
        proof = handshake.read(payload, Proof)
        handshake.accept(self._secret, connection.hello, connection.challenge, proof)
        if connection.hello.subtask in self._lines:
            raise Refused("this subtask has a line already")
        self._challenged.leave(connection)
        connection.line = Line(self._secret, connection.hello, connection.challenge.nonce, is_driver=True)
        self._lines[connection.hello.subtask] = connection

    def _seal_outbox(self) -> None:
        with self._lock:
            orders, self._outbox = self._outbox, deque()
        for subtask, order in orders:
            connection = self._lines.get(subtask)
            if connection is not None and connection.line is not None:
                try:
                    self._send(connection, connection.line.seal(messages.encode(order)))
                except OSError:
                    self._drop(connection, None)

    def _send(self, connection: _Connection, data: bytes) -> None:
        connection.to_send.append(data)
        self._flush(connection)

    def _flush(self, connection: _Connection) -> None:
        while connection.to_send:
            data = connection.to_send[0]
            try:
                sent = connection.socket.send(data)
            except (BlockingIOError, InterruptedError):
                break
            if sent < len(data):
                connection.to_send[0] = data[sent:]
            else:
                connection.to_send.popleft()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.to_send else 0)
        self._selector.modify(connection.socket, events, connection)

    def _turn_away_the_slow(self) -> None:
        now = time.monotonic()
        for connection in self._silent.overdue(now) + self._challenged.overdue(now):
            self._drop(connection, "no handshake in time")

    def _drop(self, connection: _Connection, why: str | None) -> None:
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        self._silent.leave(connection)
        self._challenged.leave(connection)
        self._selector.unregister(connection.socket)
        connection.socket.close()
        if why is not None or connection.line is None:
            self.refused += 1
            self._log_refusal(connection.peer, why or "closed before the handshake")
        if connection.line is not None and connection.hello is not None:
            del self._lines[connection.hello.subtask]
            self._lost(connection.hello.subtask)

    def _log_refusal(self, peer: str, why: str) -> None:
        now = time.monotonic()
        if now < self._logged_at + _LOG_SECONDS:
            self._unlogged += 1
            return
        more = f" ({self._unlogged:,} more since the last such line)" if self._unlogged else ""
        self._logged_at, self._unlogged = now, 0
        log.warning("control line from %s refused: %s%s", peer, why, more)

    def _shut(self) -> None:
        for connection in list(self._connections):
            connection.socket.close()
        self._connections.clear()
        self._lines.clear()
        self._selector.close()
        for end in (self._listener, self._wake_receiver, self._wake_sender):
            end.close()
