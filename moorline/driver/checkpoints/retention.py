"""The complete checkpoints of a job in storage: which are kept, and which files are deleted when.

    superfluous   goes after each completion (``protocol/retention.py``), unless a checkpoint in flight may build on it
    unsure        publishing failed, and the entry may be there or not: neither counted nor deleted until a later one
                  is published, which makes it certain
    unnamed       files that no checkpoint names go after a grace time (``protocol/housekeeping.py``)
    claimed       a savepoint that the job has taken over goes once there are as many checkpoints as are retained

That a deletion fails is a nuisance, not a failure: the next time does it. ``driver/checkpoints/coordinator.py`` says
when.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from moorline.errors import StorageError
from moorline.model.config.checkpoints import Checkpoints
from moorline.model.manifest import Manifest, SnapshotFile
from moorline.protocol.housekeeping import Housekeeping
from moorline.protocol.retention import superfluous
from moorline.snapshots.folders import delete_savepoint
from moorline.storage.blobs import BlobStore
from moorline.storage.history import History
from moorline.storage.stores.open import open_store

log = logging.getLogger("moorline")

#: How often the end of a job tries to leave its storage tidy.
TRIES = 4


class Retention:
    """The checkpoints of one lineage in storage, while one attempt adds to them."""

    def __init__(
        self,
        history: History,
        config: Checkpoints,
        attempt: int,
        completed: list[int],
        now_ms: int,
        wall_ms: Callable[[], int],
        given_up: frozenset[int] = frozenset(),
        claimed: str | None = None,
    ) -> None:
        self._history, self._retained, self._wall_ms = history, config.retained, wall_ms
        #: Checkpoints that are there, or may be.
        self._completed = completed
        #: Those that may have been published or not, until a later one is.
        self._unsure: set[int] = set()
        #: Those that are never to be restored again.
        self._given_up = given_up
        #: A savepoint that is ours to delete.
        self._claimed = claimed
        self._housekeeping = Housekeeping(attempt, config.grace_ms, now_ms)

    @property
    def store(self) -> BlobStore:
        """The store that the checkpoints lie in."""
        return self._history.store

    def publish(self, manifest: Manifest, bases: Iterable[int]) -> None:
        """Publish a checkpoint. ``bases``: those that other checkpoints in flight may build on.

        After a StorageError the outcome is unknown.
        """
        checkpoint = manifest.checkpoint
        self._completed.append(checkpoint)
        try:
            self._history.publish(manifest, self._superfluous(bases))
        except StorageError:
            self._unsure.add(checkpoint)
            raise
        self._resolve_unsure(checkpoint)

    def delete_superfluous(self, bases: Iterable[int]) -> bool:
        """Delete the checkpoints that may go. Was that possible?"""
        doomed = self._superfluous(bases)
        try:
            self._history.remove(doomed, self._wall_ms())
        except StorageError as error:
            log.warning("old checkpoints could not be deleted yet: %s", error)
            return False
        self._completed = [n for n in self._completed if n not in doomed]
        if self._claimed is not None and len(self._completed) >= self._retained:
            try:
                delete_savepoint(open_store(self._claimed))
            except StorageError as error:
                log.warning("the savepoint that was taken over could not be deleted: %s", error)
            self._claimed = None
        return True

    def delete_unnamed(self, in_flight: Collection[int], now_ms: int) -> None:
        """Delete files that no checkpoint has named for long enough, if it is time to look for them."""
        if not self._housekeeping.is_due(now_ms):
            return
        try:
            unnamed = self._history.unnamed() or []
            doomed = self._housekeeping.looked(unnamed, in_flight, self._unsure, now_ms)
            if doomed:
                self._history.drop(doomed)
                log.info("%d files that no checkpoint names were deleted", len(doomed))
        except StorageError as error:
            log.warning("unused files could not be deleted yet: %s", error)

    def discard(self, files: Iterable[SnapshotFile]) -> None:
        """Delete files of a checkpoint that was given up."""
        self._history.discard(files)

    def tidy_up(self, last_completed: int) -> bool:
        """Leave nothing behind but the checkpoints that are to be retained: the job is over here. Is that so?"""
        url = self._history.store.url
        for _ in range(TRIES):
            try:
                self._resolve_unsure(last_completed)
                is_retained = self.delete_superfluous(bases=())
                unnamed = self._history.unnamed()
                if unnamed is None:
                    log.warning(
                        "unused files may be left in %s: a damaged entry of the history may need them. "
                        "`moorline fsck` names it, and once it is given up the next start deletes them",
                        url,
                    )
                    return False
                self._history.drop(self._housekeeping.at_the_end(unnamed, self._unsure))
                if is_retained and not self._unsure:
                    return True
            except StorageError as error:
                log.warning("unused files could not be deleted: %s", error)
        log.warning("unused files are left in %s: the next start deletes them, and so does mo.sweep", url)
        return False

    def _resolve_unsure(self, published: int) -> None:
        """Look which of the unsure ones are there, now that a later one is published.

        Its number in the history is one that those before it can no longer get, so they are there by now or never will
        be. Until this is known they are neither counted among those to retain, or one too few would be, nor deleted.
        """
        resolved = {n for n in self._unsure if n < published}
        if not resolved:
            return
        try:
            present = {r.entry.checkpoint for r in self._history.read() if isinstance(r.entry, Manifest)}
        except StorageError as error:
            log.warning("the history could not be read; it will be when the next checkpoint is published: %s", error)
            return
        self._completed = [n for n in self._completed if n not in resolved or n in present]
        self._unsure -= resolved

    def _superfluous(self, bases: Iterable[int]) -> list[int]:
        """The checkpoints that may go now: what one in flight may build on stays until that one has ended."""
        needed = min(bases, default=None)
        certain = [n for n in self._completed if n not in self._unsure]
        return [n for n in superfluous(certain, self._retained, self._given_up) if needed is None or n < needed]
