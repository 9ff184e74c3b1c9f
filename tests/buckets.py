"""A bucket of a real S3 server, looked at by obstore itself, and a line to the server that can be cut."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

import obstore
from obstore.store import from_url
from real_servers import S3Server, free_port


class Bucket:
    """A bucket as others see it who use it too."""

    def __init__(self, server: S3Server, line: Line | None = None) -> None:
        self.server, self.name = server, server.new_bucket()
        self.url = f"s3://{self.name}"
        #: What ``storage_options`` are.
        self.options: dict[str, Any] = dict(server.options)
        if line is not None:
            self.options["endpoint"] = f"http://127.0.0.1:{line.port}"

    @property
    def _store(self) -> Any:
        options = dict(self.server.options)
        client = {"allow_http": options.pop("allow_http")}
        opens: Any = from_url
        return opens(self.url, config=options, client_options=client)

    def put(self, key: str, data: bytes | str) -> None:
        obstore.put(self._store, key, data.encode() if isinstance(data, str) else data)

    def get(self, key: str) -> bytes:
        return bytes(obstore.get(self._store, key).bytes())

    def remove(self, *keys: str) -> None:
        obstore.delete(self._store, list(keys))

    def keys(self, prefix: str | None = None) -> list[str]:
        return sorted(meta["path"] for page in obstore.list(self._store, prefix=prefix) for meta in page)


class Line:
    """A line to a server: once it is cut nobody gets through, until it is mended."""

    def __init__(self, port: int) -> None:
        self.port, self._server_port = free_port(), port
        self._ends: list[socket.socket] = []
        self.mend()

    def mend(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        for end in [self._listener, *self._ends]:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._ends = []

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                return
            self._ends += [client, server]
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
