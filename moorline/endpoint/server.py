"""The console of a running job: status, checkpoints and queries over HTTP, for other processes.

Off unless asked for. One request per connection, JSON in and out, and nothing that comes in is ever run:

    GET  /v1/status        how the job is, and how far
    GET  /v1/checkpoints   the complete checkpoints of this run
    POST /v1/query         {"uid", "state", "key", "level", "timeout_ms"} -> {"value"}
    POST /v1/savepoint     {"path", "timeout_ms"} -> {"savepoint"}: where it is, once it is there
    POST /v1/rescale       {"parallelism": 4 or {"uid": 4}, "timeout_ms"}: answered when all subtasks run
    POST /v1/stop          {"cancel", "savepoint", "drain", "timeout_ms"}: end it well, or at once

Who may ask is who has the token: made anew for each run, shown by the handle and in a file that only its owner can
read, compared in constant time, taken from the ``Authorization`` header alone. A browser cannot be made to ask on
somebody's behalf: the ``Host`` must be an address or a name of this machine (a name of somebody else's that leads here
is turned away), there is no cookie, and a body must say that it is JSON.

Strangers get little: the token is checked before a body is read; a request must be here within five seconds, whole,
however slowly it trickles; bodies are small; connections few, and one more is closed at once. All of this is on
threads of its own, so checkpoints do not wait for it.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
import os
import secrets
import shutil
import socket
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from moorline.endpoint import typed_json
from moorline.errors import InvalidArgument, MoorlineError, QueryFailed, QueryUnavailable

log = logging.getLogger("moorline")

#: A request is here, whole, within so many seconds, or it is cut off.
REQUEST_SECONDS = 5.0
#: A body of more bytes is refused unread.
MAX_BODY = 64 << 10
MAX_CONNECTIONS = 16
#: No query waits longer for its answer, whatever it says.
MAX_QUERY_MS = 30_000
#: Nor does anybody wait longer for a savepoint or a rescale; they go on all the same.
MAX_WISH_MS = 600_000


class Served(Protocol):
    """The job behind a console. Called from several threads."""

    def status_told(self) -> dict[str, Any]: ...
    def checkpoints_told(self) -> list[dict[str, Any]]: ...
    def query_encoded(self, uid: str, state: str, key: bytes, level: Any, timeout_ms: int) -> Any: ...
    def savepoint(self, path: str, timeout_ms: int) -> str: ...
    def rescale(self, parallelism: int | dict[str, int], timeout_ms: int) -> None: ...
    def end(self, *, cancel: bool, savepoint: str, drain: bool, timeout_ms: int) -> None: ...


@dataclass(frozen=True)
class Console:
    """Where the console of a job listens, and where its token is written.

    >>> Console("127.0.0.1:8090").address
    '127.0.0.1:8090'

    Port 0 means any free one. ``token_file`` is made readable for its owner alone; without it a file in a new folder
    of the machine's temporary one is used (``handle.console.token_file``). It is removed when the job ends.
    """

    address: str = "127.0.0.1:0"
    token_file: str | None = None

    def parts(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.address.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65_535:
            raise InvalidArgument("console", self.address, "Write host:port, such as '127.0.0.1:0' for any free port.")
        return host.strip("[]"), int(port)


class ConsoleServer:
    """Answers requests until it is closed."""

    def __init__(self, served: Served, console: Console | str | bool = True) -> None:
        config = console if isinstance(console, Console) else Console() if console is True else Console(str(console))
        host, port = config.parts()
        #: Only whoever has this is answered.
        self.token = secrets.token_urlsafe(32)
        try:
            self._server = _Server((host, port), served, self.token)
        except OSError as error:
            raise InvalidArgument("console", config.address, f"It cannot be listened on: {error}.") from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_address[1]}"
        self._folder = None if config.token_file else tempfile.mkdtemp(prefix="moorline-console-")
        self.token_file = config.token_file or str(Path(self._folder or "") / "token")
        try:
            _write_private(self.token_file, self.token)
        except OSError as error:
            self._server.server_close()
            raise InvalidArgument("token_file", self.token_file, f"It cannot be written: {error}.") from error
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="moorline-console", daemon=True).start()
        log.info("the console is at %s, its token in %s", self.url, self.token_file)

    def close(self) -> None:
        """Let requests under way finish, but not for long."""
        self._server.shutdown()
        self._server.server_close()
        self._server.wait(2.0)
        with suppress(OSError):
            os.unlink(self.token_file)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __repr__(self) -> str:
        return f"ConsoleServer({self.url!r})"  # not the token: this ends up in logs


def _write_private(path: str, token: str) -> None:
    """Nobody else may read it, at no moment; and a file that is in the way is not followed."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], served: Served, token: str) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.served, self.token = served, token
        self.names = {"localhost", address[0].lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
        self._changed = threading.Condition()
        self._open = 0
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # Not HTTPServer's own, which asks the name service for our name and may wait for it.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            is_full = self._open >= MAX_CONNECTIONS
            self._open += not is_full
        if is_full:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._changed:
                self._open -= 1
                self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._open == 0, seconds)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a console request from %s broke off", client_address[0])


