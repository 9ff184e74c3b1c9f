"""One subtask: what it does with each frame, each order, and when there is nothing else to do.

Everything runs on one thread, so a snapshot is atomic with respect to records. The loop never blocks and never
sleeps; ``spark/entry.py`` (or the simulator) calls it and carries its rows away:

    start()        restore, open, report Running
    frame(f)       a frame from the exchange: for a later stage, or for us through the gate
    feedback(f)    a frame that has come back round a loop
    order(o)       from the driver
    tick()         timers and watermarks that are due by the wall clock; next_tick_ms() says when
    work()         held frames that may pass now, else a batch from the source; False: nothing to do
    output.take()  rows to yield
    is_done        the final checkpoint is complete and committed

What is raised here ends the attempt; ``subtask/failure_report.py`` puts it into words for the driver.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import assert_never

from moorline.errors import (
    FailureReason,
    MoorlineError,
)
from moorline.failpoints import failpoint
from moorline.model.ids import CheckpointId, SubtaskId
from moorline.model.key_groups import owned
from moorline.model.wire import elements
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.elements import BATCH, HEAD, IDLE, MARK, WATERMARK, Barrier
from moorline.model.wire.messages import (
    Abort,
    Acknowledged,
    Confirm,
    Declined,
    Hold,
    InputEnded,
    Order,
    Overtake,
    Progress,
    Query,
    Running,
    SendBackTo,
    Trigger,
)
from moorline.protocol.lowering import relay_slot, relays
from moorline.storage.stores.open import open_store
from moorline.subtask import in_flight, queries, snapshot
from moorline.subtask.adaptive_batches import Slices
from moorline.subtask.clocks import Clocks
from moorline.subtask.environment import Environment
from moorline.subtask.gate import Gate, InFlight
from moorline.subtask.iteration.membership import Found, Looping
from moorline.subtask.operators.base import ChainedOperator
from moorline.subtask.operators.sink import SinkOperator
from moorline.subtask.operators.source import ReadingOperator
from moorline.subtask.output import Output
from moorline.subtask.restore.chain import close_chain, open_chain, restore_store
from moorline.subtask.time_accounting import TimeAccounting

#: How often keys are counted.
COUNT_MS = 500
#: Counting that takes long rests so many times as long: it is for people, and never more than a hundredth of the work.
COUNT_REST = 100


class Subtask:
    """One subtask of one attempt."""

    def __init__(self, deployment: Deployment, subtask: SubtaskId, environment: Environment) -> None:
        self._deployment, self.id, self._env = deployment, subtask, environment
        self._plan = deployment.plan
        self._stage, self._slot = self._plan.slot(subtask)
        self._operators: list[ChainedOperator] = []
        self._source: ReadingOperator | None = None
        self.times = TimeAccounting(environment.now_ms)
        self.output = Output(deployment.attempt, environment.flush_ms, environment.now_ms)
        channels = self._plan.channels_into(subtask)
        self._channel = {pair: number for number, pair in enumerate(channels)}
        #: The input behind each channel, and then behind each queue of restored frames.
        self._origins = in_flight.origins(self._plan, subtask)
        #: For each of them the operator and its side.
        self._targets: list[tuple[ChainedOperator, int]] = []
        self._open_channels = len(channels)
        self._gate = Gate(
            len(channels),
            self._deliver,
            self._barrier,
            self._give_up,
            lambda: int(environment.now_ms()),
            at_least_once=deployment.state.at_least_once,
        )
        self._slices = Slices(environment.now_ms, environment.has_urgent_work, environment.slice_records)
        is_in_loop = subtask.vertex in self._plan.loop_of
        self._is_head = bool(self._plan.feedback_into(subtask))
        self._clocks = Clocks(len(channels), is_in_loop, self._is_head, environment.wall_ms)
        #: If it is on a way round a loop.
        self._loop: Looping | None = None
        if is_in_loop:
            self._loop = Looping(
                deployment,
                subtask,
                self.output,
                self._came_back,
                self._clocks.end_of_loop,
                self._end_loop,
                self._give_up,
            )
        #: Of a source: checkpoints that wait until what was in flight has been processed.
        self._deferred: list[Trigger] = []
        #: Does it pass frames on that are not for it? And for which checkpoint must these not wait for its own work?
        self._is_relay = self._plan.slot(subtask) in relays(self._plan)
        self._relaying_for = 0
        self._has_stopped = deployment.is_paused
        #: Of a source: the driver wants it to wait.
        self._is_held = False
        #: How many keys there are, counted now and then.
        self._keys, self._count_at_ms = 0, -math.inf
        #: All input has ended: nothing fires any more.
        self._is_finished = False
        self.is_done = False

    # --- what the world calls --------------------------------------------------------------------

    def start(self, pid: int = 0, address: tuple[str, int] | None = None) -> None:
        """Restore, open, and say so. ``address``: where what comes back round a loop is received."""
        self._operators = open_chain(self._deployment, self.id, self._env, self.output)
        if isinstance(self._operators[0], ReadingOperator):
            self._source = self._operators[0]
        if self._deployment.restored is not None:
            store = restore_store(self._deployment, self._env)
            for origin, frames in in_flight.restored(self._deployment, self.id, store):
                if self._deployment.is_paused and self._loop is not None:
                    self._loop.keep(origin, frames)
                    continue
                self._origins.append(origin)
                self._gate.restore(frames)
            failpoint("restore.open")
        self._clocks.start(self._operators)
        by_uid = {o.operator.uid: o for o in self._operators}
        self._targets = [(by_uid[origin.uid], origin.side) for origin in self._origins]
        self._env.report(Running(pid=pid, read_bytes=self._env.reads.bytes, address=address))

    def frame(self, frame: bytes) -> None:
        """A frame has come in from the stage before."""
        head = elements.head(frame)
        if head.attempt != self._deployment.attempt:
            return  # cannot happen inside one Spark job; if it did, it would not be ours to read
        if head.stage != self._stage:
            self._pass_on(head.slot, frame)
        else:
            self._gate.take(self._channel[head.link, head.sender], frame)

    def feedback(self, frame: bytes) -> None:
        """A frame has come back round a loop. It waits until :meth:`work` is called."""
        assert self._loop is not None
        self._loop.take(frame)

    def order(self, order: Order) -> None:
        """The driver wants something."""
        match order:
            case Trigger():
                if self._source is not None:
                    self._deferred.append(order)
                    self._trigger_deferred(0)
            case Overtake(checkpoint=checkpoint):
                if self._source is None:
                    self._gate.overtake(checkpoint)
                else:
                    self._trigger_deferred(checkpoint)
            case Hold(on=on):
                self._is_held = on
            case Confirm(checkpoint=checkpoint, final=final):
                self._confirmed(checkpoint, final)
            case Abort(checkpoint=checkpoint):
                self._gate.abort(checkpoint)
                if self._loop is not None:
                    self._loop.abort(checkpoint)
                self._relaying_for = 0
                for operator in reversed(self._operators):
                    operator.aborted(checkpoint)
            case SendBackTo(addresses=addresses):
                self._env.send_back_to({SubtaskId(v, i): (host, port) for v, i, host, port in addresses})
            case Query():
                self._env.report(queries.answer(self._operators, order))
            case _:
                assert_never(order)

    def work(self) -> bool:
        """Do a bounded piece of the work that is there. False if there was none."""
        if self._gate.has_released():
            self._gate.pass_released()
            self._trigger_deferred(0)
            return True
        if self._loop is not None and self.has_feedback:
            self._loop.pass_some()
            return True
        if self._source is None or not self.is_reading:
            return False
        did = self._source.read()
        if self._source.has_ended:
            self._finish()
            self._env.report(InputEnded())
        return did

    def _trigger_deferred(self, overtaken: int) -> None:
        """A source emits the barriers it was asked for: once nothing is in flight, or at once up to ``overtaken``."""
        while self._deferred and (self._deferred[0].checkpoint <= overtaken or not self._gate.has_restored()):
            self._triggered(self._deferred.pop(0))

    def _triggered(self, order: Trigger) -> None:
        self._has_stopped = self._has_stopped or order.final or order.pause
        if order.drain and self._source is not None:
            self._source.drain()
        checkpoint = CheckpointId(order.checkpoint)
        barrier = Barrier(
            checkpoint, order.triggered_ms, order.final, order.completed, order.savepoint, order.pause, order.drain
        )
        self._barrier(barrier, 0, self._gate.in_flight(checkpoint))
        failpoint("ckpt.barrier")

    def _finish(self) -> None:
        """All input has ended, and so has time. What is emitted from here on belongs to nobody."""
        if self._source is None:
            self._clocks.end_of_input()
        self._is_finished = True
        self.output.end()

    def next_tick_ms(self) -> int | None:
        """By the wall clock: when :meth:`tick` has something to do."""
        return None if self._has_stopped or self._is_finished else self._clocks.due_ms()

    def tick_in_seconds(self) -> float:
        """How long until :meth:`tick` has something to do."""
        return self._clocks.seconds_until(self.next_tick_ms())

    def tick(self) -> bool:
        """Do what is due by the wall clock. False if nothing was."""
        if (began := self._env.now_ms()) >= self._count_at_ms:
            self._keys = sum(o.backend.entries() for o in self._operators if o.backend is not None)
            ended = self._env.now_ms()
            self._count_at_ms = ended + max(COUNT_MS, COUNT_REST * (ended - began))
        return self._clocks.tick(self.next_tick_ms())

    @property
    def slot(self) -> int:
        """Its place in its stage."""
        return self._slot

    @property
    def attempt(self) -> int:
        return self._deployment.attempt

    @property
    def is_reading(self) -> bool:
        """Is it a source that may have more?"""
        return self._source is not None and not (self._source.has_ended or self._has_stopped or self._is_held)

    @property
    def holds_input_back(self) -> bool:
        """Are held frames to be worked off before new input is taken?"""
        is_crowded = self._loop is not None and self._loop.is_crowded()
        return (self._gate.has_released() or is_crowded) and not self._relaying_for

    @property
    def has_feedback(self) -> bool:
        """Is there something that has come back and may be processed now?"""
        # What was in flight in the restored checkpoint was there before it.
        return self._loop is not None and self._loop.may_pass() and not self._gate.has_restored()

    def progress(self) -> Progress:
        """How far it is. Called from another thread, so it looks at numbers only."""
        busy, held_back, idle = self.times.totals()
        return Progress(
            records_in=self._operators[0].records_in if self._operators else 0,
            # Those that a sink at the end of the chain has written are out as well.
            records_out=self.output.records_out
            + sum(o.records_in for o in self._operators if o.operator.kind == "sink"),
            keys=self._keys,
            blocked_bytes=self._gate.held_bytes(),
            busy_ms=busy,
            backpressured_ms=held_back,
            idle_ms=idle,
            reading=self._env.reads.path,
            counters={o.operator.uid: dict(o.counters) for o in self._operators if o.counters},
        )

    def turn(self) -> object:
        """Another value whenever it has done something. Called from another thread, like :meth:`progress`."""
        reads, times = self._env.reads, self.times
        return (times.turns if times.is_busy else object()), reads.count, reads.bytes

    def close(self) -> None:
        """Called once, at the end or after a failure."""
        self._gate.close()
        if self._loop is not None:
            self._loop.close()
        close_chain(self._operators)

    # --- records and barriers --------------------------------------------------------------------

    def _pass_on(self, target_slot: int, frame: bytes) -> None:
        widths = self._plan.widths
        if self._stage + 1 == len(widths):  # a result, at the end of its way
            self.output.pass_on(0, frame)
            return
        next_is_target = frame[5] == self._stage + 1
        slot = target_slot if next_is_target else relay_slot(self._slot, target_slot, widths[self._stage + 1])
        self.output.pass_on(slot, frame)

    def _deliver(self, channel: int, frame: bytes) -> bytes | None:
        """Process a frame. What is returned is left of it: something more urgent has come up."""
        if frame[0] == BATCH:
            return self._process(frame, *self._targets[channel], channel)
        if frame[0] == MARK:
            assert self._loop is not None
            self._loop.marked(channel, frame)
            return None
        self._clocks.ended(channel)
        self._open_channels -= 1
        if self._loop is not None:
            self._loop.ended(channel)
        # The head of a loop has input as long as something may come back to it.
        if not self._open_channels and not self._is_head:
            self._finish()
        return None

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
                    left = elements.pack_records(content[done:], stamps and stamps[done:])
                    return frame[: HEAD.size] + left + frame[at:]
            if at < len(frame) and self._env.has_urgent_work():
                return frame[: HEAD.size] + frame[at:]
        return None

    # --- loops -----------------------------------------------------------------------------------

    def _came_back(self, frame: bytes, side: int) -> bytes | None:
        """Process what has come back. Time does not."""
        return self._process(frame, self._operators[0], side, -1)

    def _end_loop(self) -> None:
        self._finish()
        self._env.report(InputEnded())

    # --- snapshots -------------------------------------------------------------------------------

    def _barrier(self, barrier: Barrier, align_ms: int, found: InFlight) -> None:
        """Every record before the barrier has been processed, or is in flight: take the snapshot."""
        for operator in self._operators:
            operator.before_barrier()
        if barrier.drain and self._is_head:
            self._clocks.end_of_loop()
        try:
            self._snapshot(barrier, align_ms, found)
        finally:
            for operator in self._operators:
                operator.after_snapshot()

    def _snapshot(self, barrier: Barrier, align_ms: int, found: InFlight) -> None:
        self.output.broadcast(barrier)
        # What fires after the last barrier would be committed by nobody; after a pause, by us and by who goes on.
        self._has_stopped = self._has_stopped or barrier.final or barrier.pause
        if self._loop is not None and self._has_stopped:
            self._loop.freeze()
        checkpoint = barrier.checkpoint
        waiting = [(self._origins[channel], copy) for channel, copy in found]
        if waiting and self._is_relay:
            # Others' barriers come through here too, and must not wait until we have worked off what was in flight.
            self._relaying_for = checkpoint
        if self._env.store is None and not barrier.savepoint:
            snapshot.stage(self._operators, checkpoint)
            snapshot.stage_outside(self._operators, checkpoint)
            self._env.report(Acknowledged(checkpoint=checkpoint, operators=[], align_ms=align_ms))
            return
        began = time.perf_counter()
        taken = snapshot.take(self._operators, barrier)
        sync_ms = round(1000 * (time.perf_counter() - began))
        operator = self._operators[0].operator
        mine = owned(self.id.index, operator.parallelism, self._plan.graph.max_parallelism)
        # A savepoint goes where the user wants it; nothing will ever be built on it.
        store = open_store(barrier.savepoint) if barrier.savepoint else self._env.store
        assert store is not None

        def write(found: Found) -> None:
            in_it = in_flight.waiting(found)
            writer = snapshot.Writer(store, taken, checkpoint, self.id.index, self._deployment.attempt, mine, in_it)
            work = snapshot.acknowledging(writer, self._env.report, checkpoint, align_ms, sync_ms)
            self._env.background(work, partial(snapshot.written, barrier, taken))

        if self._loop is None:
            write(waiting)
        else:
            self._loop.snapshot(checkpoint, taken, waiting, write)

    def _give_up(self, checkpoint: int) -> None:
        reason = FailureReason.OVERTAKEN
        self._env.report(Declined(checkpoint=checkpoint, reason=reason.name, detail=reason.sentence))

    def _confirmed(self, checkpoint: int, final: bool) -> None:
        if checkpoint >= self._relaying_for:
            self._relaying_for = 0
        for operator in reversed(self._operators):
            try:
                operator.confirmed(checkpoint)
            except MoorlineError:
                raise
            except Exception as error:
                raise RuntimeError(f"{operator.operator.uid}: could not commit {checkpoint}: {error}") from error
        if final:
            for operator in self._operators:
                result = operator.results() if isinstance(operator, SinkOperator) else None
                if result is not None:
                    frame = elements.pack_result(self._deployment.attempt, self.id.index, *result)
                    self._pass_on(self._slot, frame)
            self.is_done = True
