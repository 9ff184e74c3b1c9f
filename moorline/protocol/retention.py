"""Which complete checkpoints may go.

The newest ``retained`` stay; the older ones go, oldest first: a crash half-way must not leave an older one that
outlives a newer one. Only checkpoints of the running lineage are touched: what an earlier, fresh start of the job
left behind belongs to whoever started it. ``driver/checkpoints.py`` asks after every completion.
"""

from __future__ import annotations

from collections.abc import Sequence


def superfluous(completed: Sequence[int], retained: int) -> list[int]:
    """The checkpoints to delete, in the order to delete them in.

    >>> superfluous([3, 5, 6, 9], retained=2)
    [3, 5]
    """
    return sorted(completed)[: max(0, len(completed) - retained)]
