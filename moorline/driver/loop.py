"""The thread on the driver that a job's supervision runs on.

Facts and requests are put into a queue by other threads (the control server's, the one that waits for Spark, those
that use the handle) and handled one at a time. If the supervision itself fails, the job fails at once with that error:
no checkpoint may silently stop for ever.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from moorline.driver.processes import driver_ended, driver_runs
from moorline.driver.supervision import Supervision
from moorline.errors import JobFailed
from moorline.model.log_lines import LogPlace, work_for
from moorline.protocol.supervision.lifecycle import JobStatus

log = logging.getLogger("moorline")

Step = Callable[[Supervision, int], Any]


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class DriverLoop:
    """Runs one supervision until its job has ended."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._steps: queue.SimpleQueue[Step] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._crash: BaseException | None = None
        self.supervision: Supervision

    def start(self, supervision: Supervision, first: Step = Supervision.start) -> None:
        """Begin with ``first``: start the job, or wait until a posted step starts it."""
        self.supervision = supervision
        self._thread = threading.Thread(target=self._run, name=f"moorline-{self._job}", daemon=True)
        self._steps.put(first)
        driver_runs(supervision.writer)
        self._thread.start()

    def post(self, step: Step) -> None:
        """Have ``step`` called on the loop's thread."""
        self._steps.put(step)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended. False if it has not."""
        return self._ended.wait(timeout)

    @property
    def status(self) -> JobStatus:
        return JobStatus.FAILED if self._crash is not None else self.supervision.status

    @property
    def has_crashed(self) -> bool:
        """Has the loop itself failed, and not the job?"""
        return self._crash is not None

    @property
    def error(self) -> BaseException | None:
        if self._crash is not None:
            return JobFailed(self._job, "the driver loop failed; this is a bug", repr(self._crash))
        return self.supervision.error

    def _run(self) -> None:
        work_for(LogPlace(self._job))
        supervision = self.supervision
        try:
            while not supervision.status.is_terminal:
                try:
                    step = self._steps.get(timeout=self._timeout())
                except queue.Empty:
                    pass
                else:
                    step(supervision, now_ms())
                supervision.time_passed(now_ms())
        except BaseException as error:  # a thread's last words, and whoever waits for the job is told
            log.exception("the driver loop of job %r failed", self._job)
            self._crash = error
            try:
                supervision.abandon()
            except Exception:  # the first error is the one to tell
                log.exception("the running attempt of job %r could not be ended", self._job)
        finally:
            driver_ended(supervision.writer)
            self._ended.set()

    def _timeout(self) -> float:
        due = self.supervision.next_wakeup_ms()
        # Once a second in any case, to notice subtasks that have gone silent.
        return 1.0 if due is None else min(max((due - now_ms()) / 1000, 0.0), 1.0)
