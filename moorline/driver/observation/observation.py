"""A job as it is observed: one object that the driver's thread fills and that other threads read.

``driver/supervision.py`` and ``driver/checkpoints/coordinator.py`` hand facts in; ``observation/report.py`` makes JSON
of it, and ``http/`` the text that Prometheus reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from moorline.api.listeners import JobEvent
from moorline.driver.observation.attempts import ERROR_CHARACTERS, AttemptHistory
from moorline.driver.observation.checkpoints import CheckpointHistory, CheckpointRecord
from moorline.driver.observation.rates import Rates
from moorline.driver.observation.series import Series
from moorline.model.ids import SubtaskId
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.messages import Failed, Progress, Report
from moorline.protocol.supervision.events import AwaitRestart, first_line

#: An event of progress comes so often, and so many are kept.
PROGRESS_MS, KEPT_PROGRESS = 5_000, 100


class Observation:
    """The view of one job from outside."""

    def __init__(
        self,
        job: str,
        wall_ms: Callable[[], int],
        publish: Callable[[JobEvent], None] = lambda event: None,
        *,
        takes_checkpoints: bool = True,
    ) -> None:
        self.takes_checkpoints = takes_checkpoints
        self._job, self.wall_ms, self._publish = job, wall_ms, publish
        self.began_ms = wall_ms()
        self.checkpoints = CheckpointHistory(self._checkpoint_ended)
        self.attempts = AttemptHistory()
        #: Of the last attempt.
        self.rates = Rates()
        self.series = Series()
        #: By the driver's own clock.
        self.now_ms = 0
        #: The last events of progress, oldest first.
        self.progress: deque[JobEvent] = deque(maxlen=KEPT_PROGRESS)
        self._progress_due_ms = 0

    def publish(self, event: str, **content: Any) -> JobEvent:
        """Have listeners know of something that has happened to the job."""
        made = JobEvent(event=event, job=self._job, time_ms=self.wall_ms(), **content)
        self._publish(made)
        return made

    def _checkpoint_ended(self, record: CheckpointRecord) -> None:
        subtasks = [{k: v for k, v in part.items() if k != "operators"} for part in record.details()["subtasks"]]
        self.publish("checkpoint", **record.summary(), subtasks=subtasks)

    def launched(self, deployment: Deployment) -> None:
        self.rates = Rates()
        self.attempts.launched(deployment, self.wall_ms())
        if self.attempts.count == 1:
            operators = [{"uid": o.uid, "name": o.name} for o in deployment.plan.graph.operators]
            restored = None if deployment.restored is None else int(deployment.restored)
            self.publish("started", attempt=int(deployment.attempt), restored=restored, operators=operators)

    def reported(self, attempt: int, subtask: SubtaskId, report: Report, uid: str, now_ms: int) -> None:
        """A subtask has reported. ``uid``: the first operator of its chain."""
        self.now_ms = now_ms
        if isinstance(report, Progress):
            self.rates.reported(subtask, report, now_ms)
        elif isinstance(report, Failed):
            self.attempts.blamed(attempt, report.uid or uid, str(subtask))

    def time_passed(self, deployment: Deployment, now_ms: int) -> None:
        self.now_ms = now_ms
        if self.series.is_due(now_ms):
            self.series.add(deployment.plan, self.rates.windows(), self.wall_ms(), now_ms)

    def restarts(self, attempt: int, decision: AwaitRestart) -> None:
        """An attempt has ended, and another one will begin."""
        why = decision.why.strip()
        reason, traceback = first_line(why), why[:ERROR_CHARACTERS]
        self.publish("restart", attempt=attempt, delay_ms=decision.delay_ms, reason=reason, traceback=traceback)

    def is_progress_due(self, now_ms: int) -> bool:
        """Is it time for an event of progress? The next one is due some seconds later."""
        if now_ms < self._progress_due_ms:
            return False
        self._progress_due_ms = now_ms + PROGRESS_MS
        return True

    def progressed(self, status: str, attempt: int, figures: dict[str, Any]) -> None:
        """``figures``: of operators and checkpoints, without those of each subtask."""
        self.progress.append(self.publish("progress", status=status, attempt=attempt, **figures))

    def measured(self, status: str, attempt: int, figures: dict[str, Any]) -> None:
        """``figures``: all of them, as ``handle.metrics`` has them."""
        others = {name: figure for name, figure in figures.items() if name != "time_ms"}
        self.publish("metrics", status=status, attempt=attempt, **others)

    def attempt_ended(self, attempt: int, succeeded: bool, now_ms: int) -> None:
        self.now_ms = now_ms
        self.checkpoints.attempt_ended(attempt, now_ms)
        self.attempts.ended(attempt, succeeded, self.wall_ms())
