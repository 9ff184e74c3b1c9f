"""One subtask's part in a loop: what comes back to it, and finding out that nothing does any more.

    every subtask on a way round     passes marks on                          ``protocol/iteration/termination.py``
    one that records come back to    queues and logs them, begins the marks   ``subtask/iteration/feedback.py``

A snapshot of the head is complete when its barrier has come back, so it waits here until then. ``subtask/task.py`` owns
one of these if its subtask is in a loop; there is one thread, and nothing blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import assert_never

from moorline.model.ids import SubtaskId
from moorline.model.wire import elements
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.elements import BATCH, MARK
from moorline.protocol.iteration.termination import (
    EndLoop,
    EndTime,
    Event,
    InputEnded,
    LoopHead,
    MarkArrived,
    OnTheWay,
    RecordReturned,
    SendMark,
)
from moorline.subtask.iteration.feedback import Feedback, Log
from moorline.subtask.output import Output
from moorline.subtask.snapshot import in_flight
from moorline.subtask.snapshot.in_flight import InFlightFrames, Origin
from moorline.subtask.snapshot.taking import Snapshot


@dataclass(frozen=True)
class _GoingRound:
    """A snapshot whose barrier has not come back, and the frames in flight that do not go round."""

    snapshot: Snapshot
    frames: InFlightFrames


class Looping:
    """The part of one subtask in its loop."""

    def __init__(
        self,
        deployment: Deployment,
        subtask: SubtaskId,
        output: Output,
        process: Callable[[bytes, int], bytes | None],
        end_time: Callable[[], None],
        end_loop: Callable[[], None],
        give_up: Callable[[int], None],
    ) -> None:
        plan = deployment.plan
        self._loop, self._output = plan.loop_of[subtask.vertex], output
        self._process, self._end_time, self._end_loop = process, end_time, end_loop
        channels, back = plan.channels_into(subtask), plan.feedback_into(subtask)
        inside = {c for c, (link, _) in enumerate(channels) if plan.links[link].source in self._loop}
        #: Channels from outside that have not ended.
        self._outside = set(range(len(channels))) - inside
        self._machine: LoopHead | OnTheWay
        self._machine = LoopHead(frozenset(range(len(back)))) if back else OnTheWay(frozenset(inside))
        self._back = {pair: number for number, pair in enumerate(back)}
        self._origins = in_flight.feedback_origins(plan, subtask, deployment.state.unaligned)
        self._feedback = Feedback(len(back), self._deliver, self._logged, self._dropped, give_up)
        self._going_round: dict[int, _GoingRound] = {}
        #: Is it a subtask that records come back to?
        self.is_head = bool(back)
        if deployment.is_paused:
            self.freeze()
        if not self._outside:
            self._tell(InputEnded())

    # --- what comes back ---------------------------------------------------------------------------

    def take(self, frame: bytes) -> None:
        """A frame has come back. It waits until :meth:`pass_some`."""
        head = elements.head(frame)
        self._feedback.take(self._back[head.link, head.sender], frame)

    def keep(self, origin: Origin, frames: Iterable[bytes]) -> None:
        """Keep frames that went round in the restored snapshot unprocessed, for the next snapshot."""
        inputs = [(o.upstream, o.tag, o.side) for o in self._origins]
        for frame in frames:
            self._feedback.take(inputs.index((origin.upstream, origin.tag, origin.side)), frame)

    def may_pass(self) -> bool:
        return self._feedback.may_pass()

    def is_crowded(self) -> bool:
        """Should what comes back be worked off before new input is taken?"""
        return self._feedback.is_crowded()

    def pass_some(self) -> None:
        """Process a bounded piece of what has come back."""
        self._feedback.pass_some()

    def close(self) -> None:
        self._feedback.close()

    def _deliver(self, channel: int, frame: bytes) -> bytes | None:
        if frame[0] == BATCH:
            self._tell(RecordReturned())
            return self._process(frame, self._origins[channel].side)
        if frame[0] == MARK:
            self.marked(channel, frame)
        return None

    # --- snapshots ---------------------------------------------------------------------------------

    def complete(self, snapshot: Snapshot, frames: InFlightFrames) -> None:
        """Have a snapshot written now; at the head, once everything that goes round is logged."""
        if not self.is_head:
            snapshot.write(frames)
            return
        self._going_round[snapshot.checkpoint] = _GoingRound(snapshot, frames)
        self._feedback.snapshot_taken(snapshot.checkpoint)

    def freeze(self) -> None:
        """Process nothing of what comes back any more: the attempt is about to end, and snapshots keep it."""
        self._feedback.is_frozen = True

    def abort(self, checkpoint: int) -> None:
        """The driver has given a checkpoint up."""
        self._feedback.abort(checkpoint)

    def _logged(self, checkpoint: int, log: Log) -> None:
        waiting = self._going_round.pop(checkpoint)
        waiting.snapshot.write(waiting.frames + [(self._origins[channel], copy) for channel, copy in log])

    def _dropped(self, checkpoint: int) -> None:
        self._going_round.pop(checkpoint).snapshot.abandon()

    # --- the end -----------------------------------------------------------------------------------

    def ended(self, channel: int) -> None:
        """A channel of the exchange has ended."""
        if channel in self._outside:
            self._outside.discard(channel)
            if not self._outside:
                self._tell(InputEnded())

    def marked(self, channel: int, frame: bytes) -> None:
        """A mark has come: at the head, on a channel that leads back."""
        self._tell(MarkArrived(channel, *elements.unpack_mark(frame)))

    def _tell(self, event: Event) -> None:
        for action in self._machine.handle(event):
            match action:
                case SendMark(number, clean):
                    self._output.mark(self._loop, number, clean)
                case EndTime():
                    self._end_time()
                case EndLoop():
                    self._end_loop()
                case _:
                    assert_never(action)
