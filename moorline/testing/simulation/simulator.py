"""Whole jobs in one thread from one seed: the real protocol, subtask and driver code in a simulated world.

Simulated are the exchange (first in, first out per pair of slots, nothing else is certain), the control lines, the
threads that upload, the clock and the storage. A seed decides who moves next and what goes wrong:

    a worker dies            at any step, also half-way through an upload
    a worker hangs           at any step, also before its first: it neither works nor dies, and its line stays open
    a driver dies            and another one takes over, at another parallelism, from storage alone
    zombies                  workers and drivers that were given up go on for a while as if nothing had happened
    messages                 reports come late; confirmations and aborts get lost or come twice
    storage                  fails before or after having done what it was asked; damaged newest checkpoint; entries
                             of the history lost, cut short, replaced or copied; if wanted, takes no more writes from
                             some moment on
    queries                  if wanted, at any step, of live state and of checkpoints; also lost, late and repeated

At the end the ledger must hold what a plain loop makes of the input, no more and no less. Where something is wrong for
good (sealed storage, a record that no attempt gets past) the job must end, and the ledger hold nothing else. A failing
seed is the whole bug report: ``Simulation(seed).run()``. Jobs of users run in the same world: ``testing/simulation/``.
"""

from __future__ import annotations

import logging
import random
import shutil
from collections import Counter
from dataclasses import replace
from typing import Any

from moorline.connectors.memory_state import MemoryState
from moorline.model.config.checkpoints import Checkpoints
from moorline.model.graph import Graph
from moorline.model.wire.messages import Failed
from moorline.storage.stores.memory import MemoryStore
from moorline.subtask.failure_report import describe_failure
from moorline.testing.simulation.audit.ending import audit
from moorline.testing.simulation.audit.ledger import Ledger
from moorline.testing.simulation.audit.tally import Tally
from moorline.testing.simulation.cluster import Attempt, Worker
from moorline.testing.simulation.driver import SimulatedDriver
from moorline.testing.simulation.faults import Faults, WorkerDied
from moorline.testing.simulation.faults.damage import damage_newest
from moorline.testing.simulation.faults.injection import Injection
from moorline.testing.simulation.faults.zombies import Zombies
from moorline.testing.simulation.jobs.column_steps import column_steps_job
from moorline.testing.simulation.jobs.column_windows import column_windows_job
from moorline.testing.simulation.jobs.columns import columns_job
from moorline.testing.simulation.jobs.connectors import growing_job, hybrid_job, server_job, table_job
from moorline.testing.simulation.jobs.counting import LostOrDoubled, SimulatedJob, counting_job
from moorline.testing.simulation.jobs.features import Maker, broadcast_job, operator_state_job, timers_job, ttl_job
from moorline.testing.simulation.jobs.loads import Loads
from moorline.testing.simulation.jobs.loops import loop_job
from moorline.testing.simulation.jobs.modes import at_least_once, at_least_once_job, consistency
from moorline.testing.simulation.jobs.queries import RandomQueries
from moorline.testing.simulation.jobs.upgrades import join_job, source_function_job, upgrade_job
from moorline.testing.simulation.jobs.values import values_job
from moorline.testing.simulation.jobs.windows import outside_job, windows_job
from moorline.testing.simulation.requests import SimulatedRequests
from moorline.testing.simulation.setup import Setup

FEATURES: list[Maker] = [
    timers_job,
    broadcast_job,
    operator_state_job,
    ttl_job,
    values_job,
    windows_job,
    outside_job,
    upgrade_job,
    source_function_job,
    join_job,
    at_least_once_job,
    loop_job,
    table_job,
    server_job,
    growing_job,
    hybrid_job,
    columns_job,
    column_steps_job,
    column_windows_job,
]


