"""Does the simulator notice that a rule is broken? In the gate one seed must; ``MOORLINE_THOROUGH=10`` wants three.

Any seed may be the first that notices, and most of the time of such a test goes into those that do not. So the one that
did is kept in ``noticed.json`` and tried first. It is a guess and no more: when the code has changed and that seed
notices nothing any longer, the others are tried as if it had never been known.

    MOORLINE_SEEDS=write pytest tests/simulation    finds them anew
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import thoroughness

from moorline.errors import MoorlineError
from moorline.testing.simulation.jobs.counting import LostOrDoubled

_FOUND = Path(__file__).with_name("noticed.json")
_WRITES = os.environ.get("MOORLINE_SEEDS") == "write"


def notices(run: Callable[[int], object], *, times: int = 3, seeds: int = 80) -> bool:
    """Do so many seeds fail? Stops when they have."""
    times = times if thoroughness.TIMES > 1 else 1
    test = os.environ["PYTEST_CURRENT_TEST"].partition("::")[2].removesuffix(" (call)")
    noticed = 0
    for seed in _candidates(test, seeds):
        try:
            run(seed)
        except (LostOrDoubled, AssertionError, MoorlineError):
            noticed += 1
            if noticed == 1 and _WRITES:
                _keep(test, seed)
        if noticed == times:
            return True
    return False


def _candidates(test: str, seeds: int) -> Iterator[int]:
    """Each seed once, the one that noticed last time first."""
    first = 0 if _WRITES else _known().get(test, 0)
    yield first
    yield from (seed for seed in range(seeds) if seed != first)


def _known() -> dict[str, int]:
    known: dict[str, int] = json.loads(_FOUND.read_text())
    return known


def _keep(test: str, seed: int) -> None:
    """Keep a seed that is not the first one that is tried anyway."""
    known = {name: other for name, other in _known().items() if name != test}
    known |= {test: seed} if seed else {}
    _FOUND.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
