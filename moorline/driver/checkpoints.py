"""The checkpoints of one attempt: when to start one, what each report about it means, what to keep.

Holds ``protocol/triggering`` and ``protocol/coordination`` together and carries their decisions out. Runs on the
driver's one thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from moorline.driver.journal import Journal
from moorline.driver.requests import SnapshotOrder
from moorline.driver.stats import CheckpointStats, stats_of
from moorline.errors import FailureReason, StorageError
from moorline.failpoints import failpoint
from moorline.model.config.checkpoints import Checkpoints
from moorline.model.config.thresholds import THRESHOLDS
from moorline.model.ids import SubtaskId
from moorline.model.manifest import Manifest, OperatorEntry, OperatorHandles
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.messages import (
    Abort,
    Acknowledged,
    Confirm,
    Declined,
    Hold,
    Order,
    Overtake,
    Progress,
    Trigger,
)
from moorline.protocol import coordination as co
from moorline.protocol.housekeeping import Housekeeping
from moorline.protocol.pacing import Pacing
from moorline.protocol.requests import SnapshotFailed, SnapshotTaken
from moorline.protocol.retention import superfluous
from moorline.protocol.triggering import Triggering
from moorline.snapshots.folders import delete_savepoint, write_savepoint
from moorline.storage.history import History
from moorline.storage.layout import is_of_checkpoint
from moorline.storage.stores.open import open_store

log = logging.getLogger("moorline")

#: How often the end of a job tries to leave its storage tidy.
TRIES = 4
_PERIODIC = SnapshotOrder()
#: Without checkpoints there is still the final one, which nobody should wait for in vain.
FINAL_TIMEOUT_MS = 600_000


class AttemptCheckpoints:
    """All checkpoints of one attempt."""

    def __init__(
        self,
        deployment: Deployment,
        config: Checkpoints | None,
        history: History | None,
        next_checkpoint: int,
        completed: list[int],
        send: Callable[[SubtaskId, Order], None],
        now_ms: int,
        wall_ms: Callable[[], int],
        given_up: frozenset[int] = frozenset(),
        claimed: str | None = None,
        put_aside_bytes: int = THRESHOLDS.put_aside_bytes,
    ) -> None:
        self._deployment, self._config, self._history = deployment, config, history
        #: ``claimed``: a savepoint that is ours to delete once it is superfluous.
        self._given_up, self._claimed = given_up, claimed
        self._send, self._wall_ms = send, wall_ms
        self._plan = deployment.plan
        self._journal = Journal(self._plan.graph.job)
        self._subtasks = list(self._plan.subtasks())
        self._sources = list(self._plan.source_subtasks())
        #: Who has not said yet that it has come to its end: sources, and the heads of loops.
        self._reading = {*self._sources, *self._plan.heads()}
        self._triggering = Triggering(
            interval_ms=config.interval_ms if config else None,
            min_pause_ms=config.min_pause_ms if config else 0,
            max_concurrent=config.max_concurrent if config else 1,
            next_id=next_checkpoint,
            started_ms=now_ms,
        )
        self._coordination = co.Coordination(
            frozenset(self._subtasks),
            timeout_ms=config.timeout_ms if config else FINAL_TIMEOUT_MS,
            tolerable=config.tolerable_failures if config else 0,
            overtake_ms=config.overtake_ms if config else None,
        )
        #: Only where something is put aside that the exchange could hold.
        self._pacing = Pacing(put_aside_bytes) if config is not None and config.overtake_ms is not None else None
        self._completed = completed
        self._started_ms: dict[int, int] = {}
        #: What was ordered: not started yet; by its number, under way; and what became of it.
        self._orders: deque[SnapshotOrder] = deque()
        self._ordered: dict[int, SnapshotOrder] = {}
        self._outcomes: list[SnapshotTaken | SnapshotFailed] = []
        #: Where each savepoint of this attempt was to go.
        self._savepoints: dict[int, str] = {}
        #: For each checkpoint in flight, the one it may build on.
        self._bases: dict[int, int] = {}
        self._times: dict[int, list[Acknowledged]] = {}
        self.stats: list[CheckpointStats] = []
        #: Checkpoints that may have been published or not, until a later one is.
        self._unsure: set[int] = set()
        #: Why the last checkpoint that failed did, and its number.
        self._cause = (0, "")
        self._housekeeping = Housekeeping(deployment.attempt, config.grace_ms if config else 0, now_ms)
        #: Set when too many checkpoints have failed.
        self._failure: str | None = None

    @property
    def last_completed(self) -> int:
        deployment = self._deployment
        # On a savepoint nothing can be built: its files are not ours.
        restored = deployment.restored if deployment.restore_location is None else None
        return self._coordination.completed or (restored or 0)

    def time_passed(self, now_ms: int) -> None:
        """Start what is due; give up what takes too long."""
        self._obey(self._coordination.handle(co.TimePassed(now_ms)), now_ms)
        start = self._triggering.time_passed(now_ms)
        if start is not None:
            log.debug("%s", start)
            self._started_ms[start.checkpoint] = now_ms
            ordered = self._orders.popleft() if start.requested else _PERIODIC
            if start.requested:
                self._ordered[start.checkpoint] = ordered
                if ordered.savepoint:
                    self._savepoints[start.checkpoint] = ordered.savepoint
            event = co.Started(start.checkpoint, now_ms, start.final, bool(ordered.savepoint))
            actions = self._coordination.handle(event)
            self._bases[start.checkpoint] = base = self.last_completed
            order = Trigger(
                checkpoint=start.checkpoint,
                triggered_ms=self._wall_ms(),
                final=start.final,
                # 0: build on nothing. What else this number says (external state) the next barrier says again.
                completed=0 if self._config is not None and self._config.is_full(start.checkpoint, base) else base,
                savepoint=ordered.savepoint,
                pause=ordered.pause,
                drain=ordered.drain,
            )
            for source in self._sources:
                self._send(source, order)
            self._obey(actions, now_ms)
        if self._history is not None and self._housekeeping.is_due(now_ms):
            self._delete_unnamed(self._history, now_ms)

    def next_wakeup_ms(self) -> int | None:
        triggering = self._triggering
        # With enough in flight nothing is due, however late it is: the end of one of them wakes us.
        is_full = len(triggering.pending) >= triggering.max_concurrent
        times = [None if is_full else triggering.next_due_ms(), self._coordination.next_expiry_ms()]
        return min((t for t in times if t is not None), default=None)

    def order(self, order: SnapshotOrder) -> None:
        """Take a snapshot as soon as can be."""
        self._orders.append(order)
        self._triggering.requested()

    def pop_outcomes(self) -> list[SnapshotTaken | SnapshotFailed]:
        """Ordered snapshots that have ended since the last call."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def pop_failure(self) -> str | None:
        """Why the attempt cannot go on: too many checkpoints have failed since the last call."""
        failure, self._failure = self._failure, None
        return failure

    def input_ended(self, subtask: SubtaskId) -> None:
        """A source has read everything, or a loop is empty. After all of them only the final checkpoint is left."""
        self._reading.discard(subtask)
        if not self._reading:
            self._triggering.final_requested()

    def progressed(self, subtask: SubtaskId, report: Progress) -> None:
        """A subtask has said how far it is."""
        held = self._pacing.put_aside(subtask, report.blocked_bytes) if self._pacing is not None else None
        if held is not None:
            log.debug("sources %s: what was put aside has to be worked off", "wait" if held else "go on")
            for source in self._sources:
                self._send(source, Hold(on=held))

    def stop(self) -> None:
        """Take the final checkpoint now, wherever the sources are."""
        self._triggering.final_requested()

    @property
    def is_ending(self) -> bool:
        """Is only the final checkpoint left to do?"""
        return self._triggering.final_wanted or self._triggering.final_pending is not None

    def acknowledged(self, subtask: SubtaskId, report: Acknowledged, now_ms: int) -> None:
        if report.checkpoint in self._started_ms:
            self._times.setdefault(report.checkpoint, []).append(report)
        event = co.Acknowledged(subtask, report.checkpoint, tuple(report.operators))
        self._obey(self._coordination.handle(event), now_ms)

    def declined(self, subtask: SubtaskId, report: Declined, now_ms: int) -> None:
        log.warning("checkpoint %d declined by subtask %s: %s", report.checkpoint, subtask, report.detail)
        self._cause = report.checkpoint, f"subtask {subtask}: {report.detail}"
        event = co.Declined(subtask, report.checkpoint, FailureReason[report.reason])
        self._obey(self._coordination.handle(event), now_ms)

    def _obey(self, actions: list[co.Action], now_ms: int) -> None:
        for action in actions:
            log.debug("%s", action)
            match action:
                case co.Publish(checkpoint, parts):
                    self._publish(checkpoint, parts, now_ms)
                case co.OvertakeEverywhere(checkpoint):
                    for subtask in self._subtasks:
                        self._send(subtask, Overtake(checkpoint=checkpoint))
                case co.ConfirmEverywhere(checkpoint, final):
                    self._confirm(checkpoint, final)
                case co.AbortEverywhere(checkpoint, reason):
                    log.warning("checkpoint %d given up: %s", checkpoint, reason.sentence)
                    self._ended(checkpoint, False, now_ms)
                    if (ordered := self._ordered.pop(checkpoint, None)) is not None:
                        cause = f"{reason.sentence}{self._because(checkpoint)}"
                        self._outcomes.append(SnapshotFailed(ordered.request, cause))
                    for subtask in self._subtasks:
                        self._send(subtask, Abort(checkpoint=checkpoint))
                case co.Discard(checkpoint, handles):
                    self._discard(checkpoint, handles)
                case co.FailAttempt():
                    self._failure = f"{action}{self._because(action.checkpoint)}"

    def _because(self, checkpoint: int) -> str:
        """What is known of the cause beside the reason: a full disk, a refused request."""
        number, cause = self._cause
        return f" ({cause})" if number == checkpoint else ""

    def _publish(self, checkpoint: int, parts: tuple[tuple[SubtaskId, co.Handles], ...], now_ms: int) -> None:
        size = uploaded = 0
        ordered = self._ordered.get(checkpoint)
        if ordered is not None and ordered.savepoint:
            self._publish_savepoint(ordered, self._manifest(checkpoint, dict(parts)), now_ms)
            return
        if self._history is not None:
            manifest = self._manifest(checkpoint, dict(parts))
            size = manifest.size
            uploaded = sum(f.size for f in manifest.files() if is_of_checkpoint(f.path, checkpoint))
            # Kept in mind even if publishing fails: the outcome is unknown, and retention must know of it.
            self._completed.append(checkpoint)
            try:
                self._history.publish(manifest, self._superfluous(except_for=checkpoint))
            except StorageError as error:
                log.warning("checkpoint %d could not be published: %s", checkpoint, error)
                self._cause = checkpoint, str(error)
                self._unsure.add(checkpoint)
                self._obey(self._coordination.handle(co.PublishFailed(checkpoint)), now_ms)
                return
            self._settle(self._history, checkpoint)
        self._keep_stats(checkpoint, size, uploaded, now_ms)
        self._ended(checkpoint, True, now_ms)
        self._obey(self._coordination.handle(co.Published(checkpoint)), now_ms)
        self._retain()
        if (ordered := self._ordered.pop(checkpoint, None)) is not None:
            self._outcomes.append(SnapshotTaken(ordered.request, checkpoint))

    def _publish_savepoint(self, ordered: SnapshotOrder, manifest: Manifest, now_ms: int) -> None:
        checkpoint = manifest.checkpoint
        try:
            write_savepoint(open_store(ordered.savepoint), manifest)
        except StorageError as error:
            log.warning("savepoint %s could not be published: %s", ordered.savepoint, error)
            self._cause = checkpoint, str(error)
            self._obey(self._coordination.handle(co.PublishFailed(checkpoint)), now_ms)
            return
        self._ended(checkpoint, True, now_ms)
        self._obey(self._coordination.handle(co.Published(checkpoint)), now_ms)
        self._ordered.pop(checkpoint, None)
        log.info("savepoint %s is complete", ordered.savepoint)
        self._outcomes.append(SnapshotTaken(ordered.request, checkpoint))

    def _confirm(self, checkpoint: int, final: bool) -> None:
        for number, subtask in enumerate(self._subtasks):
            if number == len(self._subtasks) // 2:
                failpoint("ckpt.notifying")
            self._send(subtask, Confirm(checkpoint=checkpoint, final=final))

    def tidy_up(self) -> bool:
        """The job is over here. Leave nothing behind but the checkpoints that are to be retained. Is that so?"""
        self._started_ms.clear()
        self._bases.clear()
        if self._history is None:
            return True
        for _ in range(TRIES):
            try:
                self._settle(self._history, self.last_completed)
                is_retained = self._retain()
                doomed = self._housekeeping.at_the_end(self._history.unnamed(), self._unsure)
                self._history.drop(doomed)
                if is_retained and not self._unsure:
                    return True
            except StorageError as error:
                log.warning("unused files could not be deleted: %s", error)
        log.warning(
            "unused files are left in %s: the next start deletes them, and so does mo.sweep", self._history.store.url
        )
        return False

    def _delete_unnamed(self, history: History, now_ms: int) -> None:
        """Delete what no checkpoint has named for long enough. That it fails is a nuisance, as below."""
        try:
            doomed = self._housekeeping.looked(history.unnamed(), self._started_ms, self._unsure, now_ms)
            if doomed:
                history.drop(doomed)
                log.info("%d files that no checkpoint names were deleted", len(doomed))
        except StorageError as error:
            log.warning("unused files could not be deleted yet: %s", error)

    def _settle(self, history: History, published: int) -> None:
        """A later one is published, so what was unsure is there by now or never will be: which of it is?

        Its number in the history is one that those before it can no longer get. Until this is known they are neither
        counted among those to retain, or one too few would be, nor deleted.
        """
        settled = {n for n in self._unsure if n < published}
        if not settled:
            return
        try:
            there = {r.entry.checkpoint for r in history.read() if isinstance(r.entry, Manifest)}
        except StorageError as error:
            log.warning("the history could not be read; it will be when the next checkpoint is published: %s", error)
            return
        self._completed = [n for n in self._completed if n not in settled or n in there]
        self._unsure -= settled

    def _retain(self) -> bool:
        """Delete what is superfluous. That it fails is a nuisance, not a failure: the next time does it."""
        if self._history is None or self._config is None:
            return True
        doomed = self._superfluous()
        try:
            self._history.remove(doomed, self._wall_ms())
        except StorageError as error:
            log.warning("old checkpoints could not be deleted yet: %s", error)
            return False
        self._completed = [n for n in self._completed if n not in doomed]
        if self._claimed is not None and len(self._completed) >= self._config.retained:
            try:
                delete_savepoint(open_store(self._claimed))
            except StorageError as error:
                log.warning("the savepoint that was taken over could not be deleted: %s", error)
            self._claimed = None
        return True

    def _superfluous(self, except_for: int | None = None) -> list[int]:
        """The checkpoints that may go, once ``except_for`` is no longer in flight."""
        if self._config is None:
            return []
        # What a checkpoint in flight may build on stays until that one has ended.
        needed = min((base for n, base in self._bases.items() if n != except_for), default=None)
        certain = [n for n in self._completed if n not in self._unsure]
        superfluous_now = superfluous(certain, self._config.retained, self._given_up)
        return [n for n in superfluous_now if needed is None or n < needed]

    def _discard(self, checkpoint: int, handles: co.Handles) -> None:
        """Delete files that no checkpoint will name. What cannot be deleted now is swept by the next attempt.

        An increment names files of earlier checkpoints as well: those are not its to delete.
        """
        files = [f for h in handles for f in h.files() if is_of_checkpoint(f.path, checkpoint)]
        savepoint = self._savepoints.get(checkpoint)
        if not files or (self._history is None and savepoint is None):
            return
        try:
            if savepoint is not None:
                open_store(savepoint).delete([f.path for f in files])
            elif self._history is not None:
                self._history.discard(files)
        except StorageError as error:
            log.warning("files of an abandoned checkpoint could not be deleted yet: %s", error)

    def _manifest(self, checkpoint: int, parts: dict[SubtaskId, co.Handles]) -> Manifest:
        graph = self._plan.graph
        entries = []
        for vertex in self._plan.vertices:
            for uid in vertex.operators:
                operator = graph.by_uid[uid]
                subtasks = [
                    next((h for h in parts[SubtaskId(vertex.id, i)] if h.uid == uid), OperatorHandles(uid))
                    for i in range(vertex.parallelism)
                ]
                rekey = operator.options.get("rekey")
                entries.append(
                    OperatorEntry(
                        uid,
                        operator.name,
                        vertex.parallelism,
                        graph.max_parallelism,
                        subtasks,
                        rekey.name if rekey is not None else "",
                    )
                )
        return Manifest(graph.job, self._deployment.attempt, checkpoint, self._wall_ms(), entries)

    def _ended(self, checkpoint: int, completed: bool, now_ms: int) -> None:
        self._triggering.ended(checkpoint, completed, now_ms)
        self._started_ms.pop(checkpoint, None)
        self._bases.pop(checkpoint, None)
        self._times.pop(checkpoint, None)

    def _keep_stats(self, checkpoint: int, size: int, uploaded: int, now_ms: int) -> None:
        duration_ms = now_ms - self._started_ms.get(checkpoint, now_ms)
        is_final = checkpoint == self._triggering.final_pending
        self.stats.append(stats_of(checkpoint, duration_ms, size, uploaded, self._times.get(checkpoint, []), is_final))
        del self.stats[:-1000]
        self._journal.completed(self._deployment.attempt, self.stats[-1])
