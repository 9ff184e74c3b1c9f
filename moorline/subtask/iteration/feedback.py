"""Frames that come back to the head of a loop: they wait here for their turn, and are logged for snapshots.

A sender must never wait for the head: the head may itself be waiting for it to take records, and nothing would move
again. So everything is taken as it comes, kept in memory up to a budget and then in temporary files.
Which of it belongs to which snapshot is decided by ``protocol/iteration/feedback.py``.

``subtask/task.py`` owns one if its subtask is of a head; there is one thread, and nothing blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from moorline.failpoints import failpoint
from moorline.model.wire.elements import BARRIER, BATCH, unpack_barrier
from moorline.protocol.iteration.feedback import (
    BarrierReached,
    BarrierReturned,
    Block,
    CheckpointAborted,
    CloseLog,
    DropLog,
    Event,
    GiveUpSnapshot,
    Returns,
    SnapshotTaken,
    Unblock,
)
from moorline.subtask.spill_queue import FrameCopy, SpillQueue

#: What waits beyond this many bytes goes to disk.
MEMORY_BUDGET = 16 << 20
#: With more than this waiting the head takes new input only now and then: what goes round comes first.
MANY_BYTES = 4 << 20
#: Every so many turns it does so all the same, for barriers come that way too.
PATIENCE_TURNS = 16

#: By channel, the frames that belong to a snapshot.
Log = list[tuple[int, FrameCopy]]


@dataclass
class _OpenLog:
    """The log of one snapshot so far: frames that waited when it was taken, and those that have come in since."""

    waited: Log
    arrived: list[SpillQueue]


class Feedback:
    """The channels that lead back to one subtask of a loop's head.

    ``deliver`` returns what it has left of a frame, if something more urgent has come up. ``closed`` is called when all
    of a snapshot's log is there, ``dropped`` when it never will be, ``give_up`` when that is news to the driver too.
    """

    def __init__(
        self,
        channels: int,
        deliver: Callable[[int, bytes], bytes | None],
        closed: Callable[[int, Log], None],
        dropped: Callable[[int], None],
        give_up: Callable[[int], None],
        memory_budget: int = MEMORY_BUDGET,
    ) -> None:
        self._machine = Returns(frozenset(range(channels)))
        self._deliver, self._closed, self._dropped, self._give_up = deliver, closed, dropped, give_up
        self._held = [SpillQueue() for _ in range(channels)]
        #: Where barriers stand among the frames that wait: by checkpoint, the number of the frame.
        self._places: list[dict[int, int]] = [{} for _ in range(channels)]
        self._blocked: set[int] = set()
        self._logs: dict[int, _OpenLog] = {}
        self._budget = memory_budget
        self._turns = 0
        #: Nothing is processed any more: the job is stopping, and what is left goes into its last snapshots.
        self.is_frozen = False

    def take(self, channel: int, frame: bytes) -> None:
        """A frame has come back."""
        if frame[0] == BATCH:
            for checkpoint, log in self._logs.items():
                if self._machine.is_logged(channel, checkpoint):
                    self._hold(log.arrived[channel], frame)
        self._hold(self._held[channel], frame)
        if frame[0] == BARRIER:
            checkpoint = unpack_barrier(frame).checkpoint
            self._places[channel][checkpoint] = self._held[channel].end - 1
            self._tell(BarrierReturned(channel, checkpoint))

    def may_pass(self) -> bool:
        """Is there something that may be processed now?"""
        return not self.is_frozen and any(held and c not in self._blocked for c, held in enumerate(self._held))

    def is_crowded(self) -> bool:
        """Should it be worked off before new input is taken?"""
        self._turns += 1
        return self.held_bytes() > MANY_BYTES and self.may_pass() and self._turns % PATIENCE_TURNS != 0

    def pass_some(self) -> None:
        """Let one frame of every channel that is not blocked pass."""
        for channel, held in enumerate(self._held):
            if held and channel not in self._blocked:
                self._pass(channel, held.popleft())

    def snapshot_taken(self, checkpoint: int) -> None:
        """The head has taken its snapshot: log what belongs to it beside the state."""
        waited = []
        for channel, held in enumerate(self._held):
            end = held.end
            if self._machine.is_early(channel, checkpoint):
                # Its barrier is here already. If it does not wait any more, nothing is left before it.
                end = self._places[channel].get(checkpoint, held.first)
            if end > held.first:
                waited.append((channel, held.copy(end)))
        self._logs[checkpoint] = _OpenLog(waited, [SpillQueue() for _ in self._held])
        failpoint("loop.logging")
        self._tell(SnapshotTaken(checkpoint))

    def abort(self, checkpoint: int) -> None:
        """The driver has given a checkpoint up."""
        self._tell(CheckpointAborted(checkpoint))

    def held_bytes(self) -> int:
        return sum(h.memory_bytes + h.disk_bytes for h in self._held)

    def close(self) -> None:
        for held in (*self._held, *(h for log in self._logs.values() for h in log.arrived)):
            held.close()

    def _hold(self, queue: SpillQueue, frame: bytes) -> None:
        queue.append(frame, to_disk=sum(h.memory_bytes for h in self._held) + len(frame) > self._budget)

    def _pass(self, channel: int, frame: bytes) -> None:
        if frame[0] == BARRIER:
            checkpoint = unpack_barrier(frame).checkpoint
            self._places[channel].pop(checkpoint, None)
            self._tell(BarrierReached(channel, checkpoint))
            return
        rest = self._deliver(channel, frame)
        if rest is not None:
            self._held[channel].put_back(rest)

    def _tell(self, event: Event) -> None:
        for action in self._machine.handle(event):
            match action:
                case Block(channel):
                    self._blocked.add(channel)
                case Unblock(channels):
                    self._blocked.difference_update(channels)
                case CloseLog(checkpoint):
                    failpoint("loop.logged")
                    self._closed(checkpoint, self._close_log(checkpoint))
                case DropLog(checkpoint):
                    self._close_log(checkpoint)
                    self._dropped(checkpoint)
                case GiveUpSnapshot(checkpoint):
                    if self._logs.pop(checkpoint, None) is not None:
                        self._dropped(checkpoint)
                    self._give_up(checkpoint)
                case _:
                    assert_never(action)

    def _close_log(self, checkpoint: int) -> Log:
        log = self._logs.pop(checkpoint)
        arrived = [(channel, queue.copy(queue.end)) for channel, queue in enumerate(log.arrived) if queue]
        for queue in log.arrived:
            queue.close()
        return log.waited + arrived
