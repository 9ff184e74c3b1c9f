"""Orders that other threads put for the control server, and the socket that wakes its thread for them."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from moorline.model.ids import SubtaskId
from moorline.model.wire.messages import Order


class Outbox:
    """The orders that wait to be sent. ``receiver`` can be read whenever there is something to do."""

    def __init__(self) -> None:
        self.receiver, self._sender = socket.socketpair()
        self.receiver.setblocking(False)
        self._lock = threading.Lock()
        self._orders: list[tuple[SubtaskId, Order]] = []

    def put(self, subtask: SubtaskId, order: Order) -> None:
        """Add an order, from any thread."""
        with self._lock:
            self._orders.append((subtask, order))
        self.wake()

    def take(self) -> list[tuple[SubtaskId, Order]]:
        """All orders in the order they were put, for the server's thread."""
        with self._lock:
            orders, self._orders = self._orders, []
        return orders

    def wake(self) -> None:
        """Wake the server's thread."""
        with suppress(OSError):  # closed already
            self._sender.send(b"\0")

    def woken(self) -> None:
        """Empty the receiver."""
        self.receiver.recv(4096)

    def close(self) -> None:
        """Close both ends."""
        self.receiver.close()
        self._sender.close()
