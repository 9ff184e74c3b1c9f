"""Lining up the barriers of one subtask's input channels.

A snapshot must hold the effect of every record before the barrier and of none after it. So a channel that has
delivered its barrier stays blocked until every other channel has delivered the same one.

    IDLE       no barrier pending         barrier n (first) -> ALIGNING n
    ALIGNING   n seen on some channels    last one          -> IDLE, snapshot n
                                          barrier m > n     -> ALIGNING m, n aborted
                                          n aborted         -> IDLE

A channel ends with its subtask, and subtasks end after the final checkpoint, so no channel ends while a barrier is
awaited (docs/decisions/0002). This file performs no I/O and reads no clock. ``subtask/gate.py`` drives it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

# Events: what has happened.


@dataclass(frozen=True, slots=True)
class BarrierArrived:
    channel: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class CheckpointAborted:
    """The driver has given the checkpoint up."""

    checkpoint: int


Event = BarrierArrived | CheckpointAborted

# Actions: what the caller must do now, in this order.


@dataclass(frozen=True, slots=True)
class Block:
    channel: int

    def __str__(self) -> str:
        return f"block channel {self.channel}"


@dataclass(frozen=True, slots=True)
class Unblock:
    channels: tuple[int, ...]

    def __str__(self) -> str:
        return f"unblock channels {', '.join(map(str, self.channels))}"


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    checkpoint: int

    def __str__(self) -> str:
        return f"take snapshot {self.checkpoint}"


@dataclass(frozen=True, slots=True)
class GiveUp:
    """A newer barrier came first: this checkpoint can no longer be aligned here. Decline it."""

    checkpoint: int

    def __str__(self) -> str:
        return f"give up checkpoint {self.checkpoint}: a newer barrier arrived first"


Action = Block | Unblock | TakeSnapshot | GiveUp


@dataclass(slots=True)
class Alignment:
    """The alignment of one subtask. Feed it events; obey the actions it returns."""

    channels: frozenset[int]
    #: The newest checkpoint seen here. It is being aligned while :attr:`blocked` is not empty.
    current: int = 0
    #: Channels that have delivered barrier :attr:`current`. Invariant: a proper subset of :attr:`channels`.
    blocked: set[int] = field(default_factory=set)
    #: Checkpoints above :attr:`current` that were given up before any barrier of theirs came.
    aborted: set[int] = field(default_factory=set)

    def handle(self, event: Event) -> list[Action]:
        match event:
            case BarrierArrived(channel, checkpoint):
                return self._barrier(channel, checkpoint)
            case CheckpointAborted(checkpoint):
                return self._abort(checkpoint)
            case _:
                assert_never(event)

    def _barrier(self, channel: int, checkpoint: int) -> list[Action]:
        if self._is_over(checkpoint):
            return []
        actions: list[Action] = []
        if checkpoint != self.current:
            if self.blocked:
                actions += [GiveUp(self.current), self._release()]
            self.current = checkpoint
            self.aborted = {n for n in self.aborted if n > checkpoint}
        self.blocked.add(channel)
        if self.blocked != self.channels:
            return [*actions, Block(channel)]
        self.blocked.discard(channel)
        actions.append(TakeSnapshot(checkpoint))
        if self.blocked:
            actions.append(self._release())
        return actions

    def _abort(self, checkpoint: int) -> list[Action]:
        if checkpoint > self.current:
            # An older one may still be aligning: several can be in flight, and it goes on.
            self.aborted.add(checkpoint)
            return []
        return [self._release()] if checkpoint == self.current and self.blocked else []

    def _is_over(self, checkpoint: int) -> bool:
        # Barriers of an aborted or completed checkpoint keep trickling in from slow channels.
        return (
            checkpoint < self.current or (checkpoint == self.current and not self.blocked) or checkpoint in self.aborted
        )

    def _release(self) -> Unblock:
        channels = tuple(sorted(self.blocked))
        self.blocked.clear()
        return Unblock(channels)
