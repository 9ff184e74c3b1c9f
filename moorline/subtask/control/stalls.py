"""Has the thread of a subtask stopped moving on, and where is it?

Asked twice a second by the thread that sends the signs of life (``spark/entry.py``), which goes on whatever the
subtask's own thread hangs in: ``open()``, a read of storage, a call of user code that never returns. What it costs the
subtask is one addition per frame.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

#: Below this it is work.
STALL_MS = 5_000
#: How many calls are named, the innermost first.
DEPTH = 3


class Stall(NamedTuple):
    """For how long a thread has not moved on, and the calls that it is in."""

    ms: int = 0
    at: str = ""


class StallWatch:
    """Watches one thread.

    >>> import threading
    >>> now = iter([0, 4_000, 9_000, 9_500]).__next__
    >>> watch = StallWatch(threading.get_ident(), now)
    >>> watch.look(turn=1).ms, watch.look(turn=1).ms, watch.look(turn=2).ms
    (0, 5000, 0)
    """

    def __init__(self, thread: int, now_ms: Callable[[], float]) -> None:
        self._thread, self._now_ms = thread, now_ms
        self._turn: object = None
        self._since_ms = now_ms()

    def look(self, turn: object) -> Stall:
        """``turn``: anything that is another whenever the thread has done something."""
        now_ms = self._now_ms()
        if turn != self._turn:
            self._turn, self._since_ms = turn, now_ms
        stalled_ms = int(now_ms - self._since_ms)
        return Stall(stalled_ms, _calls(self._thread)) if stalled_ms >= STALL_MS else Stall()


def _calls(thread: int) -> str:
    """The innermost calls of a thread, as ``job.py:12 open``."""
    frame: FrameType | None = sys._current_frames().get(thread)
    calls: list[str] = []
    while frame is not None and len(calls) < DEPTH:
        calls.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return ", called from ".join(calls)
