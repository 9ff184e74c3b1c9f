"""Markers of slots: how a sink that commits in its workers knows a commit that was made before.

A *slot* is the number of a subtask. For each job, sink, lineage and slot the outside system has a marker: the last
checkpoint that was committed. It is moved in the same transaction as the rows are written. Checkpoints of a slot are
committed in their order, so a marker that has reached one says that its rows are there.

What is staged also says how far slots are known to have come. A marker that is behind that was lost, with the rows or
without them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from moorline.api.sinks import SinkContext
from moorline.errors import SnapshotCorrupt, StorageError

#: Job, lineage and slot.
Place = tuple[str, str, int]
#: What the lineages of batches begin with.
BATCH = "batch-"


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A slot whose commits are known to have come so far."""

    job: str
    lineage: str
    slot: int
    checkpoint: int

    @property
    def place(self) -> Place:
        return self.job, self.lineage, self.slot


class StagedSlot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The batch that one subtask has staged for one checkpoint: the part of a committable that tells commits apart."""

    job: str
    uid: str
    lineage: str
    slot: int
    checkpoint: int
    #: What must have been committed before.
    known: list[Known]

    @property
    def place(self) -> Place:
        return self.job, self.lineage, self.slot

    @property
    def is_batch(self) -> bool:
        """Was it staged by a batch, for which nothing is ever committed again once it is over?"""
        return self.lineage.startswith(BATCH)

    def first_behind(self, reached: Mapping[Place, int]) -> Known | None:
        """The first slot that is known to have come further than its marker says.

        >>> staged = StagedSlot("shop", "out", "5f1e", 0, 8, [Known("shop", "5f1e", 0, 7)])
        >>> staged.first_behind({("shop", "5f1e", 0): 7}), staged.first_behind({}).checkpoint
        (None, 7)
        """
        return next((known for known in self.known if reached.get(known.place, 0) < known.checkpoint), None)


class SlotStages:
    """The stages of one slot, as its writer makes them."""

    def __init__(self, ctx: SinkContext) -> None:
        self._ctx = ctx
        # A batch has no checkpoints, and so no line of them: each of its tasks has a word of its own.
        self._lineage = ctx.lineage or f"{BATCH}{uuid.uuid4().hex}"
        self._known = [_restored(state) for state in ctx.restored]

    def stage(self, checkpoint: int) -> tuple[str, str, str, int, int, list[Known]]:
        """The fields of a :class:`StagedSlot` for what is staged now."""
        ctx, known = self._ctx, self._known
        self._known = [Known(ctx.job, self._lineage, ctx.subtask, checkpoint)]
        return ctx.job, ctx.uid, self._lineage, ctx.subtask, checkpoint, known

    def snapshot(self) -> list[Any]:
        """The progress, as plain data."""
        return [msgspec.to_builtins(known) for known in self._known]


def _restored(state: Any) -> Known:
    try:
        return msgspec.convert(state, Known)
    except msgspec.ValidationError as error:
        raise SnapshotCorrupt("the manifest", f"{state!r:.80} is not the state of a sink: {error}") from None


def markers_lost(where: str, table: str, staged: StagedSlot, known: Known, found: int | None) -> StorageError:
    """The error for a marker that is behind what was committed."""
    there = "has none" if found is None else f"says {found}"
    cause = (
        f"checkpoint {known.checkpoint} of job {known.job!r}, sink {staged.uid!r}, slot {known.slot} was committed and "
        f"{table} {there}: it was emptied, or the database has gone back to a backup, and rows may be missing. "
        f"Nothing was written. Bring them back, or start from a savepoint of that time, or begin anew; or, if the "
        f"rows are right as they are, go on with on_missing_markers='ignore'"
    )
    return StorageError(where, f"commit checkpoint {staged.checkpoint} to", cause, can_pass=False)
