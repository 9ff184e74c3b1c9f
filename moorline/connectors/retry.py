"""Repeated calls while an outside system is away for a moment, and an end when it is away for longer.

Every command has a time limit of its own; this is about repeating it. Only commands that can be repeated are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def call(work: Callable[[], T], is_transient: Callable[[Exception], bool], seconds: float) -> T:
    """The result of ``work``, which is repeated while its errors are transient; pauses grow from 50 ms to 2 s.

    The last error is raised when it is not transient, or ``seconds`` have passed.

    >>> tries = iter([ConnectionError("gone"), None])
    >>> def work():
    ...     error = next(tries)
    ...     if error:
    ...         raise error
    ...     return "done"
    >>> call(work, lambda error: isinstance(error, ConnectionError), seconds=5)
    'done'
    """
    deadline, pause = time.monotonic() + seconds, 0.05
    while True:
        try:
            return work()
        except Exception as error:
            if not is_transient(error) or time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 2.0)
