"""Repeated calls while an outside system is away for a moment, and an end when it is away for longer.

Every command has a time limit of its own; this is about repeating it. Only commands that can be repeated are. While a
system is away the people who run the job can see it, with the system's own words.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0


class Outage:
    """The time for which an outside system is away, for callers that must not block.

    >>> shown = []
    >>> outage = Outage(60.0, shown.append)
    >>> outage.failed(ConnectionError("refused"))   # raises it once the system has been away for a minute
    >>> outage.is_due()                             # try again? Not yet: pauses grow from 50 ms to 2 s
    False
    >>> outage.over()
    >>> shown
    ['ConnectionError: refused', None]
    """

    def __init__(self, seconds: float, report: Callable[[str | None], None] = lambda cause: None) -> None:
        self._seconds, self._report = seconds, report
        self._pause = FIRST_PAUSE_SECONDS
        #: Since when it has been away, and when to try again.
        self._since: float | None = None
        self._next = 0.0

    def is_due(self) -> bool:
        """Is it time to try, or try again?"""
        return self._since is None or time.monotonic() >= self._next

    def failed(self, error: Exception) -> None:
        """Note a failure; raise it if the system has been away for too long."""
        now = time.monotonic()
        if self._since is None:
            self._since, self._pause = now, FIRST_PAUSE_SECONDS
        if now + self._pause > self._since + self._seconds:
            raise error
        self._report(f"{type(error).__name__}: {error}")
        self._next, self._pause = now + self._pause, min(2 * self._pause, LONGEST_PAUSE_SECONDS)

    def over(self) -> None:
        """The system answers."""
        if self._since is not None:
            self._since = None
            self._report(None)

    def pause(self) -> None:
        """Wait until it is time to try again."""
        time.sleep(max(0.0, self._next - time.monotonic()))


def call(
    work: Callable[[], T],
    is_transient: Callable[[Exception], bool],
    seconds: float,
    outage: Callable[[str | None], None] = lambda cause: None,
) -> T:
    """The result of ``work``, which is repeated while its errors are transient; pauses grow from 50 ms to 2 s.

    The last error is raised when it is not transient, or ``seconds`` have passed. ``outage`` gets each error in words,
    and None when the system is back.

    >>> tries = iter([ConnectionError("gone"), None])
    >>> def work():
    ...     error = next(tries)
    ...     if error:
    ...         raise error
    ...     return "done"
    >>> call(work, lambda error: isinstance(error, ConnectionError), seconds=5)
    'done'
    """
    away = Outage(seconds, outage)
    while True:
        try:
            result = work()
        except Exception as error:  # what may pass is for the caller to say
            if not is_transient(error):
                raise
            away.failed(error)
        else:
            away.over()
            return result
        away.pause()
