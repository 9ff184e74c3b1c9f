"""Cuts a connection whose server does not answer.

PostgreSQL's own time limits are the server's, which may be the one that is stuck; and its client library waits for
ever. So a thread looks at the clock and shuts the socket down when a command has taken too long: the command then
fails as if the line had broken. Saying that a command begins costs next to nothing.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol


class HasFileno(Protocol):
    """Anything with a socket."""

    def fileno(self) -> int: ...


class Watchdog:
    """Watches one connection at a time, from a thread of its own."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._until: float | None = None
        self._socket: socket.socket | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="moorline-watchdog", daemon=True)
            self._thread.start()

    @contextmanager
    def watching(self, connection: HasFileno) -> Iterator[None]:
        with socket.socket(fileno=os.dup(connection.fileno())) as own:
            self._socket = own
            self.extend(1)
            try:
                yield
            finally:
                self._until = None

    def extend(self, times: int) -> None:
        """The limit begins anew."""
        self._until = time.monotonic() + times * self._timeout

    def cut(self) -> None:
        """Cut the connection that is watched, if one is: its command fails at once."""
        if self._until is not None and self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(min(0.5, self._timeout / 2)):
            until, stuck = self._until, self._socket
            if until is not None and stuck is not None and time.monotonic() > until:
                try:
                    stuck.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
