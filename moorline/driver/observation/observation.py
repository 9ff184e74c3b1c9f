"""A job as it is observed: one object that the driver's thread fills and that other threads read.

``driver/supervision.py`` and ``driver/checkpoints/coordinator.py`` hand facts in; ``observation/report.py`` makes JSON
of it, and ``http/`` the text that Prometheus reads.
"""

from __future__ import annotations

from collections.abc import Callable

from moorline.driver.observation.attempts import AttemptHistory
from moorline.driver.observation.checkpoints import CheckpointHistory
from moorline.driver.observation.rates import Rates
from moorline.driver.observation.series import Series
from moorline.model.ids import SubtaskId
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.messages import Failed, Progress, Report


class Observation:
    """What can be seen of one job."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self.wall_ms = wall_ms
        self.began_ms = wall_ms()
        self.checkpoints = CheckpointHistory()
        self.attempts = AttemptHistory()
        #: Of the last attempt.
        self.rates = Rates()
        self.series = Series()
        #: By the driver's own clock.
        self.now_ms = 0

    def launched(self, deployment: Deployment) -> None:
        self.rates = Rates()
        self.attempts.launched(deployment, self.wall_ms())

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

    def attempt_ended(self, attempt: int, succeeded: bool, now_ms: int) -> None:
        self.now_ms = now_ms
        self.checkpoints.attempt_ended(attempt, now_ms)
        self.attempts.ended(attempt, succeeded, self.wall_ms())
