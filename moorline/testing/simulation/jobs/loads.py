"""Loads for the autoscaler in a simulated world: they go up and down, another way for every step.

What subtasks really do there takes no time, so how busy they are is made up. The decisions that follow are real, and
so are the rescales: whatever they do, nothing may be lost or doubled.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import msgspec

from moorline.model.config.run import Autoscale
from moorline.model.ids import SubtaskId
from moorline.model.wire.messages import Progress

#: By the simulated clock a run takes some hundred milliseconds.
QUICK = Autoscale(maximum=5, window=0.03, cool_down=0.1)


@dataclass
class Loads:
    """The loads of the subtasks of a world."""

    chance: random.Random
    #: Of each step: how long a day is, and when it begins.
    days: dict[int, tuple[float, float]] = field(default_factory=dict)

    def busy_ms(self, vertex: int, now_ms: float) -> float:
        """The busy time by now: the load goes up and down between nothing and all, once a day."""
        if vertex not in self.days:
            self.days[vertex] = self.chance.uniform(100, 600), self.chance.uniform(0, 600)
        length, start = self.days[vertex]
        turn = 2 * math.pi / length
        return 0.5 * now_ms - 0.5 * (math.cos(turn * (now_ms + start)) - math.cos(turn * start)) / turn

    def made_up(self, progress: Progress, subtask: SubtaskId, now_ms: float) -> Progress:
        """A subtask's report, as if it had been so busy ever since."""
        busy = self.busy_ms(subtask.vertex, now_ms)
        held_back = (now_ms - busy) * 0.3
        return msgspec.structs.replace(
            progress,
            records_in=int(busy),
            busy_ms=int(busy),
            backpressured_ms=int(held_back),
            idle_ms=int(now_ms - busy - held_back),
        )
