"""The findings of a check of snapshots, and the verdict that they amount to.

``snapshots/inspection.py`` gathers them. The verdict is worked out from the facts in the :class:`Report` alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """A kind of damage of a file."""

    MISSING = "missing"
    SIZE = "wrong size"
    DIGEST = "wrong bytes"
    UNREADABLE = "unreadable"
    ENTRY = "damaged entry"
    GAP = "missing entry"
    STRAY = "stray entry"
    UNKNOWN = "unknown attempt"


class Verdict(Enum):
    """The outcome of a check, in a word."""

    SOUND = "sound"
    #: All snapshots are whole, but there are stray entries, or abandoned files older than the grace time.
    UNTIDY = "untidy"
    #: Some snapshot is not whole; the newest whole one can be restored.
    DAMAGED = "damaged"
    #: There are or were snapshots, and a restart would refuse to begin from any of them.
    LOST = "lost"


@dataclass(frozen=True)
class Problem:
    """One file that is not what it should be, and the checkpoints that need it."""

    path: str
    kind: Kind
    detail: str
    needed_by: tuple[int, ...] = ()

    def __str__(self) -> str:
        needed = f" (needed by checkpoint {', '.join(map(str, self.needed_by))})" if self.needed_by else ""
        return f"{self.kind.value}: {self.path}: {self.detail}{needed}"


@dataclass(frozen=True)
class Leftover:
    """A file that no snapshot names."""

    path: str
    size: int
    age_ms: int
    #: No snapshot will ever name it. Otherwise an upload may be under way.
    is_abandoned: bool


@dataclass(frozen=True)
class Checked:
    """One snapshot: a checkpoint of a job, or a savepoint."""

    checkpoint: int
    attempt: int
    created_ms: int
    files: int
    size: int
    is_whole: bool
    #: It was passed over once, and is never restored again.
    is_given_up: bool = False


@dataclass(frozen=True)
class Progress:
    """The progress of a check."""

    files: int
    of_files: int
    size: int
    of_size: int


@dataclass(frozen=True)
class Report:
    """The findings of a check. ``print`` it, or ask it."""

    url: str
    job: str
    #: "job" for a folder of checkpoints, else "savepoint".
    kind: str
    grace_ms: int
    snapshots: list[Checked] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    #: The checkpoint that a restart would begin from, by the rules of a restart; None if it would begin without.
    newest_whole: int | None = None
    #: There was state, and a restart would refuse.
    is_lost: bool = False

    @property
    def unreferenced(self) -> list[Leftover]:
        """Files that no snapshot needs and no driver has deleted within the grace time."""
        return [left for left in self.leftovers if left.is_abandoned and left.age_ms >= self.grace_ms]

    @property
    def verdict(self) -> Verdict:
        if self.is_lost:
            return Verdict.LOST
        if any(p.kind is not Kind.STRAY for p in self.problems):
            return Verdict.DAMAGED
        return Verdict.UNTIDY if self.unreferenced or self.problems else Verdict.SOUND

    def __str__(self) -> str:
        lines = [f"{self.url}: {self.kind} {self.job!r}: {self.verdict.value}"]
        for s in self.snapshots:
            state = "whole" if s.is_whole else "NOT WHOLE"
            given_up = ", given up" if s.is_given_up else ""
            lines.append(f"  checkpoint {s.checkpoint}: {s.files} files, {s.size:,} bytes, {state}{given_up}")
        lines += [f"  {problem}" for problem in self.problems]
        if self.unreferenced:
            size = sum(left.size for left in self.unreferenced)
            lines.append(f"  {len(self.unreferenced)} files that nobody needs, {size:,} bytes: mo.sweep deletes them")
        if pending := [left for left in self.leftovers if not left.is_abandoned]:
            lines.append(f"  {len(pending)} files of uploads that may be under way")
        return "\n".join(lines)
