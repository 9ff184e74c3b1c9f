"""The driver's end of the control lines: one socket per subtask, one thread for all of them.

A line counts as a subtask's only after the handshake (``admission.py``, ``model/wire/handshake.py``); one that breaks a
seal later is cut off. The server belongs to one attempt: its secret dies with it, so an older attempt's subtasks cannot
call in.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections.abc import Callable

import msgspec

from moorline.driver.control.admission import Admission, Refusals
from moorline.driver.control.connection import ControlConnection
from moorline.driver.control.outbox import Outbox
from moorline.model.ids import SubtaskId
from moorline.model.wire import messages
from moorline.model.wire.handshake import HANDSHAKE_SECONDS, Refused
from moorline.model.wire.messages import Order, Report

log = logging.getLogger("moorline")


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
        self._reported, self._lost = reported, lost
        self._listener = socket.create_server((host, port), backlog=128)
        self._listener.setblocking(False)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._outbox = Outbox()
        self._connections: set[ControlConnection] = set()
        self._lines: dict[SubtaskId, ControlConnection] = {}
        self._admission = Admission(secret, job, attempt, subtasks, handshake_seconds, self._drop)
        self._refusals = Refusals()
        self._closing = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._outbox.receiver, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name=f"moorline-control-{attempt}", daemon=True)
        self._thread.start()

    @property
    def refused(self) -> int:
        """Strangers turned away so far."""
        return self._refusals.count

    def send(self, subtask: SubtaskId, order: Order) -> None:
        """Send an order, soon. To a subtask that has no line it is lost, as on any line that breaks."""
        self._outbox.put(subtask, order)

    def close(self) -> None:
        """Send what is waiting, then close every line."""
        self._closing = True
        self._outbox.wake()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        try:
            while not self._closing:
                for key, events in self._selector.select(timeout=1.0):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj is self._outbox.receiver:
                        self._outbox.woken()
                    else:
                        self._serve(key.data, events)
                self._seal_outbox()
                self._admission.drop_overdue()
        except Exception:  # a thread's last words
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
        connection = ControlConnection(accepted, f"{peer[0]}:{peer[1]}")
        self._connections.add(connection)
        self._selector.register(accepted, selectors.EVENT_READ, connection)
        self._admission.enter(connection, peer[0])

    def _serve(self, connection: ControlConnection, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(connection)
            if events & selectors.EVENT_READ:
                if not connection.receive():
                    self._drop(connection, None)
                    return
                while (frame := connection.next_frame()) is not None:
                    self._take(connection, *frame)
        except (BlockingIOError, InterruptedError):
            return
        except (Refused, msgspec.MsgspecError) as error:
            self._drop(connection, str(error))
        except OSError:
            self._drop(connection, None)

    def _take(self, connection: ControlConnection, mac: bytes, payload: bytes) -> None:
        if connection.hello is None:
            self._send(connection, self._admission.challenge(connection, payload))
        elif connection.line is None:
            subtask = self._admission.admit(connection, payload, self._lines)
            self._lines[subtask] = connection
        else:
            report = messages.decode_report(connection.line.open(mac, payload))
            self._reported(connection.hello.subtask, report)

    def _seal_outbox(self) -> None:
        for subtask, order in self._outbox.take():
            connection = self._lines.get(subtask)
            if connection is not None and connection.line is not None:
                try:
                    self._send(connection, connection.line.seal(messages.encode(order)))
                except OSError:
                    self._drop(connection, None)

    def _send(self, connection: ControlConnection, data: bytes) -> None:
        connection.to_send.append(data)
        self._flush(connection)

    def _flush(self, connection: ControlConnection) -> None:
        connection.flush()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.to_send else 0)
        self._selector.modify(connection.socket, events, connection)

    def _drop(self, connection: ControlConnection, why: str | None) -> None:
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        self._admission.leave(connection)
        self._selector.unregister(connection.socket)
        connection.socket.close()
        if why is not None or connection.line is None:
            self._refusals.add(connection.peer, why or "closed before the handshake")
        if connection.line is not None and connection.hello is not None:
            del self._lines[connection.hello.subtask]
            self._lost(connection.hello.subtask)

    def _shut(self) -> None:
        for connection in list(self._connections):
            connection.socket.close()
        self._connections.clear()
        self._lines.clear()
        self._selector.close()
        self._listener.close()
        self._outbox.close()
