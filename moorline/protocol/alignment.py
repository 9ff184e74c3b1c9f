"""Lining up the barriers of one subtask's input channels, in each of the consistency modes.

A snapshot must hold the effect of every record before the barrier and of none after it. So a channel that has
delivered its barrier stays blocked until every other channel has delivered the same one. When that takes too long,
the driver has the subtask *overtake*: nothing is processed any more, a barrier counts as soon as it has come in, and
what came in before it becomes part of the snapshot as it is, in flight.

    IDLE        no barrier pending         barrier n at the front (first)  -> ALIGNING n
                                           overtake n                      -> OVERTAKING n
    ALIGNING    n delivered by some,       last one                        -> IDLE, snapshot n
                and these are blocked      overtake n                      -> OVERTAKING n; queued ones count now
                                           barrier m > n                   -> ALIGNING m, n given up
                                           n aborted                       -> IDLE
    OVERTAKING  n delivered by some,       last one comes in               -> IDLE, snapshot n with what is in flight
                and all are blocked        barrier m > n comes in          -> IDLE, n given up; m when it is its turn
                                           overtake m > n                  -> OVERTAKING m, n given up
                                           n aborted                       -> IDLE

Two things happen to a barrier: it is *queued* when it comes in behind frames that have not been processed, and it has
*arrived* when all before it on its channel has been. Aligning counts those that have arrived, overtaking both.

At least once (:class:`Tracking`) nothing waits: a channel goes on behind its barrier, and the snapshot is taken at the
last one. Records that came before it on other channels are in it, and come again after a restore.

A channel ends with its subtask, and subtasks end after the final checkpoint, so no channel ends while a barrier is
awaited (docs/decisions/0002). This file performs no I/O and reads no clock. ``subtask/gate.py`` drives it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

# Events: what has happened.


@dataclass(frozen=True, slots=True)
class BarrierArrived:
    """Everything before it on its channel has been processed."""

    channel: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class BarrierQueued:
    """It has come in, behind frames that have not been processed."""

    channel: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class OvertakeOrdered:
    """The driver wants the checkpoint now, with what is in flight."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class CheckpointAborted:
    """The driver has given the checkpoint up."""

    checkpoint: int


Event = BarrierArrived | BarrierQueued | OvertakeOrdered | CheckpointAborted

# Actions: what the caller must do now, in this order.


@dataclass(frozen=True, slots=True)
class Block:
    channel: int

    def __str__(self) -> str:
        return f"block channel {self.channel}"


@dataclass(frozen=True, slots=True)
class Overtake:
    """Process nothing: put everything aside that comes in, whatever its channel."""

    checkpoint: int

    def __str__(self) -> str:
        return f"overtake for checkpoint {self.checkpoint}: block every channel"


@dataclass(frozen=True, slots=True)
class Unblock:
    channels: tuple[int, ...]

    def __str__(self) -> str:
        return f"unblock channels {', '.join(map(str, self.channels))}"


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """With everything that is queued before the checkpoint's barriers. After an alignment that is nothing."""

    checkpoint: int

    def __str__(self) -> str:
        return f"take snapshot {self.checkpoint}"


@dataclass(frozen=True, slots=True)
class GiveUpCheckpoint:
    """A newer barrier came first: this checkpoint can no longer be aligned here. Decline it."""

    checkpoint: int

    def __str__(self) -> str:
        return f"give up checkpoint {self.checkpoint}: a newer barrier arrived first"


Action = Block | Overtake | Unblock | TakeSnapshot | GiveUpCheckpoint


