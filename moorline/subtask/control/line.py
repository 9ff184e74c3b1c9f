"""The subtask's end of its control line: a socket, and a thread that reads orders from it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import msgspec

from moorline.model.ids import Attempt, SubtaskId
from moorline.model.wire import messages
from moorline.model.wire.handshake import FRAME_LIMIT, LENGTH, MAC_SIZE, Refused
from moorline.model.wire.messages import Order, Report
from moorline.subtask.control.dialing import DIAL_SECONDS, dial, receive


class ControlLine:
    """Connects to the driver, proves who it is, and makes sure that it is talking to the driver."""

    def __init__(
        self,
        address: tuple[str, int],
        secret: bytes,
        job: str,
        attempt: Attempt,
        subtask: SubtaskId,
        ordered: Callable[[Order], None],
        lost: Callable[[], None],
        dial_seconds: float = DIAL_SECONDS,
    ) -> None:
        self._ordered, self._lost = ordered, lost
        self._socket, self._line = dial(address, secret, job, attempt, subtask, seconds=dial_seconds)
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._read, name="moorline-control", daemon=True)
        self._thread.start()

    def report(self, report: Report) -> None:
        """Send a report. That the line is broken shows at the other end of it: the reading thread says so."""
        with self._lock, suppress(OSError):
            self._socket.sendall(self._line.seal(messages.encode(report)))

    @property
    def host(self) -> str:
        """The address of this machine on the network that it reaches the driver by."""
        return str(self._socket.getsockname()[0])

    def close(self) -> None:
        self._closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(timeout=5)

    def _read(self) -> None:
        try:
            while True:
                head = receive(self._socket, LENGTH.size + MAC_SIZE)
                (length,) = LENGTH.unpack_from(head)
                if length > FRAME_LIMIT:
                    raise Refused(f"a frame of {length} bytes is over the limit")
                payload = self._line.open(head[LENGTH.size :], receive(self._socket, length))
                self._ordered(messages.decode_order(payload))
        except (OSError, EOFError, Refused, msgspec.MsgspecError):
            if not self._closed:
                self._lost()
