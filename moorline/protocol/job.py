"""The life of a job: one attempt after the other, until it has finished, failed or been cancelled.

One attempt runs at a time. It is cancelled when it fails, when it gives way to one with another parallelism, and when
the job is cancelled; the next one is launched after the cluster has reported its end.

    CREATED      may start                         -> LAUNCHING; another driver may lead -> STANDBY
    STANDBY      may start                         -> LAUNCHING; stopped, or ended elsewhere -> OVER
    LAUNCHING    launched                          -> STARTING
                 not launched                      -> RESTARTING, or OVER if no other try can help
    STARTING     all subtasks run                  -> RUNNING, requests that waited are granted
    RUNNING      the final checkpoint is asked for -> STOPPING
                 another parallelism, or a stop whose savepoint failed: GIVING WAY, FAILING (STOPPING too)
                 the attempt has ended well        -> OVER, finished (STOPPING too)
    FAILING      the attempt has ended             -> RESTARTING, or OVER if the restart strategy gives up
    GIVING WAY   the attempt has ended             -> RESTARTING, at once
    CANCELLING   the attempt has ended             -> OVER, cancelled
    RESTARTING   the delay has passed              -> LAUNCHING
    any          the attempt fails -> FAILING; cancel -> CANCELLING, or OVER without an attempt
                 another driver leads -> FAILING, then OVER without a restart

Requests to the job are in ``protocol/supervision/requests.py``, whether to try again in ``protocol/restarts.py``, and
the status that people see in ``protocol/supervision/lifecycle.py``; this holds the three together. Nothing follows
:class:`End` but refusals of requests that come too late.

No I/O, no clock. ``driver/supervision.py`` obeys it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import assert_never

from moorline.errors import InvalidTransition, JobCancelled, JobFailed, MoorlineError
from moorline.protocol.restarts import Failure, GiveUp, Restarts
from moorline.protocol.supervision.events import (
    Action,
    AttemptEnded,
    AttemptEvent,
    AttemptFailed,
    AttemptLaunched,
    AttemptRuns,
    AwaitRestart,
    Begin,
    CancelAttempt,
    CancelRequested,
    Cause,
    End,
    EndedElsewhere,
    Event,
    Launch,
    LaunchFailed,
    LeaderAwaited,
    LeaderEvent,
    NoteFailure,
    RequestEvent,
    StartAllowed,
    Superseded,
    TimePassed,
    first_line,
)
from moorline.protocol.supervision.lifecycle import JobStatus, Lifecycle
from moorline.protocol.supervision.requests import Action as RequestAction
from moorline.protocol.supervision.requests import (
    Answer,
    GiveWay,
    Requests,
    RescaleRequested,
    SnapshotFailed,
    SnapshotRequested,
    SnapshotTaken,
    StartOver,
    StopRequested,
    TakeFinalCheckpoint,
    TakeSnapshot,
)

# --- states -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Idle:
    """No attempt, and none due: created, standing by, or over."""

    status: JobStatus


@dataclass(frozen=True, slots=True)
class Launching:
    status: JobStatus = JobStatus.STARTING


@dataclass(frozen=True, slots=True)
class Restarting:
    due_ms: int
    status: JobStatus = JobStatus.RESTARTING


@dataclass(frozen=True, slots=True)
class Working:
    """An attempt that nothing is wrong with: it is starting, running or stopping."""

    attempt: int
    status: JobStatus = JobStatus.STARTING


@dataclass(frozen=True, slots=True)
class Failing:
    """It is being cancelled. People see the status it had."""

    attempt: int
    status: JobStatus
    why: str
    cause: Cause | None
    #: Another driver leads: there is no restart.
    superseded: MoorlineError | None = None


@dataclass(frozen=True, slots=True)
class GivingWay:
    """It is being cancelled for one with another parallelism."""

    attempt: int
    status: JobStatus


@dataclass(frozen=True, slots=True)
class Cancelling:
    attempt: int
    status: JobStatus = JobStatus.CANCELLING


State = Idle | Launching | Restarting | Working | Failing | GivingWay | Cancelling


_S = JobStatus
#: In these no request is granted any more.
_ENDING = (_S.STOPPING, _S.CANCELLING, _S.FINISHED, _S.FAILED, _S.CANCELLED)


@dataclass(slots=True)
class JobDecisions:
    """One job on its driver. Feed it events; obey the actions in their order."""

    name: str
    restarts: Restarts
    requests: Requests
    life: Lifecycle = field(default_factory=Lifecycle)
    state: State = Idle(JobStatus.CREATED)
    #: One line for every attempt that failed.
    failures: list[str] = field(default_factory=list)
    #: Has a checkpoint been completed in this run, and which one had the last attempt got to?
    has_completed: bool = False
    reached: int = 0

    def handle(self, event: Event) -> list[Action]:
        if isinstance(self.state, Launching) and not isinstance(event, AttemptLaunched | LaunchFailed):
            raise InvalidTransition("job", "launching", str(event), self.life.story)
        match event:
            case SnapshotRequested() | StopRequested() | RescaleRequested() | SnapshotTaken() | SnapshotFailed():
                return self._request(event)
            case LeaderAwaited() | StartAllowed() | Superseded() | EndedElsewhere():
                return self._leader(event)
            case AttemptLaunched() | LaunchFailed() | AttemptRuns() | AttemptFailed() | AttemptEnded():
                return self._attempt(event)
            case CancelRequested():
                return self._cancel()
            case TimePassed(now_ms):
                is_due = isinstance(self.state, Restarting) and now_ms >= self.state.due_ms
                return self._launch() if is_due else []
            case _:
                assert_never(event)

    # --- questions -------------------------------------------------------------------------------

    @property
    def status(self) -> JobStatus:
        return self.state.status

    @property
    def attempt(self) -> int | None:
        """The attempt that has not ended yet."""
        return None if isinstance(self.state, Idle | Launching | Restarting) else self.state.attempt

    @property
    def listens(self) -> bool:
        """Do reports of the attempt still count?"""
        return isinstance(self.state, Working | GivingWay | Cancelling)

    @property
    def is_at_work(self) -> bool:
        """Are checkpoints of the attempt taken?"""
        return isinstance(self.state, Working | GivingWay) and self.status in (_S.RUNNING, _S.STOPPING)

    @property
    def may_rescale(self) -> bool:
        """Would a rescale be granted at once?"""
        return self._runs and self.requests.rescale is None and self.requests.stop is None

    @property
    def due_ms(self) -> int | None:
        """The time at which :class:`TimePassed` launches the next attempt."""
        return self.state.due_ms if isinstance(self.state, Restarting) else None

    @property
    def _runs(self) -> bool:
        return isinstance(self.state, Working) and self.status is _S.RUNNING

    # --- requests --------------------------------------------------------------------------------

    def _request(self, event: RequestEvent) -> list[Action]:
        if event == StopRequested() and self.status is _S.WAITING:
            return self._end(_S.FINISHED, None)  # there is nothing of ours to end
        refusal = f"the job is {self.status.value}" if self.status in _ENDING else ""
        return self._grant(self.requests.handle(event, runs=self._runs, refusal=refusal))

    def _grant(self, wanted: list[RequestAction]) -> list[Action]:
        actions: list[Action] = []
        for action in wanted:
            match action:
                case Answer() | TakeSnapshot():
                    actions.append(action)
                case TakeFinalCheckpoint():
                    if self._runs:
                        assert isinstance(self.state, Working)
                        self._enter(replace(self.state, status=_S.STOPPING), "stopped by the user")
                        actions.append(action)
                case GiveWay():
                    if isinstance(self.state, Working):
                        attempt = self.state.attempt
                        self._enter(GivingWay(attempt, self.status), "rescaled")
                        actions.append(CancelAttempt(attempt, str(action)))
                case StartOver(why):
                    actions += self._fail(why, Cause("the savepoint before the stop failed"))
                case _:
                    assert_never(action)
        return actions

    def _cancel(self) -> list[Action]:
        if self.status.is_terminal or isinstance(self.state, Cancelling):
            return []
        attempt = self.attempt
        if attempt is None:
            return self._end(_S.CANCELLED, JobCancelled(self.name))
        self._enter(Cancelling(attempt), "cancelled by the user")
        return [CancelAttempt(attempt, "the job is cancelled")]

    # --- leadership ------------------------------------------------------------------------------

    def _leader(self, event: LeaderEvent) -> list[Action]:
        match event:
            case LeaderAwaited():
                self._enter(Idle(_S.WAITING), "another driver may lead the job")
                return []
            case StartAllowed():
                # Cancelled or stopped while it waited for its turn.
                return [] if self.status.is_terminal else self._launch()
            case Superseded(error):
                return self._superseded(error)
            case EndedElsewhere(outcome):
                if self.status is not _S.WAITING:
                    return []
                failed = JobFailed(self.name, "it failed under another driver, whose log says why", "")
                errors = {_S.CANCELLED: JobCancelled(self.name), _S.FAILED: failed}
                return self._end(outcome, errors.get(outcome))
            case _:
                assert_never(event)

    def _superseded(self, error: MoorlineError) -> list[Action]:
        match self.state:
            case Failing():
                self.state = replace(self.state, superseded=error)
                return []
            case Working(attempt, status) | GivingWay(attempt, status):
                self._enter(Failing(attempt, status, str(error), None, error), "another driver leads")
                return [CancelAttempt(attempt, str(error))]
            case Cancelling():
                return []
            case _:
                return [] if self.status.is_terminal else self._end(_S.FAILED, error)

    # --- attempts --------------------------------------------------------------------------------

    def _launch(self) -> list[Action]:
        self._enter(Launching(), "an attempt is launched")
        return [Launch(self.requests.launching(), self.requests.stopped)]

    def _attempt(self, event: AttemptEvent) -> list[Action]:
        match event:
            case AttemptLaunched(attempt) if isinstance(self.state, Launching):
                self._enter(Working(attempt), f"attempt {attempt}")
                return []
            case LaunchFailed(error, cause, now_ms) if isinstance(self.state, Launching):
                if cause is None:
                    return self._end(_S.FAILED, error)
                return self._try_again(str(error), cause, now_ms)
            case AttemptLaunched() | LaunchFailed():
                raise InvalidTransition("job", self.status.value, str(event), self.life.story)
            case _ if event.attempt != self.attempt:
                return []
            case AttemptRuns(attempt):
                if self.status is not _S.STARTING or not isinstance(self.state, Working):
                    return []
                self._enter(replace(self.state, status=_S.RUNNING), f"all subtasks of attempt {attempt} run")
                begin = Begin(attempt, rescaled=self.requests.rescale is not None)
                return [begin, *self._grant(self.requests.attempt_runs(attempt))]
            case AttemptFailed(_, why, cause):
                return self._fail(why, cause)
            case AttemptEnded():
                return self._ended(event)

    def _fail(self, why: str, cause: Cause) -> list[Action]:
        if not isinstance(self.state, Working):
            return []
        attempt = self.state.attempt
        self._enter(Failing(attempt, self.status, why, cause), why)
        return [CancelAttempt(attempt, why)]

    def _ended(self, event: AttemptEnded) -> list[Action]:
        state, error = self.state, event.error
        why = state.why if isinstance(state, Failing) else error
        actions = self._grant(self.requests.attempt_ended(why or "the job has ended"))
        self.has_completed = self.has_completed or event.has_completed
        self.reached = event.reached
        match state:
            case Cancelling():
                return actions + self._end(_S.CANCELLED, JobCancelled(self.name))
            case GivingWay():
                self._enter(Restarting(event.now_ms), "rescaled")
                return actions
            case Working() if event.succeeded:
                return actions + self._end(_S.FINISHED, None)
        why = why or "the attempt ended early"
        self.failures.append(f"attempt {event.attempt}: {first_line(why)}")
        if not isinstance(state, Failing):
            actions.append(NoteFailure(event.attempt, why))
        elif state.superseded is not None:
            return actions + self._end(_S.FAILED, state.superseded)
        if event.is_damaged:
            # Not the job's fault: go back to the next older checkpoint at once.
            self._enter(Restarting(event.now_ms), "the restored checkpoint is damaged")
            return actions
        cause = state.cause if isinstance(state, Failing) else event.cause
        return actions + self._try_again(why, cause, event.now_ms)

    def _try_again(self, why: str, cause: Cause | None, now_ms: int) -> list[Action]:
        failure = Failure(now_ms, None, self.reached)
        if cause is not None:
            is_first = not self.has_completed
            failure = Failure(now_ms, cause.error, self.reached, cause.record, cause.can_pass, is_first)
        decision = self.restarts.handle(failure)
        if isinstance(decision, GiveUp):
            return self._end(_S.FAILED, JobFailed(self.name, decision.reason, why, self.failures))
        self._enter(Restarting(now_ms + decision.delay_ms), first_line(why))
        return [AwaitRestart(decision.delay_ms, why)]

    def _end(self, status: JobStatus, error: MoorlineError | None) -> list[Action]:
        answers = self._grant(self.requests.job_ended(status.value, error))
        if status is _S.CANCELLED and self.status is not _S.CANCELLING:
            self.life.move(_S.CANCELLING, "cancelled")
        self._enter(Idle(status), str(error) if error is not None else "all done")
        return [*answers, End(status, error, self.requests.stopped)]

    def _enter(self, state: State, why: str) -> None:
        if state.status is not self.life.status:
            self.life.move(state.status, why)
        self.state = state
