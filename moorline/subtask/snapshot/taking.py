"""One subtask's part of a checkpoint: the quick part on its thread, the slow part off it.

    begin        the barrier goes out; state is captured             synchronous: the stream waits
    write        files are encoded and written                       in the background: the stream goes on
    acknowledge  handles to the driver, once every file is durable   from the thread that has written them
    done         backends know what they may build on                on the subtask's thread again
    abandon      in place of write: a loop's barrier never came back

The driver's word comes later: :meth:`Snapshots.confirm` or :meth:`Snapshots.abort`. ``subtask/task.py`` owns one
:class:`Snapshots`; at the head of a loop ``subtask/iteration/membership.py`` keeps each :class:`Snapshot` until its
barrier has come back, and has it written then.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from moorline.errors import FailureReason, MoorlineError, StateError
from moorline.model.ids import SubtaskId
from moorline.model.key_groups import owned
from moorline.model.manifest import OperatorHandles
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.elements import Barrier
from moorline.model.wire.messages import Acknowledged, Declined, Noticed
from moorline.storage.blobs import BlobStore
from moorline.storage.stores.open import open_store
from moorline.subtask.environment import Environment
from moorline.subtask.operators.base import ChainedOperator
from moorline.subtask.output import Output
from moorline.subtask.snapshot import in_flight
from moorline.subtask.snapshot.capture import Captured, capture, done, stage_external, stage_sinks, staged_for_driver
from moorline.subtask.snapshot.in_flight import InFlightFrames
from moorline.subtask.snapshot.writer import Writer


class Snapshots:
    """The snapshots of one subtask. ``operators`` is its chain, which is filled when it starts."""

    def __init__(
        self,
        deployment: Deployment,
        subtask: SubtaskId,
        environment: Environment,
        operators: list[ChainedOperator],
        output: Output,
    ) -> None:
        self._deployment, self._subtask, self._env = deployment, subtask, environment
        self._operators, self._output = operators, output

    def begin(self, barrier: Barrier, align_ms: int) -> Snapshot | None:
        """Send the barrier on and capture the state. None: snapshots go nowhere, and nothing is left to be written."""
        self._output.broadcast(barrier)
        if self._env.store is None and not barrier.savepoint:
            stage_sinks(self._operators, barrier.checkpoint)
            stage_external(self._operators, barrier.checkpoint)
            handles = staged_for_driver(self._operators)
            self._env.report(Acknowledged(checkpoint=barrier.checkpoint, operators=handles, align_ms=align_ms))
            return None
        began = time.perf_counter()
        captured = capture(self._operators, barrier)
        sync_ms = round(1000 * (time.perf_counter() - began))
        # A savepoint goes where the user wants it.
        store = open_store(barrier.savepoint) if barrier.savepoint else self._env.store
        assert store is not None
        return Snapshot(self._deployment, self._subtask, self._env, barrier, captured, store, align_ms, sync_ms)

    def decline(self, checkpoint: int) -> None:
        """Have the driver know that a newer checkpoint has come first."""
        reason = FailureReason.OVERTAKEN
        self._env.report(Declined(checkpoint=checkpoint, reason=reason.name, detail=reason.sentence))

    def confirm(self, checkpoint: int) -> None:
        """Have the operators commit a checkpoint that is complete, from the tail of the chain."""
        for operator in reversed(self._operators):
            try:
                operator.confirmed(checkpoint)
            except MoorlineError:
                raise
            except Exception as error:  # of the user's sink
                raise RuntimeError(f"{operator.operator.uid}: could not commit {checkpoint}: {error}") from error

    def abort(self, checkpoint: int) -> None:
        """Have the operators forget a checkpoint that the driver has given up."""
        for operator in reversed(self._operators):
            operator.aborted(checkpoint)


@dataclass(frozen=True)
class Snapshot:
    """One snapshot that was begun, to be written or abandoned."""

    deployment: Deployment
    subtask: SubtaskId
    environment: Environment
    barrier: Barrier
    captured: list[Captured]
    store: BlobStore
    align_ms: int
    sync_ms: int

    @property
    def checkpoint(self) -> int:
        return self.barrier.checkpoint

    def write(self, frames: InFlightFrames) -> None:
        """Have it written in the background, with the frames that are in flight."""
        plan, index = self.deployment.plan, self.subtask.index
        parallelism = plan.vertices[self.subtask.vertex].parallelism
        writer = Writer(
            self.store,
            self.captured,
            self.checkpoint,
            index,
            self.deployment.attempt,
            owned(index, parallelism, plan.graph.max_parallelism),
            in_flight.waiting(frames),
            self.environment.pace,
            self._notice,
        )
        began = time.perf_counter()
        if self._is_awaited:
            self.environment.pace.await_one()
        self.environment.background(lambda: self._acknowledge(writer, began), self._done)

    def _notice(self, uid: str, kind: str, text: str) -> None:
        self.environment.report(Noticed(uid=uid, kind=kind, text=text))

    @property
    def _is_awaited(self) -> bool:
        """Does the job stand still until it is written?"""
        return self.barrier.final or self.barrier.pause or self.barrier.drain

    def abandon(self) -> None:
        """Give it up before it was written."""
        done(self.captured, None)

    def _acknowledge(self, write: Writer, began: float) -> list[OperatorHandles]:
        """Write and report how it went, from the writing thread.

        The next stage may keep the subtask's own thread waiting for minutes, and the driver waits for this.
        """
        try:
            handles = write()
        except Exception as error:
            if not isinstance(error, StateError):  # which fails the attempt: no other checkpoint would fare better
                reason = FailureReason.UPLOAD_FAILED.name
                self.environment.report(Declined(checkpoint=self.checkpoint, reason=reason, detail=str(error)))
            raise
        self.environment.report(
            Acknowledged(
                checkpoint=self.checkpoint,
                operators=handles,
                align_ms=self.align_ms,
                sync_ms=self.sync_ms,
                async_ms=round(1000 * (time.perf_counter() - began)),
                in_flight_records=sum(h.records for o in handles for h in o.in_flight),
            )
        )
        return handles

    def _done(self, handles: list[OperatorHandles] | None, error: BaseException | None) -> None:
        if self._is_awaited:
            self.environment.pace.awaited_one_ended()
        # Nothing is ever built on a savepoint.
        done(self.captured, None if error is not None or self.barrier.savepoint else handles)
        if isinstance(error, StateError):
            raise error  # a value that cannot be stored: every further checkpoint would meet it again