def job_of(seed: int) -> Maker:
    """The job that a seed runs: every other one counts, and the rest goes round the features."""
    return counting_job if seed % 2 else FEATURES[seed // 2 % len(FEATURES)]


def mode_of(seed: int, settings: random.Random) -> dict[str, Any]:
    """The mode of checkpoints. Every driver has its own, so it restores what was taken in another one."""
    return at_least_once(settings) if job_of(seed) is at_least_once_job else consistency(settings)


def is_incremental(settings: random.Random) -> bool:
    return settings.random() < 0.5


class Simulation:
    """One world. ``run()`` it; afterwards the counters say what happened in it."""

    #: A run that takes longer is taken for endless.
    max_steps = 100_000

    def __init__(
        self,
        seed: int,
        *,
        records: int = 40,
        faults: Faults | None = None,
        fault_steps: int = 4000,
        rocksdb: float = 0.03,
        queries: float = 0.0,
    ) -> None:
        self.seed, self.records = seed, records
        self.chance = random.Random(seed)
        self.steps = 0
        self.job_name = f"sim-{seed}"
        self.store = MemoryStore(f"sim-{seed}")
        self.injection = Injection(
            faults or Faults(), fault_steps, lambda: self.steps, self.chance, random.Random(f"outside-{seed}")
        )
        self.setup = Setup.of(seed, self.injection.faults, rocksdb)
        self.key_groups = 8
        self.attempts: list[Attempt] = []
        self.zombies = Zombies(self.injection)
        self.tally = Tally(seed)
        self._requests = SimulatedRequests(seed, self.store, self.injection)
        #: A client that asks for state at every step with this probability.
        self.queries = RandomQueries(seed, queries)
        self.driver = SimulatedDriver(self, self._parallelism(), restore=None)

    @property
    def now_ms(self) -> float:
        """The simulated time: a millisecond for every step."""
        return float(self.steps)

    @property
    def loads(self) -> Loads | None:
        return self.setup.loads

    @property
    def injected(self) -> Counter[str]:
        """The number of times that each fault was injected, by its name."""
        return self.injection.injected

    def simulated(self, parallelism: int, version: int) -> SimulatedJob:
        """The job as a driver runs it. A driver that takes over runs the next version, if there is one."""
        return job_of(self.seed)(self.seed, random.Random(self.seed), parallelism, self.records, version)

    def with_key_groups(self, graph: Graph) -> Graph:
        """The job with the number of key groups that it is to have now. What belongs to key groups cannot follow."""
        may_follow = self.attempts and not self.has_outside_state and job_of(self.seed) is not operator_state_job
        if may_follow and self.injection.happens(self.injection.faults.key_groups):
            self.injected["other key groups"] += 1
            self.key_groups = self.chance.choice([4, 5, 8, 13, 64])
        return replace(graph, max_parallelism=self.key_groups, max_parallelism_is_set=True)

    def checkpoints_wanted(self) -> Checkpoints:
        """The configuration of the next driver's checkpoints."""
        settings = self.setup.settings
        full_every = self.setup.full.choice([None, 2, 3])
        return Checkpoints(
            "memory://",
            interval=0.04,
            min_pause=settings.choice([0, 0.01]),
            timeout=settings.choice([1.0, 4.0]),
            tolerable_failures=3,
            retained=settings.choice([1, 2, 3]),
            incremental=(incremental := is_incremental(settings)),
            full_every=full_every if incremental else None,
            grace=0.1,
            **mode_of(self.seed, settings),
        )

    @property
    def has_outside_state(self) -> bool:
        """Is some of its state in a store outside? Such a store cannot go back to an older checkpoint."""
        return job_of(self.seed) is outside_job

    def _parallelism(self) -> int:
        return self.chance.randint(1, 4)

    def run(self) -> Simulation:
        """Run to the end. Raises :class:`LostOrDoubled`, or whatever else went wrong."""
        self._forget_ledgers()
        if self.has_outside_state:
            # What an earlier run of the same seed, in the same process, has left there.
            MemoryState(self.job_name).forget(self.job_name)
        previous = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            self.driver.supervision.start(0)
            while not self.driver.supervision.status.is_terminal or self._goes_on():
                self._step()
                if self.steps > self.max_steps:
                    raise AssertionError(
                        f"seed {self.seed}: still {self.driver.supervision.status} after {self.max_steps:,} steps"
                    )
            self.tally.add(self.driver)
            self._audit()
        finally:
            logging.disable(previous)
            self._forget_ledgers()
            if self.setup.rocksdb_folder is not None:
                for attempt in self.attempts:
                    attempt.bury()
                shutil.rmtree(self.setup.rocksdb_folder, ignore_errors=True)
        return self

    def _forget_ledgers(self) -> None:
        for ledger in (*self.driver.expected, *self.driver.audits):
            Ledger.forget(ledger)

    def _audit(self) -> None:
        audit(self)

    def _step(self) -> None:
        self.steps += 1
        chance, injection, driver = self.chance, self.injection, self.driver
        self.queries.maybe_ask(self, driver.supervision, driver.operators)
        if injection.happens(injection.faults.driver_death):
            self._kill_driver()
            return
        injection.maybe_seal()
        self._requests.maybe_make(driver.supervision, self._rescaled, self.steps)
        attempt = driver.attempt
        if attempt is not None and not attempt.is_over and chance.random() < 0.75:
            worker = attempt.workers[chance.choice(list(attempt.workers))]
            if injection.happens(injection.faults.worker_death):
                self._kill(attempt, worker)
            elif not (worker.subtask.is_done or worker.has_failed or self._hangs(worker)):
                self._move(attempt, worker)
        elif self.zombies.steps and chance.random() < 0.5:
            self.zombies.move(driver)
        else:
            driver.step()

    def _rescaled(self) -> Graph:
        return self.with_key_groups(self.simulated(self._parallelism(), self.driver.version).graph())

    def _move(self, attempt: Attempt, worker: Worker) -> None:
        try:
            attempt.step(worker)
        except WorkerDied:
            self._kill(attempt, worker)
        except LostOrDoubled:
            raise
        except Exception as error:  # as in a worker: it fails, and the story goes on
            if attempt in self.driver.zombies:
                raise
            worker.has_failed = True
            failure = describe_failure(error)
            worker.reports.append(failure)
            self._check_failure(failure, error)

    def _check_failure(self, failure: Failed, error: Exception) -> None:
        """Raise if a worker must not fail like this."""
        if "LostOrDoubled" in failure.error:
            raise LostOrDoubled(f"seed {self.seed}: {error}") from error

    def _kill(self, attempt: Attempt, worker: Worker) -> None:
        self.injected["worker"] += 1
        attempt.alive.discard(worker.id)
        self.driver.supervision.line_lost(attempt.deployment.attempt, worker.id)
        attempt.is_over = True  # Spark ends the job at the first lost task, whatever the supervision thinks

    def _hangs(self, worker: Worker) -> bool:
        """Has the worker stopped, or does it now?"""
        faults = self.injection.faults
        probability = faults.hang if worker.has_started else faults.hang_at_start
        if not worker.is_hanging and self.injection.happens_later(probability):
            self.injected["hanging worker" if worker.has_started else "worker that hangs at its start"] += 1
            worker.is_hanging = True
        return worker.is_hanging

    def _kill_driver(self) -> None:
        """The driver is gone, or seems to be; another one takes over."""
        self.injected["driver"] += 1
        self.tally.add(self.driver)
        if not self.zombies.maybe_keep_driver(self.driver) and self.injection.happens(self.injection.faults.damage):
            self._damage_newest()
        self._requests.forget_stop()
        self._take_over("latest")

    def _take_over(self, restore: str) -> None:
        self.driver = SimulatedDriver(self, self._parallelism(), restore)
        self.driver.supervision.start(self.steps)

    def _goes_on(self) -> bool:
        """Has the job been stopped with a savepoint, and goes on from it?"""
        restore = self._requests.taken_stop(self.driver.supervision)
        if restore is None:
            return False
        self.tally.add(self.driver)
        injection = self.injection
        if injection.later_chance.random() < injection.faults.latest_after_stop:
            # From the final checkpoint, or from the savepoint after all.
            restore = "latest"
            if injection.later_chance.random() < injection.faults.damage:
                self._damage_newest()
        self._take_over(restore)
        return True

    def _damage_newest(self) -> None:
        damage_newest(self.store, self.job_name, self.injection, has_outside_state=self.has_outside_state)
