"""A job on Spark as its console shows it to other processes (``http/server.py``)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from moorline import __version__
from moorline.driver.description import describe_config, describe_graph
from moorline.driver.observation.observation import Observation
from moorline.driver.queries.service import Level
from moorline.errors import InvalidArgument, SnapshotNotFound
from moorline.http import stored_snapshots
from moorline.http.explained import explanation_to_json
from moorline.http.page_routes import SnapshotName
from moorline.protocol.lowering import lower
from moorline.storage.stores.open import open_store
from moorline.storage.stores.permitted import check_savepoint

if TYPE_CHECKING:
    from moorline.spark.handle import Handle

#: Characters shown of a failure, and how many failures are.
FAILURE_CHARACTERS, FAILURES = 500, 10


class ServedJob:
    """A handle as its console may use it: ``savepoints`` are the locations below which one may be asked for.

    ``location``: the job's folder of checkpoints, if it has one.
    """

    def __init__(self, handle: Handle, savepoints: Sequence[str], location: str | None = None) -> None:
        self._handle, self._savepoints, self._location = handle, savepoints, location
        #: One at a time: explanations and comparisons read all state, here on the driver.
        self._reading = threading.Lock()

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

    def described(self) -> dict[str, Any]:
        last, job = self._handle._loop.supervision.last_attempt, self._handle
        plan = last.deployment.plan if last is not None else lower(job._job.graph(job._parallelism))
        config = job._loop.supervision.config
        return {
            "kind": "job",
            "job": job.job,
            "version": __version__,
            "spark_ui": job._cluster.ui_url,
            "has_storage": self._location is not None,
            "savepoints": list(self._savepoints),
            "graph": describe_graph(plan),
            "configuration": describe_config(config, plan.graph),
        }

    def snapshots(self) -> dict[str, Any]:
        return stored_snapshots.history_of(open_store(self._folder()))

    def snapshot(self, snapshot: SnapshotName) -> dict[str, Any]:
        return stored_snapshots.contents(*self._find(snapshot))

    def plan(self, snapshot: SnapshotName) -> dict[str, Any]:
        return stored_snapshots.plan_of(self._handle._job.graph(self._handle._parallelism), *self._find(snapshot))

    def diff(self, before: SnapshotName, after: SnapshotName) -> dict[str, Any]:
        with self._reading:
            return stored_snapshots.differences(self._find(before), self._find(after))

    def _find(self, snapshot: SnapshotName) -> tuple[str, int | None]:
        """The place of a snapshot that a request names: nowhere but where this job keeps its own."""
        if isinstance(snapshot, int):
            return self._folder(), snapshot
        check_savepoint(snapshot, self._savepoints)
        return snapshot, None

    def _folder(self) -> str:
        if self._location is None:
            raise SnapshotNotFound(
                self._handle.job, "the job takes no checkpoints: it was started without checkpoints="
            )
        return self._location

    def query_encoded(self, uid: str, state: str, key: bytes, level: Level, timeout_ms: int) -> Any:
        return self._handle._queries.query(uid, state, key, level, timeout_ms)

    def explained(self, uid: str | None, top: int) -> dict[str, Any]:
        with self._reading:
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
