"""Facts that storage reports, and that ``protocol/`` decides by."""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

from moorline.model.manifest import Claim, Manifest

#: The end of a term whose leader has gone, but not the job: the next leader goes on with the same run.
YIELDED = "yielded"


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """One record of a job's history: an entry, or why it cannot be used."""

    path: str
    entry: Manifest | Claim | None
    damage: str | None = None
    #: Its number; 0 if that does not matter.
    seq: int = 0
    #: The driver that wrote it, by a word of its own.
    writer: str = ""

    @property
    def word(self) -> str:
        """16 hexadecimal digits that no other record has, of whichever history."""
        created = self.entry.created_ms if self.entry is not None else 0
        return xxhash.xxh3_64_hexdigest(f"{self.seq}/{created}/{self.writer}".encode())


@dataclass(frozen=True, slots=True)
class UnnamedFile:
    """A file that no checkpoint names, and for which checkpoint of which attempt it was written."""

    path: str
    checkpoint: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Term:
    """One number of a job's leadership, and its holder."""

    number: int
    holder: str
    #: The run of the job that one leader began and its successors go on with, until the job has ended.
    run: str
    #: Empty while it is held; how the job ended; or :data:`YIELDED`.
    ended: str = ""
