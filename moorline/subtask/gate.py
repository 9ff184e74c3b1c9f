"""What of the input may pass now: barriers are lined up, and blocked channels are held back.

All channels of a subtask arrive through one stream of frames, so a blocked channel cannot be left unread: its frames
are kept aside, in memory up to a budget and then in a temporary file, and come back in order when it is unblocked.
"""

from __future__ import annotations

import struct
import tempfile
from collections import deque
from collections.abc import Callable
from typing import IO

from moorline.failpoints import failpoint
from moorline.model.elements import BARRIER, Barrier, unpack_barrier
from moorline.protocol.alignment import (
    Alignment,
    BarrierArrived,
    Block,
    CheckpointAborted,
    GiveUp,
    TakeSnapshot,
    Unblock,
)

#: Held frames beyond this many bytes go to disk.
MEMORY_BUDGET = 16 << 20
_LENGTH = struct.Struct(">I")


class HeldFrames:
    """The frames of one blocked channel, first in, first out."""

    def __init__(self) -> None:
        self._memory: deque[bytes] = deque()
        self._file: IO[bytes] | None = None
        self._written = self._read = 0
        self.memory_bytes = 0

    def append(self, frame: bytes, to_disk: bool) -> None:
        # Once some frames are on disk, later ones must queue up behind them.
        if not to_disk and self._file is None:
            self._memory.append(frame)
            self.memory_bytes += len(frame)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="moorline-held-")  # noqa: SIM115 (closed when drained)
        self._file.seek(self._written)
        self._file.write(_LENGTH.pack(len(frame)) + frame)
        self._written += _LENGTH.size + len(frame)

    def popleft(self) -> bytes:
        if self._memory:
            frame = self._memory.popleft()
            self.memory_bytes -= len(frame)
            return frame
        assert self._file is not None
        self._file.seek(self._read)
        (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
        frame = self._file.read(length)
        self._read += _LENGTH.size + length
        if self._read == self._written:
            self.close()
        return frame

    @property
    def disk_bytes(self) -> int:
        return self._written - self._read

    def __bool__(self) -> bool:
        return bool(self._memory) or self._read < self._written

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._written, self._read = None, 0, 0


class Gate:
    """Lets frames through to ``deliver`` and calls ``snapshot`` when a checkpoint is aligned."""

    def __init__(
        self,
        channels: int,
        deliver: Callable[[int, bytes], None],
        snapshot: Callable[[Barrier, int], None],
        give_up: Callable[[int], None],
        now_ms: Callable[[], int],
        memory_budget: int = MEMORY_BUDGET,
    ) -> None:
        self._alignment = Alignment(frozenset(range(channels)))
        self._deliver, self._snapshot, self._give_up, self._now_ms = deliver, snapshot, give_up, now_ms
        self._blocked: set[int] = set()
        self._held = [HeldFrames() for _ in range(channels)]
        self._budget = memory_budget
        self._aligning_since_ms = 0

    def take(self, channel: int, frame: bytes) -> None:
        """A frame has arrived."""
        if channel in self._blocked or self._held[channel]:
            in_memory = sum(h.memory_bytes for h in self._held)
            self._held[channel].append(frame, to_disk=in_memory + len(frame) > self._budget)
        else:
            self._pass(channel, frame)

    def has_released(self) -> bool:
        """Are there held frames that may pass now?"""
        return any(held and c not in self._blocked for c, held in enumerate(self._held))

    def pass_released(self) -> None:
        """Let one held frame of every unblocked channel pass."""
        for channel, held in enumerate(self._held):
            if held and channel not in self._blocked:
                self._pass(channel, held.popleft())

    def abort(self, checkpoint: int) -> None:
        """The driver has given a checkpoint up."""
        for action in self._alignment.handle(CheckpointAborted(checkpoint)):
            if isinstance(action, Unblock):
                self._blocked.difference_update(action.channels)

    def held_bytes(self) -> int:
        return sum(h.memory_bytes + h.disk_bytes for h in self._held)

    def close(self) -> None:
        for held in self._held:
            held.close()

    def _pass(self, channel: int, frame: bytes) -> None:
        if frame[0] != BARRIER:
            self._deliver(channel, frame)
            return
        barrier = unpack_barrier(frame)
        if not self._blocked:
            self._aligning_since_ms = self._now_ms()
        for action in self._alignment.handle(BarrierArrived(channel, barrier.checkpoint)):
            match action:
                case Block(blocked):
                    self._blocked.add(blocked)
                    failpoint("ckpt.aligning")
                case Unblock(channels):
                    self._blocked.difference_update(channels)
                case TakeSnapshot():
                    self._snapshot(barrier, self._now_ms() - self._aligning_since_ms)
                case GiveUp(checkpoint):
                    self._give_up(checkpoint)
