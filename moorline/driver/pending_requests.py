"""What somebody has asked of a job and has not been given yet: snapshots, a stop with a savepoint, another parallelism.

Wishes outlive attempts: what one attempt could not do is asked of the next. ``driver/supervision.py`` looks here
whenever an attempt starts, runs, has taken a snapshot or ends, and does what is wanted.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from dataclasses import dataclass

from moorline.driver.attempt import RunningAttempt
from moorline.driver.autoscaler import Autoscaler
from moorline.driver.cluster import Cluster
from moorline.driver.requests import SnapshotRequest
from moorline.errors import InvalidArgument, MoorlineError, SavepointFailed
from moorline.model.config.run import Autoscale
from moorline.model.graph import Graph
from moorline.protocol.lifecycle import JobStatus
from moorline.protocol.lowering import lower

log = logging.getLogger("moorline")


@dataclass
class _Rescale:
    """A rescale under way."""

    graph: Graph
    answer: Future[int]
    #: The checkpoint that goes before it.
    request: SnapshotRequest
    #: The job goes on with the new graph from the next attempt on, whatever ended the one before.
    has_begun: bool = False


class Wishes:
    """Of one job, from its first start to its end."""

    def __init__(self, job: str, autoscale: Autoscale | None) -> None:
        self._job = job
        #: Snapshots that were asked for while no attempt was running.
        self.waiting: list[SnapshotRequest] = []
        #: The job is to end well: a final checkpoint, everything committed.
        self.stop = False
        #: The savepoint that the job has been stopped with: from then on nothing may be read that it does not have.
        self.stopped_with: SnapshotRequest | None = None
        self._stop_after: SnapshotRequest | None = None
        self._rescale: _Rescale | None = None
        self._autoscaler = None if autoscale is None else Autoscaler(autoscale)

    # --- what is asked for -----------------------------------------------------------------------

    def stop_after(self, savepoint: SnapshotRequest) -> None:
        """A savepoint, and then the end."""
        savepoint.pause = True
        self._stop_after = savepoint

    def rescale(self, graph: Graph, answer: Future[int], has_storage: bool) -> SnapshotRequest | None:
        """The checkpoint that has to go before it. None: it cannot be, and the answer says why."""
        if not has_storage:
            answer.set_exception(InvalidArgument("rescale", graph.job, "Give checkpoints=: state moves through them."))
            return None
        if self._rescale is not None or self.stop or self._stop_after is not None:
            answer.set_exception(InvalidArgument("rescale", graph.job, "The job is being rescaled or stopped already."))
            return None
        self._rescale = _Rescale(graph, answer, SnapshotRequest(pause=True))
        return self._rescale.request

    def autoscaled(self, current: RunningAttempt, cluster: Cluster, now_ms: int) -> Graph | None:
        """What the autoscaler wants, if it can be had."""
        if self._autoscaler is None or self._rescale is not None or self._stop_after is not None:
            return None
        graph = self._autoscaler.look(current.deployment.plan, current.progress, now_ms)
        if graph is None:
            return None
        slots = sum(lower(graph).widths)
        if cluster.has_room(slots):
            return graph
        log.warning("there is no room for the %d subtasks that the job should have", slots)
        self._autoscaler.refused(now_ms)
        return None

    # --- what happens to the job -----------------------------------------------------------------

    def starts(self, graph: Graph) -> Graph:
        """An attempt starts: with this graph."""
        if self._rescale is None:
            return graph
        # An attempt that failed before it could give way has made room as well.
        self._rescale.has_begun = True
        self.waiting = [r for r in self.waiting if r is not self._rescale.request]
        return self._rescale.graph

    def runs(self, attempt: int, now_ms: int) -> list[SnapshotRequest]:
        """All subtasks of an attempt run: the snapshots that were waiting for it."""
        if self._autoscaler is not None:
            self._autoscaler.began(now_ms, self._rescale is not None)
        if self._rescale is not None and self._rescale.has_begun:
            self._rescale.answer.set_result(attempt)
            self._rescale = None
        waiting, self.waiting = self.waiting, []
        return waiting

    def savepoint_of_stop(self) -> SnapshotRequest | None:
        """The savepoint of a stop, once it is known what became of it. Told once."""
        stop = self._stop_after
        if stop is None or not stop.answer.done():
            return None
        self._stop_after = None
        return stop

    def is_to_give_way(self) -> bool:
        """Is the running attempt to end for the one with another parallelism? Told once."""
        rescale = self._rescale
        if rescale is None or rescale.has_begun or not rescale.request.answer.done():
            return False
        # Also if that checkpoint failed: then the one before it will do, and a little is done again.
        rescale.has_begun = True
        return True

    def ended(self, status: JobStatus, error: MoorlineError | None) -> None:
        """The job is over: nobody is to wait any longer."""
        for request in self.waiting:
            request.fail(SavepointFailed(request.savepoint or "a checkpoint", f"the job is {status.value}"))
        if self._rescale is not None and not self._rescale.answer.done():
            ended = InvalidArgument("rescale", self._job, f"The job is {status.value} before it could be rescaled.")
            self._rescale.answer.set_exception(error or ended)
