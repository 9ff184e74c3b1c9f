"""The visible side of a job while it runs and after its end, for handles, the command line and HTTP."""

from __future__ import annotations

from typing import Any

from moorline.driver.attempts.launcher import Launcher
from moorline.driver.attempts.running import RunningAttempt
from moorline.driver.checkpoints.stats import CheckpointStats
from moorline.driver.observation.observation import Observation
from moorline.errors import MoorlineError
from moorline.model.config.run import RunConfig
from moorline.protocol.job import JobDecisions
from moorline.protocol.supervision.lifecycle import JobStatus


class ObservedJob:
    """A job as other threads than the supervising one read it: each question looks at the attempt once."""

    def __init__(self, job: JobDecisions, launcher: Launcher, observation: Observation) -> None:
        self._job, self._launcher, self.observation = job, launcher, observation
        self.status: JobStatus = job.status
        #: The last one that was launched, also after its end.
        self.last_attempt: RunningAttempt | None = None
        self._finished_stats: list[CheckpointStats] = []
        self.results: dict[str, list[Any]] = {}
        self.error: MoorlineError | None = None
        #: Does nothing lie in storage at the end but what is to be retained?
        self.is_tidy = False

    @property
    def config(self) -> RunConfig:
        """The configuration of the run."""
        return self._launcher.config

    @property
    def writer(self) -> str:
        """The word that our entries in the history carry; empty without storage."""
        return self._launcher.writer

    @property
    def running(self) -> RunningAttempt | None:
        """The attempt of this moment. Copy what may change of it."""
        last = self.last_attempt
        return last if last is not None and not last.has_ended else None

    @property
    def attempt(self) -> int:
        """The number of the attempt of this moment; 0: there is none."""
        current = self.running
        return current.number if current else 0

    @property
    def checkpoints(self) -> list[CheckpointStats]:
        """The checkpoints that were completed, of all attempts."""
        current = self.running
        return self._finished_stats + (current.checkpoints.stats if current else [])

    @property
    def history_of_failures(self) -> list[str]:
        """One line for every attempt that failed."""
        return self._job.failures

    @property
    def restored_from(self) -> list[int]:
        """Checkpoints that attempts were restored from, without those that proved damaged; 0 for an empty start."""
        return self._launcher.restored_from
