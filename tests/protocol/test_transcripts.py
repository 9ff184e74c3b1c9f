"""Every machine, told as a conversation. See ``transcript.py``."""

from __future__ import annotations

import random
import re

import pytest
import transcript

from moorline.errors import FailureReason, InvalidTransition
from moorline.model.config.restarts import ExponentialDelay, FailureRate, FixedDelay, NoRestart
from moorline.model.config.run import Autoscale
from moorline.model.facts import Term
from moorline.model.ids import SubtaskId
from moorline.model.manifest import OperatorHandles
from moorline.protocol import coordination as co
from moorline.protocol.alignment import (
    Alignment,
    BarrierArrived,
    BarrierQueued,
    CheckpointAborted,
    OvertakeOrdered,
    Tracking,
)
from moorline.protocol.coordination import Coordination
from moorline.protocol.restarts import Failure, Restarts
from moorline.protocol.supervision import autoscaling
from moorline.protocol.supervision import leadership as le
from moorline.protocol.supervision.autoscaling import Autoscaling
from moorline.protocol.supervision.lifecycle import JobStatus, Lifecycle
from moorline.protocol.triggering import Triggering


def transcripts_of(machine: str):
    return pytest.mark.parametrize("path", transcript.of(machine), ids=lambda path: path.stem)


class Speaker:
    """Turns a line of a transcript into a call of a method: ``(pattern, method)`` pairs in :attr:`lines`."""

    lines: list[tuple[str, str]] = []

    def __call__(self, line: str):
        for pattern, method in self.lines:
            if found := re.fullmatch(pattern, line):
                return getattr(self, method)(*found.groups())
        raise ValueError(f"the transcript says {line!r}, which nobody understands")


class AlignmentSpeaker(Speaker):
    lines = [
        (r"channels ([\d ]+)", "channels"),
        (r"barrier (\d+) on (\d+)", "barrier"),
        (r"barrier (\d+) queued on (\d+)", "queued"),
        (r"overtake (\d+)", "overtake"),
        (r"abort (\d+)", "abort"),
    ]
    kind = Alignment

    def channels(self, numbers):
        self.machine = self.kind(frozenset(map(int, numbers.split())))

    def queued(self, checkpoint, channel):
        return self.machine.handle(BarrierQueued(int(channel), int(checkpoint)))

    def overtake(self, checkpoint):
        return self.machine.handle(OvertakeOrdered(int(checkpoint)))

    def barrier(self, checkpoint, channel):
        return self.machine.handle(BarrierArrived(int(channel), int(checkpoint)))

    def abort(self, checkpoint):
        return self.machine.handle(CheckpointAborted(int(checkpoint)))


@transcripts_of("alignment")
def test_alignment(path):
    transcript.run(path, AlignmentSpeaker())


class TrackingSpeaker(AlignmentSpeaker):
    kind = Tracking


@transcripts_of("tracking")
def test_tracking(path):
    transcript.run(path, TrackingSpeaker())


class TriggeringSpeaker(Speaker):
    lines = [
        (r"every (\d+) ms, pause (\d+) ms, (\d+) at a time, from checkpoint (\d+)", "periodic"),
        (r"no periodic checkpoints", "final_only"),
        (r"at (\d+)", "at"),
        (r"checkpoint (\d+) completed at (\d+)", "completed"),
        (r"checkpoint (\d+) failed at (\d+)", "failed"),
        (r"final requested", "final"),
        (r"when is the next due\?", "due"),
    ]

    def periodic(self, interval, pause, concurrent, first):
        self.machine = Triggering(int(interval), int(pause), int(concurrent), int(first), started_ms=0)

    def final_only(self):
        self.machine = Triggering(None, 0, 1, 1, started_ms=0)

    def at(self, now):
        start = self.machine.time_passed(int(now))
        return [start] if start else []

    def completed(self, checkpoint, now):
        self.machine.ended(int(checkpoint), True, int(now))

    def failed(self, checkpoint, now):
        self.machine.ended(int(checkpoint), False, int(now))

    def final(self):
        self.machine.final_requested()

    def due(self):
        due = self.machine.next_due_ms()
        return ["never" if due is None else f"at {due}"]


@transcripts_of("triggering")
def test_triggering(path):
    transcript.run(path, TriggeringSpeaker())


