"""Names of test cases that are the same in every process: xdist compares them."""

from __future__ import annotations

import re


def shown(value: object) -> str:
    """``repr`` without addresses in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
