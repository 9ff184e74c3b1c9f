"""Waiting for what happens in other threads and processes. How long it takes is never a matter of the test."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], what: str, seconds: float = 240.0) -> T:
    """Wait until something is so, and return it. ``seconds``: by then something must be stuck."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)
    return found
