"""One connection to the control server: the frames that come in, the bytes that wait to go out.

    before the handshake   length | payload             at most ``HANDSHAKE_LIMIT`` bytes
    after it               length | seal | payload      at most ``FRAME_LIMIT`` bytes

Never blocks: the socket is read and written when the server's selector says that it can be.
"""

from __future__ import annotations

import socket
from collections import deque
from dataclasses import dataclass, field

from moorline.model.wire.handshake import (
    FRAME_LIMIT,
    HANDSHAKE_LIMIT,
    LENGTH,
    MAC_SIZE,
    Challenge,
    Hello,
    Line,
    Refused,
)


@dataclass(eq=False)
class ControlConnection:
    """A socket, and how far its handshake has come."""

    socket: socket.socket
    #: Host and port, for people.
    peer: str
    received: bytearray = field(default_factory=bytearray)
    to_send: deque[bytes] = field(default_factory=deque)
    hello: Hello | None = None
    challenge: Challenge | None = None
    #: The sealed line, once the subtask has proved itself.
    line: Line | None = None

    def receive(self) -> bool:
        """Read what is there. False: the other end has closed."""
        data = self.socket.recv(1 << 16)
        self.received += data
        return bool(data)

    def next_frame(self) -> tuple[bytes, bytes] | None:
        """The seal and the payload of the next whole frame; None if it is not there yet."""
        is_sealed = self.line is not None
        head = LENGTH.size + (MAC_SIZE if is_sealed else 0)
        if len(self.received) < head:
            return None
        (length,) = LENGTH.unpack_from(self.received)
        if length > (FRAME_LIMIT if is_sealed else HANDSHAKE_LIMIT):
            raise Refused(f"a frame of {length} bytes is over the limit")
        if len(self.received) < head + length:
            return None
        mac, payload = bytes(self.received[LENGTH.size : head]), bytes(self.received[head : head + length])
        del self.received[: head + length]
        return mac, payload

    def flush(self) -> None:
        """Send as much as can be sent now."""
        while self.to_send:
            data = self.to_send[0]
            try:
                sent = self.socket.send(data)
            except (BlockingIOError, InterruptedError):
                break
            if sent < len(data):
                self.to_send[0] = data[sent:]
            else:
                self.to_send.popleft()
