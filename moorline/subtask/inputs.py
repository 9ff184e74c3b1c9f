"""From frames to operators: the channels of a subtask, and what is done with each part of a frame that may pass.

    the exchange   -> Gate     barriers are lined up, frames wait if they must   ``subtask/gate.py``
    round a loop   -> Looping  what comes back waits for its turn                ``subtask/iteration/membership.py``
    both           -> here     records to their operator, a few at a time; watermarks to the clocks

Nothing blocks: what is left of a frame when something more urgent comes up is the first to pass next time.
``subtask/task.py`` owns one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from moorline.model.ids import SubtaskId
from moorline.model.wire import elements
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.elements import BATCH, HEAD, IDLE, MARK, WATERMARK, Barrier
from moorline.model.wire.messages import InputTaken
from moorline.protocol.flow import Receiving
from moorline.subtask.adaptive_batches import AdaptiveBatches
from moorline.subtask.call_costs import least_window
from moorline.subtask.clocks import Clocks
from moorline.subtask.environment import Environment
from moorline.subtask.gate import Gate, InFlight
from moorline.subtask.iteration.membership import Looping
from moorline.subtask.operators.base import ChainedOperator
from moorline.subtask.output import Output
from moorline.subtask.snapshot import in_flight
from moorline.subtask.snapshot.in_flight import InFlightFrames, Origin


class Inputs:
    """Everything that comes in to one subtask.

    ``take_snapshot`` is called when every record before a barrier has been processed or is in flight, ``decline`` when
    a checkpoint cannot be taken any more, ``end`` when all input has ended.
    """

    def __init__(
        self,
        deployment: Deployment,
        subtask: SubtaskId,
        environment: Environment,
        output: Output,
        clocks: Clocks,
        take_snapshot: Callable[[Barrier, int, InFlightFrames], None],
        decline: Callable[[int], None],
        end: Callable[[], None],
        worked_ms: Callable[[], float] = lambda: 0.0,
    ) -> None:
        plan = deployment.plan
        channels = plan.channels_into(subtask)
        self._channel = {pair: number for number, pair in enumerate(channels)}
        self._channels = channels
        least = least_window(plan, subtask.vertex)
        self._flow = Receiving(len(channels), environment.first_window, environment.in_flight_ms, least)
        self._worked_ms, self._report = worked_ms, environment.report
        #: The input behind each channel, and then behind each queue of restored frames.
        self._origins = in_flight.origins(plan, subtask)
        #: For each of them the operator and its side.
        self._targets: list[tuple[ChainedOperator, int]] = []
        #: What came over the exchange so far.
        self.bytes_in = 0
        self._open_channels = len(channels)
        self._clocks, self._take_snapshot, self._end = clocks, take_snapshot, end
        self._has_urgent_work = environment.has_urgent_work
        self._slices = AdaptiveBatches(
            environment.now_ms, environment.has_urgent_work, environment.slice_records, lambda: output.bytes_out
        )
        self._gate = Gate(
            len(channels),
            self._deliver,
            self._aligned,
            decline,
            lambda: int(environment.now_ms()),
            at_least_once=deployment.state.at_least_once,
        )
        #: If the subtask is on a way round a loop.
        self.loop: Looping | None = None
        if subtask.vertex in plan.loop_of:
            self.loop = Looping(deployment, subtask, output, self._on_feedback, clocks.end_of_loop, end, decline)

    @property
    def is_head(self) -> bool:
        """Do records come back to the subtask round a loop?"""
        return self.loop is not None and self.loop.is_head

    def restore(self, origin: Origin, frames: Iterable[bytes]) -> None:
        """Frames that were in flight in the restored checkpoint: they pass before all others."""
        self._origins.append(origin)
        self._gate.restore(frames)

    def start(self, operators: Sequence[ChainedOperator]) -> None:
        """Deliver to these from now on."""
        by_uid = {o.operator.uid: o for o in operators}
        self._targets = [(by_uid[origin.uid], origin.side) for origin in self._origins]
        self._root = operators[0]

    # --- what comes in ---------------------------------------------------------------------------

    def take(self, link: int, sender: int, frame: bytes) -> None:
        """Process a frame from the exchange, or keep it while its channel is blocked."""
        channel = self._channel[link, sender]
        self.bytes_in += len(frame)
        if frame[0] == BATCH:
            grants = self._flow.took(channel, len(frame), self._worked_ms())
            if grants:
                told = [(*self._channels[grant.channel], grant.taken, grant.window) for grant in grants]
                self._report(InputTaken(channels=told))
        self._gate.take(channel, frame)

    def pass_some(self) -> bool:
        """Process a bounded piece of what waits and may pass now. False if there is none."""
        if self._gate.has_released():
            self._gate.pass_released()
            return True
        if self.loop is not None and self.has_feedback:
            self.loop.pass_some()
            return True
        return False

    @property
    def has_feedback(self) -> bool:
        """Is there something that has come back and may be processed now?"""
        # What was in flight in the restored checkpoint was there before it.
        return self.loop is not None and self.loop.may_pass() and not self._gate.has_restored()

    def has_backlog(self) -> bool:
        """Is something waiting that should be worked off before new input is taken?"""
        is_crowded = self.loop is not None and self.loop.is_crowded()
        return self._gate.has_released() or is_crowded

    @property
    def is_overtaking(self) -> bool:
        """Are frames taken only to be put aside?"""
        return self._gate.is_overtaking

    def held_bytes(self) -> int:
        return self._gate.held_bytes()

    def close(self) -> None:
        self._gate.close()
        if self.loop is not None:
            self.loop.close()

    # --- checkpoints -----------------------------------------------------------------------------

    def overtake(self, checkpoint: int) -> None:
        """The driver wants a checkpoint now, with what is in flight."""
        self._gate.overtake(checkpoint)

    def abort(self, checkpoint: int) -> None:
        """The driver has given a checkpoint up."""
        self._gate.abort(checkpoint)
        if self.loop is not None:
            self.loop.abort(checkpoint)

    def has_restored(self) -> bool:
        """Is something of the restored checkpoint still in flight?"""
        return self._gate.has_restored()

    def in_flight(self, checkpoint: int) -> InFlightFrames:
        """The frames before a checkpoint's barriers that have not been processed."""
        return self._with_origins(self._gate.in_flight(checkpoint))

    def _aligned(self, barrier: Barrier, align_ms: int, frames: InFlight) -> None:
        self._take_snapshot(barrier, align_ms, self._with_origins(frames))

    def _with_origins(self, frames: InFlight) -> InFlightFrames:
        return [(self._origins[channel], copy) for channel, copy in frames]

    # --- what may pass ---------------------------------------------------------------------------

    def _deliver(self, channel: int, frame: bytes) -> bytes | None:
        """Process a frame of the exchange. What is returned is left of it: something more urgent has come up."""
        if frame[0] == BATCH:
            rest = self._process(frame, *self._targets[channel], channel)
            if channel < len(self._channels):  # or it was in flight in the restored checkpoint
                self._flow.processed(channel, len(frame) - len(rest or b""))
            return rest
        if frame[0] == MARK:
            assert self.loop is not None
            self.loop.marked(channel, frame)
            return None
        self._clocks.ended(channel)
        self._open_channels -= 1
        if self.loop is not None:
            self.loop.ended(channel)
        # The head of a loop has input as long as something may come back to it.
        if not self._open_channels and not self.is_head:
            self._end()
        return None

    def _on_feedback(self, frame: bytes, side: int) -> bytes | None:
        """Process a frame that has come back. Time does not come back."""
        return self._process(frame, self._root, side, -1)

    def _process(self, frame: bytes, operator: ChainedOperator, side: int, channel: int) -> bytes | None:
        at = HEAD.size
        while at < len(frame):
            kind, content, stamps, at = elements.unpack_part(frame, at)
            if kind == WATERMARK:
                self._clocks.advanced(channel, content)
            elif kind == IDLE:
                self._clocks.idled(channel)
            else:
                done = self._slices.process(operator, content, stamps, side)
                if done < len(content):
                    left = elements.pack_any(content[done:], stamps and stamps[done:])
                    return frame[: HEAD.size] + left + frame[at:]
            if at < len(frame) and self._has_urgent_work():
                return frame[: HEAD.size] + frame[at:]
        return None
