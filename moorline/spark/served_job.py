"""A job on Spark as its console shows it to other processes (``http/server.py``)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from moorline.driver.observation.observation import Observation
from moorline.driver.queries.service import Level
from moorline.errors import InvalidArgument
from moorline.http.explained import explanation_to_json
from moorline.storage.stores.permitted import check_savepoint

if TYPE_CHECKING:
    from moorline.spark.handle import Handle

#: Characters shown of a failure, and how many failures are.
FAILURE_CHARACTERS, FAILURES = 500, 10


class ServedJob:
    """A handle as its console may use it: ``savepoints`` are the locations below which one may be asked for."""

    def __init__(self, handle: Handle, savepoints: Sequence[str]) -> None:
        self._handle, self._savepoints = handle, savepoints
        #: One at a time: an explanation reads all state, here on the driver.
        self._explaining = threading.Lock()

    def status_told(self) -> dict[str, Any]:
        handle = self._handle
        checkpoints = handle.checkpoints
        return {
            "job": handle.job,
            "status": handle.status.value,
            "attempt": handle.attempt,
            "checkpoints": len(checkpoints),
            "last_checkpoint": checkpoints[-1].checkpoint if checkpoints else None,
            "restored_from": handle.restored_from,
            "failures": [failure[:FAILURE_CHARACTERS] for failure in handle.failures[-FAILURES:]],
            "progress": handle.progress,
        }

    def checkpoints_told(self) -> list[dict[str, Any]]:
        return [asdict(stats) for stats in self._handle.checkpoints]

    def checkpoint_details(self, checkpoint: int) -> dict[str, Any] | None:
        return self._observation.checkpoints.details(checkpoint)

    def metrics(self) -> dict[str, Any]:
        return self._handle.metrics

    def series(self) -> dict[str, Any]:
        return self._observation.series.columns()

    def history(self) -> dict[str, Any]:
        observation = self._observation
        return {
            "checkpoints": observation.checkpoints.ended(),
            "in_progress": observation.checkpoints.in_progress(observation.now_ms),
            "attempts": observation.attempts.records(),
        }

    @property
    def _observation(self) -> Observation:
        return self._handle._loop.supervision.observation

    def query_encoded(self, uid: str, state: str, key: bytes, level: Level, timeout_ms: int) -> Any:
        return self._handle._queries.query(uid, state, key, level, timeout_ms)

    def explained(self, uid: str | None, top: int) -> dict[str, Any]:
        with self._explaining:
            return explanation_to_json(self._handle.explain(uid, top=top))

    def log_told(self, after: int) -> list[dict[str, Any]]:
        return [line for line in self._handle.log_lines if line["number"] > after]

    def savepoint(self, path: str, timeout_ms: int) -> str:
        check_savepoint(path, self._savepoints)
        return self._handle.savepoint(path, timeout_ms / 1000)

    def rescale(self, parallelism: int | dict[str, int], timeout_ms: int) -> None:
        self._handle.rescale(parallelism, timeout_ms / 1000)

    def end(self, *, cancel: bool, savepoint: str, drain: bool, timeout_ms: int) -> None:
        """Returns when the savepoint is there, and does not wait for the end: the console ends with the job."""
        if cancel and savepoint:
            raise InvalidArgument("cancel", cancel, "A savepoint is for a job that ends well.")
        if savepoint:
            check_savepoint(savepoint, self._savepoints)
        if cancel:
            self._handle._loop.post(lambda supervision, now: supervision.cancel(now))
        else:
            self._handle._stop(savepoint or None, drain, timeout_ms / 1000)
