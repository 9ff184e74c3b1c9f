"""The commits that the driver makes for all subtasks of a sink, and the confirmations that wait for them.

``protocol/connectors/committing.py`` decides. A commit runs on a thread of its own: one that takes long holds
nothing up but confirmations. Checkpoints go on, and the committables stay in them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, assert_never

from moorline.api.sinks import CommitterContext, GlobalCommitter, Sink
from moorline.driver.cluster import Background
from moorline.errors import MoorlineError, SnapshotCorrupt
from moorline.failpoints import failpoint
from moorline.model.connector_states import COMMITTABLES, GLOBAL_COMMITTABLES, ORDERED_COMMITTABLES
from moorline.model.graph import Graph
from moorline.model.ids import SubtaskId
from moorline.model.manifest import ElementsHandle, OperatorHandles
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.messages import Confirm, Order
from moorline.protocol.connectors.committing import Action, Commit, CommitBatch, Committing, GiveUpCommit
from moorline.protocol.coordination import ConfirmEverywhere
from moorline.state.types import plain
from moorline.storage import segments
from moorline.storage.blobs import BlobStore

log = logging.getLogger("moorline")

#: A commit that takes longer is worth a line in the log, and another each time that has passed again.
SLOW_MS = 10_000

Committables = dict[CommitBatch, list[Any]]


def global_sinks(graph: Graph) -> dict[str, Sink]:
    """The sinks that the driver commits, by uid."""
    sinks = {o.uid: o.function for o in graph.operators if isinstance(o.function, Sink)}
    return {uid: sink for uid, sink in sinks.items() if sink.commits_on_driver}


def committables_in(handles: Iterable[OperatorHandles], uids: Collection[str], store: BlobStore | None) -> Committables:
    """The committables of these sinks in a snapshot, by checkpoint. ``store``: of the snapshot, for those in files."""
    batches: Committables = {}
    for operator in handles:
        if operator.uid not in uids:
            continue
        for handle in operator.elements:
            if handle.state not in (COMMITTABLES, ORDERED_COMMITTABLES, GLOBAL_COMMITTABLES):
                continue
            for checkpoint, lineage, committable in _elements(operator.uid, handle, store):
                batches.setdefault(CommitBatch(checkpoint, operator.uid, lineage), []).append(committable)
    return batches


def _elements(uid: str, handle: ElementsHandle, store: BlobStore | None) -> Iterable[tuple[int, str, Any]]:
    encoded: Iterable[bytes] = handle.inline
    if handle.file is not None:
        assert store is not None, f"there is no storage, and {uid} has a file there"
        encoded = segments.read_elements(store, handle.file)
    for data in encoded:
        element = plain.decode(data)
        pairs = element if handle.state == ORDERED_COMMITTABLES and isinstance(element, list) else [element]
        for pair in pairs:
            match pair:
                case [int(checkpoint), [str(lineage), committable]] if handle.state == GLOBAL_COMMITTABLES:
                    yield checkpoint, lineage, committable
                case [int(checkpoint), committable] if handle.state != GLOBAL_COMMITTABLES:
                    # Staged by a version of the job whose workers committed.
                    yield checkpoint, "", committable
                case _:
                    raise SnapshotCorrupt("the manifest", f"what operator {uid!r} has staged is not what it should be")


class AttemptCommits:
    """The commits and confirmations of one attempt. Runs on the driver's one thread."""

    def __init__(
        self, deployment: Deployment, send: Callable[[SubtaskId, Order], None], background: Background
    ) -> None:
        self._deployment, self._send, self._background = deployment, send, background
        self._machine = Committing()
        self._sinks = global_sinks(deployment.plan.graph)
        self._committers: dict[str, GlobalCommitter] = {}
        self._staged: Committables = {}
        #: Since when the commit in progress has been so, and how often that was worth a warning.
        self._since_ms: int | None = None
        self._warned = 0
        self._failure: str | None = None
        self._is_over = False

    @property
    def uids(self) -> Collection[str]:
        """The sinks that the driver commits."""
        return self._sinks.keys()

    @property
    def pending(self) -> list[CommitBatch]:
        """The batches that are not committed yet, the one in progress first. Other threads may ask."""
        return sorted(self._staged)

    def restored(self, committables: Committables) -> None:
        """Commit what the restored snapshot had staged."""
        self._obey(self._machine.restored(self._keep(committables)))

    def published(self, checkpoint: int, final: bool, committables: Committables) -> None:
        """Commit what a checkpoint that is complete has staged, and confirm the checkpoint then."""
        self._obey(self._machine.published(checkpoint, final, self._keep(committables)))

    def time_passed(self, now_ms: int) -> None:
        """Have people know of a commit that takes long."""
        batch = self._machine.in_progress
        if batch is None:
            return
        if self._since_ms is None:
            self._since_ms, self._warned = now_ms, 0
        waited = now_ms - self._since_ms
        if waited >= SLOW_MS * (self._warned + 1):
            self._warned = waited // SLOW_MS
            log.warning("%s has been waiting to be committed for %d s; the job goes on", batch, waited // 1000)

    def pop_failure(self) -> str | None:
        """The new reason why the attempt cannot go on."""
        failure, self._failure = self._failure, None
        return failure

    def close(self) -> None:
        """The attempt is over. A commit that still runs is not waited for: the next attempt repeats it."""
        if not self._is_over:
            self._is_over = True
            for committer in self._committers.values():
                self._background("commits", committer.close, _closed)

    def _keep(self, committables: Committables) -> Committables:
        self._staged |= {batch: c for batch, c in committables.items() if batch not in self._machine.known}
        return committables

    def _obey(self, actions: list[Action]) -> None:
        for action in actions:
            log.debug("%s", action)
            match action:
                case Commit(batch):
                    self._since_ms = None
                    self._background("commits", partial(self._commit, batch), partial(self._done, batch))
                case ConfirmEverywhere(checkpoint, final):
                    self._confirm(checkpoint, final)
                case GiveUpCommit(why):
                    self._failure = why
                case _:
                    assert_never(action)

    def _commit(self, batch: CommitBatch) -> None:
        """Make the commit, on a thread of the background's."""
        if batch.uid not in self._committers:
            deployment = self._deployment
            job, attempt, lineage = deployment.plan.graph.job, deployment.attempt, deployment.lineage
            context = CommitterContext(job, batch.uid, attempt, lineage)
            self._committers[batch.uid] = self._sinks[batch.uid].open_committer(context)
        failpoint("committer.before")
        self._committers[batch.uid].commit(batch.lineage, batch.checkpoint, self._staged[batch])
        failpoint("committer.after")

    def _done(self, batch: CommitBatch, error: BaseException | None) -> None:
        if self._is_over:
            return
        if error is None:
            del self._staged[batch]
            self._obey(self._machine.committed(batch))
        else:
            why = str(error) if isinstance(error, MoorlineError) else f"{type(error).__name__}: {error}"
            self._obey(self._machine.failed(batch, why))

    def _confirm(self, checkpoint: int, final: bool) -> None:
        subtasks = list(self._deployment.plan.subtasks())
        for number, subtask in enumerate(subtasks):
            if number == len(subtasks) // 2:
                failpoint("ckpt.notifying")
            self._send(subtask, Confirm(checkpoint=checkpoint, final=final))


def _closed(error: BaseException | None) -> None:
    if error is not None:
        log.warning("a committer could not be closed: %s", error)
