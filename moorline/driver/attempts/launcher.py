"""The attempts of one job, each made from what storage has, and the storage as the job leaves it.

``driver/supervision.py`` asks for an attempt when ``protocol/job.py`` says so, and launches it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from moorline.driver import cleanup
from moorline.driver.attempts.heartbeats import Heartbeats
from moorline.driver.attempts.running import RunningAttempt
from moorline.driver.checkpoints.coordinator import AttemptCheckpoints
from moorline.driver.checkpoints.retention import Retention
from moorline.driver.cluster import Cluster
from moorline.driver.connectors.attempt import AttemptConnectors
from moorline.driver.observation.checkpoints import CheckpointHistory
from moorline.driver.processes import this_process
from moorline.driver.restore import AttemptStart, start_from_storage, start_without_storage
from moorline.errors import MoorlineError
from moorline.failpoints import failpoint
from moorline.model.config.run import RunConfig
from moorline.model.graph import Graph
from moorline.model.ids import Attempt
from moorline.protocol.supervision.lifecycle import JobStatus
from moorline.protocol.supervision.requests import StoppedWith
from moorline.storage.history import History


class Launcher:
    """Makes the attempts of one job."""

    def __init__(
        self,
        graph: Graph,
        config: RunConfig,
        history: History | None,
        wall_ms: Callable[[], int],
        checkpoints: CheckpointHistory,
    ) -> None:
        self._checkpoints = checkpoints
        self.graph, self._config, self._history, self._wall_ms = graph, config, history, wall_ms
        if history is not None:
            history.process = this_process()
        #: How many were tried, whatever became of them.
        self.tries = 0
        self._has_claimed = False
        #: Checkpoints that proved damaged, and how.
        self._refused: dict[int, str] = {}
        #: Checkpoints that attempts were restored from, without those that proved damaged; 0 for an empty start.
        self.restored_from: list[int] = []

    @property
    def config(self) -> RunConfig:
        """The configuration of the run."""
        return self._config

    @property
    def writer(self) -> str:
        """The word that our entries in the history carry; empty without storage."""
        return self._history.writer if self._history is not None else ""

    def prepare(self, stopped: StoppedWith | None, cluster: Cluster, now_ms: int) -> RunningAttempt:
        """An attempt, ready to be launched. ``stopped``: it only commits what comes before that savepoint."""
        self.tries += 1
        start = self._start(stopped)
        deployment = replace(start.deployment, is_paused=stopped is not None)
        self.restored_from.append(deployment.restored or 0)
        connectors = AttemptConnectors(deployment, start.splits, cluster.send, cluster.background)
        checkpoints = AttemptCheckpoints(
            deployment,
            self._config.checkpoints,
            self._retention(start, is_claimed=self._config.restore_mode == "claim" and stopped is None, now_ms=now_ms),
            start.next_checkpoint,
            connectors,
            cluster.send,
            now_ms,
            self._wall_ms,
            self._config.thresholds.put_aside_bytes,
            self._checkpoints,
        )
        heartbeats = Heartbeats(
            deployment.plan.subtasks(), self._config.heartbeat_ms, self._config.start_timeout_ms, now_ms
        )
        connectors.commits.restored(start.committables)
        return RunningAttempt(deployment, checkpoints, now_ms, heartbeats, snapshot_bytes=start.snapshot_bytes)

    def _retention(self, start: AttemptStart, is_claimed: bool, now_ms: int) -> Retention | None:
        """``is_claimed``: the savepoint that the attempt starts from is ours to delete."""
        config = self._config.checkpoints
        if self._history is None or config is None:
            return None
        return Retention(
            self._history,
            config,
            start.deployment.attempt,
            start.completed,
            now_ms,
            self._wall_ms,
            start.given_up,
            start.deployment.restore_location if is_claimed else None,
        )

    def _start(self, stopped: StoppedWith | None) -> AttemptStart:
        failpoint("driver.restore")
        config = self._config
        if stopped is not None:
            # A job that goes on from that savepoint does what comes after it: we only commit what comes before.
            config = replace(config, restore=stopped.savepoint)
        if self._history is None:
            return start_without_storage(self.graph, Attempt(self.tries), config)
        # Fresh until a claim has succeeded: what an earlier run of the job left behind is not ours to restore.
        fresh = config.restore != "latest" and not self._has_claimed
        stopped_at = stopped.checkpoint if stopped is not None else 0
        start = start_from_storage(self.graph, self._history, fresh, self._refused, self._wall_ms(), config, stopped_at)
        self._has_claimed = True
        return start

    def is_damaged(self, ended: RunningAttempt) -> bool:
        """Was the checkpoint damaged that it was restored from, and may there be an older one?"""
        restored = ended.deployment.restored
        if not ended.damage or restored is None:
            return False
        self._refused[restored] = ended.damage
        if self.restored_from[-1:] == [restored]:
            self.restored_from.pop()
        return ended.deployment.restore_location is None  # before a savepoint there is nothing

    def leave(
        self,
        last: RunningAttempt | None,
        status: JobStatus,
        error: MoorlineError | None,
        stopped: StoppedWith | None,
    ) -> bool:
        """Put sinks and storage in order at the end of the job. Is nothing left but what is to be retained?"""
        if last is not None and status is JobStatus.FINISHED:
            cleanup.clean_up_sinks(self.graph)
        checkpoints = self._config.checkpoints
        is_unwanted = checkpoints is not None and checkpoints.at_end == "delete" and status is not JobStatus.FAILED
        return cleanup.leave_storage(
            self._history,
            last.checkpoints if last is not None else None,
            status,
            error,
            is_unwanted and self._has_claimed,
            self._wall_ms(),
            stopped,
        )