@dataclass(slots=True)
class Alignment:
    """Exactly once: the alignment of one subtask. Feed it events; obey the actions it returns."""

    channels: frozenset[int]
    #: The newest checkpoint seen here.
    current: int = 0
    #: Channels that have delivered barrier :attr:`current` while it is pending. Never all of them.
    delivered: set[int] = field(default_factory=set)
    #: Is everything being put aside for :attr:`current`?
    is_overtaking: bool = False
    #: Barriers from :attr:`current` on that wait behind frames, as pairs of channel and checkpoint.
    queued: set[tuple[int, int]] = field(default_factory=set)
    #: Checkpoints above :attr:`current` that were given up before any barrier of theirs came.
    aborted: set[int] = field(default_factory=set)

    def handle(self, event: Event) -> list[Action]:
        match event:
            case BarrierArrived(channel, checkpoint):
                self.queued.discard((channel, checkpoint))
                if self._is_over(checkpoint):
                    return []
                return [*self._turn_to(checkpoint), *self._deliver(channel)]
            case BarrierQueued(channel, checkpoint):
                return self._queue(channel, checkpoint)
            case OvertakeOrdered(checkpoint):
                if self._is_over(checkpoint) or (self.is_overtaking and checkpoint == self.current):
                    return []
                return [*self._turn_to(checkpoint), *self._overtake()]
            case CheckpointAborted(checkpoint):
                return self._abort(checkpoint)
            case _:
                assert_never(event)

    @property
    def is_pending(self) -> bool:
        """Is :attr:`current` being aligned or overtaken?"""
        return self.is_overtaking or bool(self.delivered)

    @property
    def blocked(self) -> frozenset[int]:
        """Channels whose frames wait."""
        return self.channels if self.is_overtaking else frozenset(self.delivered)

    def _turn_to(self, checkpoint: int) -> list[Action]:
        """Make ``checkpoint`` the current one."""
        if checkpoint == self.current:
            return []
        actions: list[Action] = [GiveUpCheckpoint(self.current), self._release()] if self.is_pending else []
        self.current = checkpoint
        self.aborted = {n for n in self.aborted if n > checkpoint}
        self.queued = {(c, n) for c, n in self.queued if n >= checkpoint}
        return actions

    def _deliver(self, channel: int) -> list[Action]:
        self.delivered.add(channel)
        if self.delivered != self.channels:
            return [] if self.is_overtaking else [Block(channel)]
        if not self.is_overtaking:
            self.delivered.discard(channel)  # which was never blocked
        return [TakeSnapshot(self.current), *([self._release()] if self.is_pending else [])]

    def _queue(self, channel: int, checkpoint: int) -> list[Action]:
        if self._is_over(checkpoint):
            return []
        if self.is_overtaking and checkpoint == self.current:
            return self._deliver(channel)
        self.queued.add((channel, checkpoint))
        if self.is_overtaking:
            # Nothing is started beside it but the final one, which is aligned: it has its turn behind what waits.
            return [GiveUpCheckpoint(self.current), self._release()]
        return []

    def _overtake(self) -> list[Action]:
        self.is_overtaking = True
        self.delivered |= {channel for channel, n in self.queued if n == self.current}
        actions: list[Action] = [Overtake(self.current)]
        if self.delivered == self.channels:
            actions += [TakeSnapshot(self.current), self._release()]
        return actions

    def _abort(self, checkpoint: int) -> list[Action]:
        if checkpoint > self.current:
            # An older one may still be aligning: several can be in flight, and it goes on.
            self.aborted.add(checkpoint)
            return []
        return [self._release()] if checkpoint == self.current and self.is_pending else []

    def _is_over(self, checkpoint: int) -> bool:
        # Barriers of an aborted or completed checkpoint keep trickling in from slow channels.
        return (
            checkpoint < self.current
            or (checkpoint == self.current and not self.is_pending)
            or checkpoint in self.aborted
        )

    def _release(self) -> Unblock:
        unblock = Unblock(tuple(sorted(self.blocked)))
        self.delivered.clear()
        self.is_overtaking = False
        return unblock


@dataclass(slots=True)
class Tracking:
    """At least once: nothing waits. Feed it the same events; it only ever says ``TakeSnapshot``."""

    channels: frozenset[int]
    #: The newest checkpoint whose snapshot was taken.
    taken: int = 0
    #: By checkpoint, the channels that have delivered its barrier. Several may be under way.
    delivered: dict[int, set[int]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)

    def handle(self, event: Event) -> list[Action]:
        match event:
            case BarrierArrived(channel, checkpoint):
                return self._deliver(channel, checkpoint)
            case CheckpointAborted(checkpoint):
                if checkpoint > self.taken:
                    self.aborted.add(checkpoint)
                    self.delivered.pop(checkpoint, None)
                return []
            case BarrierQueued() | OvertakeOrdered():
                return []  # its turn comes; nothing holds it up but work
            case _:
                assert_never(event)

    def _deliver(self, channel: int, checkpoint: int) -> list[Action]:
        if checkpoint <= self.taken or checkpoint in self.aborted:
            return []
        delivered = self.delivered.setdefault(checkpoint, set())
        delivered.add(channel)
        if delivered != self.channels:
            return []
        self.taken = checkpoint
        # Channels keep their order: what is older and incomplete now was given up somewhere upstream.
        self.delivered = {n: channels for n, channels in self.delivered.items() if n > checkpoint}
        self.aborted = {n for n in self.aborted if n > checkpoint}
        return [TakeSnapshot(checkpoint)]
