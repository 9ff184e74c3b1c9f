"""Input that may pass now: barriers are lined up, and frames of blocked channels wait.

All channels of a subtask arrive through one stream of frames, so a blocked channel cannot be left unread: its frames
are kept aside and come back in order when it is unblocked. While a checkpoint *overtakes*, all channels are blocked:
frames are taken off the exchange as fast as they come, which lets go those upstream that could not send, and only
barriers are looked at. What stands before them when the last one has come is in flight, and goes into the snapshot.

Frames that were in flight in the restored checkpoint wait in queues of their own, and pass before all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import assert_never

from moorline.failpoints import failpoint
from moorline.model.wire.elements import BARRIER, Barrier, unpack_barrier
from moorline.protocol.alignment import (
    Alignment,
    BarrierArrived,
    BarrierQueued,
    Block,
    CheckpointAborted,
    Event,
    GiveUpCheckpoint,
    Overtake,
    OvertakeOrdered,
    TakeSnapshot,
    Tracking,
    Unblock,
)
from moorline.subtask.spill_queue import FrameCopy, SpillQueue

#: Held frames beyond this many bytes go to disk.
MEMORY_BUDGET = 16 << 20

#: By channel, what is in flight on it. Channels from the number of real ones on are restored queues.
InFlight = list[tuple[int, FrameCopy]]


class Gate:
    """Lets frames through to ``deliver`` and calls ``snapshot`` when it is time for one.

    ``deliver`` returns what it has left of a frame, if something more urgent has come up: that is the first to pass
    next time.
    """

    def __init__(
        self,
        channels: int,
        deliver: Callable[[int, bytes], bytes | None],
        snapshot: Callable[[Barrier, int, InFlight], None],
        give_up: Callable[[int], None],
        now_ms: Callable[[], int],
        memory_budget: int = MEMORY_BUDGET,
        at_least_once: bool = False,
    ) -> None:
        machine = Tracking if at_least_once else Alignment
        self._machine: Alignment | Tracking = machine(frozenset(range(channels)))
        self._deliver, self._snapshot, self._give_up, self._now_ms = deliver, snapshot, give_up, now_ms
        self._channels = channels
        self._blocked: set[int] = set()
        self._held = [SpillQueue() for _ in range(channels)]
        #: Where barriers stand among the held frames of each channel: by checkpoint, the number of the frame.
        self._places: list[dict[int, int]] = [{} for _ in range(channels)]
        self._restored: list[SpillQueue] = []
        #: The barriers that have come in, by checkpoint, as long as their snapshot is not taken.
        self._barriers: dict[int, Barrier] = {}
        self._budget = memory_budget
        self._aligning_since_ms: int | None = None

    def restore(self, frames: Iterable[bytes]) -> None:
        """Frames that were in flight: a queue of its own, behind those that were restored before."""
        queue = SpillQueue()
        self._restored.append(queue)
        for frame in frames:
            self._hold(queue, frame)

    def take(self, channel: int, frame: bytes) -> None:
        """A frame has arrived."""
        held = self._held[channel]
        if not (channel in self._blocked or held or self.has_restored()):
            self._pass(channel, frame)
            return
        self._hold(held, frame)
        if frame[0] == BARRIER:
            barrier = unpack_barrier(frame)
            self._places[channel][barrier.checkpoint] = held.end - 1
            self._barriers[barrier.checkpoint] = barrier
            self._tell(BarrierQueued(channel, barrier.checkpoint))

    def has_released(self) -> bool:
        """Are there held frames that may pass now?"""
        if self.is_overtaking:
            return False
        return self.has_restored() or any(held and c not in self._blocked for c, held in enumerate(self._held))

    def has_restored(self) -> bool:
        """Is something of the restored checkpoint still in flight?"""
        return any(self._restored)

    def pass_released(self) -> None:
        """Let one restored frame pass, or else one held frame of every unblocked channel."""
        for number, queue in enumerate(self._restored):
            if queue:
                rest = self._deliver(self._channels + number, queue.popleft())
                if rest is not None:
                    queue.put_back(rest)
                return
        for channel, held in enumerate(self._held):
            if held and channel not in self._blocked:
                self._pass(channel, held.popleft())

    def overtake(self, checkpoint: int) -> None:
        """The driver wants a checkpoint now, with what is in flight."""
        self._tell(OvertakeOrdered(checkpoint))

    def abort(self, checkpoint: int) -> None:
        """The driver has given a checkpoint up."""
        self._tell(CheckpointAborted(checkpoint))

    def in_flight(self, checkpoint: int) -> InFlight:
        """Frames from before the checkpoint's barriers, or restored, that have not been processed."""
        frames = [(self._channels + n, queue.copy(queue.end)) for n, queue in enumerate(self._restored) if queue]
        for channel, held in enumerate(self._held):
            # A barrier that is not among the held frames has passed: nothing is left before it.
            place = self._places[channel].get(checkpoint, held.first)
            if place > held.first:
                frames.append((channel, held.copy(place)))
        return frames

    def held_bytes(self) -> int:
        return sum(h.memory_bytes + h.disk_bytes for h in (*self._held, *self._restored))

    def close(self) -> None:
        for held in (*self._held, *self._restored):
            held.close()

    def _hold(self, queue: SpillQueue, frame: bytes) -> None:
        in_memory = sum(h.memory_bytes for h in (*self._held, *self._restored))
        queue.append(frame, to_disk=in_memory + len(frame) > self._budget)

    def _pass(self, channel: int, frame: bytes) -> None:
        if frame[0] == BARRIER:
            barrier = unpack_barrier(frame)
            self._places[channel].pop(barrier.checkpoint, None)
            self._barriers[barrier.checkpoint] = barrier
            self._tell(BarrierArrived(channel, barrier.checkpoint))
            return
        rest = self._deliver(channel, frame)
        if rest is not None:
            self._held[channel].put_back(rest)

    @property
    def is_overtaking(self) -> bool:
        """Does a checkpoint overtake what is in flight?"""
        return isinstance(self._machine, Alignment) and self._machine.is_overtaking

    def _tell(self, event: Event) -> None:
        for action in self._machine.handle(event):
            match action:
                case Block(channel):
                    self._start_clock()
                    self._blocked.add(channel)
                    failpoint("ckpt.aligning")
                case Overtake():
                    self._start_clock()
                    self._blocked.update(range(self._channels))
                    failpoint("ckpt.overtaking")
                case Unblock(channels):
                    self._blocked.difference_update(channels)
                    self._aligning_since_ms = None
                case TakeSnapshot(checkpoint):
                    barrier = self._barriers[checkpoint]
                    self._barriers = {n: b for n, b in self._barriers.items() if n > checkpoint}
                    since = self._now_ms() if self._aligning_since_ms is None else self._aligning_since_ms
                    self._snapshot(barrier, self._now_ms() - since, self.in_flight(checkpoint))
                case GiveUpCheckpoint(checkpoint):
                    self._give_up(checkpoint)
                case _:
                    assert_never(action)

    def _start_clock(self) -> None:
        if self._aligning_since_ms is None:
            self._aligning_since_ms = self._now_ms()
