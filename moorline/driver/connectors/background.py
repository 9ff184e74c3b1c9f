"""Work off the driver's thread: one thread for each line of work, which does it in its order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from moorline.driver.loop import DriverLoop

Work = tuple[Callable[[], Any], Callable[[BaseException | None], None]]


class BackgroundThreads:
    """The threads of one job, each started when it is first needed.

    They are daemons: work that hangs in an outside system must not keep the process from its end.
    """

    def __init__(self, loop: DriverLoop, job: str) -> None:
        self._loop, self._job = loop, job
        self._lines: dict[str, queue.SimpleQueue[Work | None]] = {}

    def __call__(self, line: str, work: Callable[[], Any], done: Callable[[BaseException | None], None], /) -> None:
        if line not in self._lines:
            self._lines[line] = queue.SimpleQueue()
            threading.Thread(
                target=self._run, args=(self._lines[line],), name=f"moorline-{self._job}-{line}", daemon=True
            ).start()
        self._lines[line].put((work, done))

    def close(self) -> None:
        """Let each thread end after the work that it was given."""
        for line in self._lines.values():
            line.put(None)

    def _run(self, line: queue.SimpleQueue[Work | None]) -> None:
        while (item := line.get()) is not None:
            work, done = item
            error: BaseException | None = None
            try:
                work()
            except BaseException as failure:  # whatever a connector raises is for ``done`` to judge
                error = failure
            self._loop.post(_delivery(done, error))


def _delivery(done: Callable[[BaseException | None], None], error: BaseException | None) -> Callable[[Any, int], None]:
    return lambda supervision, now_ms: done(error)