class CoordinationSpeaker(Speaker):
    lines = [
        (
            r"subtasks ([\d/ ]+), timeout (\d+) ms, (\d+) failures? tolerated(?:, overtaking after (\d+) ms)?",
            "subtasks",
        ),
        (r"start (final )?checkpoint (\d+) at (\d+)", "start"),
        (r"(\S+) acknowledges (\d+)", "acknowledge"),
        (r"(\S+) declines (\d+)", "decline"),
        (r"(\S+) could not upload (\d+)", "not_uploaded"),
        (r"at (\d+)", "at"),
        (r"(\d+) is published", "published"),
        (r"(\d+) could not be published", "not_published"),
        (r"when does the next one expire\?", "expiry"),
    ]

    def subtasks(self, names, timeout, tolerable, overtake=None):
        everybody = frozenset(map(subtask, names.split()))
        self.machine = Coordination(everybody, int(timeout), int(tolerable), overtake_ms=overtake and int(overtake))

    def tell(self, event):
        try:
            return self.machine.handle(event)
        except InvalidTransition as error:
            return [f"invalid: {error.machine}, {error.state}"]

    def start(self, final, checkpoint, now):
        return self.tell(co.Started(int(checkpoint), int(now), bool(final)))

    def acknowledge(self, who, checkpoint):
        return self.tell(co.Acknowledged(subtask(who), int(checkpoint), (OperatorHandles(f"op-{who}"),)))

    def decline(self, who, checkpoint):
        return self.tell(co.Declined(subtask(who), int(checkpoint), FailureReason.DECLINED))

    def not_uploaded(self, who, checkpoint):
        return self.tell(co.Declined(subtask(who), int(checkpoint), FailureReason.UPLOAD_FAILED))

    def at(self, now):
        return self.tell(co.TimePassed(int(now)))

    def published(self, checkpoint):
        return self.tell(co.Published(int(checkpoint)))

    def not_published(self, checkpoint):
        return self.tell(co.PublishFailed(int(checkpoint)))

    def expiry(self):
        expiry = self.machine.next_expiry_ms()
        return ["never" if expiry is None else f"at {expiry}"]


def subtask(name: str) -> SubtaskId:
    vertex, index = name.split("/")
    return SubtaskId(int(vertex), int(index))


@transcripts_of("coordination")
def test_coordination(path):
    transcript.run(path, CoordinationSpeaker())


class RestartsSpeaker(Speaker):
    lines = [
        (r"no restart", "never"),
        (r"fixed delay, (\d+) attempts, (\S+)", "fixed"),
        (r"failure rate, (\d+) within (\S+), (\S+)", "rate"),
        (r"exponential delay, seed (\d+)", "exponential"),
        (r"exponential delay without jitter", "exponential_steady"),
        (r"exponential delay without jitter, (\d+) attempts", "exponential_limited"),
        (r"failure at (\d+) s", "failure"),
        (r"(\w+Error) at (\d+) s, after checkpoint (\d+)(?:, of record (\w+))?", "unknown"),
        (r"(\w+Error) that can pass at (\d+) s, after checkpoint (\d+)", "passing"),
        (r"(\w+Error) that cannot pass at (\d+) s, after checkpoint (\d+)(, the first of the run)?", "lasting"),
    ]

    def never(self):
        self.use(NoRestart())

    def fixed(self, attempts, delay):
        self.use(FixedDelay(int(attempts), delay))

    def rate(self, failures, interval, delay):
        self.use(FailureRate(int(failures), interval, delay))

    def exponential(self, seed):
        self.use(ExponentialDelay(), int(seed))

    def exponential_steady(self):
        self.use(ExponentialDelay(jitter=0))

    def exponential_limited(self, attempts):
        self.use(ExponentialDelay(jitter=0, attempts=int(attempts)))

    def use(self, strategy, seed=0):
        self.machine = Restarts(strategy, random.Random(seed))

    def failure(self, seconds):
        return [self.machine.handle(Failure(1000 * int(seconds), None, 0))]

    def unknown(self, error, seconds, checkpoint, record):
        return [self.machine.handle(Failure(1000 * int(seconds), error, int(checkpoint), record or ""))]

    def passing(self, error, seconds, checkpoint):
        return [self.machine.handle(Failure(1000 * int(seconds), error, int(checkpoint), can_pass=True))]

    def lasting(self, error, seconds, checkpoint, first):
        failure = Failure(1000 * int(seconds), error, int(checkpoint), can_pass=False, is_first=bool(first))
        return [self.machine.handle(failure)]


