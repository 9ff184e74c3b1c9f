"""The checkpoints of a simulated run, counted over all of its drivers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from moorline.testing.simulation.audit.ending import audit_full
from moorline.testing.simulation.driver import SimulatedDriver


@dataclass
class Tally:
    """The checkpoints that were completed and restored."""

    seed: int
    checkpoints: int = 0
    #: How many of them were written whole although others are increments.
    full: int = 0
    #: How often each of them had records in flight.
    unaligned: Counter[int] = field(default_factory=Counter)
    restored: list[int] = field(default_factory=list)

    def add(self, driver: SimulatedDriver) -> None:
        """Count those of a driver that is gone."""
        supervision = driver.supervision
        self.checkpoints += len(supervision.checkpoints)
        self.full += audit_full(self.seed, driver.checkpoints, supervision.checkpoints)
        self.unaligned.update(c.checkpoint for c in supervision.checkpoints if c.in_flight)
        self.restored += [n for n in supervision.restored_from if n]
