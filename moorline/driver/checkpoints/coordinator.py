"""The checkpoints of one attempt: when to start one, and what each report about it means.

Holds ``protocol/triggering`` and ``protocol/coordination`` together and carries their decisions out. Runs on the
driver's one thread.

    orders.py      snapshots that were asked for, beside those that are due
    sources.py     where barriers start
    manifest.py    what is published
    retention.py   which checkpoints are kept, and which files are deleted
    stats.py       figures about those that are complete
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from moorline.driver.checkpoints.manifest import manifest_of
from moorline.driver.checkpoints.orders import Orders, Outcome, SnapshotOrder
from moorline.driver.checkpoints.retention import Retention
from moorline.driver.checkpoints.sources import Sources
from moorline.driver.checkpoints.stats import CheckpointStats, stats_of
from moorline.driver.connectors.attempt import AttemptConnectors
from moorline.driver.journal import Journal
from moorline.driver.observation.checkpoints import CheckpointHistory, CheckpointRecord
from moorline.errors import FailureReason, StorageError
from moorline.model.config.checkpoints import Checkpoints
from moorline.model.config.thresholds import THRESHOLDS
from moorline.model.ids import SubtaskId
from moorline.model.manifest import ElementsHandle, Manifest
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.messages import Abort, Acknowledged, Declined, Order, Overtake, Progress, Trigger
from moorline.protocol import coordination as co
from moorline.protocol.pacing import Pacing
from moorline.protocol.triggering import StartCheckpoint, Triggering
from moorline.snapshots.folders import write_savepoint
from moorline.storage.blobs import BlobStore
from moorline.storage.layout import is_of_checkpoint
from moorline.storage.stores.open import open_store

log = logging.getLogger("moorline")

_PERIODIC = SnapshotOrder()
#: Without checkpoints there is still the final one, which must not be waited for in vain.
FINAL_TIMEOUT_MS = 600_000


@dataclass(slots=True)
class _InFlight:
    """A checkpoint that has started and not ended."""

    started_ms: int
    #: The checkpoint that it may build on.
    base: int = 0
    #: What enumerators knew when it was triggered, by uid.
    enumerated: dict[str, ElementsHandle] = field(default_factory=dict)
    acks: list[Acknowledged] = field(default_factory=list)


class AttemptCheckpoints:
    """All checkpoints of one attempt. Without ``retention`` nothing is published but savepoints."""

    def __init__(
        self,
        deployment: Deployment,
        config: Checkpoints | None,
        retention: Retention | None,
        next_checkpoint: int,
        connectors: AttemptConnectors,
        send: Callable[[SubtaskId, Order], None],
        now_ms: int,
        wall_ms: Callable[[], int],
        put_aside_bytes: int = THRESHOLDS.put_aside_bytes,
        observed: CheckpointHistory | None = None,
    ) -> None:
        self._deployment, self._config, self._retention = deployment, config, retention
        self._send, self._wall_ms = send, wall_ms
        self._observed = observed if observed is not None else CheckpointHistory()
        self.connectors = connectors
        self._journal = Journal(deployment.plan.graph.job)
        # Only where something is put aside that the exchange could hold.
        pacing = Pacing(put_aside_bytes) if config is not None and config.overtake_ms is not None else None
        self._sources = Sources(deployment.plan, send, pacing)
        self._triggering = Triggering(
            interval_ms=config.interval_ms if config else None,
            min_pause_ms=config.min_pause_ms if config else 0,
            max_concurrent=config.max_concurrent if config else 1,
            next_id=next_checkpoint,
            started_ms=now_ms,
        )
        self._coordination = co.Coordination(
            frozenset(deployment.plan.subtasks()),
            timeout_ms=config.timeout_ms if config else FINAL_TIMEOUT_MS,
            tolerable=config.tolerable_failures if config else 0,
            overtake_ms=config.overtake_ms if config else None,
        )
        self._orders = Orders()
        self._in_flight: dict[int, _InFlight] = {}
        self.stats: list[CheckpointStats] = []
        #: The last checkpoint that failed, and the error behind it.
        self._cause = (0, "")
        #: Set when too many checkpoints have failed.
        self._failure: str | None = None

    @property
    def last_completed(self) -> int:
        deployment = self._deployment
        # On a savepoint nothing can be built: its files are not ours.
        restored = deployment.restored if deployment.restore_location is None else None
        return self._coordination.completed or (restored or 0)

    @property
    def is_ending(self) -> bool:
        """Is only the final checkpoint left to do?"""
        return self._triggering.final_wanted or self._triggering.final_pending is not None

    def next_wakeup_ms(self) -> int | None:
        triggering = self._triggering
        # With enough in flight nothing is due, however late it is: the end of one of them wakes us.
        is_full = len(triggering.pending) >= triggering.max_concurrent
        times = [None if is_full else triggering.next_due_ms(), self._coordination.next_expiry_ms()]
        times.append(self.connectors.enumerators.next_due_ms())
        return min((t for t in times if t is not None), default=None)

    # --- requests --------------------------------------------------------------------------------

    def order(self, order: SnapshotOrder) -> None:
        """Take a snapshot as soon as can be."""
        self._orders.add(order)
        self._triggering.requested()

    def stop(self) -> None:
        """Take the final checkpoint now, wherever the sources are."""
        self._triggering.final_requested()

    def tidy_up(self) -> bool:
        """Leave nothing behind but the checkpoints that are to be retained: the job is over here. Is that so?"""
        self._in_flight.clear()
        return self._retention is None or self._retention.tidy_up(self.last_completed)

    def close(self) -> None:
        """The attempt is over: its committers and enumerators go."""
        self.connectors.close()

    def pop_outcomes(self) -> list[Outcome]:
        """Ordered snapshots that have ended since the last call."""
        return self._orders.pop_outcomes()

    def pop_failure(self) -> str | None:
        """The new reason why the attempt cannot go on: failed checkpoints, a commit, a look for splits."""
        failure, self._failure = self._failure, None
        return failure or self.connectors.pop_failure()

    # --- facts -----------------------------------------------------------------------------------

    def time_passed(self, now_ms: int) -> None:
        """Start what is due; give up what takes too long."""
        self.connectors.time_passed(now_ms)
        self._obey(self._coordination.handle(co.TimePassed(now_ms)), now_ms)
        start = self._triggering.time_passed(now_ms)
        if start is not None:
            self._start(start, now_ms)
        if self._retention is not None:
            self._retention.delete_unnamed(self._in_flight, now_ms)

    def input_ended(self, subtask: SubtaskId) -> None:
        """A source has read everything, or a loop is empty. After all of them only the final checkpoint is left."""
        if self._sources.ended(subtask):
            self._triggering.final_requested()

    def progressed(self, subtask: SubtaskId, report: Progress) -> None:
        """A subtask has said how far it is."""
        self._sources.put_aside(subtask, report.blocked_bytes)

    def acknowledged(self, subtask: SubtaskId, report: Acknowledged, now_ms: int) -> None:
        if report.checkpoint in self._in_flight:
            self._in_flight[report.checkpoint].acks.append(report)
        self._observed.acknowledged(subtask, report, now_ms)
        event = co.Acknowledged(subtask, report.checkpoint, tuple(report.operators))
        self._obey(self._coordination.handle(event), now_ms)

    def declined(self, subtask: SubtaskId, report: Declined, now_ms: int) -> None:
        log.warning("checkpoint %d declined by subtask %s: %s", report.checkpoint, subtask, report.detail)
        self._cause = report.checkpoint, f"subtask {subtask}: {report.detail}"
        event = co.Declined(subtask, report.checkpoint, FailureReason[report.reason])
        self._obey(self._coordination.handle(event), now_ms)

    # --- inside ----------------------------------------------------------------------------------

    def _start(self, start: StartCheckpoint, now_ms: int) -> None:
        log.debug("%s", start)
        checkpoint = start.checkpoint
        ordered = self._orders.start(checkpoint) if start.requested else _PERIODIC
        event = co.Started(checkpoint, now_ms, start.final, bool(ordered.savepoint))
        actions = self._coordination.handle(event)
        self._observe(start, ordered, now_ms)
        base = self.last_completed
        self._in_flight[checkpoint] = _InFlight(now_ms, base, self.connectors.enumerators.states())
        self._sources.send(
            Trigger(
                checkpoint=checkpoint,
                triggered_ms=self._wall_ms(),
                final=start.final,
                # 0: build on nothing. What else this number says (external state) the next barrier says again.
                completed=0 if self._config is not None and self._config.is_full(checkpoint, base) else base,
                savepoint=ordered.savepoint,
                pause=ordered.pause,
                drain=ordered.drain,
            )
        )
        self._obey(actions, now_ms)

    def _observe(self, start: StartCheckpoint, ordered: SnapshotOrder, now_ms: int) -> None:
        plan = self._deployment.plan
        self._observed.started(
            CheckpointRecord(
                start.checkpoint,
                int(self._deployment.attempt),
                "final" if start.final else "savepoint" if ordered.savepoint else "checkpoint",
                self._wall_ms(),
                sum(vertex.parallelism for vertex in plan.vertices),
                ordered.savepoint,
                began_ms=now_ms,
            )
        )

    def _obey(self, actions: list[co.Action], now_ms: int) -> None:
        for action in actions:
            log.debug("%s", action)
            match action:
                case co.Publish(checkpoint, parts):
                    self._publish(checkpoint, dict(parts), now_ms)
                case co.OvertakeEverywhere(checkpoint):
                    self._send_to_all(Overtake(checkpoint=checkpoint))
                case co.ConfirmEverywhere(checkpoint, final):
                    self.connectors.published(checkpoint, final)
                case co.AbortEverywhere(checkpoint, reason):
                    log.warning("checkpoint %d given up: %s", checkpoint, reason.sentence)
                    self._ended(checkpoint, False, now_ms)
                    cause = self._cause[1] if self._cause[0] == checkpoint else ""
                    self._observed.failed_of(checkpoint, reason.name, reason.sentence, cause, now_ms)
                    self._orders.failed(checkpoint, f"{reason.sentence}{self._because(checkpoint)}")
                    self._send_to_all(Abort(checkpoint=checkpoint))
                case co.Discard(checkpoint, handles):
                    self._discard(checkpoint, handles)
                case co.FailAttempt():
                    self._failure = f"{action}{self._because(action.checkpoint)}"

    def _because(self, checkpoint: int) -> str:
        """The cause beside the reason, as far as it is known: a full disk, a refused request."""
        number, cause = self._cause
        return f" ({cause})" if number == checkpoint else ""

    def _publish(self, checkpoint: int, handles: dict[SubtaskId, co.Handles], now_ms: int) -> None:
        savepoint = self._orders.savepoint_of(checkpoint)
        try:
            manifest = self._write_manifest(checkpoint, handles, savepoint)
        except StorageError as error:
            name = f"savepoint {savepoint}" if savepoint else f"checkpoint {checkpoint}"
            log.warning("%s could not be published: %s", name, error)
            self._cause = checkpoint, str(error)
            self._obey(self._coordination.handle(co.PublishFailed(checkpoint)), now_ms)
            return
        enumerated = {} if savepoint else self._in_flight[checkpoint].enumerated
        if not savepoint:
            self._keep_stats(checkpoint, manifest, now_ms)
        self._ended(checkpoint, True, now_ms)
        self._observed.published(checkpoint, now_ms)
        staged = [h for part in handles.values() for h in part]
        if not self.connectors.staged(checkpoint, staged, lambda: self._store_of(savepoint)):
            return
        self._obey(self._coordination.handle(co.Published(checkpoint)), now_ms)
        self.connectors.enumerators.completed(enumerated)
        if savepoint:
            log.info("savepoint %s is complete", savepoint)
        elif self._retention is not None:
            self._retention.delete_superfluous([c.base for c in self._in_flight.values()])
        self._orders.taken(checkpoint)

    def _write_manifest(self, checkpoint: int, handles: dict[SubtaskId, co.Handles], savepoint: str) -> Manifest | None:
        """Make a checkpoint or savepoint exist. None: without storage there is no checkpoint to write."""
        if not savepoint and self._retention is None:
            return None
        enumerated = self._in_flight[checkpoint].enumerated
        manifest = manifest_of(self._deployment, checkpoint, handles, enumerated, self._wall_ms())
        if savepoint:
            write_savepoint(open_store(savepoint), manifest)
        elif self._retention is not None:
            self._retention.publish(manifest, [c.base for n, c in self._in_flight.items() if n != checkpoint])
        return manifest

    def _store_of(self, savepoint: str) -> BlobStore | None:
        if savepoint:
            return open_store(savepoint)
        return self._retention.store if self._retention is not None else None

    def _send_to_all(self, order: Order) -> None:
        for subtask in self._deployment.plan.subtasks():
            self._send(subtask, order)

    def _discard(self, checkpoint: int, handles: co.Handles) -> None:
        """Delete files that no checkpoint will name. What cannot be deleted now is swept by the next attempt.

        An increment names files of earlier checkpoints as well: those are not its to delete.
        """
        files = [f for h in handles for f in h.files() if is_of_checkpoint(f.path, checkpoint)]
        savepoint = self._orders.savepoint_of(checkpoint)
        if not files:
            return
        try:
            if savepoint:
                open_store(savepoint).delete([f.path for f in files])
            elif self._retention is not None:
                self._retention.discard(files)
        except StorageError as error:
            log.warning("files of an abandoned checkpoint could not be deleted yet: %s", error)

    def _ended(self, checkpoint: int, completed: bool, now_ms: int) -> None:
        self._triggering.ended(checkpoint, completed, now_ms)
        self._in_flight.pop(checkpoint, None)

    def _keep_stats(self, checkpoint: int, manifest: Manifest | None, now_ms: int) -> None:
        ended = self._in_flight.get(checkpoint, _InFlight(now_ms))
        is_final = checkpoint == self._triggering.final_pending
        self.stats.append(stats_of(checkpoint, manifest, ended.acks, now_ms - ended.started_ms, is_final))
        del self.stats[:-1000]
        self._journal.completed(self._deployment.attempt, self.stats[-1])
