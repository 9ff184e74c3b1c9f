"""The size of the slices in which a snapshot is encoded, and the rests between them.

State on the heap becomes columns on a thread beside the subtask's own, and only one of the two has the interpreter. So
it is encoded in slices that are over soon, and after as much work as a slice takes the thread rests: records have the
interpreter to themselves for a part of the time that is known.

    a slice of r rows took t ms    the next one has r · slice_ms / t rows, at most twice as many
    worked for slice_ms or more    rest, so that work is a ``share`` of the time
    somebody waits for it          do not rest: the job is to stop, or records wait for it themselves

Work is the thread's processor time and not time that passes: a thread that waits for the interpreter keeps nobody from
it. A snapshot takes at most 1 / ``share`` times as long as without rests. Nothing else changes, neither what is written
nor in which order. No clock, no I/O; ``subtask/snapshot/pace.py`` drives it.
"""

from __future__ import annotations

from dataclasses import dataclass

from moorline.model.config.thresholds import SLICE_RULE, SliceRule


@dataclass(slots=True)
class Slicing:
    """Feed it what was done; it says how large the next slice is, and how long to rest before it.

    >>> slicing = Slicing(SliceRule(slice_ms=2, share=0.5, first_rows=100))
    >>> slicing.worked(rows=100, ms=0.5, is_awaited=False), slicing.rows
    (0.0, 200)
    >>> slicing.worked(rows=200, ms=4.0, is_awaited=False), slicing.rows
    (4.5, 100)
    """

    rule: SliceRule = SLICE_RULE
    #: How many rows the next slice should have.
    rows: int = 0
    _since_rest_ms: float = 0.0

    def __post_init__(self) -> None:
        self.rows = self.rows or self.rule.first_rows

    def worked(self, rows: int, ms: float, is_awaited: bool) -> float:
        """A slice of so many rows took so much processor time: how many milliseconds to rest. 0: go on."""
        rule = self.rule
        if rows:
            fitting = rows * rule.slice_ms / ms if ms > 0 else rule.most_rows
            self.rows = round(min(max(rule.least_rows, min(fitting, 2 * self.rows)), rule.most_rows))
        if is_awaited:
            self._since_rest_ms = 0.0
            return 0.0
        self._since_rest_ms += ms
        if self._since_rest_ms < rule.slice_ms:
            return 0.0
        rest, self._since_rest_ms = self._since_rest_ms * (1 - rule.share) / rule.share, 0.0
        return rest
