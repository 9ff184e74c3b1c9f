"""Restart strategies: how often a failed job is started again, and after which delay."""

from __future__ import annotations

from dataclasses import dataclass

from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options


@dataclass(frozen=True)
class NoRestart:
    """Never restart: the first failure ends the job."""


@checks_options()
@dataclass(frozen=True)
class FixedDelay:
    """Restart up to ``attempts`` times, each after the same delay.

    >>> FixedDelay(attempts=3, delay="5s").delay_ms
    5000
    """

    attempts: int = 1
    delay: Duration = "1s"

    @property
    def delay_ms(self) -> int:
        return milliseconds(self.delay, "delay")


@checks_options()
@dataclass(frozen=True)
class FailureRate:
    """Restart as long as no more than ``failures`` happen within ``interval``.

    >>> FailureRate(failures=3, interval="5min").interval_ms
    300000
    """

    failures: int = 1
    interval: Duration = "1min"
    delay: Duration = "1s"

    @property
    def interval_ms(self) -> int:
        return milliseconds(self.interval, "interval")

    @property
    def delay_ms(self) -> int:
        return milliseconds(self.delay, "delay")


@checks_options()
@dataclass(frozen=True)
class ExponentialDelay:
    """Restart after a delay that grows with every failure and is forgotten after a healthy while.

    >>> ExponentialDelay(initial="2s").initial_ms
    2000
    """

    initial: Duration = "1s"
    multiplier: float = 1.5
    maximum: Duration = "1min"
    reset_after: Duration = "1h"
    jitter: float = 0.1
    #: None: without limit.
    attempts: int | None = None

    @property
    def initial_ms(self) -> int:
        return milliseconds(self.initial, "initial delay")

    @property
    def maximum_ms(self) -> int:
        return milliseconds(self.maximum, "maximum delay")

    @property
    def reset_after_ms(self) -> int:
        return milliseconds(self.reset_after, "reset_after")


RestartStrategy = NoRestart | FixedDelay | FailureRate | ExponentialDelay
