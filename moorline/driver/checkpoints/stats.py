"""Statistics of a complete checkpoint, for people to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moorline.model.manifest import Manifest
from moorline.model.wire.messages import Acknowledged
from moorline.storage.layout import is_of_checkpoint


@dataclass(frozen=True)
class CheckpointStats:
    """One complete checkpoint, for people."""

    checkpoint: int
    #: From the trigger to the last acknowledgement.
    duration_ms: int
    #: Of all its files, and of those that were written for it and not for an earlier one.
    size: int
    uploaded: int
    #: The longest of any subtask.
    align_ms: int
    sync_ms: int
    async_ms: int
    final: bool
    #: Records that are part of it, unprocessed.
    in_flight: int = 0


def stats_of(
    checkpoint: int, manifest: Manifest | None, acks: Sequence[Acknowledged], duration_ms: int, final: bool
) -> CheckpointStats:
    """The statistics of a checkpoint that all subtasks have acknowledged. ``manifest``: None without storage."""
    files = manifest.files() if manifest is not None else []
    return CheckpointStats(
        checkpoint,
        duration_ms,
        sum(file.size for file in files),
        sum(file.size for file in files if is_of_checkpoint(file.path, checkpoint)),
        max((a.align_ms for a in acks), default=0),
        max((a.sync_ms for a in acks), default=0),
        max((a.async_ms for a in acks), default=0),
        final,
        sum(a.in_flight_records for a in acks),
    )
