"""The console of a running job: status, checkpoints and queries over HTTP, for other processes; and a page for people.

Off unless asked for. One request per connection, JSON in and out, and nothing that comes in is ever run.
``routes.py`` and ``page_routes.py`` say what can be asked. The files of the page (``page_files.py``) are sent without a
token: there is nothing of the job in them.

Who may ask is who has the token: made anew for each run, shown by the handle and in a file that only its owner can
read, compared in constant time, taken from the ``Authorization`` header alone. A browser cannot be made to ask on
another's behalf: the ``Host`` must be an address or a name of this machine (a foreign name that leads here
is turned away), there is no cookie, and a body must say that it is JSON.

Strangers get little: the token is checked before a body is read; a request must be here within five seconds, whole,
however slowly it trickles; bodies are small; connections few. For one more, one that has not shown the token goes
(``model/wire/waiting_room.py``), so a crowd that trickles keeps out none that has it. All of this is on threads of its
own, so checkpoints do not wait for it.

A request is read to its end before anything is asked of the job: whatever is wrong with it is the client's, and 4xx.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
import os
import re
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from moorline.errors import (
    InvalidArgument,
    JobError,
    MoorlineError,
    QueryFailed,
    QueryUnavailable,
    SavepointNotPermitted,
    SnapshotNotFound,
    SparkUnsuitable,
)
from moorline.http import page_routes
from moorline.http.console import REQUEST_SECONDS, HttpEndpoint, write_private
from moorline.http.page_files import HEADERS, PageFile, page_files
from moorline.http.routes import Refusal, Text
from moorline.model.wire.waiting_room import WaitingRoom

log = logging.getLogger("moorline")

#: Makes of the method, path and body of a request the question to what is served.
Read = Callable[..., Callable[[], Any]]

#: A body of more bytes is refused unread.
MAX_BODY = 64 << 10
#: Requests with the token that are answered at the same time. One more is 503.
MAX_CONNECTIONS = 16
#: Connections that have not shown the token.
MAX_UNAUTHENTICATED = 64


class ConsoleServer:
    """Answers requests until it is closed."""

    def __init__(self, served: Any, console: HttpEndpoint | str | bool = True, read: Read = page_routes.read) -> None:
        """``read`` makes of a request the question to ``served``, or raises :class:`Refusal`."""
        config = HttpEndpoint.of(console)
        host, port = config.parts()
        #: Only requests with this are answered.
        self.token = config.given_token() or secrets.token_urlsafe(32)
        try:
            self._server = _Server((host, port), partial(read, served=served), self.token, config)
        except OSError as error:
            raise InvalidArgument("console", config.address, f"It cannot be listened on: {error}.") from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_address[1]}"
        self._is_given = config.token_from is not None
        is_in_folder = config.token_file is None and not self._is_given
        self._folder = tempfile.mkdtemp(prefix="moorline-console-") if is_in_folder else None
        self.token_file = config.token_from or config.token_file or str(Path(self._folder or "") / "token")
        try:
            if not self._is_given:
                write_private(self.token_file, self.token)
        except OSError as error:
            self._server.server_close()
            raise InvalidArgument("token_file", self.token_file, f"It cannot be written: {error}.") from error
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="moorline-console", daemon=True).start()
        log.info("the console is at %s, its token in %s", self.url, self.token_file)

    @property
    def page(self) -> str:
        """The address of the web page, with the token in it: for a browser, not for a log."""
        return f"{self.url}/#token={self.token}"

    def close(self) -> None:
        """Let requests under way finish, but not for long."""
        self._server.shutdown()
        self._server.server_close()
        self._server.wait(2.0)
        if not self._is_given:
            with suppress(OSError):
                os.unlink(self.token_file)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __repr__(self) -> str:
        return f"ConsoleServer({self.url!r})"  # not the token: this ends up in logs


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], read: Read, token: str, config: HttpEndpoint) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.read, self.token = read, token
        own = ("localhost", address[0], socket.gethostname(), socket.getfqdn())
        self.names = {name.lower() for name in (*own, *config.hosts)}
        self._changed = threading.Condition()
        self._open = self._admitted = 0
        #: Connections that have not shown the token, and those that have and still send a body.
        self._strangers: WaitingRoom[socket.socket] = WaitingRoom(MAX_UNAUTHENTICATED, config.request_seconds)
        self._sending: WaitingRoom[socket.socket] = WaitingRoom(MAX_CONNECTIONS, config.request_seconds)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # Not HTTPServer's own, which asks the name service for our name and may wait for it.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            self._open += 1
            evicted = self._strangers.enter(request, client_address[0], time.monotonic())
            if evicted is not None:
                _cut_off(evicted)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._changed:
                self._open -= 1
                self._strangers.leave(request)
                self._sending.leave(request)
                self._changed.notify_all()

    def service_actions(self) -> None:
        # Called in every turn of the accepting thread. The timeout of a single read is none for a client that sends a
        # byte now and then.
        with self._changed:
            now = time.monotonic()
            for late in self._strangers.overdue(now) + self._sending.overdue(now):
                _cut_off(late)

    @contextmanager
    def admitted(self, connection: socket.socket) -> Iterator[None]:
        """A connection has shown the token: it is not driven out any more, and is answered if not too many are."""
        with self._changed:
            self._strangers.leave(connection)
            if self._admitted >= MAX_CONNECTIONS:
                raise Refusal(503, f"{MAX_CONNECTIONS} requests are being answered: try again in a moment")
            self._admitted += 1
            self._sending.enter(connection, "", time.monotonic())
        try:
            yield
        finally:
            with self._changed:
                self._admitted -= 1

    def is_whole(self, connection: socket.socket) -> None:
        """All of a request is here: from now on it is the job that takes its time."""
        with self._changed:
            self._sending.leave(connection)

    def wait(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._open == 0, seconds)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a console request from %s broke off", client_address[0])


def _cut_off(connection: socket.socket) -> None:
    with suppress(OSError):  # its thread sees the end of it
        connection.shutdown(socket.SHUT_RDWR)


def _encoded(content: Any) -> tuple[str, bytes]:
    """The type and the bytes of an answer. Raises what JSON cannot say, before anything is sent."""
    if isinstance(content, Text):
        return content.content_type, content.text.encode("utf-8", "replace")
    return "application/json", json.dumps(content, allow_nan=False).encode()


def _error(status: int, reason: object) -> tuple[int, str, bytes]:
    return status, *_encoded({"error": str(reason)})


_LENGTH = re.compile(r"[0-9]+")


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "moorline", ""
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(self.headers.get("Content-Length", ""))

    def _answer(self, length: str | None) -> None:
        self.close_connection = True
        try:
            self._check_host()
            if length is None and (file := page_files().get(self.path)) is not None:
                self._send_file(file)
                return
            self._check_token()
            with self.server.admitted(self.connection):
                ask = self._read_request(length)
                self.server.is_whole(self.connection)
                answer = 200, *_encoded(ask())
        except Refusal as refusal:
            answer = _error(refusal.status, refusal.reason)
        except QueryUnavailable as error:
            answer = _error(503, error)
        except (QueryFailed, SnapshotNotFound) as error:
            answer = _error(404, error)
        except SavepointNotPermitted as error:
            answer = _error(403, error)
        except SparkUnsuitable as error:
            answer = _error(409, error)
        except JobError as error:  # the job cannot be as it was asked to be
            answer = _error(400, error)
        except TimeoutError:
            answer = _error(504, "it has not come to an end in time; it goes on, and the status will tell")
        except MoorlineError as error:
            answer = _error(500, error)
        except OSError:
            raise  # the line is broken: there is no one to answer
        except Exception:  # a bug of ours must not end the server
            log.exception("a console request failed")
            answer = _error(500, "the request failed; the driver's log says why")
        self._send(*answer)

    def _check_host(self) -> None:
        """Refuse DNS rebinding: a foreign page may make a browser talk to us, but under its own name."""
        host = self.headers.get("Host", "")
        name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
        with suppress(ValueError):
            ipaddress.ip_address(name)
            return
        if name.lower() not in self.server.names:
            raise Refusal(421, "this is not the host that was asked for; HttpEndpoint(hosts=[...]) names others")

    def _check_token(self) -> None:
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        is_right = hmac.compare_digest(given.strip().encode("utf-8", "replace"), self.server.token.encode())
        if scheme.lower() != "bearer" or not is_right:
            log.warning("a console request from %s had no valid token", self.client_address[0])
            raise Refusal(401, "give the job's token: Authorization: Bearer <token>")

    def _read_request(self, length: str | None) -> Callable[[], Any]:
        """The question to the job. Nothing has been asked yet, so whatever goes wrong here is the request's."""
        try:
            content = {} if length is None else self._body(length)
            return self.server.read(self.command, self.path, content)
        except (Refusal, OSError):
            raise
        except Exception as error:  # a stranger's bytes may lead anywhere
            log.debug("a console request could not be read", exc_info=True)
            raise Refusal(400, f"the request cannot be understood: {type(error).__name__}") from None

    def _body(self, length: str) -> dict[str, Any]:
        if not _LENGTH.fullmatch(length):
            raise Refusal(411, "say in digits how long the body is (Content-Length)")
        if len(length) > 18 or int(length) > MAX_BODY:
            raise Refusal(413, f"a body has at most {MAX_BODY:,} bytes")
        if self.headers.get_content_type() != "application/json":
            raise Refusal(415, "a body is application/json")
        data = self.rfile.read(int(length))
        try:
            content = json.loads(data) if data else {}
        except (ValueError, RecursionError):
            raise Refusal(400, "the body is no JSON") from None
        if not isinstance(content, dict):
            raise Refusal(400, "the body is a JSON object")
        return content

    def _send(self, status: int, content_type: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _send_file(self, file: PageFile) -> None:
        self.send_response(200)
        self.send_header("Content-Type", file.content_type)
        self.send_header("Content-Length", str(len(file.data)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Connection", "close")
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(file.data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        # The standard library's page repeats what was asked for.
        self.close_connection = True
        # 501 and 505 are what it says of methods and versions that there are not: the request's fault all the same.
        code = {501: 405}.get(code, 400 if code >= 500 else code)
        self._send(*_error(code, "this is not a request that can be answered"))

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: a request may hold a token or a user's data."""