@transcripts_of("restarts")
def test_restarts(path):
    transcript.run(path, RestartsSpeaker())


class LifecycleSpeaker(Speaker):
    lines = [(r"(\w+): (.+)", "move"), (r"is it over\?", "is_over")]

    def __init__(self):
        self.machine = Lifecycle()

    def move(self, to, why):
        try:
            self.machine.move(JobStatus(to), why)
        except InvalidTransition as error:
            return [f"invalid: {error.machine} in state {error.state} cannot take {error.event}"]
        return self.machine.story[-1:]

    def is_over(self):
        return ["yes" if self.machine.status.is_terminal else "no"]


@transcripts_of("lifecycle")
def test_lifecycle(path):
    transcript.run(path, LifecycleSpeaker())


@pytest.mark.parametrize("machine", ["alignment", "tracking", "triggering", "coordination", "restarts", "lifecycle"])
def test_every_machine_has_its_stories(machine):
    assert len(transcript.of(machine)) >= 3


class AutoscalingSpeaker(Speaker):
    lines = [
        (r"target (\d+) % give or take (\d+) %, window (\d+) s, cool-down (\d+) s", "configured"),
        (r"an attempt begins at (\d+) s(, rescaled)?", "began"),
        (r"there is no room at (\d+) s", "refused"),
        (r"at (\d+) s: (.+)", "measured"),
    ]
    load = re.compile(r"(\w+) x(\d+) busy (\d+)(?: held back (\d+))?(?: after (\w+))?(?: at (\d+)/s)?")

    def configured(self, target, tolerance, window, cool_down):
        config = Autoscale(
            target=int(target) / 100, tolerance=int(tolerance) / 100, window=int(window), cool_down=int(cool_down)
        )
        self.machine = Autoscaling(config)

    def began(self, now, rescaled):
        return self.machine.handle(autoscaling.Began(1000 * int(now), bool(rescaled)))

    def refused(self, now):
        return self.machine.handle(autoscaling.RescaleRefused(1000 * int(now)))

    def measured(self, now, text):
        loads = {}
        for one in text.split(", "):
            step, parallelism, busy, held_back, upstream, rate = self.load.fullmatch(one).groups()
            loads[step] = autoscaling.SubtaskLoad(
                int(parallelism),
                int(busy) / 100,
                int(held_back or 0) / 100,
                float(rate or 100),
                (upstream,) if upstream else (),
            )
        return self.machine.handle(autoscaling.Measured(1000 * int(now), loads))


@transcripts_of("autoscaling")
def test_autoscaling(path):
    transcript.run(path, AutoscalingSpeaker())


class LeadershipSpeaker(Speaker):
    lines = [
        (r"candidate (\w+), ttl (\d+) ms", "candidate"),
        (r"at (\d+)", "at"),
        (r"sees nothing at (\d+)", "nothing"),
        (r"sees (\d+) of (\w+), run (\w+)(?:, (\w+))? at (\d+)", "sees"),
        (r"got (\d+) at (\d+)", "got"),
        (r"refused at (\d+)", "refused"),
        (r"nobody knows at (\d+)", "unknown"),
        (r"job ended: (\w+)", "ended"),
        (r"when is the next due\?", "due"),
    ]

    def candidate(self, name, ttl):
        self.machine = le.Leadership(name, f"run-of-{name}", int(ttl))

    def at(self, now):
        return self.machine.handle(le.TimePassed(int(now)))

    def nothing(self, now):
        return self.machine.handle(le.Looked(None, int(now)))

    def sees(self, number, holder, run, ended, now):
        return self.machine.handle(le.Looked(Term(int(number), holder, run, ended or ""), int(now)))

    def got(self, number, now):
        assert self.machine.asked is not None and self.machine.asked.number == int(number)
        return self.machine.handle(le.Got(self.machine.asked, int(now)))

    def refused(self, now):
        return self.machine.handle(le.LeaseRefused(int(now)))

    def unknown(self, now):
        return self.machine.handle(le.LeaseFailed(int(now)))

    def ended(self, outcome):
        return self.machine.handle(le.JobEnded(outcome))

    def due(self):
        due = self.machine.next_wakeup_ms()
        return ["never" if due is None else f"at {due}"]


@transcripts_of("leadership")
def test_leadership(path):
    transcript.run(path, LeadershipSpeaker())
