"""The jobs and savepoints below a checkpoint location, running or not: what ``moorline serve`` shows.

    GET  /v1/page           what is served here: {"kind": "location", "location", "version"}
    GET  /v1/jobs           every job with its newest checkpoint, and every savepoint
    GET  /v1/jobs/<folder>  the checkpoints of one job, oldest first
    POST /v1/snapshot       {"snapshot": place}: the operators and states in it, from its manifest alone
    POST /v1/diff           {"before": place, "after": place}: the first differences between two of them

A place is ``folder/7`` for a checkpoint of a job and ``folder`` for a savepoint, as ``/v1/jobs`` has them. Of what a
request names no path is made: it is looked up among the folders that are there. Only storage is read, so a running job
does not notice, and whether one runs is not known from here: a job that has ended says so in its history.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from moorline.errors import MoorlineError, SnapshotNotFound
from moorline.http import stored_snapshots
from moorline.http.page_routes import snapshot_name
from moorline.http.routes import Refusal
from moorline.snapshots.folders import job_folders, open_snapshot, savepoint_folders
from moorline.storage.stores.open import open_store

#: What was found is shown for so long, however many ask.
KEPT_SECONDS = 2.0


@dataclass
class _Found:
    """The folders at a location by their names, and what was last read in all of them."""

    at: float
    jobs: dict[str, str]
    savepoints: dict[str, str]
    answer: dict[str, Any] = field(default_factory=dict)


class ServedLocation:
    """A checkpoint location behind a console of this version. Called from several threads."""

    def __init__(self, location: str, *, version: str) -> None:
        self._version = version
        self._store = open_store(location)
        #: Reading goes over all of a location: one at a time.
        self._reading = threading.Lock()
        self._found: _Found | None = None

    def described(self) -> dict[str, Any]:
        return {"kind": "location", "location": self._store.url, "version": self._version}

    def jobs(self) -> dict[str, Any]:
        with self._reading:
            found = self._look()
            if not found.answer:
                jobs = [_job(name, url) for name, url in found.jobs.items()]
                savepoints = [_savepoint(name, url) for name, url in found.savepoints.items()]
                found.answer = {"jobs": jobs, "savepoints": savepoints}
            return found.answer

    def job(self, folder: str) -> dict[str, Any]:
        with self._reading:
            url = self._look().jobs.get(folder)
            if url is None:
                raise SnapshotNotFound(self._store.url, f"there is no job in a folder {folder!r:.100}")
            history = stored_snapshots.history_of(open_store(url))
        for checkpoint in history["checkpoints"]:
            checkpoint["place"] = f"{folder}/{checkpoint['checkpoint']}"
        return history

    def snapshot(self, place: str) -> dict[str, Any]:
        return stored_snapshots.contents(*self._find(place))

    def diff(self, before: str, after: str) -> dict[str, Any]:
        with self._reading:
            places = self._find(before), self._find(after)
            return stored_snapshots.differences(*places)

    def _find(self, place: str) -> tuple[str, int | None]:
        folder, _, number = place.partition("/")
        found = self._found or self._look()
        if number.isascii() and number.isdigit() and len(number) < 16 and folder in found.jobs:
            return found.jobs[folder], int(number)
        if not number and folder in found.savepoints:
            return found.savepoints[folder], None
        raise SnapshotNotFound(self._store.url, f"there is no snapshot {place!r:.100}")

    def _look(self) -> _Found:
        """The folders as they are now, or were a moment ago."""
        now = time.monotonic()
        if self._found is None or now - self._found.at > KEPT_SECONDS:
            jobs, savepoints = job_folders(self._store), savepoint_folders(self._store)
            self._found = _Found(now, {_name(url): url for url in jobs}, {_name(url): url for url in savepoints})
        return self._found


def _name(url: str) -> str:
    return url.rpartition("/")[2]


def _job(folder: str, url: str) -> dict[str, Any]:
    """One job in one line. A folder that cannot be read is shown as such, and the others as well."""
    line: dict[str, Any] = {"folder": folder, "job": folder, "status": "unreadable", "note": ""}
    line |= {"newest": None, "created_ms": None, "bytes": None, "checkpoints": 0, "attempts": 0, "damaged": 0}
    try:
        history = stored_snapshots.history_of(open_store(url))
    except MoorlineError as error:
        return line | {"note": str(error)}
    checkpoints = history["checkpoints"]
    line |= {"job": history["job"], "status": history["ended"] or "not ended", "attempts": history["attempts"]}
    if checkpoints:
        newest = checkpoints[-1]
        line |= {"newest": newest["checkpoint"], "created_ms": newest["created_ms"], "bytes": newest["bytes"]}
    return line | {"checkpoints": len(checkpoints), "damaged": len(history["damaged"])}


def _savepoint(folder: str, url: str) -> dict[str, Any]:
    line: dict[str, Any] = {"place": folder, "job": "", "note": ""}
    try:
        manifest, _ = open_snapshot(url)
    except MoorlineError as error:
        return line | {"checkpoint": 0, "attempt": 0, "created_ms": 0, "bytes": 0, "in_flight": 0, "note": str(error)}
    return line | stored_snapshots.summary(manifest) | {"job": manifest.job}


def read(method: str, path: str, content: dict[str, Any], served: ServedLocation) -> Callable[[], Any]:
    """The question of a request. Raises :class:`Refusal`."""
    match method, path:
        case "GET", "/v1/page":
            return served.described
        case "GET", "/v1/jobs":
            return served.jobs
        case "GET", _ if path.startswith("/v1/jobs/"):
            folder = unquote(path.removeprefix("/v1/jobs/"))
            return lambda: served.job(folder)
        case "POST", "/v1/snapshot":
            place = str(snapshot_name(content, "snapshot"))
            return lambda: served.snapshot(place)
        case "POST", "/v1/diff":
            before, after = (str(snapshot_name(content, name)) for name in ("before", "after"))
            return lambda: served.diff(before, after)
    raise Refusal(404, "there is GET /v1/page, /v1/jobs and /v1/jobs/<folder>, POST /v1/snapshot and /v1/diff")
