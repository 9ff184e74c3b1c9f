"""Names of test cases that are the same in every process: xdist compares them."""

from __future__ import annotations

import re


def shown(value: object) -> str:
    """``repr`` without addresses in memory, and with the elements of sets in order."""
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__}({{{', '.join(sorted(map(shown, value)))}}})"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
