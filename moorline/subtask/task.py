"""One subtask: what it does with each frame, each order, and when there is nothing else to do.

Everything runs on one thread, so a snapshot is atomic with respect to records. The loop never blocks and never
sleeps; ``spark/entry.py`` (or the simulator) calls it and carries its rows away:

    start()        restore, open, report Running
    frame(f)       a frame from the exchange: for a later stage, or for us through the gate
    feedback(f)    a frame that has come back round a loop
    order(o)       from the driver
    tick()         timers and watermarks that are due by the wall clock; next_tick_ms() says when
    work()         waiting frames that may pass now, else a batch from the source; False: nothing to do
    output.take()  rows to yield
    is_done        the final checkpoint is complete and committed

A subtask goes through phases, and never back:

    RUNNING    records are processed, timers fire, a source reads
       | the barrier of a last checkpoint goes out: final, or before a pause
    STOPPED    nothing fires and nothing is read: it would never be committed, or twice
       | all input has ended, which may also happen while it is running
    FINISHED   time has ended, and the end was sent on
       | the final checkpoint is confirmed, stopped or finished, and what sinks had to commit is committed
    DONE

What is raised here ends the attempt; ``subtask/failure_report.py`` puts it into words for the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from functools import partial
from typing import Any, assert_never

from moorline.failpoints import failpoint
from moorline.model.ids import CheckpointId, SubtaskId
from moorline.model.wire import elements
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.elements import Barrier
from moorline.model.wire.messages import (
    Abort,
    AddSplits,
    Confirm,
    Hold,
    InputEnded,
    Order,
    Overtake,
    Progress,
    Query,
    ReaderReported,
    Running,
    SendAhead,
    SendBackTo,
    Trigger,
)
from moorline.subtask.clocks import Clocks
from moorline.subtask.control import queries
from moorline.subtask.environment import Background, Done, Environment
from moorline.subtask.inputs import Inputs
from moorline.subtask.operators.base import ChainedOperator
from moorline.subtask.operators.sink import SinkOperator
from moorline.subtask.operators.source import ReadingOperator
from moorline.subtask.output import Output
from moorline.subtask.progress import Meter
from moorline.subtask.reading import Reading
from moorline.subtask.relay import Relay
from moorline.subtask.restore.chain import close_chain, open_chain, restore_store
from moorline.subtask.snapshot import in_flight
from moorline.subtask.snapshot.in_flight import InFlightFrames
from moorline.subtask.snapshot.taking import Snapshots
from moorline.subtask.time_accounting import TimeAccounting


class Phase(IntEnum):
    """Phases of a subtask, in their order. One may be left out, and none comes back."""

    RUNNING = 0
    STOPPED = 1
    FINISHED = 2
    DONE = 3


class Subtask:
    """One subtask of one attempt."""

    def __init__(self, deployment: Deployment, subtask: SubtaskId, environment: Environment) -> None:
        self._deployment, self.id = deployment, subtask
        self._env = environment = replace(environment, commits=partial(self._commit, environment.commits))
        plan = deployment.plan
        self._phase = Phase.STOPPED if deployment.is_paused else Phase.RUNNING
        #: The chain, from :meth:`start` on.
        self._operators: list[ChainedOperator] = []
        #: The final checkpoint is confirmed; commits may still be on their way.
        self._is_last_confirmed = False
        #: If the chain begins with a source.
        self._reading: Reading | None = None
        self.times = TimeAccounting(environment.now_ms)
        self.output = Output(deployment.attempt, environment.flush_ms, environment.now_ms, environment.first_window)
        self._relay = Relay(plan, subtask, self.output)
        is_in_loop, is_head = subtask.vertex in plan.loop_of, bool(plan.feedback_into(subtask))
        self._clocks = Clocks(len(plan.channels_into(subtask)), is_in_loop, is_head, environment.wall_ms)
        self._snapshots = Snapshots(deployment, subtask, environment, self._operators, self.output)
        self._inputs = Inputs(
            deployment,
            subtask,
            environment,
            self.output,
            self._clocks,
            self._take_snapshot,
            self._snapshots.decline,
            self._finish,
            self.times.worked_ms,
        )
        self._meter = Meter(self._operators, self._inputs, self.output, self.times, environment)

    # --- what the world calls --------------------------------------------------------------------

    def start(self, pid: int = 0, address: tuple[str, int] | None = None) -> None:
        """Restore, open, and say so. ``address``: where what comes back round a loop is received."""
        deployment, loop = self._deployment, self._inputs.loop
        self._operators += open_chain(deployment, self.id, self._env, self.output)
        if isinstance(self._operators[0], ReadingOperator):
            self._reading = Reading(self._operators[0])
            self._reading.source.packed_bytes = lambda: self.output.bytes_out
        if deployment.restored is not None:
            store = restore_store(deployment, self._env)
            for origin, frames in in_flight.restored(deployment, self.id, store):
                if deployment.is_paused and loop is not None:
                    loop.keep(origin, frames)
                else:
                    self._inputs.restore(origin, frames)
            failpoint("restore.open")
        self._clocks.start(self._operators)
        self._inputs.start(self._operators)
        self._env.report(Running(pid=pid, read_bytes=self._env.reads.bytes, address=address))

    def frame(self, frame: bytes) -> None:
        """A frame has come in from the stage before."""
        head = elements.head(frame)
        if head.attempt != self._deployment.attempt:
            return  # cannot happen inside one Spark job; if it did, it would not be ours to read
        if head.stage != self._relay.stage:
            self._relay.pass_on(head.slot, frame)
        else:
            self._inputs.take(head.link, head.sender, frame)

    def feedback(self, frame: bytes) -> None:
        """A frame has come back round a loop. It waits until :meth:`work` is called."""
        assert self._inputs.loop is not None
        self._inputs.loop.take(frame)

    def order(self, order: Order) -> None:
        """The driver wants something."""
        match order:
            case Trigger():
                if self._reading is not None:
                    self._reading.defer(order)
                    self._trigger_due(self._reading)
            case Overtake(checkpoint=checkpoint):
                if self._reading is None:
                    self._inputs.overtake(checkpoint)
                else:
                    self._trigger_due(self._reading, overtaken=checkpoint)
            case Hold(on=on):
                if self._reading is not None:
                    self._reading.is_paused = on
            case Confirm(checkpoint=checkpoint, final=final):
                self._confirm(checkpoint, final)
            case Abort(checkpoint=checkpoint):
                self._inputs.abort(checkpoint)
                self._relay.aborted()
                self._snapshots.abort(checkpoint)
            case AddSplits():
                if self._reading is not None:
                    self._reading.source.add_splits(order)
            case SendBackTo(addresses=addresses):
                self._env.send_back_to({SubtaskId(v, i): (host, port) for v, i, host, port in addresses})
            case SendAhead(channels=channels):
                for link, receiver, taken, window in channels:
                    self.output.granted(link, receiver, taken, window)
            case Query():
                self._env.report(queries.answer(self._operators, order))
            case _:
                assert_never(order)

    def work(self) -> bool:
        """Do a bounded piece of the work that is there. False if there was none."""
        reading = self._reading
        if self.is_held_back:
            return False
        if self._inputs.pass_some():
            if reading is not None:
                self._trigger_due(reading)
            return True
        if reading is None or not self.is_reading:
            return False
        did = reading.source.read(self.output.room_records())
        if (report := reading.source.pop_report()) is not None:
            self._env.report(ReaderReported(report=report))
        if reading.source.has_ended:
            self._finish()
        return did

    def next_tick_ms(self) -> int | None:
        """By the wall clock: when :meth:`tick` has something to do."""
        return self._clocks.due_ms() if self._phase is Phase.RUNNING else None

    def tick_in_seconds(self) -> float:
        """The time until :meth:`tick` has something to do."""
        return self._clocks.seconds_until(self.next_tick_ms())

    def tick(self) -> bool:
        """Do what is due by the wall clock. False if nothing was."""
        self._meter.count_state()
        return self._clocks.tick(self.next_tick_ms())

    @property
    def slot(self) -> int:
        """Its place in its stage."""
        return self._relay.slot

    @property
    def attempt(self) -> int:
        return self._deployment.attempt

    @property
    def is_reading(self) -> bool:
        """Is it a source that may have more?"""
        return self._reading is not None and self._reading.may_read and self._phase is Phase.RUNNING

    @property
    def is_held_back(self) -> bool:
        """Is so much on its way to other subtasks that this one makes no more for now?"""
        # Others' frames pass through a relay, and may be what a receiver of its own waits for.
        return not self._relay.is_used and not self._inputs.is_overtaking and self.output.is_held()

    @property
    def is_input_paused(self) -> bool:
        """Are waiting frames to be worked off, or taken by others, before new input is taken?"""
        return (self._inputs.has_backlog() and not self._relay.is_urgent) or self.is_held_back

    @property
    def has_feedback(self) -> bool:
        """Is there something that has come back and may be processed now?"""
        return self._inputs.has_feedback

    @property
    def is_done(self) -> bool:
        return self._phase is Phase.DONE

    def progress(self) -> Progress:
        """The progress of the subtask. Called from another thread."""
        return self._meter.progress()

    def turn(self) -> object:
        """Another value whenever it has done something. Called from another thread."""
        return self._meter.turn()

    def close(self) -> None:
        """Called once, at the end or after a failure."""
        self._inputs.close()
        close_chain(self._operators)

    # --- snapshots -------------------------------------------------------------------------------

    def _trigger_due(self, reading: Reading, overtaken: int = 0) -> None:
        """Emit the barriers that a source was asked for: once nothing is in flight, or at once up to ``overtaken``."""
        for order in reading.due(overtaken, self._inputs.has_restored):
            if order.drain:
                reading.source.drain()
            checkpoint = CheckpointId(order.checkpoint)
            barrier = Barrier(
                checkpoint, order.triggered_ms, order.final, order.completed, order.savepoint, order.pause, order.drain
            )
            self._take_snapshot(barrier, 0, self._inputs.in_flight(checkpoint))
            failpoint("ckpt.barrier")

    def _take_snapshot(self, barrier: Barrier, align_ms: int, frames: InFlightFrames) -> None:
        """Every record before the barrier has been processed, or is in flight: take the snapshot."""
        loop = self._inputs.loop
        for operator in self._operators:
            operator.before_barrier()
        if barrier.drain and self._inputs.is_head:
            self._clocks.end_of_loop()
        if barrier.final or barrier.pause:
            self._enter(Phase.STOPPED)
            if loop is not None:
                loop.freeze()
        if frames:
            self._relay.backlog_captured(barrier.checkpoint)
        try:
            snapshot = self._snapshots.begin(barrier, align_ms)
            if snapshot is not None and loop is not None:
                loop.complete(snapshot, frames)
            elif snapshot is not None:
                snapshot.write(frames)
        finally:
            for operator in self._operators:
                operator.after_snapshot()

    def _confirm(self, checkpoint: int, final: bool) -> None:
        self._relay.confirmed(checkpoint)
        self._snapshots.confirm(checkpoint)
        self._is_last_confirmed |= final
        self._end_when_committed()

    def _commit(self, background: Background, work: Callable[[], Any], done: Done) -> None:
        """Have a sink's commit made beside this thread, and see whether it was the last."""

        def finished(result: Any, error: BaseException | None) -> None:
            done(result, error)
            self._end_when_committed()

        background(work, finished)

    def _end_when_committed(self) -> None:
        sinks = [operator for operator in self._operators if isinstance(operator, SinkOperator)]
        if not self._is_last_confirmed or self.is_done or any(sink.is_committing for sink in sinks):
            return
        for result in filter(None, (sink.results() for sink in sinks)):
            frame = elements.pack_result(self._deployment.attempt, self.id.index, *result)
            self._relay.pass_on(self._relay.slot, frame)
        self._enter(Phase.DONE)

    # --- the end ---------------------------------------------------------------------------------

    def _finish(self) -> None:
        """All input has ended, and so has time. Nothing is emitted from here on."""
        if self._reading is None:
            self._clocks.end_of_input()
        self._enter(Phase.FINISHED)
        self.output.end()
        if self._reading is not None or self._inputs.is_head:
            self._env.report(InputEnded())

    def _enter(self, phase: Phase) -> None:
        self._phase = max(self._phase, phase)
