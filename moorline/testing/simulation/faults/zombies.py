"""Zombies of a simulated world: workers and drivers that were given up, and go on as if nothing had happened.

They may do what they like, and nothing may come of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moorline.testing.simulation.cluster import Attempt
from moorline.testing.simulation.faults.injection import Injection
from moorline.testing.simulation.faults.likelihood import WorkerDied

if TYPE_CHECKING:
    from moorline.testing.simulation.driver import SimulatedDriver


class Zombies:
    """The zombies of one run, and how many steps they still take."""

    def __init__(self, injection: Injection) -> None:
        self._injection = injection
        self._drivers: list[SimulatedDriver] = []
        self.steps = 0

    def maybe_keep_workers(self, driver: SimulatedDriver, attempt: Attempt) -> None:
        """Let the workers of a cancelled attempt go on for a while, or not: they may not have noticed yet."""
        injection = self._injection
        if injection.happens(injection.faults.zombie):
            injection.injected["zombie workers"] += 1
            driver.zombies.append(attempt)
            for worker in attempt.workers.values():
                worker.is_hanging = False  # it goes on as if nothing had happened
            self.steps += injection.chance.randrange(200)

    def maybe_keep_driver(self, driver: SimulatedDriver) -> bool:
        """Does a driver that seems to be gone go on for a while?"""
        injection = self._injection
        # One that never got as far as to claim the job would come back as a second driver, not as a zombie.
        if not driver.supervision.restored_from or not injection.happens(injection.faults.zombie):
            return False
        injection.injected["zombie drivers"] += 1
        self._drivers.append(driver)
        self.steps += injection.chance.randrange(400)
        return True

    def move(self, driver: SimulatedDriver) -> None:
        """Let one of them do one thing: of those that ``driver`` gave up, or that were given up before it."""
        self.steps -= 1
        chance = self._injection.chance
        attempts = [a for d in (driver, *self._drivers) for a in d.zombies]
        attempts += [d.attempt for d in self._drivers if d.attempt is not None]
        try:
            if self._drivers and chance.random() < 0.3:
                chance.choice(self._drivers).step()
            elif attempts:
                attempt = chance.choice(attempts)
                worker = attempt.workers[chance.choice(list(attempt.workers))]
                if worker.id in attempt.alive and not worker.subtask.is_done:
                    attempt.step(worker)
        except (WorkerDied, Exception):  # a zombie's last words are not heard
            pass
