"""The life of a job as conversations, and in every order of events that hypothesis comes up with."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import transcript
from hypothesis import given, settings
from hypothesis import strategies as st
from test_transcripts import Speaker, transcripts_of

from moorline.errors import InvalidTransition, LeadershipLost, MoorlineError, SavepointFailed, StorageError
from moorline.model.config.restarts import FixedDelay
from moorline.protocol.job import Idle, JobDecisions, Launching, Restarting
from moorline.protocol.restarts import Restarts
from moorline.protocol.supervision import events as on
from moorline.protocol.supervision.lifecycle import JobStatus
from moorline.protocol.supervision.requests import (
    Answer,
    Requests,
    RescaleRequested,
    SnapshotFailed,
    SnapshotRequested,
    SnapshotTaken,
    StopRequested,
    TakeFinalCheckpoint,
    TakeSnapshot,
)


def new_job(restarts: int = 3, delay_ms: int = 1000, has_storage: bool = True) -> JobDecisions:
    strategy = FixedDelay(restarts, f"{delay_ms}ms")
    return JobDecisions("orders", Restarts(strategy, random.Random(0)), Requests("orders", has_storage))


class JobSpeaker(Speaker):
    lines = [
        (r"a job with (\d+) restarts, each after (\d+) ms", "job"),
        (r"it may start", "may_start"),
        (r"another driver may lead", "awaits"),
        (r"another driver leads", "superseded"),
        (r"under the other driver it has (\w+)", "elsewhere"),
        (r"attempt (\d+) is launched", "launched"),
        (r"at (\d+) the launch fails: (.+)", "launch_fails"),
        (r"attempt (\d+) runs", "runs"),
        (r"attempt (\d+) fails: (.+)", "fails"),
        (r"attempt (\d+) ends at (\d+)(?:: (.+))?", "ends"),
        (r"attempt (\d+) ends well at (\d+)", "ends_well"),
        (r"attempt (\d+) ends at (\d+), its checkpoint was damaged", "ends_damaged"),
        (r"stop", "stop"),
        (r"request (\d+): stop with savepoint (\w+)", "stop_with"),
        (r"request (\d+): savepoint (\w+)", "savepoint"),
        (r"request (\d+): another parallelism", "rescale"),
        (r"snapshot (\d+) of request (\d+) is there", "taken"),
        (r"the snapshot of request (\d+) fails: (.+)", "not_taken"),
        (r"cancel", "cancel"),
        (r"at (\d+)", "at"),
        (r"what is its status\?", "status"),
    ]

    def job(self, restarts, delay):
        self.machine = new_job(int(restarts), int(delay))

    def tell(self, event):
        try:
            return self.machine.handle(event)
        except InvalidTransition as error:
            return [f"invalid: {error.machine}, {error.state}"]

    def may_start(self):
        return self.tell(on.StartAllowed())

    def awaits(self):
        return self.tell(on.LeaderAwaited())

    def superseded(self):
        return self.tell(on.Superseded(LeadershipLost("orders", "another driver has taken over")))

    def elsewhere(self, outcome):
        return self.tell(on.EndedElsewhere(JobStatus(outcome)))

    def launched(self, attempt):
        return self.tell(on.AttemptLaunched(int(attempt)))

    def launch_fails(self, now, why):
        error = StorageError("s3://bucket", "read", why)
        return self.tell(on.LaunchFailed(error, on.Cause(why), int(now)))

    def runs(self, attempt):
        return self.tell(on.AttemptRuns(int(attempt)))

    def fails(self, attempt, why):
        return self.tell(on.AttemptFailed(int(attempt), why, on.Cause(why)))

    def ends(self, attempt, now, error):
        cause = on.Cause(error) if error else None
        return self.tell(on.AttemptEnded(int(attempt), int(now), error=error or "", cause=cause))

    def ends_well(self, attempt, now):
        return self.tell(on.AttemptEnded(int(attempt), int(now), succeeded=True))

    def ends_damaged(self, attempt, now):
        return self.tell(on.AttemptEnded(int(attempt), int(now), is_damaged=True))

    def stop(self):
        return self.tell(StopRequested())

    def stop_with(self, request, place):
        return self.tell(StopRequested(int(request), place))

    def savepoint(self, request, place):
        return self.tell(SnapshotRequested(int(request), place))

    def rescale(self, request):
        return self.tell(RescaleRequested(int(request)))

    def taken(self, checkpoint, request):
        return self.tell(SnapshotTaken(int(request), int(checkpoint)))

    def not_taken(self, request, why):
        return self.tell(SnapshotFailed(int(request), why))

    def cancel(self):
        return self.tell(on.CancelRequested())

    def at(self, now):
        return self.tell(on.TimePassed(int(now)))

    def status(self):
        return [self.machine.status.value]


@transcripts_of("job")
def test_job(path):
    transcript.run(path, JobSpeaker())


def test_a_job_has_its_stories():
    assert len(transcript.of("job")) >= 8


# --- every order of events ----------------------------------------------------------------------


class World:
    """Obeys a job, and looks at every action: is it possible, and is every request answered once?"""

    def __init__(self, restarts: int, has_storage: bool, launches: random.Random) -> None:
        self.job = new_job(restarts, 10, has_storage)
        self.launches = launches
        self.now = 0
        self.attempt = 0
        self.is_alive = False
        self.asked: list[int] = []
        self.answers: Counter[int] = Counter()
        self.under_way: list[int] = []
        self.ends: list[on.End] = []

    def tell(self, event: on.Event) -> None:
        for action in self.job.handle(event):
            assert str(action)
            assert not self.ends or isinstance(action, Answer), f"{action}, after the end"
            match action:
                case on.Launch():
                    self.launch()
                case on.CancelAttempt(attempt) | on.Begin(attempt):
                    assert self.is_alive and attempt == self.attempt
                case TakeSnapshot(request):
                    assert self.is_alive and request in self.asked
                    self.under_way.append(request)
                case TakeFinalCheckpoint():
                    assert self.is_alive
                case Answer(request):
                    assert request in self.asked
                    self.answers[request] += 1
                    assert self.answers[request] == 1, f"request {request} is answered again"
                case on.End():
                    assert not self.is_alive
                    self.ends.append(action)

    def launch(self) -> None:
        assert not self.is_alive, "one attempt at a time"
        if self.launches.random() < 0.2:
            error = StorageError("memory://", "read", "it is away")
            self.tell(on.LaunchFailed(error, on.Cause("away") if self.launches.random() < 0.7 else None, self.now))
            return
        self.attempt += 1
        self.is_alive = True
        self.under_way = []
        self.tell(on.AttemptLaunched(self.attempt))

    def end_attempt(self, attempt: int, succeeded: bool, damaged: bool) -> None:
        if attempt == self.attempt:
            if not self.is_alive:
                return  # the cluster says so once
            self.is_alive = False
        error = "" if succeeded else "lost"
        # A job that has not begun cannot have come to its end.
        is_well = succeeded and self.job.status is not JobStatus.STARTING
        self.tell(on.AttemptEnded(attempt, self.now, is_well, error, is_damaged=damaged))

    def ask(self, kind: str) -> None:
        number = len(self.asked) + 1
        self.asked.append(number)
        events = {
            "savepoint": SnapshotRequested(number, f"place-{number}"),
            "stop with a savepoint": StopRequested(number, f"place-{number}"),
            "rescale": RescaleRequested(number),
        }
        self.tell(events[kind])

    def check(self) -> None:
        state = self.job.state
        assert not isinstance(state, Launching)
        assert (self.job.attempt == self.attempt) == self.is_alive
        is_over = isinstance(state, Idle) and state.status.is_terminal
        assert is_over == bool(self.ends)
        assert len(self.ends) <= 1
        if is_over:
            assert all(self.answers[n] == 1 for n in self.asked), "nobody waits for ever"
        else:
            # It goes on: an attempt lives, one is due, or it has not been its turn yet.
            first = (JobStatus.CREATED, JobStatus.WAITING)
            assert self.is_alive or isinstance(state, Restarting) or state.status in first
        assert self.job.status is self.job.life.status

    def step(self, kind: str, number: int, flag: bool) -> None:
        attempt = max(0, self.attempt - (number == 3))  # some events are late, of the attempt before
        match kind:
            case "start" if self.attempt == 0 and self.job.status in (JobStatus.CREATED, JobStatus.WAITING):
                self.tell(on.StartAllowed())
            case "await" if self.job.status is JobStatus.CREATED:
                self.tell(on.LeaderAwaited())
            case "runs":
                self.tell(on.AttemptRuns(attempt))
            case "fails":
                self.tell(on.AttemptFailed(attempt, f"boom {number}", on.Cause(f"boom {number}")))
            case "ends" if attempt:
                self.end_attempt(attempt, flag, number == 2)
            case "savepoint" | "rescale" | "stop with a savepoint":
                self.ask(kind)
            case "stop":
                self.tell(StopRequested())
            case "cancel":
                self.tell(on.CancelRequested())
            case "taken" if self.under_way:
                self.tell(SnapshotTaken(self.under_way[number % len(self.under_way)], 7))
            case "not taken" if self.under_way:
                self.tell(SnapshotFailed(self.under_way[number % len(self.under_way)], "full"))
            case "superseded":
                self.tell(on.Superseded(LeadershipLost("orders", "taken over")))
            case "elsewhere":
                self.tell(on.EndedElsewhere((JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELLED)[number % 3]))
            case "time":
                self.now += 10 * number
                self.tell(on.TimePassed(self.now))


OFTEN = ["runs", "time", "ends", "taken", "savepoint", "rescale", "stop with a savepoint", "start"]
SELDOM = ["await", "fails", "stop", "cancel", "not taken", "superseded", "elsewhere"]
steps = st.tuples(st.sampled_from(OFTEN * 3 + SELDOM), st.integers(0, 3), st.booleans())


@settings(max_examples=400)
@given(st.integers(0, 5), st.booleans(), st.integers(0, 2**32), st.lists(steps, max_size=60))
def test_a_job_ends_or_goes_on_and_answers_every_request_once(restarts, has_storage, seed, story):
    world = World(restarts, has_storage, random.Random(seed))
    for kind, number, flag in story:
        world.step(kind, number, flag)
        world.check()
    world.tell(on.CancelRequested())
    if world.is_alive:
        world.end_attempt(world.attempt, False, False)
    world.check()
    assert world.ends, "a job that is cancelled ends"
    for kind in ("savepoint", "rescale", "stop with a savepoint"):
        world.ask(kind)
    world.check()


# --- what a stop with a savepoint promises --------------------------------------------------------


def running(job: JobDecisions, attempt: int = 1) -> None:
    job.handle(on.AttemptLaunched(attempt))
    job.handle(on.AttemptRuns(attempt))


def test_after_the_savepoint_of_a_stop_every_attempt_is_paused_at_it():
    job = new_job(restarts=9)
    job.handle(on.StartAllowed())
    running(job)
    job.handle(StopRequested(1, "here"))
    job.handle(SnapshotTaken(1, 5))
    for attempt in range(1, 5):
        job.handle(on.AttemptEnded(attempt, 1000 * attempt, error="lost", cause=on.Cause(f"lost {attempt}")))
        (launch,) = job.handle(on.TimePassed(1000 * attempt + 1000))
        assert isinstance(launch, on.Launch) and launch.stopped is not None
        assert (launch.stopped.savepoint, launch.stopped.checkpoint) == ("here", 5)
        running(job, attempt + 1)
        assert job.status is JobStatus.STOPPING


def test_a_job_that_gives_way_stops_for_another_leader_instead_of_going_on():
    job = new_job()
    job.handle(on.StartAllowed())
    running(job)
    job.handle(RescaleRequested(1))
    job.handle(SnapshotTaken(1, 5))
    lost = LeadershipLost("orders", "taken over")
    job.handle(on.Superseded(lost))
    actions = job.handle(on.AttemptEnded(1, 0, error="cancelled"))
    assert actions == [Answer(1, lost), on.End(JobStatus.FAILED, lost)]


@pytest.mark.parametrize("kind", ["savepoint", "rescale", "stop with a savepoint"])
def test_a_request_after_the_end_is_refused_at_once(kind):
    world = World(0, True, random.Random(0))
    world.tell(on.CancelRequested())
    world.ask(kind)
    assert world.answers == {1: 1}


def test_a_refused_stop_with_a_savepoint_changes_nothing():
    job = new_job()
    job.handle(on.StartAllowed())
    running(job)
    job.handle(StopRequested())
    (answer,) = job.handle(StopRequested(1, "here"))
    assert isinstance(answer, Answer) and isinstance(answer.result, SavepointFailed)
    assert isinstance(answer.result, MoorlineError) and job.status is JobStatus.STOPPING
    assert job.handle(SnapshotFailed(1, "late")) == []
