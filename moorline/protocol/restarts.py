"""Whether to try again after a failure, and when.

    NoRestart         never
    FixedDelay        a number of times, each after the same delay
    FailureRate       unless too many failures fall into one interval
    ExponentialDelay  after a delay that grows with every failure, with some jitter, and is forgotten
                      after a healthy while

Beside the strategy there is one rule for all: when user code fails for the third time in a row with the same
error from the same starting point, it would fail for ever, and the job gives up (docs/decisions/0004).
No clock and no chance of its own: both are arguments. ``driver/supervision.py`` asks.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from moorline.model.config import ExponentialDelay, FailureRate, FixedDelay, NoRestart, RestartStrategy

#: The same error of user code, from the same checkpoint, this many times in a row is for ever.
SAME_ERROR_LIMIT = 3


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt has ended badly."""

    now_ms: int
    #: What user code raised where; None if it was not user code.
    user_error: str | None
    #: The checkpoint the attempt had got to; progress since the last failure is a new chance.
    checkpoint: int


@dataclass(frozen=True, slots=True)
class RestartAfter:
    delay_ms: int

    def __str__(self) -> str:
        return f"restart in {self.delay_ms} ms"


@dataclass(frozen=True, slots=True)
class GiveUp:
    reason: str

    def __str__(self) -> str:
        return f"give up: {self.reason}"


@dataclass(slots=True)
class Restarts:
    """Feed it failures; it says what next."""

    strategy: RestartStrategy
    chance: random.Random
    failures: int = 0
    recent_ms: list[int] = field(default_factory=list)
    delay_ms: float = 0
    last_ms: int | None = None
    same_error: int = 0
    last_error: tuple[str, int] | None = None

    def handle(self, failure: Failure) -> RestartAfter | GiveUp:
        if self._is_poison(failure):
            return GiveUp(
                f"user code failed {self.same_error} times in a row with the same error at the same place; "
                f"it would fail again"
            )
        self.failures += 1
        match self.strategy:
            case NoRestart():
                return GiveUp("no restart strategy is set (checkpoints turn one on)")
            case FixedDelay(attempts=attempts):
                if self.failures > attempts:
                    return GiveUp(f"it was restarted {attempts} times, which is the limit")
                return RestartAfter(self.strategy.delay_ms)
            case FailureRate(failures=limit):
                since = failure.now_ms - self.strategy.interval_ms
                self.recent_ms = [t for t in self.recent_ms if t > since] + [failure.now_ms]
                if len(self.recent_ms) > limit:
                    return GiveUp(f"more than {limit} failures within {self.strategy.interval_ms} ms")
                return RestartAfter(self.strategy.delay_ms)
            case ExponentialDelay():
                return self._exponential(self.strategy, failure.now_ms)

    def _exponential(self, strategy: ExponentialDelay, now_ms: int) -> RestartAfter | GiveUp:
        healthy = self.last_ms is not None and now_ms - self.last_ms >= strategy.reset_after_ms + self.delay_ms
        if self.last_ms is None or healthy:
            self.delay_ms, self.failures = strategy.initial_ms, 1
        else:
            self.delay_ms = min(self.delay_ms * strategy.multiplier, strategy.maximum_ms)
        self.last_ms = now_ms
        if strategy.attempts is not None and self.failures > strategy.attempts:
            return GiveUp(f"it was restarted {strategy.attempts} times, which is the limit")
        spread = self.delay_ms * strategy.jitter
        delay_ms = self.delay_ms + self.chance.uniform(-spread, spread)
        return RestartAfter(round(min(delay_ms, strategy.maximum_ms)))

    def _is_poison(self, failure: Failure) -> bool:
        if failure.user_error is None:
            self.same_error, self.last_error = 0, None
            return False
        error = (failure.user_error, failure.checkpoint)
        self.same_error = self.same_error + 1 if error == self.last_error else 1
        self.last_error = error
        return self.same_error >= SAME_ERROR_LIMIT
