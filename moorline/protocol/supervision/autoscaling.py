"""The parallelism a job should have: more or fewer subtasks, and where.

A step is a chain of operators that run in the same subtasks. Of each it is measured how its subtasks spent their time
(busy, back-pressured by the steps after it, idle), and how many records it took in.

    work        busy share / (1 - the largest back-pressured share of the steps before it): what would be asked of it
                if nothing held those back. 1: its subtasks would just manage
    more        work above target + tolerance -> what is needed (parallelism * work / target), at most twice as many
    fewer       work below target - tolerance, also if the step were not back-pressured itself -> what is needed
    keep        everything between; less than a window has been measured; the cool-down after a rescale is not over;
                it got more the last time, and took in no more and was as busy as before: then more do not help

More by the mean over the window, so that one busy second is nothing; fewer by its busiest moment. Under a steady load
it comes to rest: what was needed is needed still (``tests/protocol/test_autoscaling.py`` tries to disprove it).
No clock: ``now`` is milliseconds of a clock that never goes back. ``driver/autoscaler.py`` measures and obeys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from moorline.model.config.run import Autoscale

#: More than this is not believed: from next to no time without back pressure nothing can be concluded.
MOST_BACKPRESSURED = 0.9
#: More subtasks have helped if at least so many times more was taken in, or there was so many times less to do.
HELPED = 1.1


@dataclass(frozen=True, slots=True)
class SubtaskLoad:
    """The load of a step lately. Shares of the time of its subtasks, on average."""

    parallelism: int
    busy: float
    backpressured: float
    #: Records taken in, per second, by all of its subtasks.
    rate: float
    #: The steps it reads from.
    upstream: tuple[str, ...] = ()
    #: No more subtasks than these make sense, and no fewer.
    maximum: int = 1 << 15
    minimum: int = 1


@dataclass(frozen=True, slots=True)
class Measured:
    """The steps that may be rescaled and those that may not, since the last time."""

    now_ms: int
    loads: Mapping[str, SubtaskLoad]


@dataclass(frozen=True, slots=True)
class Began:
    """An attempt runs. What was measured before is of no use any more."""

    now_ms: int
    #: Because of a rescale, ours or a user's.
    rescaled: bool


@dataclass(frozen=True, slots=True)
class RescaleRefused:
    """The rescale cannot be had, for example because there are no free slots."""

    now_ms: int


Event = Measured | Began | RescaleRefused


@dataclass(frozen=True, slots=True)
class Rescale:
    """Let these steps have so many subtasks."""

    parallelism: dict[str, int]
    #: For people.
    reason: str

    def __str__(self) -> str:
        return f"rescale: {self.reason}"


Action = Rescale


@dataclass(frozen=True, slots=True)
class _Grown:
    """A step was given more subtasks when it took in so many records per second."""

    parallelism: int
    rate: float
    work: float


@dataclass(slots=True)
class Autoscaling:
    """Feed it measurements; it says what to change."""

    config: Autoscale
    #: Not before this: the cool-down after a rescale.
    rests_until_ms: int = 0
    samples: list[Measured] = field(default_factory=list)
    began_ms: int | None = None
    grown: dict[str, _Grown] = field(default_factory=dict)

    def handle(self, event: Event) -> list[Action]:
        match event:
            case Began(now_ms, rescaled):
                self.samples.clear()
                self.began_ms = now_ms
                if rescaled:
                    self.rests_until_ms = now_ms + self.config.cool_down_ms
            case RescaleRefused(now_ms):
                self.samples.clear()
                self.rests_until_ms = now_ms + self.config.cool_down_ms
            case Measured(now_ms):
                self.samples.append(event)
                return self._judge(now_ms)
        return []

    def _judge(self, now_ms: int) -> list[Action]:
        window = self.config.window_ms
        while len(self.samples) > 1 and self.samples[1].now_ms <= now_ms - window:
            self.samples.pop(0)
        if now_ms < self.rests_until_ms or now_ms - self.samples[0].now_ms < window:
            return []
        wanted: dict[str, int] = {}
        reasons = []
        for step, load in self._means().items():
            estimates = [_work(step, sample.loads) for sample in self.samples]
            work = sum(least for least, _ in estimates) / len(estimates)
            at_most = max(most for _, most in estimates)
            number = self._number(step, load, work, at_most)
            if number != load.parallelism:
                wanted[step] = number
                reasons.append(f"{step} from {load.parallelism} to {number} (work {work:.0%})")
                if number > load.parallelism:
                    self.grown[step] = _Grown(load.parallelism, load.rate, work)
                else:
                    self.grown.pop(step, None)
        if not wanted:
            return []
        self.samples.clear()
        self.rests_until_ms = now_ms + self.config.cool_down_ms
        return [Rescale(wanted, ", ".join(reasons))]

    def _means(self) -> dict[str, SubtaskLoad]:
        """Means over the window, of the steps that were there all the time with the parallelism they have now."""
        newest, count = self.samples[-1].loads, len(self.samples)
        means = {}
        for step, load in newest.items():
            loads = [s.loads[step] for s in self.samples if step in s.loads]
            if len(loads) == count and all(sample.parallelism == load.parallelism for sample in loads):
                means[step] = SubtaskLoad(
                    load.parallelism,
                    sum(sample.busy for sample in loads) / count,
                    sum(sample.backpressured for sample in loads) / count,
                    sum(sample.rate for sample in loads) / count,
                    load.upstream,
                    load.maximum,
                    load.minimum,
                )
        return means

    def _number(self, step: str, load: SubtaskLoad, work: float, at_most: float) -> int:
        """The parallelism of a step, if there is so much work for it, or perhaps as much as ``at_most``."""
        target, tolerance = self.config.target, self.config.tolerance
        highest = max(load.minimum, min(load.maximum, self.config.maximum or load.maximum))
        lowest = min(highest, max(load.minimum, self.config.minimum))
        number = load.parallelism
        if work > target + tolerance:
            if not self._has_helped(step, load, work):
                return number
            # While it is overrun it is unknown by how much. So many more are of use in any case: not too few to have
            # to be taken away again, if what it could not do was next to nothing.
            growth = min(2.0, 1 / (target - tolerance))
            number = max(number, min(_needed(number, work, target), max(number + 1, int(number * growth))))
        elif at_most < target - tolerance:
            number = max(1, min(number, _needed(number, at_most, target)))
        return min(max(number, lowest), highest)

    def _has_helped(self, step: str, load: SubtaskLoad, work: float) -> bool:
        """Did more subtasks take in more, or have less to do? Until that is known to be false, yes."""
        before = self.grown.get(step)
        if before is None or load.parallelism <= before.parallelism:
            return True
        return load.rate >= before.rate * HELPED or work <= before.work / HELPED


def _work(step: str, loads: Mapping[str, SubtaskLoad]) -> tuple[float, float]:
    """The work that is asked of a step; and that might be, if it were not back-pressured itself."""
    load = loads[step]
    before = max((loads[s].backpressured for s in load.upstream if s in loads), default=0.0)
    both = max(before, load.backpressured)
    return load.busy / (1 - min(before, MOST_BACKPRESSURED)), load.busy / (1 - min(both, MOST_BACKPRESSURED))


def _needed(parallelism: int, work: float, target: float) -> int:
    # A hair less, so that a sum of shares that is exactly enough is not one more for its last digit.
    return -int(-(parallelism * work / target - 1e-9) // 1)
