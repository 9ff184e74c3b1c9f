"""When is a chain of increments to be folded into a new base?

Every increment adds a file that a restore has to read and that must be kept; every fold writes the whole state again.
So a chain is folded

    when its increments hold more than half as many rows as its base     the state has changed that much
    or when they are more than ``max_increments``                         so that no chain grows without end

**What it costs.** Let a state have S rows, and the increments between two folds I rows in n checkpoints. A fold writes
at most S + I rows. If it was due by rows, then I > S/2 and it writes less than 3 I; else it comes once in more than
``max_increments`` checkpoints. So on average a checkpoint writes at most four times what has changed since the last
one, plus one ``max_increments``-th of the state; a full snapshot would write all of it. A restore reads less than
half as much again as the base, in at most ``max_increments`` + 1 steps.

Pure; ``state/heap/backend.py`` asks before each snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from moorline.model.config.thresholds import FOLDING, Folding
from moorline.model.manifest import FileHandle


def is_fold_due(chain: Sequence[FileHandle], new_rows: int, rule: Folding = FOLDING) -> bool:
    """Should an increment of about ``new_rows`` on top of ``chain`` become a new base instead?

    >>> from moorline.model.manifest import RowsHandle
    >>> from moorline.model.type_tree.tree import INT
    >>> base = RowsHandle("counts", "value", INT, 0, 128, rows=1000)
    >>> step = RowsHandle("counts", "value", INT, 0, 128, rows=100, increment=True)
    >>> is_fold_due([base], 100), is_fold_due([base] + 4 * [step], 101), is_fold_due([base], 501)
    (False, True, True)

    After a rescale a chain may consist of several, from as many subtasks: then it is folded soon.
    """
    base = sum(_rows(handle) for handle in chain if not handle.increment)
    increments = sum(_rows(handle) for handle in chain if handle.increment) + new_rows
    steps, files = _steps(chain)
    has_grown = rule.growth is not None and increments > rule.growth * base
    return has_grown or steps + 1 > rule.max_increments or files + 1 > rule.max_files


def _rows(handle: FileHandle) -> float:
    """About how many rows of it count: after a rescale it is one share of a file among several."""
    segments = handle.file.segments[:-1] if handle.file is not None else []
    if not segments:
        return handle.rows
    width = max(s.end for s in segments) - min(s.first for s in segments)
    return handle.rows * min(1.0, max(handle.end - handle.first, 0) / max(width, 1))


def _steps(chain: Sequence[FileHandle]) -> tuple[int, int]:
    """The number of increments, and of the files that they are in.

    A large increment has several files, of ascending key groups. A new one begins where they do not ascend; two small
    ones may look like one, and so the files are limited too.
    """
    increments = [handle for handle in chain if handle.increment]
    ascents = sum(after.first >= before.end for before, after in pairwise(increments))
    return len(increments) - ascents, len(increments)
