"""One job on the driver, as ``protocol/job.py`` decides and this obeys.

Never blocks and reads no clock of its own: facts and requests come in by method calls and become events, actions go
out through :class:`Cluster`. ``driver/loop.py`` runs it on a thread of the Spark driver,
``testing/simulation/simulator.py`` in a simulated world.

A subtask of an attempt that has ended may live on even so: it is fenced by the attempt number.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, assert_never

from moorline.api.listeners import JobEvent
from moorline.driver.attempts.launcher import Launcher
from moorline.driver.attempts.running import RunningAttempt, cause_of
from moorline.driver.autoscaler import Autoscaler
from moorline.driver.cluster import Cluster
from moorline.driver.journal import Journal
from moorline.driver.observation.attempts import AttemptHistory
from moorline.driver.observation.observation import Observation
from moorline.driver.observation.report import publish_progress
from moorline.driver.observed_job import ObservedJob
from moorline.driver.queries.pending import LiveQuery, PendingQueries, QueryRefused
from moorline.driver.requests import PendingRequests, RescaleRequest, SnapshotRequest
from moorline.errors import LeadershipLost, MoorlineError, StorageError
from moorline.model.config.run import RunConfig
from moorline.model.graph import Graph
from moorline.model.ids import SubtaskId
from moorline.model.wire.messages import Answer as QueryAnswer
from moorline.model.wire.messages import InputTaken, Noticed, Progress, Report
from moorline.protocol.job import Failing, GivingWay, JobDecisions
from moorline.protocol.restarts import Restarts
from moorline.protocol.supervision import events as on
from moorline.protocol.supervision.lifecycle import JobStatus
from moorline.protocol.supervision.requests import (
    Answer,
    Requests,
    RescaleRequested,
    SnapshotRequested,
    StopRequested,
    TakeFinalCheckpoint,
    TakeSnapshot,
)
from moorline.storage.history import History


class Supervision(ObservedJob):
    """Keeps one job going until it has finished, failed or been cancelled."""

    def __init__(
        self,
        graph: Graph,
        config: RunConfig,
        history: History | None,
        cluster: Cluster,
        chance: random.Random,
        wall_ms: Callable[[], int],
        publish: Callable[[JobEvent], None] = lambda event: None,
    ) -> None:
        requests = Requests(graph.job, has_storage=history is not None)
        job = JobDecisions(graph.job, Restarts(config.restart_strategy, chance), requests)
        observation = Observation(graph.job, wall_ms, publish, takes_checkpoints=config.checkpoints is not None)
        super().__init__(job, Launcher(graph, config, history, wall_ms, observation.checkpoints), observation)
        self._cluster = cluster
        self._pending = PendingRequests()
        self._autoscaler = None if config.autoscale is None else Autoscaler(config.autoscale)
        self._journal = Journal(graph.job)
        self._queries = PendingQueries()

    def next_wakeup_ms(self) -> int | None:
        """The time at which :meth:`time_passed` is due at the latest."""
        current = self.running
        if current is not None and self._job.is_at_work:
            return current.checkpoints.next_wakeup_ms()
        return self._job.due_ms

    # --- requests --------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Launch the first attempt, unless the job was cancelled while it waited for its turn."""
        self._handle(on.StartAllowed(), now_ms)

    def wait(self, now_ms: int) -> None:
        """Another driver may lead the job: do nothing until :meth:`start`."""
        self._handle(on.LeaderAwaited(), now_ms)

    def stop(self, now_ms: int) -> None:
        """End well: a final checkpoint, everything committed."""
        self._handle(StopRequested(), now_ms)

    def request(self, request: SnapshotRequest, now_ms: int) -> None:
        """Take a savepoint as soon as the job runs."""
        self._handle(SnapshotRequested(self._pending.add(request), request.savepoint), now_ms)

    def stop_with_savepoint(self, request: SnapshotRequest, now_ms: int) -> None:
        """A savepoint, and then the end. If there is no savepoint the job goes on, from its newest checkpoint."""
        self._handle(StopRequested(self._pending.add(request), request.savepoint), now_ms)

    def rescale(self, graph: Graph, answer: Future[int], now_ms: int) -> None:
        """Go on with other parallelism: a checkpoint, then another attempt from it. Nothing is lost or done twice."""
        self._handle(RescaleRequested(self._pending.add(RescaleRequest(graph, answer))), now_ms)

    def cancel(self, now_ms: int) -> None:
        """End now. What no checkpoint covers is not committed."""
        self._handle(on.CancelRequested(), now_ms)

    def abandon(self) -> None:
        """The loop around us has failed: take the running attempt down."""
        if self.running is not None:
            self._cluster.cancel()

    def query(self, query: LiveQuery) -> None:
        """Have the subtask that owns a key say what it has under it."""
        current = self.running
        if current is None or not self._job.is_at_work:
            query.on_result(QueryRefused(f"the job is {self.status.value}"))
        else:
            self._queries.ask(query, current.deployment.plan, self._cluster.send)

    # --- facts -----------------------------------------------------------------------------------

    def leadership_lost(self, error: LeadershipLost) -> None:
        """Another driver may lead from now on: stop, and change nothing."""
        self._handle(on.Superseded(error), 0)

    def ended_elsewhere(self, outcome: str) -> None:
        """The driver that we waited for has seen the job to its end."""
        self._handle(on.EndedElsewhere(JobStatus(outcome)), 0)

    def reported(self, attempt: int, subtask: SubtaskId, report: Report, now_ms: int) -> None:
        """A subtask has said something. What comes from another attempt is dropped."""
        current = self.running
        if current is None or attempt != current.number or not self._job.listens:
            return
        current.heartbeats.heard(subtask, report, now_ms)
        root = current.deployment.plan.vertices[subtask.vertex].operators[0]
        self.observation.reported(attempt, subtask, report, root, now_ms)
        if isinstance(report, Noticed):
            self._journal.noticed(report.uid, report.kind, report.text)
        elif isinstance(report, QueryAnswer):
            self._queries.answered(report)
        elif isinstance(report, InputTaken):
            for sender, order in current.sent_ahead(subtask, report):
                self._cluster.send(sender, order)
        else:
            if isinstance(report, Progress):
                self._journal.outages(subtask, report.outages)
            self._handle(current.reported(subtask, report, now_ms), now_ms)

    def line_lost(self, attempt: int, subtask: SubtaskId) -> None:
        """The control line to a subtask has broken before the job's end."""
        current = self.running
        if current is None or attempt != current.number:
            return
        if current.is_over:
            current.heartbeats.gone(subtask)
        else:
            self._handle(current.lost(f"subtask {subtask} was lost{current.place(subtask)}"), 0)
            _note_loss(current, subtask, self.observation.attempts, self._journal)

    def attempt_ended(
        self, attempt: int, results: dict[str, list[Any]] | None, error: str | None, now_ms: int, raised: bool = False
    ) -> None:
        """The cluster says that nothing of the attempt runs any more. ``raised``: because of an error in a worker."""
        current = self.running
        if current is None or attempt != current.number:
            return
        self._finished_stats += current.checkpoints.stats
        current.has_ended = True
        self._journal.forget_outages()
        self.observation.attempt_ended(attempt, error is None and results is not None, now_ms)
        current.checkpoints.close()
        self._queries.ended(f"attempt {attempt} has ended")
        self.results = results or {}  # before another thread sees that the job has finished
        event = on.AttemptEnded(
            attempt,
            now_ms,
            succeeded=error is None and results is not None,
            error=error or "",
            cause=cause_of(error, None if raised else True) if error is not None else None,
            reached=current.checkpoints.last_completed,
            has_completed=bool(current.checkpoints.stats),
            is_damaged=self._launcher.is_damaged(current),
        )
        self._handle(event, now_ms)

    def time_passed(self, now_ms: int) -> None:
        self._handle(on.TimePassed(now_ms), now_ms)
        current = self.running
        if current is None or not self._job.listens or self.status is JobStatus.CANCELLING:
            return
        if (overdue := current.heartbeats.overdue(now_ms)) is not None:
            self._handle(current.lost(overdue.text + current.place(overdue.subtask)), now_ms)
            _note_loss(current, overdue.subtask, self.observation.attempts, self._journal)
        elif self._job.is_at_work:
            self._handle(current.time_passed(now_ms), now_ms)
            self._autoscale(current, now_ms)
            self.observation.time_passed(current.deployment, now_ms)
            if self.observation.is_progress_due(now_ms):
                publish_progress(self.observation, current, self._job.status)

    # --- inside ----------------------------------------------------------------------------------

    def _handle(self, event: on.Event | None, now_ms: int) -> None:
        """Obey what follows from an event, and from the events that this leads to."""
        events = deque([event] if event is not None else self._pop_events())
        while events:
            for action in self._job.handle(events.popleft()):
                led_to = self._obey(action, now_ms)
                if led_to is not None:
                    events.append(led_to)
            # After the actions: a thread that sees that a job has ended finds its storage in order.
            self.status = self._job.status
            events.extend(self._pop_events() if not events else ())

    def _pop_events(self) -> list[on.Event]:
        current = self.running
        return current.pop_events() if current is not None else []

    def _obey(self, action: on.Action, now_ms: int) -> on.Event | None:
        match action:
            case on.Launch():
                return self._launch(action, now_ms)
            case on.CancelAttempt():
                self._cancel(action)
            case on.NoteFailure(attempt, why):
                self._journal.fails(attempt, why)
                self.observation.attempts.failed(attempt, why)
            case on.AwaitRestart(_, why):
                self._journal.restarts(action, why)
                self.observation.restarts(self.last_attempt.number if self.last_attempt else 0, action)
                publish_progress(self.observation, self.last_attempt, self._job.status)
            case Answer():
                self._pending.answer(action)
            case on.Begin() | TakeSnapshot() | TakeFinalCheckpoint():
                current = self.running
                assert current is not None, f"{action}: there is no attempt"
                return self._work(current, action, now_ms)
            case on.End(status, error, stopped):
                self.error = error
                self.is_tidy = self._launcher.leave(self.last_attempt, status, error, stopped)
                self._journal.ended(status.value, self._launcher.tries, error)
                publish_progress(self.observation, self.last_attempt, status)
                why = "" if error is None else str(error)
                self.observation.publish("terminated", status=status.value, attempts=self._launcher.tries, error=why)
            case _:
                assert_never(action)
        return None

    def _launch(self, action: on.Launch, now_ms: int) -> on.Event:
        if action.rescale is not None:
            self._launcher.graph = self._pending.graph(action.rescale)
        try:
            current = self._launcher.prepare(action.stopped, self._cluster, now_ms)
        except StorageError as error:
            return on.LaunchFailed(error, cause_of(str(error), error.can_pass), now_ms)
        except MoorlineError as error:
            return on.LaunchFailed(error, None, now_ms)
        self.last_attempt = current
        self._journal.starts(current.deployment)
        self.observation.launched(current.deployment)
        self._cluster.launch(current.deployment)
        return on.AttemptLaunched(current.number)

    def _cancel(self, action: on.CancelAttempt) -> None:
        match self._job.state:
            case Failing():
                self._journal.fails(action.attempt, action.why)
                self.observation.attempts.failed(action.attempt, action.why)
            case GivingWay():
                self._journal.gives_way(action.attempt)
                self.observation.attempts.gives_way(action.attempt)
            case _:
                pass
        self._cluster.cancel()

    def _work(
        self, current: RunningAttempt, action: on.Begin | TakeSnapshot | TakeFinalCheckpoint, now_ms: int
    ) -> on.Event | None:
        match action:
            case on.Begin(_, rescaled):
                self._begin(current, rescaled, now_ms)
                return None
            case TakeSnapshot():
                current.checkpoints.order(self._pending.order(action))
            case TakeFinalCheckpoint():
                current.checkpoints.stop()
        return current.time_passed(now_ms)

    def _begin(self, current: RunningAttempt, rescaled: bool, now_ms: int) -> None:
        took_ms, read_bytes = now_ms - current.started_ms, sum(current.read_bytes.values())
        self._journal.runs(current.number, took_ms, read_bytes)
        self.observation.attempts.runs(current.number, took_ms, read_bytes)
        for subtask, order in current.feedback_addresses():
            self._cluster.send(subtask, order)
        if self._autoscaler is not None:
            self._autoscaler.began(now_ms, rescaled)

    def _autoscale(self, current: RunningAttempt, now_ms: int) -> None:
        if self._autoscaler is None or not self._job.may_rescale or current.checkpoints.is_ending:
            return
        graph = self._autoscaler.wanted(current.deployment.plan, current.progress, self._cluster.has_room, now_ms)
        if graph is not None:
            self.rescale(graph, Future(), now_ms)


def _note_loss(current: RunningAttempt, subtask: SubtaskId, attempts: AttemptHistory, journal: Journal) -> None:
    """Note on which machine a subtask was lost, if the attempt has failed of it."""
    place = current.places.get(subtask)
    uid, host = current.deployment.plan.vertices[subtask.vertex].operators[0], place.host if place is not None else ""
    has_others = any(other.host != host for other in current.places.values())
    if attempts.lost(current.number, uid, str(subtask), host) and has_others:
        journal.loses(host, attempts.losses)
