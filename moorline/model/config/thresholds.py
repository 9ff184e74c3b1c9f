"""Sizes at which a running job changes its ways. Only simulated jobs need other ones: they are so small."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Folding:
    """The rule for when a chain of increments on the heap becomes a new base (``protocol/increments.py``)."""

    #: Its increments have more than so many times the rows of its base. None: rows do not matter.
    growth: float | None = 0.5
    #: It has more than so many increments, or they have more than so many files.
    max_increments: int = 16
    max_files: int = 64
    #: A table of up to so many entries is quicker to copy (some milliseconds) than to read back and fold.
    copied_entries: int = 100_000
    #: So is one of which at least this part has changed: as much has to be encoded for either.
    copied_share: float = 0.5


#: Of tables and files as they usually are.
FOLDING = Folding()


@dataclass(frozen=True)
class SliceRule:
    """The rule for how state on the heap is encoded beside the stream (``protocol/slicing.py``)."""

    #: The processor time of one slice. A record waits for the interpreter no longer than about this.
    slice_ms: float = 2.0
    #: The part of the time that encoding may have the interpreter for.
    share: float = 0.5
    first_rows: int = 256
    least_rows: int = 64
    most_rows: int = 65_536


#: Of worker processes as they usually are.
SLICE_RULE = SliceRule()


@dataclass(frozen=True)
class Thresholds:
    """Of one run.

    >>> Thresholds().put_aside_bytes
    16777216
    """

    #: Sources wait when a subtask has put aside more than this (``protocol/pacing.py``). As much as it keeps in memory:
    #: what is more would go to its disk.
    put_aside_bytes: int = 16 << 20
    folding: Folding = FOLDING


THRESHOLDS = Thresholds()
