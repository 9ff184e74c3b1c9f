"""How many examples a property test tries: as many as fit the gate, or a multiple of them."""

from __future__ import annotations

import os

#: By how much ``MOORLINE_THOROUGH`` multiplies the examples of every property test.
TIMES = int(os.environ.get("MOORLINE_THOROUGH", "1"))


def examples(count: int) -> int:
    """``count`` examples in the gate."""
    return count * TIMES
