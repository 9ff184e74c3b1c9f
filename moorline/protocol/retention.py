"""The choice of complete checkpoints that may go.

The newest ``retained`` stay; the older ones go, oldest first: a crash half-way must not leave an older one that
outlives a newer one. Those that were given up (``protocol/recovery.py``) are of no use: they do not count, and go as
soon as a newer one is complete. Only checkpoints of the running lineage are touched, and none that an earlier, fresh
start of the job left behind. ``driver/checkpoints/retention.py`` asks after every completion.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def superfluous(completed: Sequence[int], retained: int, given_up: Collection[int] = ()) -> list[int]:
    """The checkpoints to delete, in the order to delete them in.

    >>> superfluous([3, 5, 6, 9], retained=2), superfluous([3, 5, 6, 9], retained=2, given_up=[6])
    ([3, 5], [3, 6])
    """
    useful = sorted(n for n in completed if n not in given_up)
    useless = [n for n in completed if n in given_up and useful and n < useful[-1]]
    return sorted(useful[: max(0, len(useful) - retained)] + useless)
