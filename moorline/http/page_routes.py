"""Requests of the web page, beside those that ``http/routes.py`` answers. They ask and change nothing.

    GET  /v1/page           what is served here: {"kind": "job", ...}, with the graph and the configuration
    GET  /v1/snapshots      the checkpoints in the job's folder, oldest first
    POST /v1/snapshot       {"snapshot"}: the operators and states in one of them, from its manifest alone
    POST /v1/plan           {"snapshot"}: what would become of each of its states if the job were started from it
    POST /v1/diff           {"before", "after"}: the first differences between two of them

A snapshot is named by the number of a checkpoint, or by the folder of a savepoint below the permitted locations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from moorline.http import routes
from moorline.http.routes import Refusal, Served

#: The name of a snapshot in a request.
SnapshotName = int | str


class ServedWithPage(Served, Protocol):
    """A job behind a console that has a page. Called from several threads."""

    def described(self) -> dict[str, Any]: ...
    def snapshots(self) -> dict[str, Any]: ...
    def snapshot(self, snapshot: SnapshotName) -> dict[str, Any]: ...
    def plan(self, snapshot: SnapshotName) -> dict[str, Any]: ...
    def diff(self, before: SnapshotName, after: SnapshotName) -> dict[str, Any]: ...


def read(method: str, path: str, content: dict[str, Any], served: ServedWithPage) -> Callable[[], Any]:
    """The question of a request to the job. Raises :class:`Refusal`."""
    match method, path:
        case "GET", "/v1/page":
            return served.described
        case "GET", "/v1/snapshots":
            return served.snapshots
        case "POST", "/v1/snapshot":
            name = snapshot_name(content, "snapshot")
            return lambda: served.snapshot(name)
        case "POST", "/v1/plan":
            planned = snapshot_name(content, "snapshot")
            return lambda: served.plan(planned)
        case "POST", "/v1/diff":
            before, after = snapshot_name(content, "before"), snapshot_name(content, "after")
            return lambda: served.diff(before, after)
    return routes.read(method, path, content, served)


def snapshot_name(content: dict[str, Any], field: str) -> SnapshotName:
    """The snapshot that a field names. Raises :class:`Refusal`."""
    value = content.get(field)
    if (type(value) is int and value > 0) or (type(value) is str and value):
        return value
    raise Refusal(400, f"{field!r} is the number of a checkpoint or the folder of a savepoint, not {value!r:.100}")
