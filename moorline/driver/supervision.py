"""One job on the driver: its attempts, from the first start to the last word.

Never blocks and reads no clock of its own: facts and wishes come in by method calls, effects go out through
:class:`Cluster`. ``driver/loop.py`` runs it on a thread of the Spark driver, ``testing/simulation/simulator.py`` in a
simulated world.

An attempt that fails is cancelled first; the next one starts when the cluster says that the old one has ended *and*
the restart delay is over. A subtask of the old one may live on even so: it is fenced by the attempt number.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, assert_never

from moorline.driver import cleanup as ending
from moorline.driver.attempt import Cause, RunningAttempt
from moorline.driver.checkpoints import AttemptCheckpoints
from moorline.driver.cluster import Cluster
from moorline.driver.heartbeats import Heartbeats
from moorline.driver.journal import Journal, first_line
from moorline.driver.pending_queries import LiveQuery, Queries, Refused
from moorline.driver.pending_requests import Wishes
from moorline.driver.processes import this_process
from moorline.driver.requests import SnapshotRequest
from moorline.driver.restore import Start, start_from_storage, start_without_storage
from moorline.driver.stats import CheckpointStats
from moorline.errors import (
    Fenced,
    JobCancelled,
    JobFailed,
    LeadershipLost,
    MoorlineError,
    SavepointFailed,
    StorageError,
)
from moorline.failpoints import failpoint
from moorline.model.config.run import RunConfig
from moorline.model.graph import Graph
from moorline.model.ids import Attempt, SubtaskId
from moorline.model.wire.messages import (
    Acknowledged,
    Answer,
    Connected,
    Declined,
    Failed,
    InputEnded,
    Noticed,
    Progress,
    Report,
    Running,
)
from moorline.protocol.lifecycle import JobStatus, Lifecycle
from moorline.protocol.restarts import Failure, GiveUp, Restarts
from moorline.storage.history import History

_AT_WORK = (JobStatus.RUNNING, JobStatus.STOPPING)


class Supervision:
    """Keeps one job going until it has finished, failed or been cancelled."""

    def __init__(
        self,
        graph: Graph,
        config: RunConfig,
        history: History | None,
        cluster: Cluster,
        chance: random.Random,
        wall_ms: Callable[[], int],
    ) -> None:
        self._graph, self._config, self._history, self._cluster = graph, config, history, cluster
        self._wall_ms = wall_ms
        if history is not None:
            history.process = this_process()
        self._restarts = Restarts(config.restart_strategy, chance)
        self._lifecycle = Lifecycle()
        self._attempt: RunningAttempt | None = None
        #: The last one that was launched, also after its end.
        self.last_attempt: RunningAttempt | None = None
        #: Of the last attempt, for the tidying up at the end.
        self._checkpoints: AttemptCheckpoints | None = None
        self._restart_at_ms: int | None = None
        self._attempts = 0
        self._has_claimed = False
        #: Has a checkpoint been completed in this run, and which one had the last attempt got to?
        self._has_completed = False
        self._reached = 0
        self._refused: dict[int, str] = {}
        self._wishes = Wishes(graph.job, config.autoscale)
        self._last_failure = ""
        self._journal = Journal(graph.job)
        self._queries = Queries()
        self._finished_stats: list[CheckpointStats] = []
        self.history_of_failures: list[str] = []
        #: Checkpoints that attempts were restored from, without those that proved damaged; 0 for an empty start.
        self.restored_from: list[int] = []
        self.results: dict[str, list[Any]] = {}
        self.error: MoorlineError | None = None
        #: Does nothing lie in storage at the end but what is to be retained?
        self.is_tidy = False

    # --- views: read by other threads, so each looks at the attempt once ---------------------------

    @property
    def status(self) -> JobStatus:
        return self._lifecycle.status

    @property
    def writer(self) -> str:
        """The word that our entries in the history carry; empty without storage."""
        return self._history.writer if self._history is not None else ""

    @property
    def attempt(self) -> int:
        current = self._attempt
        return current.deployment.attempt if current else 0

    @property
    def checkpoints(self) -> list[CheckpointStats]:
        current = self._attempt
        return self._finished_stats + (current.checkpoints.stats if current else [])

    @property
    def running(self) -> RunningAttempt | None:
        """The attempt of this moment. Other threads look at what it has, and copy what may change."""
        return self._attempt

    def next_wakeup_ms(self) -> int | None:
        """When :meth:`time_passed` is due at the latest."""
        if self._restart_at_ms is not None:
            return self._restart_at_ms
        current = self._attempt
        if current is None or current.failure is not None or self.status not in _AT_WORK:
            return None
        return current.checkpoints.next_wakeup_ms()

    # --- wishes ----------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        # Whoever waited for its turn may have been cancelled meanwhile.
        if not self.status.is_terminal:
            self._launch(now_ms)

    def wait(self, now_ms: int) -> None:
        """Another driver may lead the job: do nothing until told to start."""
        self._lifecycle.move(JobStatus.WAITING, "another driver may lead the job")

    def leadership_lost(self, error: LeadershipLost) -> None:
        """Another driver may lead from now on: stop, and change nothing."""
        if self.status.is_terminal or self.status is JobStatus.CANCELLING:
            return
        self.error = error
        if self._attempt is not None:
            self._fail(self._attempt, str(error))
        else:
            self._restart_at_ms = None
            self._end(JobStatus.FAILED, error)

    def ended_elsewhere(self, outcome: str) -> None:
        """The driver that we waited for has seen the job to its end."""
        if self.status is JobStatus.WAITING:
            status = JobStatus(outcome)
            error: MoorlineError | None = None
            if status is JobStatus.CANCELLED:
                self._lifecycle.move(JobStatus.CANCELLING, "cancelled under another driver")
                error = JobCancelled(self._graph.job)
            elif status is JobStatus.FAILED:
                error = JobFailed(self._graph.job, "it failed under another driver, whose log says why", "")
            self._end(status, error)

    def stop(self, now_ms: int) -> None:
        """End well: a final checkpoint, everything committed."""
        if self.status is JobStatus.WAITING:
            self._end(JobStatus.FINISHED, None)  # there is nothing of ours to end
        self._wishes.stop = True
        self._maybe_stop(now_ms)

    def request(self, request: SnapshotRequest, now_ms: int) -> None:
        """Take a snapshot as soon as the job runs."""
        if self.status.is_terminal or self.status in (JobStatus.CANCELLING, JobStatus.STOPPING):
            request.fail(SavepointFailed(request.savepoint or "a checkpoint", f"the job is {self.status.value}"))
        elif self.status is JobStatus.RUNNING and self._attempt is not None and self._attempt.failure is None:
            self._attempt.checkpoints.request(request)
            self.time_passed(now_ms)
        else:
            self._wishes.waiting.append(request)

    def stop_with_savepoint(self, request: SnapshotRequest, now_ms: int) -> None:
        """A savepoint, and then the end. If there is no savepoint the job goes on, from its newest checkpoint."""
        self._wishes.stop_after(request)
        self.request(request, now_ms)

    def rescale(self, graph: Graph, answer: Future[int], now_ms: int) -> None:
        """Go on with other parallelism: a checkpoint, then another attempt from it. Nothing is lost or done twice."""
        before = self._wishes.rescale(graph, answer, has_storage=self._history is not None)
        if before is not None:
            self.request(before, now_ms)

    def cancel(self, now_ms: int) -> None:
        """End now. What no checkpoint covers is not committed."""
        if self.status.is_terminal or self.status is JobStatus.CANCELLING:
            return
        self._lifecycle.move(JobStatus.CANCELLING, "cancelled by the user")
        self._restart_at_ms = None
        if self._attempt is None:
            self._end(JobStatus.CANCELLED, JobCancelled(self._graph.job))
        else:
            self._cluster.cancel()

    def abandon(self) -> None:
        """The loop around us has failed: take the running attempt down."""
        if self._attempt is not None:
            self._cluster.cancel()

    def query(self, query: LiveQuery) -> None:
        """Have the subtask that owns a key say what it has under it."""
        current = self._attempt
        if current is None or current.failure is not None or self.status not in _AT_WORK:
            query.told(Refused(f"the job is {self.status.value}"))
        else:
            self._queries.ask(query, current.deployment.plan, self._cluster.send)

    # --- facts -----------------------------------------------------------------------------------

    def reported(self, attempt: int, subtask: SubtaskId, report: Report, now_ms: int) -> None:
        """A subtask has said something. What comes from another attempt is dropped."""
        current = self._attempt
        if current is None or attempt != current.deployment.attempt or current.failure is not None:
            return
        current.heartbeats.heard(subtask, report, now_ms)
        try:
            self._take(current, subtask, report, now_ms)
        except Fenced as error:
            self._fenced(error)
        self._after(current, now_ms)

    def line_lost(self, attempt: int, subtask: SubtaskId) -> None:
        """The control line to a subtask has broken before the job's end."""
        current = self._attempt
        if current is None or attempt != current.deployment.attempt:
            return
        if current.is_over:
            current.heartbeats.gone(subtask)
        else:
            self._fail(current, f"subtask {subtask} was lost{current.place(subtask)}")

    def attempt_ended(
        self, attempt: int, results: dict[str, list[Any]] | None, error: str | None, now_ms: int, raised: bool = False
    ) -> None:
        """The cluster says that nothing of the attempt runs any more. ``raised``: because of an error in a worker."""
        current = self._attempt
        if current is None or attempt != current.deployment.attempt:
            return
        self._finished_stats += current.checkpoints.stats
        self._attempt = None
        self._queries.ended(f"attempt {attempt} has ended")
        current.checkpoints.fail_requests(current.failure or error or "the job has ended")
        self._wishes.savepoint_of_stop()  # whatever became of it: this attempt will not be stopped any more
        if current.gives_way and self.status is not JobStatus.CANCELLING:
            self._lifecycle.move(JobStatus.RESTARTING, "rescaled")
            self._restart_at_ms = now_ms
            return
        if self.status is JobStatus.CANCELLING:
            self._end(JobStatus.CANCELLED, JobCancelled(self._graph.job))
        elif error is None and current.failure is None and results is not None:
            self.results = results
            ending.clean_up_sinks(self._graph)
            self._end(JobStatus.FINISHED, None)
        else:
            if current.failure is None and error is not None:
                current.cause = Cause.of(error, None if raised else True)
            self._consider_restart(current, current.failure or error or "the attempt ended early", now_ms)

    def time_passed(self, now_ms: int) -> None:
        if self._restart_at_ms is not None and now_ms >= self._restart_at_ms:
            self._restart_at_ms = None
            self._launch(now_ms)
        current = self._attempt
        if current is None or current.failure is not None or self.status is JobStatus.CANCELLING:
            return
        if (overdue := current.heartbeats.overdue(now_ms)) is not None:
            self._fail(current, overdue.text + current.place(overdue.subtask))
            return
        if self.status in _AT_WORK:
            try:
                current.checkpoints.time_passed(now_ms)
            except Fenced as error:
                self._fenced(error)
            self._after(current, now_ms)
            self._autoscale(current, now_ms)

    # --- inside ----------------------------------------------------------------------------------

    def _launch(self, now_ms: int) -> None:
        self._attempts += 1
        self._graph = self._wishes.starts(self._graph)
        self._lifecycle.move(JobStatus.STARTING, f"start number {self._attempts}")
        try:
            start = self._prepare()
        except StorageError as error:
            self._last_failure = str(error)
            self._schedule_restart(Cause.of(str(error), error.can_pass), now_ms, str(error))
            return
        except MoorlineError as error:
            self._end(JobStatus.FAILED, error)
            return
        deployment = replace(start.deployment, is_paused=self._wishes.stopped_with is not None)
        self.restored_from.append(deployment.restored or 0)
        checkpoints = AttemptCheckpoints(
            deployment,
            self._config.checkpoints,
            self._history,
            start.next_checkpoint,
            start.completed,
            self._cluster.send,
            now_ms,
            self._wall_ms,
            start.given_up,
            deployment.restore_location
            if self._config.restore_mode == "claim" and not self._wishes.stopped_with
            else None,
        )
        heartbeats = Heartbeats(
            deployment.plan.subtasks(), self._config.heartbeat_ms, self._config.start_timeout_ms, now_ms
        )
        self._attempt = RunningAttempt(deployment, checkpoints, now_ms, heartbeats, snapshot_bytes=start.snapshot_bytes)
        self.last_attempt = self._attempt
        self._checkpoints = checkpoints
        self._journal.starts(deployment)
        self._cluster.launch(deployment)

    def _prepare(self) -> Start:
        failpoint("driver.restore")
        config, stopped = self._config, self._wishes.stopped_with
        if stopped is not None:
            # Whoever goes on from that savepoint does what comes after it: we only commit what comes before.
            config = replace(config, restore=stopped.savepoint)
        if self._history is None:
            return start_without_storage(self._graph, Attempt(self._attempts), config)
        # Fresh until a claim has succeeded: what an earlier run of the job left behind is not ours to restore.
        fresh = config.restore != "latest" and not self._has_claimed
        stopped_at = stopped.answer.result() if stopped is not None else 0
        start = start_from_storage(
            self._graph, self._history, fresh, self._refused, self._wall_ms(), config, stopped_at
        )
        self._has_claimed = True
        return start

    def _take(self, current: RunningAttempt, subtask: SubtaskId, report: Report, now_ms: int) -> None:
        match report:
            case Connected():
                current.places[subtask] = report
            case Running():
                current.runs(subtask, report)
                self._maybe_running(current, now_ms)
            case Acknowledged():
                current.checkpoints.acknowledged(subtask, report, now_ms)
            case Declined():
                current.checkpoints.declined(subtask, report, now_ms)
            case InputEnded():
                current.checkpoints.input_ended(subtask)
            case Progress():
                current.progress[subtask] = report
                current.checkpoints.progressed(subtask, report)
            case Noticed(uid=uid, kind=kind, text=text):
                self._journal.noticed(uid, kind, text)
            case Answer():
                self._queries.answered(report)
            case Failed():
                self._subtask_failed(current, subtask, report)
            case _:
                assert_never(report)

    def _maybe_running(self, current: RunningAttempt, now_ms: int) -> None:
        if self.status is JobStatus.STARTING and current.is_complete:
            self._lifecycle.move(JobStatus.RUNNING, f"all subtasks of attempt {current.deployment.attempt} run")
            took_ms, read_bytes = now_ms - current.started_ms, sum(current.read_bytes.values())
            self._journal.runs(current.deployment.attempt, took_ms, read_bytes)
            for subtask, order in current.ways_back():
                self._cluster.send(subtask, order)
            for request in self._wishes.runs(current.deployment.attempt, now_ms):
                self.request(request, now_ms)
            self._maybe_stop(now_ms)

    def _maybe_stop(self, now_ms: int) -> None:
        if self._wishes.stop and self.status is JobStatus.RUNNING and self._attempt is not None:
            self._lifecycle.move(JobStatus.STOPPING, "stopped by the user")
            self._attempt.checkpoints.stop()
            self.time_passed(now_ms)

    def _fenced(self, error: Fenced) -> None:
        """Another driver owns the job now: stop, and change nothing."""
        self.error = error
        if self._attempt is not None:
            self._fail(self._attempt, str(error))

    def _after(self, current: RunningAttempt, now_ms: int) -> None:
        if current.checkpoints.failure is not None and current.failure is None:
            self._fail(current, current.checkpoints.failure)
        stop = self._wishes.savepoint_of_stop() if current.failure is None else None
        if stop is not None and stop.answer.exception() is None:
            self._wishes.stopped_with = stop
            self.stop(now_ms)
        elif stop is not None:
            # The sources have stopped reading; only another attempt makes them go on.
            self._fail(current, f"the savepoint before the stop failed: {stop.answer.exception()}")
        if current.failure is None and self._wishes.is_to_give_way():
            current.gives_way = True
            self._journal.gives_way(current.deployment.attempt)
            self._cluster.cancel()

    def _autoscale(self, current: RunningAttempt, now_ms: int) -> None:
        is_going_on = self.status is JobStatus.RUNNING and current.failure is None and not current.checkpoints.is_ending
        graph = self._wishes.autoscaled(current, self._cluster, now_ms) if is_going_on else None
        if graph is not None:
            self.rescale(graph, Future(), now_ms)

    def _subtask_failed(self, current: RunningAttempt, subtask: SubtaskId, report: Failed) -> None:
        restored = current.deployment.restored
        if report.corrupt and restored is not None:
            self._refused[restored] = report.error
            if self.restored_from[-1:] == [restored]:
                self.restored_from.pop()
        self._fail(current, current.failed(subtask, report))

    def _fail(self, current: RunningAttempt, why: str) -> None:
        if current.failure is None and not current.gives_way and self.status is not JobStatus.CANCELLING:
            current.failure = why
            current.cause = current.cause or Cause.of(why)
            self._journal.fails(current.deployment.attempt, why)
            self._cluster.cancel()

    def _consider_restart(self, ended: RunningAttempt, why: str, now_ms: int) -> None:
        self._last_failure = why
        self.history_of_failures.append(f"attempt {ended.deployment.attempt}: {first_line(why)}")
        if ended.failure is None:
            self._journal.fails(ended.deployment.attempt, why)
        if isinstance(self.error, (Fenced, LeadershipLost)):
            self._end(JobStatus.FAILED, self.error)
            return
        self._has_completed = self._has_completed or bool(ended.checkpoints.stats)
        self._reached = ended.checkpoints.last_completed
        is_own = ended.deployment.restore_location is None  # instead of a savepoint there is nothing to go back to
        if is_own and self._refused and ended.deployment.restored in self._refused:
            # Not the job's fault: go back to the next older checkpoint at once.
            self._lifecycle.move(JobStatus.RESTARTING, "the restored checkpoint is damaged")
            self._restart_at_ms = now_ms
            return
        self._schedule_restart(ended.cause, now_ms, why)

    def _schedule_restart(self, cause: Cause | None, now_ms: int, why: str) -> None:
        is_first = not self._has_completed
        failure = Failure(now_ms, None, self._reached)
        if cause is not None:
            failure = Failure(now_ms, cause.error, self._reached, cause.record, cause.can_pass, is_first)
        decision = self._restarts.handle(failure)
        if isinstance(decision, GiveUp):
            error = JobFailed(self._graph.job, decision.reason, self._last_failure, self.history_of_failures)
            self._end(JobStatus.FAILED, error)
        else:
            self._journal.restarts(decision, why)
            self._lifecycle.move(JobStatus.RESTARTING, first_line(why))
            self._restart_at_ms = failure.now_ms + decision.delay_ms

    def _end(self, status: JobStatus, error: MoorlineError | None) -> None:
        self.error = error
        self._wishes.ended(status, error)
        config = self._config.checkpoints
        is_unwanted = config is not None and config.at_end == "delete" and status is not JobStatus.FAILED
        self.is_tidy = ending.leave_storage(
            self._history,
            self._checkpoints,
            status,
            error,
            is_unwanted and self._has_claimed,
            self._wall_ms(),
            self._wishes.stopped_with,
        )
        self._journal.ended(status.value, self._attempts, error)
        self._lifecycle.move(status, str(error) if error else "all done")
