"""A running job from another process: its status, its checkpoints, the content of its state, and what it is to do.

    client = JobClient("http://127.0.0.1:8090", token)
    client.query("average", "sum", key=1)

Talks to the job's console (``mo.start(..., console=True)``) over HTTP, with Python's own means.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from typing import Any, Literal
from urllib.parse import urlsplit

from moorline.errors import ConsoleRefused, InvalidArgument, QueryFailed, QueryUnavailable
from moorline.http import wire as typed_json
from moorline.model import keys
from moorline.model.durations import Duration, milliseconds

#: An answer of more bytes is not read.
_MOST_BYTES = 64 << 20
_TRIES, _PAUSE_SECONDS = 5, 0.05


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Refuse: the token is for the job alone, not for wherever a redirect leads."""


#: No proxy either.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())


class JobClient:
    """A client of the HTTP endpoint of one running job.

    >>> client = JobClient("http://127.0.0.1:9", "token")
    >>> client.status()
    Traceback (most recent call last):
    moorline.errors.ConsoleRefused: the console at http://127.0.0.1:9: it cannot be reached ...
    """

    def __init__(self, url: str, token: str) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise InvalidArgument("url", url, "Write what handle.console.url says, such as 'http://127.0.0.1:8090'.")
        self._url, self._token = url.rstrip("/"), token.strip()

    def query(
        self,
        uid: str,
        state: str,
        key: object,
        *,
        level: Literal["live", "checkpoint"] = "live",
        timeout: Duration = "10s",
    ) -> Any:
        """The value under a key, as ``handle.query`` returns it in the job's own process, or None."""
        try:
            encoded = keys.encode(key)
        except keys.NotAKey as error:
            raise InvalidArgument("key", key, f"No record can have it: {error}.") from None
        return self.query_encoded(uid, state, encoded, level=level, timeout=timeout)

    def query_encoded(
        self, uid: str, state: str, key: bytes, *, level: Literal["live", "checkpoint"], timeout: Duration
    ) -> Any:
        """The same for a key of which only the encoding is known (``moorline.model.keys.encoding``)."""
        wait_ms = milliseconds(timeout, "timeout")
        asked = {"uid": uid, "state": state, "key": typed_json.encoded_key_to_json(key)}
        asked |= {"level": level, "timeout_ms": wait_ms}
        status, answer = self._ask("POST", "/v1/query", asked, wait_ms)
        if status == 200:
            return typed_json.from_json(answer.get("value"))
        if status in (404, 503):
            # The error's own words begin with which state it was.
            cause = str(answer.get("error", "")).partition("cannot be queried: ")
            raise (QueryFailed if status == 404 else QueryUnavailable)(uid, state, cause[2] or cause[0])
        raise ConsoleRefused(self._url, str(answer.get("error", f"it answered {status}")))

    def status(self) -> dict[str, Any]:
        """The state of the job: its status, attempt, failures, and records per operator."""
        return self._expect("GET", "/v1/status")

    def checkpoints(self) -> list[dict[str, Any]]:
        """The complete checkpoints of this run."""
        checkpoints: list[dict[str, Any]] = self._expect("GET", "/v1/checkpoints")["checkpoints"]
        return checkpoints

    def explain(self, uid: str | None = None, *, top: int = 10, timeout: Duration = "5min") -> dict[str, Any]:
        """The state of the job's newest checkpoint, explained: as ``handle.explain`` does, as data."""
        return self._expect("POST", "/v1/explain", {"uid": uid or "", "top": top}, milliseconds(timeout, "timeout"))

    def log_lines(self, after: int = 0) -> list[dict[str, Any]]:
        """The last lines of the driver's log on the job, those with a higher number than ``after``."""
        lines: list[dict[str, Any]] = self._expect("POST", "/v1/logs", {"after": after})["lines"]
        return lines

    def savepoint(self, path: str, *, timeout: Duration = "5min") -> str:
        """Take a savepoint at ``path`` (as the driver sees it) and return where it is: ``handle.savepoint``."""
        wait_ms = milliseconds(timeout, "timeout")
        answer = self._expect("POST", "/v1/savepoint", {"path": path, "timeout_ms": wait_ms}, wait_ms)
        return str(answer["savepoint"])

    def rescale(self, parallelism: int | dict[str, int], *, timeout: Duration = "5min") -> dict[str, Any]:
        """Rescale, as ``handle.rescale`` does. Returns the status, once all subtasks run."""
        wait_ms = milliseconds(timeout, "timeout")
        return self._expect("POST", "/v1/rescale", {"parallelism": parallelism, "timeout_ms": wait_ms}, wait_ms)

    def stop(
        self, *, cancel: bool = False, savepoint: str = "", drain: bool = False, timeout: Duration = "5min"
    ) -> dict[str, Any]:
        """Have the job end: with a final checkpoint, or at once. Waits for a savepoint, but not for the end."""
        wait_ms = milliseconds(timeout, "timeout") if savepoint else 0
        asked = {"cancel": cancel, "savepoint": savepoint, "drain": drain, "timeout_ms": wait_ms}
        return self._expect("POST", "/v1/stop", asked, wait_ms)

    def _expect(
        self, method: str, path: str, content: dict[str, Any] | None = None, wait_ms: int = 0
    ) -> dict[str, Any]:
        status, answer = self._ask(method, path, content, wait_ms)
        if status != 200:
            raise ConsoleRefused(self._url, str(answer.get("error", f"it answered {status}")))
        return answer

    def _ask(
        self, method: str, path: str, content: dict[str, Any] | None = None, wait_ms: int = 0
    ) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        # A question can be asked again if the line was closed before it was answered: the console may be crowded.
        tries = _TRIES if method == "GET" or path == "/v1/query" else 1
        for left in reversed(range(tries)):
            try:
                with _opener.open(request, timeout=10 + wait_ms / 1000) as response:
                    status, body = response.status, response.read(_MOST_BYTES)
                break
            except urllib.error.HTTPError as error:
                with error:
                    status, body = error.code, error.read(_MOST_BYTES)
                break
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", error)
                if left and isinstance(reason, ConnectionError) and not isinstance(reason, ConnectionRefusedError):
                    time.sleep(_PAUSE_SECONDS * (tries - left))
                    continue
                cause = f"it cannot be reached ({reason}). Is the job running, and is this its address?"
                raise ConsoleRefused(self._url, cause) from None
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise ConsoleRefused(self._url, f"it answered {status} without JSON. Is this a job's console?")
        return status, answer


#: The name that it had first.
QueryClient = JobClient
