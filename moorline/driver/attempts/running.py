"""An attempt that is starting or running: reports of its subtasks, and events for ``protocol/job.py`` that follow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import assert_never

from moorline.driver.attempts.heartbeats import Heartbeats
from moorline.driver.checkpoints.coordinator import AttemptCheckpoints
from moorline.errors import Fenced
from moorline.model.ids import SubtaskId
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.messages import (
    Acknowledged,
    Connected,
    Declined,
    Failed,
    InputEnded,
    InputTaken,
    Order,
    Progress,
    ReaderReported,
    Running,
    SendAhead,
    SendBackTo,
)
from moorline.protocol.supervision.events import AttemptFailed, AttemptRuns, Cause, Event, Superseded

#: Reports of a subtask about itself.
SubtaskReport = Connected | Running | Acknowledged | Declined | InputEnded | ReaderReported | Progress | Failed

#: The parts in which two messages about the same thing differ: addresses, counters, times.
_VARYING = re.compile(r"(0x)?[0-9a-fA-F]*[0-9][0-9a-fA-F]*")
#: Where an object lies in memory, in its repr.
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


def cause_of(text: str, can_pass: bool | None = True) -> Cause:
    """The cause behind a message for people: its first line, without what varies.

    >>> cause_of("Timeout: call 17 failed").error
    'Timeout: call # failed'
    """
    return Cause(_VARYING.sub("#", text.strip().partition("\n")[0]), can_pass=can_pass)


@dataclass
class RunningAttempt:
    """One attempt, with the reports of its subtasks."""

    deployment: Deployment
    checkpoints: AttemptCheckpoints
    started_ms: int
    heartbeats: Heartbeats
    running: set[SubtaskId] = field(default_factory=set)
    progress: dict[SubtaskId, Progress] = field(default_factory=dict)
    pids: dict[SubtaskId, int] = field(default_factory=dict)
    places: dict[SubtaskId, Connected] = field(default_factory=dict)
    #: The size of the snapshot it started from, and how much of it each subtask has read.
    snapshot_bytes: int = 0
    read_bytes: dict[SubtaskId, int] = field(default_factory=dict)
    addresses: dict[SubtaskId, tuple[str, int]] = field(default_factory=dict)
    #: Why the checkpoint that it was restored from cannot be read.
    damage: str = ""
    has_ended: bool = False

    @property
    def is_complete(self) -> bool:
        """Do all subtasks run?"""
        return len(self.running) == len(list(self.deployment.plan.subtasks()))

    @property
    def is_over(self) -> bool:
        """Is the final checkpoint complete? Then subtasks may go as they like."""
        stats = self.checkpoints.stats
        return bool(stats) and stats[-1].final

    def reported(self, subtask: SubtaskId, report: SubtaskReport, now_ms: int) -> Event | None:
        """Take in what a subtask reports of itself. Returns what that means for the job."""
        try:
            return self._reported(subtask, report, now_ms)
        except Fenced as error:
            return Superseded(error)

    def time_passed(self, now_ms: int) -> Event | None:
        """Start the checkpoint that is due, give up those that take too long."""
        try:
            self.checkpoints.time_passed(now_ms)
        except Fenced as error:
            return Superseded(error)
        return None

    def pop_events(self) -> list[Event]:
        """Events that its checkpoints have led to since the last call."""
        failure = self.checkpoints.pop_failure()
        return [*([self.lost(failure)] if failure is not None else []), *self.checkpoints.pop_outcomes()]

    def _reported(self, subtask: SubtaskId, report: SubtaskReport, now_ms: int) -> Event | None:
        match report:
            case Connected():
                self.places[subtask] = report
            case Running():
                self._runs(subtask, report)
                return AttemptRuns(self.number) if self.is_complete else None
            case Acknowledged():
                self.checkpoints.acknowledged(subtask, report, now_ms)
            case Declined():
                self.checkpoints.declined(subtask, report, now_ms)
            case InputEnded():
                self.checkpoints.input_ended(subtask)
            case ReaderReported():
                self.checkpoints.connectors.enumerators.reported(subtask, report.report)
            case Progress():
                self.progress[subtask] = report
                self.checkpoints.progressed(subtask, report)
            case Failed():
                self.damage = report.error if report.corrupt else self.damage
                return self._failed(subtask, report)
            case _:
                assert_never(report)
        return None

    def sent_ahead(self, receiver: SubtaskId, report: InputTaken) -> Iterator[tuple[SubtaskId, Order]]:
        """The orders that tell senders how far a receiver has come."""
        links = self.deployment.plan.links
        by_sender: dict[SubtaskId, list[tuple[int, int, int, int]]] = {}
        for link, sender, taken, window in report.channels:
            channels = by_sender.setdefault(SubtaskId(links[link].source, sender), [])
            channels.append((link, receiver.index, taken, window))
        for subtask, channels in by_sender.items():
            yield subtask, SendAhead(channels=channels)

    def _runs(self, subtask: SubtaskId, report: Running) -> None:
        self.running.add(subtask)
        self.pids[subtask] = report.pid
        self.read_bytes[subtask] = report.read_bytes
        if report.address is not None:
            self.addresses[subtask] = report.address

    def place(self, subtask: SubtaskId) -> str:
        """The place of a subtask, as far as it has said: for people, at the end of a sentence."""
        operators = ", ".join(map(repr, self.deployment.plan.vertices[subtask.vertex].operators))
        known = self.places.get(subtask)
        if known is None:
            return f" ({operators})"
        executor = f" of executor {known.executor}" if known.executor else ""
        return f" ({operators}: process {known.pid}{executor} on {known.host})"

    def feedback_addresses(self) -> Iterator[tuple[SubtaskId, Order]]:
        """The orders that tell subtasks where to send what goes back round a loop."""
        order = SendBackTo(addresses=[(s.vertex, s.index, *address) for s, address in self.addresses.items()])
        plan = self.deployment.plan
        senders = {link.source for link in plan.links if link.feedback}
        for subtask in plan.subtasks() if order.addresses else ():
            if subtask.vertex in senders:
                yield subtask, order

    @property
    def number(self) -> int:
        return self.deployment.attempt

    def _failed(self, subtask: SubtaskId, report: Failed) -> AttemptFailed:
        """The failure of a subtask: why, for people and to compare."""
        where = f" in operator {report.uid!r} ({report.name})" if report.uid else ""
        at = f", record {report.position} of the attempt: {report.record}" if report.position >= 0 else ""
        if not at and report.record:
            at = f", record {report.record}"
        error = f"{report.uid} {_VARYING.sub('#', report.error)}"
        cause = Cause(error, _ADDRESS.sub("#", report.record), report.can_pass)
        why = f"{report.error}{where}, subtask {subtask.index}{at}\n{report.traceback}"
        return AttemptFailed(self.number, why, cause)

    def lost(self, why: str) -> AttemptFailed:
        """A failure for a reason that another attempt may not meet."""
        return AttemptFailed(self.number, why, cause_of(why))
