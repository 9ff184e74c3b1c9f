"""Requests from outside to a simulated job: rescales, savepoints, a stop, a sweep of its folder.

None of them is a fault, and none may disturb anything. A job that was stopped with a savepoint goes on from it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from moorline.driver.requests import SnapshotRequest
from moorline.driver.supervision import Supervision
from moorline.errors import SnapshotNotFound
from moorline.model.graph import Graph
from moorline.protocol.supervision.lifecycle import JobStatus
from moorline.snapshots import inspection
from moorline.storage.blobs import BlobStore
from moorline.storage.stores.open import open_store
from moorline.testing.simulation.faults.injection import Injection


class SimulatedRequests:
    """Requests to the running job, and the stop with a savepoint that is pending."""

    def __init__(self, seed: int, store: BlobStore, injection: Injection) -> None:
        self._seed, self._store, self._injection = seed, store, injection
        self._stop: SnapshotRequest | None = None

    def maybe_make(self, supervision: Supervision, rescaled: Callable[[], Graph], now_ms: int) -> None:
        """Make one request now and then."""
        injection, faults = self._injection, self._injection.faults
        if injection.happens(faults.rescale):
            injection.injected["rescale"] += 1
            supervision.rescale(rescaled(), Future(), now_ms)
        elif injection.happens(faults.savepoint):
            injection.injected["savepoint"] += 1
            supervision.request(SnapshotRequest(savepoint=self._savepoint()), now_ms)
        elif self._stop is None and injection.happens(faults.stop):
            injection.injected["stop with savepoint"] += 1
            self._stop = SnapshotRequest(savepoint=self._savepoint())
            supervision.stop_with_savepoint(self._stop, now_ms)
        if injection.happens_later(faults.sweep):
            self._sweep()

    def forget_stop(self) -> None:
        """Drop the pending stop: it has died with its driver."""
        self._stop = None

    def taken_stop(self, supervision: Supervision) -> str | None:
        """The savepoint that the job has been stopped with, to go on from; None if it has not. Asked once."""
        stop, self._stop = self._stop, None
        is_finished = supervision.status is JobStatus.FINISHED
        if stop is None or not is_finished or not stop.answer.done() or stop.answer.exception() is not None:
            return None
        return stop.savepoint

    def _sweep(self) -> None:
        """Delete all abandoned files without a grace time: no driver and no upload may miss anything."""
        with suppress(SnapshotNotFound):  # there is nothing yet
            swept = inspection.sweep(self._store, now_ms=1 << 60, grace_ms=0)
            self._injection.injected["swept files"] += len(swept)

    def _savepoint(self) -> str:
        url = f"memory://sim-{self._seed}-{self._injection.injected.total()}"
        left_over = open_store(url)  # by an earlier run of the same seed in this process
        left_over.delete([blob.path for blob in left_over.list()])
        return url
