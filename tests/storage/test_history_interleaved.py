"""Several drivers on one history, each operation of theirs interleaved by one seed: nothing confirmed is ever lost.

Each driver claims, restores the newest checkpoint, publishes a few more, removes all but the newest, and starts over.
The schedule freezes a driver now and then for a long time, which makes it a zombie: it wakes up between any two
operations and goes on as if nothing had happened.

The invariant: following the newest checkpoint back, each to the one it was built upon, meets every checkpoint whose
publication was reported as done. A zombie that got through would have built a second branch.
"""

from __future__ import annotations

import random
import threading

import pytest
from storage_samples import JOB, manifest
from waiting import PATIENCE
from wrapped_stores import WrappedStore

from moorline.errors import Fenced, StorageError
from moorline.model.manifest import Manifest
from moorline.storage.history import History
from moorline.storage.stores.memory import MemoryStore

Identity = tuple[int, int]  # attempt, checkpoint
DRIVERS, OPERATIONS = 4, 250


class Schedule:
    """Lets one thread run at a time, and decides at each operation which one is next."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.turns = [threading.Semaphore(0) for _ in range(DRIVERS)]
        self.alive = set(range(DRIVERS))
        self.frozen_until = [0] * DRIVERS
        self.operations = 0

    def step(self, driver: int) -> None:
        self.operations += 1
        if self.random.random() < 0.05:
            self.frozen_until[driver] = self.operations + self.random.choice([5, 20, 80])
        self._hand_over()
        self.turns[driver].acquire()

    def leave(self, driver: int) -> None:
        self.alive.discard(driver)
        if self.alive:
            self._hand_over()

    def _hand_over(self) -> None:
        awake = [d for d in sorted(self.alive) if self.frozen_until[d] <= self.operations]
        self.turns[self.random.choice(awake or sorted(self.alive))].release()


class World:
    def __init__(self, seed: int) -> None:
        self.store = MemoryStore(f"seed {seed}")
        self.schedule = Schedule(seed)
        self.built_upon: dict[Identity, Identity | None] = {}
        self.confirmed: list[Identity] = []
        self.fenced = 0
        self.wrong: list[BaseException] = []

    def newest(self, history: History) -> Manifest | None:
        manifests = [r.entry for r in history.read() if isinstance(r.entry, Manifest)]
        return manifests[-1] if manifests else None

    def drive(self, driver: int) -> None:
        self.schedule.turns[driver].acquire()
        chance = random.Random(driver)
        store = WrappedStore(self.store, lambda operation, path: self.schedule.step(driver))
        try:
            while self.schedule.operations < OPERATIONS:
                try:
                    self.attempt(History(store, JOB), chance)
                except (Fenced, StorageError):
                    self.fenced += 1
        except BaseException as error:
            self.wrong.append(error)
        finally:
            self.schedule.leave(driver)

    def attempt(self, history: History, chance: random.Random) -> None:
        attempt = history.claim(False, 0)
        restored = self.newest(history)
        last = (restored.attempt, restored.checkpoint) if restored is not None else None
        for _ in range(chance.randint(0, 3)):
            this = (attempt, last[1] + 1 if last is not None else 1)
            self.built_upon[this] = last
            history.publish(manifest(this[1], attempt), range(1, this[1]) if chance.random() < 0.7 else ())
            self.confirmed.append(this)
            history.remove(range(1, this[1]))
            last = this

    def run(self) -> None:
        threads = [threading.Thread(target=self.drive, args=(d,), daemon=True) for d in range(DRIVERS)]
        for thread in threads:
            thread.start()
        self.schedule.turns[0].release()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        if self.wrong:
            raise self.wrong[0]

    def lineage(self) -> list[Identity]:
        newest = self.newest(History(self.store, JOB))
        at = (newest.attempt, newest.checkpoint) if newest is not None else None
        found: list[Identity] = []
        while at is not None:
            found.append(at)
            at = self.built_upon[at]
        return found


@pytest.mark.parametrize("block", range(5))
def test_nothing_confirmed_is_lost_whatever_the_interleaving(block: int) -> None:
    published = fenced = 0
    for seed in range(20 * block, 20 * block + 20):
        world = World(seed)
        world.run()
        lost = set(world.confirmed) - set(world.lineage())
        assert not lost, f"seed {seed}: {sorted(lost)} not in {world.lineage()}"
        published += len(world.confirmed)
        fenced += world.fenced
    # The test means something only if both happen a lot.
    assert published > 50 and fenced > 50
