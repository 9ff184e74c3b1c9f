"""A console over a job that only notes what it is asked for."""

from __future__ import annotations

import json
import socket
from typing import Any

from waiting import PATIENCE

from moorline.errors import QueryFailed, QueryUnavailable, SavepointFailed
from moorline.http.client import JobClient
from moorline.http.console import HttpEndpoint
from moorline.http.server import ConsoleServer
from moorline.model import keys
from moorline.storage.stores.permitted import check_savepoint


class Job:
    """A job that knows one key."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bytes, str, int]] = []
        self.ended: list[bool] = []
        self.rescaled: list[int | dict[str, int]] = []
        self.refuses_to_rescale: Exception | None = None

    def status_told(self) -> dict[str, Any]:
        return {"job": "<script>alert(1)</script>", "status": "running"}

    def checkpoints_told(self) -> list[dict[str, Any]]:
        return [{"checkpoint": 1}]

    def checkpoint_details(self, checkpoint: int) -> dict[str, Any] | None:
        return {"checkpoint": checkpoint} if checkpoint == 1 else None

    def metrics(self) -> dict[str, Any]:
        checkpoints = {"completed": 0, "failed": {}, "in_progress": [], "last": None, "since_last_ms": None}
        head = {"job": "<script>alert(1)</script>", "status": "running", "attempt": 1, "uptime_ms": 5}
        return {
            **head,
            "attempts": 1,
            "failures": 0,
            "losses": {},
            "vertices": [],
            "operators": {},
            "checkpoints": checkpoints,
        }

    def series(self) -> dict[str, Any]:
        return {"time_ms": []}

    def history(self) -> dict[str, Any]:
        return {"checkpoints": [], "attempts": []}

    def query_encoded(self, uid: str, state: str, key: bytes, level: str, timeout_ms: int) -> Any:
        self.asked.append((uid, state, key, level, timeout_ms))
        if uid != "count":
            raise QueryFailed(uid, state, "the job has no such operator")
        if state == "busy":
            raise QueryUnavailable(uid, state, "no answer in time")
        if state == "broken":
            raise RuntimeError("secret detail")
        return {"seen": (1, b"x"), 7: {2.5}} if key == keys.encode("a") else None

    def explained(self, uid: str | None, top: int) -> dict[str, Any]:
        return {"uid": uid, "top": top}

    def log_told(self, after: int) -> list[dict[str, Any]]:
        return [{"number": after + 1}]

    def savepoint(self, path: str, timeout_ms: int) -> str:
        if timeout_ms < 1000:
            raise TimeoutError
        if path.startswith("s3:"):
            check_savepoint(path, ["/data"])
        if path == "full":
            raise SavepointFailed(path, "there is no room")
        return f"file:///{path}"

    def rescale(self, parallelism: int | dict[str, int], timeout_ms: int) -> None:
        if self.refuses_to_rescale is not None:
            raise self.refuses_to_rescale
        self.rescaled.append(parallelism)

    def end(self, *, cancel: bool, savepoint: str, drain: bool, timeout_ms: int) -> None:
        self.ended.append(cancel)


class World:
    def __init__(self, console: HttpEndpoint | bool = True) -> None:
        self.job = Job()
        self.server = ConsoleServer(self.job, console)
        host, port = self.server.url.removeprefix("http://").split(":")
        self.address = host, int(port)
        self.client = JobClient(self.server.url, self.server.token)

    def send(self, data: bytes, seconds: float = PATIENCE, *, ends: bool = False) -> bytes:
        """Everything that comes back until the connection is closed. ``ends``: nothing more will be sent."""
        with socket.create_connection(self.address, timeout=seconds) as line:
            try:
                line.sendall(data)
                if ends:
                    line.shutdown(socket.SHUT_WR)
                received = b""
                while piece := line.recv(65_536):
                    received += piece
            except (ConnectionResetError, BrokenPipeError):
                return b""
            return received

    def request(
        self, path: str = "/v1/status", *, method: str = "GET", body: bytes | None = None, **headers: str | None
    ) -> tuple[int, str]:
        """A request by hand. A header that is None is left out."""
        sent: dict[str, str | None] = {"Host": "127.0.0.1", "Authorization": f"Bearer {self.server.token}"}
        if body is not None:
            sent |= {"Content-Length": str(len(body)), "Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {path} HTTP/1.1", *(f"{n}: {v}" for n, v in sent.items() if v is not None)]
        received = self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")).decode()
        head, _, content = received.partition("\r\n\r\n")
        assert "application/json" in head
        return int(head.split()[1]), content


def query(**content: Any) -> bytes:
    return json.dumps({"uid": "count", "state": "seen", "key": "a"} | content).encode()
