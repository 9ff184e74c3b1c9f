"""Commits by the driver, for sinks that want one for each checkpoint, and the confirmation of checkpoints.

    restored(batches)               the batches of the restored snapshot come first: it is unknown whether they were
                                    committed
    published(checkpoint, batches)  its batches follow, one at a time, in the order of their checkpoints; then the
                                    checkpoint is confirmed to all subtasks
    committed(batch)                the next one
    failed(batch, why)              the attempt fails; nothing is started or confirmed any more

A snapshot has every batch that was not confirmed when it was taken, so a batch is met in several of them: it is
committed the first time. Because confirmations wait, a batch that is not committed is in the newest snapshot, whichever
attempt or driver comes next.

Without such sinks there are no batches, and every checkpoint is confirmed as soon as it is published.

No I/O, no clock. ``driver/connectors/committing.py`` obeys it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from moorline.errors import InvalidTransition
from moorline.protocol.coordination import ConfirmEverywhere


@dataclass(frozen=True, slots=True, order=True)
class CommitBatch:
    """The committables of one checkpoint for one sink, by their identity."""

    checkpoint: int
    uid: str
    lineage: str

    def __str__(self) -> str:
        return f"checkpoint {self.checkpoint} of sink {self.uid!r}"


@dataclass(frozen=True, slots=True)
class Commit:
    """Have this batch committed, and report how it went."""

    batch: CommitBatch

    def __str__(self) -> str:
        return f"commit {self.batch}"


@dataclass(frozen=True, slots=True)
class GiveUpCommit:
    """Fail the attempt: the next one commits again."""

    why: str

    def __str__(self) -> str:
        return f"fail the attempt: {self.why}"


Action = Commit | ConfirmEverywhere | GiveUpCommit


@dataclass(slots=True)
class Committing:
    """The commits of one attempt. Feed it facts; obey the actions in their order."""

    #: Met in this attempt.
    known: set[CommitBatch] = field(default_factory=set)
    queue: list[CommitBatch | ConfirmEverywhere] = field(default_factory=list)
    in_progress: CommitBatch | None = None
    has_failed: bool = False

    def restored(self, batches: Collection[CommitBatch]) -> list[Action]:
        self._add(batches)
        return self._next()

    def published(self, checkpoint: int, final: bool, batches: Collection[CommitBatch]) -> list[Action]:
        self._add(batches)
        self.queue.append(ConfirmEverywhere(checkpoint, final))
        return self._next()

    def committed(self, batch: CommitBatch) -> list[Action]:
        self._end(batch)
        return self._next()

    def failed(self, batch: CommitBatch, why: str) -> list[Action]:
        self._end(batch)
        self.has_failed = True
        return [GiveUpCommit(f"{batch} could not be committed: {why}")]

    def _add(self, batches: Collection[CommitBatch]) -> None:
        fresh = sorted(batch for batch in batches if batch not in self.known)
        self.known.update(fresh)
        self.queue.extend(fresh)

    def _end(self, batch: CommitBatch) -> None:
        if batch != self.in_progress:
            raise InvalidTransition("committing", str(self.in_progress), f"the end of {batch}")
        self.in_progress = None

    def _next(self) -> list[Action]:
        actions: list[Action] = []
        while self.queue and self.in_progress is None and not self.has_failed:
            step = self.queue.pop(0)
            if isinstance(step, CommitBatch):
                self.in_progress = step
                actions.append(Commit(step))
            else:
                actions.append(step)
        return actions