class _Refusal(Exception):
    def __init__(self, status: int, told: str) -> None:
        super().__init__(told)
        self.status, self.told = status, told


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "moorline", ""
    timeout = REQUEST_SECONDS

    def setup(self) -> None:
        super().setup()
        # A client that sends a byte now and then never runs into the timeout of a single read.
        self._cutter = threading.Timer(REQUEST_SECONDS, self._cut_off)
        self._cutter.daemon = True
        self._cutter.start()

    def finish(self) -> None:
        self._cutter.cancel()
        super().finish()

    def _cut_off(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(self.headers.get("Content-Length", ""))

    def _answer(self, length: str | None) -> None:
        self.close_connection = True
        try:
            self._check_host()
            self._check_token()
            content = None if length is None else self._body(length)
            self._cutter.cancel()
            status, told = 200, self._route(content)
        except _Refusal as refusal:
            status, told = refusal.status, {"error": refusal.told}
        except QueryUnavailable as error:
            status, told = 503, {"error": str(error)}
        except (QueryFailed, InvalidArgument) as error:
            status, told = 404 if isinstance(error, QueryFailed) else 400, {"error": str(error)}
        except TimeoutError:
            status, told = 504, {"error": "it has not come to an end in time; it goes on, and the status will tell"}
        except MoorlineError as error:
            status, told = 500, {"error": str(error)}
        except OSError:
            raise  # the line is broken: nobody is there to be told
        except Exception:
            log.exception("a console request failed")
            status, told = 500, {"error": "the request failed; the driver's log says why"}
        self._send(status, told)

    def _check_host(self) -> None:
        """DNS rebinding: a page of somebody else's may make a browser talk to us, but under its own name."""
        host = self.headers.get("Host", "")
        name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
        with suppress(ValueError):
            ipaddress.ip_address(name)
            return
        if name.lower() not in self.server.names:
            raise _Refusal(421, "this is not the host that was asked for")

    def _check_token(self) -> None:
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        is_right = hmac.compare_digest(given.strip().encode("utf-8", "replace"), self.server.token.encode())
        if scheme.lower() != "bearer" or not is_right:
            log.warning("a console request from %s had no valid token", self.client_address[0])
            raise _Refusal(401, "give the job's token: Authorization: Bearer <token>")

    def _body(self, length: str) -> dict[str, Any]:
        if not length.isdigit():
            raise _Refusal(411, "say how long the body is (Content-Length)")
        if int(length) > MAX_BODY:
            raise _Refusal(413, f"a body has at most {MAX_BODY:,} bytes")
        if self.headers.get_content_type() != "application/json":
            raise _Refusal(415, "a body is application/json")
        data = self.rfile.read(int(length))
        try:
            content = json.loads(data) if data else {}
        except (ValueError, RecursionError):
            raise _Refusal(400, "the body is no JSON") from None
        if not isinstance(content, dict):
            raise _Refusal(400, "the body is a JSON object")
        return content

    def _route(self, content: dict[str, Any] | None) -> Any:
        served = self.server.served
        match self.command, self.path:
            case "GET", "/v1/status":
                return served.status_told()
            case "GET", "/v1/checkpoints":
                return {"checkpoints": served.checkpoints_told()}
            case "POST", "/v1/query":
                return self._query(content or {})
            case "POST", "/v1/savepoint":
                asked = _asked(content, "path", "timeout_ms")
                return {"savepoint": served.savepoint(_given(asked, "path", str, None), _wait_ms(asked))}
            case "POST", "/v1/rescale":
                asked = _asked(content, "parallelism", "timeout_ms")
                served.rescale(_parallelism(asked.get("parallelism")), _wait_ms(asked))
                return served.status_told()
            case "POST", "/v1/stop":
                asked = _asked(content, "cancel", "savepoint", "drain", "timeout_ms")
                flags = {name: _given(asked, name, bool, False) for name in ("cancel", "drain")}
                served.end(**flags, savepoint=_given(asked, "savepoint", str, ""), timeout_ms=_wait_ms(asked))
                return served.status_told()
        ways = "GET /v1/status and /v1/checkpoints, POST /v1/query, /v1/savepoint, /v1/rescale and /v1/stop"
        raise _Refusal(404, f"there is {ways}")

    def _query(self, content: dict[str, Any]) -> Any:
        _asked(content, "uid", "state", "key", "level", "timeout_ms")
        if "key" not in content:
            raise _Refusal(400, "a query has a key")
        try:
            key = typed_json.key_from_json(content["key"])
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise _Refusal(400, f"{content['key']!r:.100} is no key: {error}") from None
        uid, state = _given(content, "uid", str, None), _given(content, "state", str, None)
        level = _given(content, "level", str, "live")
        timeout_ms = max(0, min(_given(content, "timeout_ms", int, 10_000), MAX_QUERY_MS))
        value = self.server.served.query_encoded(uid, state, key, level, timeout_ms)
        return {"value": typed_json.to_json(value)}

    def _send(self, status: int, told: Any) -> None:
        data = json.dumps(told, allow_nan=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        # The standard library's page repeats what was asked for.
        self.close_connection = True
        self._send(code, {"error": "this is not a request that can be answered"})

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: what was asked for may hold somebody's token or data."""


def _asked(content: dict[str, Any] | None, *known: str) -> dict[str, Any]:
    """What was sent, if all of it means something: a misspelt wish must not be half granted."""
    unknown = set(content or {}) - set(known)
    if unknown:
        raise _Refusal(400, f"there is no {', '.join(sorted(unknown))!r:.100} here; there is {', '.join(known)}")
    return content or {}


def _wait_ms(content: dict[str, Any]) -> int:
    return max(0, min(int(_given(content, "timeout_ms", int, 60_000)), MAX_WISH_MS))


def _parallelism(value: Any) -> int | dict[str, int]:
    if type(value) is int or (type(value) is dict and value and all(type(n) is int for n in value.values())):
        return value
    raise _Refusal(400, f"'parallelism' is a number, or one for each uid, not {value!r:.100}")


def _given(content: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    value = content.get(name, default)
    if type(value) is not kind:
        raise _Refusal(400, f"{name!r} should be a {kind.__name__}, not {value!r:.100}")
    return value
