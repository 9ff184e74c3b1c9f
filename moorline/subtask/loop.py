"""One subtask: what it does with each frame, each order, and when there is nothing else to do.

Everything runs on one thread, so a snapshot is atomic with respect to records. The loop never blocks and never
sleeps; ``spark/entry.py`` (or the simulator) calls it and carries its rows away:

    start()        restore, open, report Running
    frame(f)       a frame from the exchange: for a later stage, or for us through the gate
    order(o)       from the driver
    tick()         timers and watermarks that are due by the wall clock; next_tick_ms() says when
    work()         held frames that may pass now, else a batch from the source; False: nothing to do
    output.take()  rows to yield
    is_done        the final checkpoint is complete and committed

What is raised here ends the attempt; :meth:`describe_failure` puts it into words for the driver.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable
from typing import Any, assert_never

from moorline.errors import (
    FailureReason,
    JobError,
    MoorlineError,
    RestoreError,
    SnapshotCorrupt,
    StateError,
    UserCodeFailed,
)
from moorline.failpoints import failpoint
from moorline.model import elements
from moorline.model.deployment import Deployment
from moorline.model.elements import BATCH, IDLE, WATERMARK, Barrier
from moorline.model.ids import CheckpointId, SubtaskId
from moorline.model.key_groups import owned
from moorline.model.manifest import OperatorHandles
from moorline.model.messages import (
    Abort,
    Acknowledged,
    Confirm,
    Declined,
    Failed,
    InputEnded,
    Order,
    Progress,
    Query,
    Running,
    Trigger,
)
from moorline.model.times import MAX_TIME
from moorline.protocol.lowering import relay_slot
from moorline.protocol.watermarks import Watermarks
from moorline.storage.open import open_store
from moorline.subtask import queries, snapshot
from moorline.subtask.ends import ReadingOperator, SinkOperator
from moorline.subtask.environment import Environment
from moorline.subtask.gate import Gate
from moorline.subtask.operator import ChainedOperator
from moorline.subtask.output import Output
from moorline.subtask.restore import close_chain, open_chain
from moorline.subtask.spent import TimeSpent

#: How often keys are counted.
COUNT_MS = 500
#: Of an error's text and of its traceback so much is told.
TOLD = 100_000


class Subtask:
    """One subtask of one attempt."""

    def __init__(self, deployment: Deployment, subtask: SubtaskId, environment: Environment) -> None:
        self._deployment, self.id, self._env = deployment, subtask, environment
        self._plan = deployment.plan
        self._stage, self._slot = self._plan.slot(subtask)
        self._operators: list[ChainedOperator] = []
        self._source: ReadingOperator | None = None
        self.spent = TimeSpent(environment.now_ms)
        self.output = Output(deployment.attempt, environment.flush_ms, environment.now_ms)
        channels = self._plan.channels_into(subtask)
        self._channel = {pair: number for number, pair in enumerate(channels)}
        root = self._plan.graph.by_uid[self._plan.vertices[subtask.vertex].operators[0]]
        #: Which of the root's inputs each channel belongs to.
        self._sides = [root.inputs[self._plan.links[link].input].side for link, _ in channels]
        self._open_channels = len(channels)
        self._watermarks = Watermarks(len(channels))
        self._gate = Gate(len(channels), self._deliver, self._barrier, self._give_up, lambda: int(environment.now_ms()))
        self._has_stopped = deployment.stopped
        #: How many keys there are, counted now and then.
        self._keys, self._counted_ms = 0, -math.inf
        #: All input has ended: nothing fires any more.
        self._is_finished = False
        self.is_done = False

    # --- what the world calls --------------------------------------------------------------------

    def start(self, pid: int = 0) -> None:
        """Restore, open, and say so."""
        self._operators = open_chain(self._deployment, self.id, self._env, self.output)
        if isinstance(self._operators[0], ReadingOperator):
            self._source = self._operators[0]
        if self._deployment.restored is not None:
            failpoint("restore.open")
        self._env.report(Running(pid=pid))

    def frame(self, frame: bytes) -> None:
        """A frame has come in from the stage before."""
        head = elements.head(frame)
        if head.attempt != self._deployment.attempt:
            return  # cannot happen inside one Spark job; if it did, it would not be ours to read
        if head.stage != self._stage:
            self._pass_on(head.slot, frame)
        else:
            self._gate.take(self._channel[head.link, head.sender], frame)

    def order(self, order: Order) -> None:
        """The driver wants something."""
        match order:
            case Trigger():
                if self._source is not None:
                    self._triggered(self._source, order)
                    failpoint("ckpt.barrier")
            case Confirm(checkpoint=checkpoint, final=final):
                self._confirmed(checkpoint, final)
            case Abort(checkpoint=checkpoint):
                self._gate.abort(checkpoint)
                for operator in reversed(self._operators):
                    operator.aborted(checkpoint)
            case Query():
                self._env.report(queries.answer(self._operators, order))
            case _:
                assert_never(order)

    def _triggered(self, source: ReadingOperator, order: Trigger) -> None:
        self._has_stopped = self._has_stopped or order.final or order.pause
        if order.drain:
            source.drain()
        barrier = Barrier(
            CheckpointId(order.checkpoint),
            order.triggered_ms,
            order.final,
            order.completed,
            order.savepoint,
            order.pause,
        )
        self._barrier(barrier, 0)

    def work(self) -> bool:
        """Do a bounded piece of the work that is there. False if there was none."""
        if self._gate.has_released():
            self._gate.pass_released()
            return True
        if self._source is None or not self.is_reading:
            return False
        did = self._source.read()
        if self._source.has_ended:
            self._finish()
            self._env.report(InputEnded())
        return did

    def _finish(self) -> None:
        """All input has ended, and so has time. What is emitted from here on belongs to nobody."""
        if self._source is None and self._watermarks.current < MAX_TIME:
            self._operators[0].watermark(MAX_TIME)
        self._is_finished = True
        self.output.end()

    def next_tick_ms(self) -> int | None:
        """By the wall clock: when :meth:`tick` has something to do."""
        if self._has_stopped or self._is_finished:
            return None
        return min((t for o in self._operators if (t := o.next_tick_ms()) is not None), default=None)

    def tick_in_seconds(self) -> float:
        """How long until :meth:`tick` has something to do."""
        due = self.next_tick_ms()
        return math.inf if due is None else max(0.0, (due - self._env.wall_ms()) / 1000)

    def tick(self) -> bool:
        """Do what is due by the wall clock. False if nothing was."""
        if self._env.now_ms() - self._counted_ms >= COUNT_MS:
            self._counted_ms = self._env.now_ms()
            self._keys = sum(o.backend.entries() for o in self._operators if o.backend is not None)
        due = self.next_tick_ms()
        if due is None:
            return False
        now_ms = self._env.wall_ms()
        if due > now_ms:
            return False
        for operator in self._operators:
            at = operator.next_tick_ms()
            if at is not None and at <= now_ms:
                operator.tick(now_ms)
        return True

    @property
    def attempt(self) -> int:
        return self._deployment.attempt

    @property
    def is_reading(self) -> bool:
        """Is it a source that may have more?"""
        return self._source is not None and not self._source.has_ended and not self._has_stopped

    @property
    def holds_input_back(self) -> bool:
        """Are held frames to be worked off before new input is taken?"""
        return self._gate.has_released()

    def progress(self) -> Progress:
        """How far it is. Called from another thread, so it looks at numbers only."""
        busy, held_back, idle = self.spent.so_far()
        return Progress(
            records_in=self._operators[0].records_in if self._operators else 0,
            records_out=self.output.records_out,
            keys=self._keys,
            blocked_bytes=self._gate.held_bytes(),
            busy_ms=busy,
            backpressured_ms=held_back,
            idle_ms=idle,
        )

    def close(self) -> None:
        """Called once, at the end or after a failure."""
        self._gate.close()
        close_chain(self._operators)

    def describe_failure(self, error: BaseException) -> Failed:
        told = _told("".join(traceback.format_exception(error)))
        if isinstance(error, UserCodeFailed):
            return Failed(
                error=_told(error.error),
                traceback=_told(error.traceback),
                uid=error.uid,
                name=error.name,
                position=error.position,
                record=_told(error.record),
                user=True,
            )
        if isinstance(error, SnapshotCorrupt):
            return Failed(error=_told(str(error)), traceback=told, corrupt=error.path)
        # What the author has to mend will not mend itself by a restart.
        user = isinstance(error, (JobError, StateError, RestoreError))
        return Failed(error=_told(f"{type(error).__name__}: {error}"), traceback=told, user=user)

    # --- records and barriers --------------------------------------------------------------------

    def _pass_on(self, target_slot: int, frame: bytes) -> None:
        widths = self._plan.widths
        if self._stage + 1 == len(widths):  # a result, at the end of its way
            self.output.pass_on(0, frame)
            return
        next_is_target = frame[5] == self._stage + 1
        slot = target_slot if next_is_target else relay_slot(self._slot, target_slot, widths[self._stage + 1])
        self.output.pass_on(slot, frame)

    def _deliver(self, channel: int, frame: bytes) -> None:
        if frame[0] == BATCH:
            process, side = self._operators[0].process, self._sides[channel]
            for kind, content, timestamps in elements.unpack_batch(frame):
                if kind == WATERMARK:
                    self._time_has_come(self._watermarks.advanced(channel, content))
                elif kind == IDLE:
                    self._time_has_come(self._watermarks.idled(channel))
                else:
                    process(content, timestamps, side)
            return
        self._time_has_come(self._watermarks.ended(channel))
        self._open_channels -= 1
        if not self._open_channels:
            self._finish()

    def _time_has_come(self, announced: int | str | None) -> None:
        if isinstance(announced, int):
            self._operators[0].watermark(announced)
        elif announced is not None:
            # All inputs are idle: time goes on to the furthest of them first.
            if self._watermarks.current > self._operators[0].moment.watermark:
                self._operators[0].watermark(self._watermarks.current)
            self._operators[0].idle()

    def _barrier(self, barrier: Barrier, align_ms: int) -> None:
        """Every record before the barrier has been processed: take the snapshot."""
        for operator in self._operators:
            operator.before_barrier()
        try:
            self._snapshot(barrier, align_ms)
        finally:
            for operator in self._operators:
                operator.after_snapshot()

    def _snapshot(self, barrier: Barrier, align_ms: int) -> None:
        self.output.broadcast(barrier)
        # What fires after the last barrier would be committed by nobody, and what fires after the savepoint of a stop
        # would be done again by whoever goes on from it.
        self._has_stopped = self._has_stopped or barrier.final or barrier.pause
        checkpoint = barrier.checkpoint
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
        write = snapshot.Writer(store, taken, checkpoint, self.id.index, self._deployment.attempt, mine)
        self._env.background(write, self._written(barrier, taken, align_ms, sync_ms))

    def _written(
        self, barrier: Barrier, taken: list[snapshot.Taken], align_ms: int, sync_ms: int
    ) -> Callable[[Any, BaseException | None], None]:
        began, checkpoint = time.perf_counter(), barrier.checkpoint

        def done(handles: list[OperatorHandles], error: BaseException | None) -> None:
            snapshot.done(taken, None if error is not None or barrier.savepoint else handles)
            if isinstance(error, StateError):
                raise error  # a value that cannot be stored: every further checkpoint would meet it again
            if error is not None:
                reason = FailureReason.UPLOAD_FAILED.name
                self._env.report(Declined(checkpoint=checkpoint, reason=reason, detail=str(error)))
                return
            async_ms = round(1000 * (time.perf_counter() - began))
            self._env.report(
                Acknowledged(
                    checkpoint=checkpoint, operators=handles, align_ms=align_ms, sync_ms=sync_ms, async_ms=async_ms
                )
            )

        return done

    def _give_up(self, checkpoint: int) -> None:
        reason = FailureReason.OVERTAKEN
        self._env.report(Declined(checkpoint=checkpoint, reason=reason.name, detail=reason.sentence))

    def _confirmed(self, checkpoint: int, final: bool) -> None:
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


def _told(text: str) -> str:
    """``text`` as a message can carry it: user code may raise with half a character in its text, or with megabytes."""
    if len(text) > TOLD:
        text = f"{text[: TOLD // 2]} ... {text[-TOLD // 2 :]}"
    return text.encode("utf-8", "backslashreplace").decode()
