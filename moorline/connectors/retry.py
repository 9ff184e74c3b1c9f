"""Going on when an outside system is away for a moment, and giving up when it is away for longer.

Every command has a time limit of its own; this is about repeating it. Only commands that can be repeated are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass
class Patience:
    """Repeats what fails until it works or ``seconds`` have passed; pauses grow from 50 ms to 2 s.

    >>> tries = iter([ConnectionError("gone"), None])
    >>> def work():
    ...     error = next(tries)
    ...     if error:
    ...         raise error
    ...     return "done"
    >>> Patience(5).until_done(work, lambda error: isinstance(error, ConnectionError))
    'done'
    """

    seconds: float

    def until_done(self, work: Callable[[], T], is_passing: Callable[[Exception], bool]) -> T:
        """The result of ``work``. Its last error is raised when it is not a passing one, or the time is over."""
        give_up, pause = time.monotonic() + self.seconds, 0.05
        while True:
            try:
                return work()
            except Exception as error:
                if not is_passing(error) or time.monotonic() + pause > give_up:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 2.0)
