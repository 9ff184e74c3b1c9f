"""The keys that have been removed from a table since each of its last snapshots.

An increment names them as gone. A key that came and went between two snapshots is in neither, and is not noted; windows
do so all the time. What is older than the snapshot that has completed is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

#: With more of them, checkpoints have failed for long, and the next one is written whole.
MOST_REMOVED = 2_000_000

#: In place of a key group: it is not known yet.
UNKNOWN = -1

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Idents:
    """Keys with their key groups; in tables of windows, with the start and end of each one's window."""

    keys: Ints | list[Any]
    groups: Ints
    spans: tuple[Ints, Ints] | None = None

    def __len__(self) -> int:
        return len(self.groups)


class RemovedKeys:
    """The removed keys of one table, by the epoch that they were removed in."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, Idents]] = []
        self._count = 0
        #: What was removed up to this epoch may have been forgotten.
        self.forgotten = -1

    def note(self, epoch: int, removed: Idents) -> None:
        """These were in an earlier snapshot, and are no more."""
        if not len(removed):
            return
        self._parts.append((epoch, removed))
        self._count += len(removed)
        if self._count > MOST_REMOVED:
            self._parts, self._count, self.forgotten = [], 0, epoch

    def since(self, epoch: int) -> list[Idents]:
        """Those that were removed after the snapshot of an epoch, which must not be before :attr:`forgotten`."""
        return [removed for at, removed in self._parts if at > epoch]

    def forget(self, epoch: int) -> None:
        """The snapshot of that epoch has completed."""
        self._parts = [part for part in self._parts if part[0] > epoch]
        self._count = sum(len(removed) for _, removed in self._parts)
