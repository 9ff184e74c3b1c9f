"""The requests that a console answers, and what each of them asks of the job.

    GET  /v1/status        how the job is, and how far
    GET  /v1/checkpoints   the complete checkpoints of this run
    GET  /v1/checkpoints/7 one of them, or one that failed or is in progress, with the part of every subtask
    GET  /v1/metrics       figures of every vertex, subtask and operator, as docs/reference/metrics.md has them
    GET  /metrics          the same as the text that Prometheus reads
    GET  /v1/series        rates and lags of the last ten minutes
    GET  /v1/history       checkpoints that completed, failed or are in progress, and attempts with their errors
    POST /v1/query         {"uid", "state", "key", "level", "timeout_ms"} -> {"value"}
    POST /v1/explain       {"uid", "top"} -> the state of the newest checkpoint, explained
    POST /v1/logs          {"after": 0} -> {"lines"}: the driver's last log lines on the job, from that number on
    POST /v1/savepoint     {"path", "timeout_ms"} -> {"savepoint"}: where it is, once it is there
    POST /v1/rescale       {"parallelism": 4 or {"uid": 4}, "timeout_ms"}: answered when all subtasks run
    POST /v1/stop          {"cancel", "savepoint", "drain", "timeout_ms"}: end it well, or at once

A request is understood to its end before anything is asked: :func:`read` returns the question, not the answer. So
whatever goes wrong in here is wrong with the request.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from moorline.http import wire as typed_json
from moorline.http.prometheus import CONTENT_TYPE, prometheus_text

_CHECKPOINT = re.compile(r"/v1/checkpoints/([0-9]{1,15})")

#: No query waits longer for its answer, whatever it says.
MAX_QUERY_MS = 30_000
#: Nor does anybody wait longer for a savepoint or a rescale; they go on all the same.
MAX_WISH_MS = 600_000
#: No more keys are listed for a state.
MAX_TOP = 1000


class Served(Protocol):
    """The job behind a console. Called from several threads."""

    def status_told(self) -> dict[str, Any]: ...
    def checkpoints_told(self) -> list[dict[str, Any]]: ...
    def checkpoint_details(self, checkpoint: int) -> dict[str, Any] | None: ...
    def metrics(self) -> dict[str, Any]: ...
    def series(self) -> dict[str, Any]: ...
    def history(self) -> dict[str, Any]: ...
    def query_encoded(self, uid: str, state: str, key: bytes, level: Any, timeout_ms: int) -> Any: ...
    def explained(self, uid: str | None, top: int) -> dict[str, Any]: ...
    def log_told(self, after: int) -> list[dict[str, Any]]: ...
    def savepoint(self, path: str, timeout_ms: int) -> str: ...
    def rescale(self, parallelism: int | dict[str, int], timeout_ms: int) -> None: ...
    def end(self, *, cancel: bool, savepoint: str, drain: bool, timeout_ms: int) -> None: ...


class Text(NamedTuple):
    """An answer that is not JSON."""

    text: str
    content_type: str


class Refusal(Exception):
    """A request is not answered, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


def read(method: str, path: str, content: dict[str, Any], served: Served) -> Callable[[], Any]:
    """The question of a request to the job. Raises :class:`Refusal`."""
    match method, path:
        case "GET", "/v1/status":
            return served.status_told
        case "GET", "/v1/checkpoints":
            return lambda: {"checkpoints": served.checkpoints_told()}
        case "GET", "/v1/metrics":
            return served.metrics
        case "GET", "/metrics":
            return lambda: Text(prometheus_text(served.metrics()), CONTENT_TYPE)
        case "GET", "/v1/series":
            return served.series
        case "GET", "/v1/history":
            return served.history
        case "GET", _ if (numbered := _CHECKPOINT.fullmatch(path)) is not None:
            return _checkpoint(int(numbered[1]), served)
        case "POST", "/v1/query":
            return _query(content, served)
        case "POST", "/v1/explain":
            asked = _asked(content, "uid", "top")
            uid, top = _given(asked, "uid", str, ""), _given(asked, "top", int, 10)
            return lambda: served.explained(uid or None, max(0, min(top, MAX_TOP)))
        case "POST", "/v1/logs":
            after = _given(_asked(content, "after"), "after", int, 0)
            return lambda: {"lines": served.log_told(after)}
        case "POST", "/v1/savepoint":
            asked = _asked(content, "path", "timeout_ms")
            folder, wait_ms = _given(asked, "path", str, None), _wait_ms(asked)
            return lambda: {"savepoint": served.savepoint(folder, wait_ms)}
        case "POST", "/v1/rescale":
            asked = _asked(content, "parallelism", "timeout_ms")
            parallelism, wait_ms = _parallelism(asked.get("parallelism")), _wait_ms(asked)
            return _then_status(served, lambda: served.rescale(parallelism, wait_ms))
        case "POST", "/v1/stop":
            asked = _asked(content, "cancel", "savepoint", "drain", "timeout_ms")
            flags = {name: _given(asked, name, bool, False) for name in ("cancel", "drain")}
            folder, wait_ms = _given(asked, "savepoint", str, ""), _wait_ms(asked)
            return _then_status(served, lambda: served.end(**flags, savepoint=folder, timeout_ms=wait_ms))
    gets = "GET /v1/status, /v1/checkpoints, /v1/checkpoints/<number>, /v1/metrics, /v1/series, /v1/history, /metrics"
    posts = "/v1/query, /v1/explain, /v1/logs, /v1/savepoint, /v1/rescale and /v1/stop"
    raise Refusal(404, f"there is {gets}, POST {posts}")


def _checkpoint(number: int, served: Served) -> Callable[[], Any]:
    def ask() -> Any:
        details = served.checkpoint_details(number)
        if details is None:
            raise Refusal(404, f"nothing is known of checkpoint {number}, or no longer")
        return details

    return ask


def _then_status(served: Served, act: Callable[[], None]) -> Callable[[], Any]:
    def ask() -> Any:
        act()
        return served.status_told()

    return ask


def _query(content: dict[str, Any], served: Served) -> Callable[[], Any]:
    _asked(content, "uid", "state", "key", "level", "timeout_ms")
    if "key" not in content:
        raise Refusal(400, "a query has a key")
    try:
        key = typed_json.key_from_json(content["key"])
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Refusal(400, f"{content['key']!r:.100} is no key: {error}") from None
    uid, state = _given(content, "uid", str, None), _given(content, "state", str, None)
    level = _given(content, "level", str, "live")
    timeout_ms = max(0, min(_given(content, "timeout_ms", int, 10_000), MAX_QUERY_MS))
    ask = served.query_encoded
    return lambda: {"value": typed_json.to_json(ask(uid, state, key, level, timeout_ms))}


def _asked(content: dict[str, Any], *known: str) -> dict[str, Any]:
    """Reject unknown fields."""
    unknown = set(content) - set(known)
    if unknown:
        raise Refusal(400, f"there is no {', '.join(sorted(unknown))!r:.100} here; there is {', '.join(known)}")
    return content


def _wait_ms(content: dict[str, Any]) -> int:
    return max(0, min(int(_given(content, "timeout_ms", int, 60_000)), MAX_WISH_MS))


def _parallelism(value: Any) -> int | dict[str, int]:
    if type(value) is int or (type(value) is dict and value and all(type(n) is int for n in value.values())):
        return value
    raise Refusal(400, f"'parallelism' is a number, or one for each uid, not {value!r:.100}")


def _given(content: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    value = content.get(name, default)
    if type(value) is not kind:
        raise Refusal(400, f"{name!r} should be a {kind.__name__}, not {value!r:.100}")
    return value
