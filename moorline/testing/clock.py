"""A clock that stands still until it is moved."""

from __future__ import annotations

from moorline.model.durations import Duration, milliseconds


class ManualClock:
    """Time as a test wants it. Pass ``clock.now_ms`` wherever milliseconds are asked for.

    >>> clock = ManualClock()
    >>> clock.advance("1.5s")
    1500
    >>> clock.now_ms()
    1500
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, by: Duration) -> int:
        """Let time pass. Returns the new time. Time never goes back."""
        self._now_ms += milliseconds(by, "advance")
        return self._now_ms

    def __repr__(self) -> str:
        return f"<ManualClock at {self._now_ms} ms>"
