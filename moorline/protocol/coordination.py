"""The checkpoints that are pending on the driver, and the meaning of each message about them.

    PENDING     acknowledged by some    last acknowledgement      -> PUBLISHING: publish it
                                        not aligned in time       -> stays: overtake everywhere
                                        declined, expired, failed -> gone: abort everywhere, discard its files
    PUBLISHING  manifest being written  published                 -> gone: confirm everywhere, subsume older ones
                                        could not be published    -> gone: abort everywhere, keep its files: the
                                                                     manifest may be there after all

The order of the actions matters: a manifest is published before it is confirmed, and files are discarded only after
the checkpoint they belong to is out of the question. A late message is normal: its files are discarded. So is a
repeated one: it names files that are known already. ``Publish`` is answered before anything else is reported.
``tolerable`` failures in a row are put up with; each checkpoint counts once, and a success starts the count anew. A
savepoint goes the same way, but it is not confirmed when it is published, and its failure does not count.
No I/O, no clock. ``driver/checkpoints/coordinator.py`` drives it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from moorline.errors import FailureReason, InvalidTransition
from moorline.model.ids import SubtaskId
from moorline.model.manifest import OperatorHandles

Handles = tuple[OperatorHandles, ...]

# Events


@dataclass(frozen=True, slots=True)
class Started:
    checkpoint: int
    now_ms: int
    final: bool = False
    #: Written on request: nothing is committed by it, and nothing is restored from it by itself.
    savepoint: bool = False


@dataclass(frozen=True, slots=True)
class Acknowledged:
    subtask: SubtaskId
    checkpoint: int
    handles: Handles


@dataclass(frozen=True, slots=True)
class Declined:
    subtask: SubtaskId
    checkpoint: int
    reason: FailureReason


@dataclass(frozen=True, slots=True)
class TimePassed:
    now_ms: int


@dataclass(frozen=True, slots=True)
class Published:
    checkpoint: int


@dataclass(frozen=True, slots=True)
class PublishFailed:
    checkpoint: int


Event = Started | Acknowledged | Declined | TimePassed | Published | PublishFailed

# Actions


@dataclass(frozen=True, slots=True)
class Publish:
    checkpoint: int
    parts: tuple[tuple[SubtaskId, Handles], ...]

    def __str__(self) -> str:
        return f"publish checkpoint {self.checkpoint}"


@dataclass(frozen=True, slots=True)
class OvertakeEverywhere:
    """Aligning takes too long, or is not wanted: barriers are to overtake what is queued."""

    checkpoint: int

    def __str__(self) -> str:
        return f"have the barriers of checkpoint {self.checkpoint} overtake"


@dataclass(frozen=True, slots=True)
class ConfirmEverywhere:
    checkpoint: int
    final: bool

    def __str__(self) -> str:
        return f"confirm {'final ' if self.final else ''}checkpoint {self.checkpoint} to all subtasks"


@dataclass(frozen=True, slots=True)
class AbortEverywhere:
    checkpoint: int
    reason: FailureReason

    def __str__(self) -> str:
        return f"abort checkpoint {self.checkpoint}: {self.reason.sentence}"


@dataclass(frozen=True, slots=True)
class Discard:
    """The files behind these handles are not needed any more."""

    checkpoint: int
    handles: Handles

    def __str__(self) -> str:
        return f"discard {len(self.handles)} handles of checkpoint {self.checkpoint}"


@dataclass(frozen=True, slots=True)
class FailAttempt:
    checkpoint: int
    reason: FailureReason
    failures: int

    def __str__(self) -> str:
        return f"fail the attempt: {self.failures} checkpoints in a row failed, the last because {self.reason.sentence}"


Action = Publish | OvertakeEverywhere | ConfirmEverywhere | AbortEverywhere | Discard | FailAttempt


@dataclass(slots=True)
class _Pending:
    started_ms: int
    final: bool
    savepoint: bool = False
    acks: dict[SubtaskId, Handles] = field(default_factory=dict)
    publishing: bool = False
    #: When its barriers are to overtake; None: never, or they do already.
    overtake_at_ms: int | None = None


@dataclass(slots=True)
class Coordination:
    """Feed it events; obey the actions it returns."""

    subtasks: frozenset[SubtaskId]
    timeout_ms: int
    tolerable: int
    pending: dict[int, _Pending] = field(default_factory=dict)
    completed: int = 0
    #: Checkpoints that are published, or may be: their files are theirs, whichever report names them again.
    owners: set[int] = field(default_factory=set)
    failures_in_a_row: int = 0
    #: How long barriers are given to line up before they overtake. The final checkpoint's always line up.
    overtake_ms: int | None = None

    def handle(self, event: Event) -> list[Action]:
        match event:
            case Started(checkpoint, now_ms, final, savepoint):
                if checkpoint <= max([self.completed, *self.pending]):
                    raise InvalidTransition("coordination", f"pending {sorted(self.pending)}", str(event))
                self.pending[checkpoint] = pending = _Pending(now_ms, final, savepoint)
                if self.overtake_ms is not None and not final and not savepoint:
                    pending.overtake_at_ms = now_ms + self.overtake_ms
                return self._overtaking(now_ms)
            case Acknowledged(subtask, checkpoint, handles):
                return self._acknowledged(subtask, checkpoint, handles)
            case Declined(_, checkpoint, reason):
                # Once all have acknowledged, only the publisher can say how it ends.
                return [] if self._is_publishing(checkpoint) else self._failed(checkpoint, reason)
            case TimePassed(now_ms):
                over = [
                    n
                    for n, p in sorted(self.pending.items())
                    if not p.publishing and now_ms - p.started_ms >= self.timeout_ms
                ]
                expired = [a for n in over for a in self._failed(n, FailureReason.EXPIRED)]
                return expired + self._overtaking(now_ms)
            case Published(checkpoint) | PublishFailed(checkpoint) if not self._is_publishing(checkpoint):
                raise InvalidTransition("coordination", f"pending {sorted(self.pending)}", str(event))
            case Published(checkpoint):
                return self._published(checkpoint)
            case PublishFailed(checkpoint):
                return self._failed(checkpoint, FailureReason.PUBLISH_FAILED)
            case _:
                assert_never(event)

    def next_expiry_ms(self) -> int | None:
        """The time at which a pending checkpoint will have taken too long: to line up, or altogether."""
        waiting = [p for p in self.pending.values() if not p.publishing]
        overtaking = [p.overtake_at_ms for p in waiting if p.overtake_at_ms is not None]
        return min([p.started_ms + self.timeout_ms for p in waiting] + overtaking, default=None)

    def _overtaking(self, now_ms: int) -> list[Action]:
        actions: list[Action] = []
        for checkpoint, pending in self.pending.items():
            due = pending.overtake_at_ms
            if due is not None and now_ms >= due and not pending.publishing:
                pending.overtake_at_ms = None
                actions.append(OvertakeEverywhere(checkpoint))
        return actions

    def _is_publishing(self, checkpoint: int) -> bool:
        return checkpoint in self.pending and self.pending[checkpoint].publishing

    def _acknowledged(self, subtask: SubtaskId, checkpoint: int, handles: Handles) -> list[Action]:
        pending = self.pending.get(checkpoint)
        if subtask not in self.subtasks or pending is None:
            # Late: the checkpoint is over. But a completed one owns its files, and a repeated
            # acknowledgement names the very same ones.
            is_repeated = subtask in self.subtasks and checkpoint in self.owners
            return [] if is_repeated or not handles else [Discard(checkpoint, handles)]
        if subtask in pending.acks:
            return []
        pending.acks[subtask] = handles
        if pending.acks.keys() != self.subtasks:
            return []
        pending.publishing = True
        return [Publish(checkpoint, tuple(sorted(pending.acks.items())))]

    def _published(self, checkpoint: int) -> list[Action]:
        ended = self.pending.pop(checkpoint)
        final = ended.final
        self.owners.add(checkpoint)
        if ended.savepoint:
            # Savepoints are not confirmed: what they cover is committed by the next checkpoint.
            return []
        self.completed = checkpoint
        self.failures_in_a_row = 0
        # What is older than a complete checkpoint is of no use.
        older = [n for n in sorted(self.pending) if n < checkpoint]
        return [
            ConfirmEverywhere(checkpoint, final),
            *(a for n in older for a in self._drop(n, FailureReason.SUBSUMED)),
        ]

    def _failed(self, checkpoint: int, reason: FailureReason) -> list[Action]:
        if checkpoint not in self.pending:
            return []
        was_publishing, savepoint = self._is_publishing(checkpoint), self.pending[checkpoint].savepoint
        actions = self._drop(checkpoint, reason)
        if was_publishing:
            # It is unknown whether the manifest is there; if it is, it names these files.
            actions = actions[:1]
            self.owners.add(checkpoint)
        if reason.counts and not savepoint:
            self.failures_in_a_row += 1
            if self.failures_in_a_row > self.tolerable:
                actions.append(FailAttempt(checkpoint, reason, self.failures_in_a_row))
        return actions

    def _drop(self, checkpoint: int, reason: FailureReason) -> list[Action]:
        acks = self.pending.pop(checkpoint).acks
        handles = tuple(h for hs in acks.values() for h in hs)
        return [AbortEverywhere(checkpoint, reason), *([Discard(checkpoint, handles)] if handles else [])]
