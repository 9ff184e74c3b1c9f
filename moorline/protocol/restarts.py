"""Whether to try again after a failure, and when.

    NoRestart         never
    FixedDelay        a number of times, each after the same delay
    FailureRate       unless too many failures fall into one interval
    ExponentialDelay  after a delay that grows with every failure, with some jitter, and is forgotten
                      after a healthy while

Beside the strategy there is one rule for all: what fails again and again at the same place would fail for ever, and
the job gives up (docs/decisions/0004 and 0027). *The same place*: the same error, and either no checkpoint in between
or the same record. How long that is tried depends on whether the error can pass by itself:

    it cannot     not at all before the first checkpoint of a run; then as unknown ones
    unknown       SAME_ERROR_LIMIT times
    it can        for OUTAGE_MS, and SAME_ERROR_LIMIT times at least

No clock and no chance of its own: both are arguments. ``protocol/job.py`` asks.
"""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass, field

from moorline.model.config.restarts import ExponentialDelay, FailureRate, FixedDelay, NoRestart, RestartStrategy

#: The same error at the same place this many times is for ever.
SAME_ERROR_LIMIT = 3
#: Unless it can pass by itself: then it is waited for so long.
OUTAGE_MS = 3_600_000
#: A record that fails again after so long is another one that looks the same.
RECORD_MS = 600_000


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt has ended badly."""

    now_ms: int
    #: What was raised where, without the parts that vary; None: nothing that could come again.
    error: str | None
    #: The checkpoint the attempt had got to; progress since the last failure is a new chance.
    checkpoint: int
    #: The record at hand, if it is known: where in the input it happened, whatever was completed in between.
    record: str = ""
    #: Can the error pass by itself? None: unknown.
    can_pass: bool | None = None
    #: No checkpoint has been completed in this run.
    is_first: bool = False


@dataclass(slots=True)
class _Streak:
    count: int
    since_ms: int
    last_ms: int


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
    checkpoint: int = 0
    #: Errors since that checkpoint, and records that failed lately.
    errors: dict[Hashable, _Streak] = field(default_factory=dict)
    records: dict[Hashable, _Streak] = field(default_factory=dict)

    def handle(self, failure: Failure) -> RestartAfter | GiveUp:
        hopeless = self._hopeless(failure)
        if hopeless is not None:
            return GiveUp(hopeless)
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

    def _hopeless(self, failure: Failure) -> str | None:
        """The reason why another attempt would fail as this one did; None: it may succeed."""
        if failure.error is None:
            return None
        if failure.checkpoint != self.checkpoint:
            self.checkpoint = failure.checkpoint
            self.errors.clear()
        streak = _counted(self.errors, failure.error, failure.now_ms, OUTAGE_MS if failure.can_pass else None)
        count = streak.count
        if failure.record:
            count = max(count, _counted(self.records, (failure.error, failure.record), failure.now_ms, RECORD_MS).count)
        if failure.can_pass is False and failure.is_first:
            return "the error cannot pass by itself, and no checkpoint was completed before it"
        if count < SAME_ERROR_LIMIT:
            return None
        if not failure.can_pass:
            return f"it failed {count} times in a row with the same error at the same place; it would fail again"
        if failure.now_ms - streak.since_ms >= OUTAGE_MS:
            minutes = (failure.now_ms - streak.since_ms) // 60_000
            return f"it failed {streak.count} times in {minutes} minutes with the same error, and got no further"
        return None


def _counted(streaks: dict[Hashable, _Streak], what: Hashable, now_ms: int, forget_ms: int | None) -> _Streak:
    """The streak that this failure belongs to, itself among it. Streaks without a failure for so long are forgotten."""
    if forget_ms is not None:
        for old in [key for key, streak in streaks.items() if now_ms - streak.last_ms > forget_ms]:
            del streaks[old]
    streak = streaks.setdefault(what, _Streak(0, now_ms, now_ms))
    streak.count, streak.last_ms = streak.count + 1, now_ms
    return streak
