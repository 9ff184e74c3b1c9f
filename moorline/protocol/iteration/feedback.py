"""The records of a loop that belong to a snapshot of its head, and when that is complete.

The head of a loop takes its snapshot when its regular inputs have delivered the barrier. It cannot wait for the barrier
to come back: what comes back is what it sends. So the barrier goes round the loop behind the snapshot, and everything
that comes back before it was sent before it, and is in no subtask's state: it is logged, and the log is part of the
snapshot (Carbone et al., Lightweight Asynchronous Snapshots for Distributed Dataflows, 2015).

    what comes back on a channel              before our snapshot n        after it
    records, barrier n has not come back      processed: in the state      processed, and logged for n
    barrier n                                 the channel is blocked       the channel's log is complete
    records behind barrier n                  held: they would count       processed: they come again after
                                              twice                        a restore

A barrier can come back before our own snapshot: another subtask of the head has taken its own already, and a way round
the loop need not lead through us. The log of n is closed when n has come back on all channels. If a newer barrier comes
back on a channel first, a subtask in the loop has given n up, and its log is dropped. Several checkpoints may be under
way; on a channel barriers keep their order, so logs are closed in order too.

No I/O, no clock. ``subtask/iteration/feedback.py`` drives it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

# Events


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """The head's own, with its barrier on the way into the loop."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class BarrierReturned:
    """It has come in, behind frames that may not have been processed."""

    channel: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class BarrierReached:
    """Everything before it on its channel has been processed."""

    channel: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class CheckpointAborted:
    """The driver has given the checkpoint up."""

    checkpoint: int


Event = SnapshotTaken | BarrierReturned | BarrierReached | CheckpointAborted

# Actions


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
class CloseLog:
    """Everything is logged: the snapshot can be written."""

    checkpoint: int

    def __str__(self) -> str:
        return f"close the log of checkpoint {self.checkpoint}"


@dataclass(frozen=True, slots=True)
class DropLog:
    checkpoint: int

    def __str__(self) -> str:
        return f"drop the log of checkpoint {self.checkpoint}"


@dataclass(frozen=True, slots=True)
class GiveUpSnapshot:
    """A newer barrier came back first: decline it."""

    checkpoint: int

    def __str__(self) -> str:
        return f"give up checkpoint {self.checkpoint}: a newer barrier came back first"


Action = Block | Unblock | CloseLog | DropLog | GiveUpSnapshot


@dataclass(slots=True)
class Returns:
    """The feedback channels of one head. Feed it events; obey the actions it returns."""

    channels: frozenset[int]
    #: The newest checkpoint whose snapshot was taken here.
    taken: int = 0
    #: The newest barrier that has come back on each channel.
    newest: dict[int, int] = field(default_factory=dict)
    #: By checkpoint that is still to be taken here, the channels its barrier has come back on already.
    early: dict[int, set[int]] = field(default_factory=dict)
    #: By checkpoint whose log is open, the channels that are waited for. Never empty.
    awaited: dict[int, set[int]] = field(default_factory=dict)
    #: Channels that wait for our own snapshot of a checkpoint.
    blocked: dict[int, int] = field(default_factory=dict)
    #: Checkpoints above :attr:`taken` that were given up.
    aborted: set[int] = field(default_factory=set)

    def handle(self, event: Event) -> list[Action]:
        match event:
            case SnapshotTaken(checkpoint):
                return self._snapshot(checkpoint)
            case BarrierReturned(channel, checkpoint):
                return self._returned(channel, checkpoint)
            case BarrierReached(channel, checkpoint):
                if checkpoint <= self.taken or checkpoint in self.aborted:
                    return []
                self.blocked[channel] = checkpoint
                return [Block(channel)]
            case CheckpointAborted(checkpoint):
                if checkpoint > self.taken:
                    self.aborted.add(checkpoint)
                    self.early.pop(checkpoint, None)
                    return self._unblock({c for c, n in self.blocked.items() if n == checkpoint})
                return [DropLog(checkpoint)] if self.awaited.pop(checkpoint, None) else []
            case _:
                assert_never(event)

    def is_logged(self, channel: int, checkpoint: int) -> bool:
        """Does what comes in now on a channel belong to this checkpoint?"""
        return channel in self.awaited.get(checkpoint, ())

    def is_early(self, channel: int, checkpoint: int) -> bool:
        """Has this barrier come back before our own snapshot?"""
        return channel in self.early.get(checkpoint, ())

    def _snapshot(self, checkpoint: int) -> list[Action]:
        self.taken = checkpoint
        returned = self.early.pop(checkpoint, set())
        self.early = {n: channels for n, channels in self.early.items() if n > checkpoint}
        self.aborted = {n for n in self.aborted if n > checkpoint}
        unblock = self._unblock({c for c, n in self.blocked.items() if n <= checkpoint})
        awaited = self.channels - returned
        if any(self.newest.get(channel, 0) > checkpoint for channel in awaited):
            return [GiveUpSnapshot(checkpoint), *unblock]
        if not awaited:
            return [CloseLog(checkpoint), *unblock]
        self.awaited[checkpoint] = set(awaited)
        return list(unblock)

    def _returned(self, channel: int, checkpoint: int) -> list[Action]:
        self.newest[channel] = checkpoint
        actions: list[Action] = []
        for older in [n for n, awaited in self.awaited.items() if n < checkpoint and channel in awaited]:
            del self.awaited[older]
            actions += [DropLog(older), GiveUpSnapshot(older)]
        if checkpoint > self.taken:
            if checkpoint not in self.aborted:
                self.early.setdefault(checkpoint, set()).add(channel)
        elif checkpoint in self.awaited:
            self.awaited[checkpoint].discard(channel)
            if not self.awaited[checkpoint]:
                del self.awaited[checkpoint]
                actions.append(CloseLog(checkpoint))
        return actions

    def _unblock(self, channels: set[int]) -> list[Action]:
        for channel in channels:
            del self.blocked[channel]
        return [Unblock(tuple(sorted(channels)))] if channels else []
