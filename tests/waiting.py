"""Waiting for what happens in other threads and processes. How long it takes is never a matter of the test.

:data:`PATIENCE` is for what waits by itself, such as a thread that is joined. By then something must be stuck: on a
machine with twenty processes for each processor a Python takes half a minute to start.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 240.0


def eventually(condition: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
    """Wait until something is so, and return it. ``seconds``: by then something must be stuck."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)
    return found
