"""Does the simulator notice that a rule is broken? In the gate one seed must; ``MOORLINE_THOROUGH=10`` wants three."""

from __future__ import annotations

from collections.abc import Callable

import thoroughness

from moorline.errors import MoorlineError
from moorline.testing.simulation.jobs.counting import LostOrDoubled


def notices(run: Callable[[int], object], *, times: int = 3, seeds: int = 80) -> bool:
    """Do so many seeds fail? Stops when they have."""
    times = times if thoroughness.TIMES > 1 else 1
    noticed = 0
    for seed in range(seeds):
        try:
            run(seed)
        except (LostOrDoubled, AssertionError, MoorlineError):
            noticed += 1
        if noticed == times:
            return True
    return False
