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
import tempfile
from collections import Counter
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any

from moorline.connectors.memory_state import MemoryState
from moorline.driver.requests import SnapshotRequest
from moorline.errors import SnapshotNotFound
from moorline.model.config.checkpoints import Checkpoints
from moorline.model.config.thresholds import Folding, Thresholds
from moorline.model.graph import Graph
from moorline.model.manifest import Claim, Manifest
from moorline.model.wire.messages import Failed
from moorline.protocol.recovery import ended_with_a_savepoint, lineage
from moorline.protocol.supervision.lifecycle import JobStatus
from moorline.snapshots import fsck
from moorline.storage.history import History
from moorline.storage.stores.memory import MemoryStore
from moorline.storage.stores.open import open_store
from moorline.subtask.failure_report import describe_failure
from moorline.testing.simulation.audit import audit, audit_full
from moorline.testing.simulation.cluster import Attempt, Worker
from moorline.testing.simulation.driver import SimulatedDriver
from moorline.testing.simulation.faults import Faults, WorkerDied
from moorline.testing.simulation.history import spoil_history
from moorline.testing.simulation.jobs.counting import LostOrDoubled, SimulatedJob, counting_job
from moorline.testing.simulation.jobs.features import Maker, broadcast_job, operator_state_job, timers_job, ttl_job
from moorline.testing.simulation.jobs.loads import Loads
from moorline.testing.simulation.jobs.loops import loop_job
from moorline.testing.simulation.jobs.modes import at_least_once, at_least_once_job, consistency
from moorline.testing.simulation.jobs.queries import RandomQueries
from moorline.testing.simulation.jobs.upgrades import join_job, source_function_job, upgrade_job
from moorline.testing.simulation.jobs.values import values_job
from moorline.testing.simulation.jobs.windows import outside_job, windows_job
from moorline.testing.simulation.ledger import Ledger

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
]


def job_of(seed: int) -> Maker:
    """Which job a seed runs: every other one counts, and the rest goes round the features."""
    return counting_job if seed % 2 else FEATURES[seed // 2 % len(FEATURES)]


def mode_of(seed: int, settings: random.Random) -> dict[str, Any]:
    """How checkpoints are taken. Every driver has its own way, so it restores what was taken in another one."""
    return at_least_once(settings) if job_of(seed) is at_least_once_job else consistency(settings)


def is_incremental(settings: random.Random) -> bool:
    return settings.random() < 0.5


def thresholds_of(settings: random.Random) -> Thresholds:
    """Those that fit tiny tables and frames.

    Chains are as large tables have them, up to a number of increments that are then folded from their files: by the
    usual rule they would be written anew at almost every checkpoint. Sources are held when little has been put aside.
    """
    length = settings.choice([2, 5, 20])
    folding = Folding(growth=None, max_increments=length, max_files=length, copied_entries=0)
    return Thresholds(put_aside_bytes=settings.choice([300, 3000]), folding=folding)


class Simulation:
    """One world. ``run()`` it; afterwards the counters say what happened in it."""

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
        self.chance, self.settings = random.Random(seed), random.Random(~seed)
        self._outside = random.Random(f"outside-{seed}")
        self._full = random.Random(f"full-{seed}")
        self.faults = faults or Faults()
        self.now_ms = 0.0
        self.steps = 0
        #: A run that takes longer is taken for endless.
        self.max_steps = 100_000
        self.job_name = f"sim-{seed}"
        self.store = MemoryStore(f"sim-{seed}")
        self._fault_steps = fault_steps
        self.injected: Counter[str] = Counter()
        self.zombie_drivers: list[SimulatedDriver] = []
        self.zombie_steps = 0
        self.damaged: set[str] = set()
        self.attempts: list[Attempt] = []
        self.key_groups = 8
        #: Storage takes no more writes.
        self.sealed = False
        #: Some jobs rescale themselves.
        self.loads = Loads(random.Random(seed)) if self.settings.random() < self.faults.autoscale else None
        #: A real RocksDB on a real disk: slow, so only now and then.
        self.uses_rocksdb = self.settings.random() < rocksdb
        self.folder = tempfile.mkdtemp(prefix=f"moorline-sim-{seed}-") if self.uses_rocksdb else None
        self.checkpoints = 0
        #: How many of them were written whole although others are increments.
        self.full_checkpoints = 0
        #: How many of them had records in flight, and how many of those were restored.
        self.unaligned: Counter[int] = Counter()
        self.restored: list[int] = []
        #: A client that asks for state at every step with this probability.
        self.queries = RandomQueries(seed, queries)
        #: A stop with a savepoint that was asked for, and where the job is to go on from once it has ended.
        self._stop: SnapshotRequest | None = None
        self._version = 0
        self.thresholds = thresholds_of(self.settings)
        self.driver = SimulatedDriver(self, self._parallelism(), restore=None)

    def simulated(self, parallelism: int, version: int) -> SimulatedJob:
        """The job as a driver runs it. A driver that takes over runs the next version, if there is one."""
        self._version = version
        return job_of(self.seed)(self.seed, random.Random(self.seed), parallelism, self.records, version)

    def with_key_groups(self, graph: Graph) -> Graph:
        """The job with the number of key groups that it is to have now. What belongs to key groups cannot follow."""
        may_follow = self.attempts and not self.has_outside_state and job_of(self.seed) is not operator_state_job
        if may_follow and self.happens(self.faults.key_groups):
            self.injected["other key groups"] += 1
            self.key_groups = self.chance.choice([4, 5, 8, 13, 64])
        return replace(graph, max_parallelism=self.key_groups, max_parallelism_is_set=True)

    def checkpoints_wanted(self) -> Checkpoints:
        """How the next driver is to take them."""
        full_every = self._full.choice([None, 2, 3])
        return Checkpoints(
            "memory://",
            interval=0.04,
            min_pause=self.settings.choice([0, 0.01]),
            timeout=self.settings.choice([1.0, 4.0]),
            tolerable_failures=3,
            retained=self.settings.choice([1, 2, 3]),
            incremental=(incremental := is_incremental(self.settings)),
            full_every=full_every if incremental else None,
            grace=0.1,
            **mode_of(self.seed, self.settings),
        )

    @property
    def has_outside_state(self) -> bool:
        """Is some of its state in a store outside? Such a store cannot go back to an older checkpoint."""
        return job_of(self.seed) is outside_job

    def _parallelism(self) -> int:
        return self.chance.randint(1, 4)

    def happens(self, probability: float) -> bool:
        return self.steps < self._fault_steps and self.chance.random() < probability

    def run(self) -> Simulation:
        """Run to the end. Raises :class:`LostOrDoubled`, or whatever else went wrong."""
        for ledger in (*self.driver.expected, *self.driver.audits):
            Ledger.forget(ledger)
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
            self._note(self.driver)
            self._audit()
        finally:
            logging.disable(previous)
            for ledger in (*self.driver.expected, *self.driver.audits):
                Ledger.forget(ledger)
            if self.folder is not None:
                for attempt in self.attempts:
                    attempt.bury()
                shutil.rmtree(self.folder, ignore_errors=True)
        return self

    def _audit(self) -> None:
        audit(self)

    def _step(self) -> None:
        self.steps += 1
        self.now_ms += 1
        chance = self.chance
        self.queries.maybe_ask(self, self.driver.supervision, self.driver.operators)
        if self.happens(self.faults.driver_death):
            self._kill_driver()
            return
        if not self.sealed and self.happens(self.faults.sealed):
            self.injected["sealed storage"] += 1
            self.sealed = True
        self._wish()
        if self.steps < self._fault_steps and self._outside.random() < self.faults.sweep:
            self._sweep_from_outside()
        attempt = self.driver.attempt
        if attempt is not None and not attempt.is_over and chance.random() < 0.75:
            worker = attempt.workers[chance.choice(list(attempt.workers))]
            if self.happens(self.faults.worker_death):
                self._kill(attempt, worker)
            elif not (worker.subtask.is_done or worker.has_failed or self._hangs(worker)):
                self._move(attempt, worker)
        elif self.zombie_steps and chance.random() < 0.5:
            self._move_zombies()
        else:
            self.driver.step()

    def _move(self, attempt: Attempt, worker: Worker) -> None:
        try:
            attempt.step(worker)
        except WorkerDied:
            self._kill(attempt, worker)
        except LostOrDoubled:
            raise
        except Exception as error:
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
        probability = self.faults.hang if worker.has_started else self.faults.hang_at_start
        if not worker.is_hanging and self.steps < self._fault_steps and self._outside.random() < probability:
            self.injected["hanging worker" if worker.has_started else "worker that hangs at its start"] += 1
            worker.is_hanging = True
        return worker.is_hanging

    def give_up(self, driver: SimulatedDriver, attempt: Attempt) -> None:
        """An attempt was cancelled. Some of its workers may not have noticed yet."""
        if self.happens(self.faults.zombie):
            self.injected["zombie workers"] += 1
            driver.zombies.append(attempt)
            for worker in attempt.workers.values():
                worker.is_hanging = False  # it goes on as if nothing had happened
            self.zombie_steps += self.chance.randrange(200)

    def _kill_driver(self) -> None:
        """The driver is gone, or seems to be; another one takes over."""
        self.injected["driver"] += 1
        old = self.driver
        self._note(old)
        # One that never got as far as to claim the job would come back as a second driver, not as a zombie.
        if old.supervision.restored_from and self.happens(self.faults.zombie):
            self.injected["zombie drivers"] += 1
            self.zombie_drivers.append(old)
            self.zombie_steps += self.chance.randrange(400)
        elif self.happens(self.faults.damage):
            self._damage_newest()
        self._stop = None  # the wish has died with the driver
        self._take_over("latest")

    def _take_over(self, restore: str) -> None:
        self.driver = SimulatedDriver(self, self._parallelism(), restore)
        self.driver.supervision.start(int(self.now_ms))

    def _wish(self) -> None:
        """Somebody wants something of the running job."""
        supervision, now = self.driver.supervision, int(self.now_ms)
        if self.happens(self.faults.rescale):
            self.injected["rescale"] += 1
            graph = self.with_key_groups(self.simulated(self._parallelism(), self._version).graph())
            supervision.rescale(graph, Future(), now)
        elif self.happens(self.faults.savepoint):
            self.injected["savepoint"] += 1
            supervision.request(SnapshotRequest(savepoint=self._savepoint()), now)
        elif self._stop is None and self.happens(self.faults.stop):
            self.injected["stop with savepoint"] += 1
            self._stop = SnapshotRequest(savepoint=self._savepoint())
            supervision.stop_with_savepoint(self._stop, now)

    def _sweep_from_outside(self) -> None:
        """Somebody deletes what nobody needs, without a grace time: no driver and no upload may miss anything."""
        with suppress(SnapshotNotFound):  # there is nothing yet
            self.injected["swept files"] += len(fsck.sweep(self.store, now_ms=1 << 60, grace_ms=0))

    def _savepoint(self) -> str:
        url = f"memory://sim-{self.seed}-{sum(self.injected.values())}"
        left_over = open_store(url)  # by an earlier run of the same seed in this process
        left_over.delete([blob.path for blob in left_over.list()])
        return url

    def _goes_on(self) -> bool:
        """Has the job been stopped with a savepoint, and goes on from it?"""
        stop, self._stop = self._stop, None
        is_finished = self.driver.supervision.status is JobStatus.FINISHED
        if stop is None or not is_finished or not stop.answer.done() or stop.answer.exception() is not None:
            return False
        self._note(self.driver)
        restore = stop.savepoint
        if self._outside.random() < self.faults.latest_after_stop:
            # From the final checkpoint, or from the savepoint after all.
            restore = "latest"
            if self._outside.random() < self.faults.damage:
                self._damage_newest()
        self._take_over(restore)
        return True

    def _damage_newest(self) -> None:
        records = History(self.store, self.job_name).read()
        given_up = {n for r in records if isinstance(r.entry, Claim) for n in r.entry.given_up}
        # What was there before the job was started anew, from a savepoint, is not for it to go back to.
        mine = lineage([r.found for r in records])
        # Nor is what came before a savepoint that it was stopped with.
        stopped_at = max([r.entry.stopped_at for r in mine if isinstance(r.entry, Claim)], default=0)
        kept = [r.entry for r in mine if isinstance(r.entry, Manifest) and r.entry.checkpoint > stopped_at]
        manifests = [manifest for manifest in kept if manifest.checkpoint not in given_up]
        # A file that older checkpoints share would take them with it, and there would be nothing to go back to.
        shared = {file.path for manifest in manifests[:-1] for file in manifest.files()}
        there = {blob.path for blob in self.store.list("data/")}  # some may be gone since another driver died
        own = [f.path for f in manifests[-1].files() if f.path in there - shared] if manifests else []
        # The final checkpoint of a stop: then there is its savepoint. Elsewhere a store outside cannot go back at all.
        is_final = ended_with_a_savepoint([r.found for r in records], mine) is not None and bool(manifests)
        if not is_final and (self.has_outside_state or len(manifests) < 2):
            return
        if is_final and (own or self.faults.history):
            self.injected["final checkpoint of a stop"] += 1
        if self.chance.random() < self.faults.history:
            newest = next(r for r in records if r.entry is manifests[-1])
            way = spoil_history(self.store, self.chance, records, newest)
            self.injected[f"history entry: {way}"] += 1
            return
        if not own:
            return
        path = self.chance.choice(own)
        data = bytearray(self.store.get(path))
        self.store.delete([path])
        how = self.chance.choice(["removed", "cut short", "flipped"])
        if how == "cut short":
            self.store.put(path, bytes(data[: len(data) // 2]))
        elif how == "flipped":
            data[self.chance.randrange(len(data))] ^= 0x40
            self.store.put(path, bytes(data))
        self.injected[f"damaged file: {how}"] += 1
        self.damaged.add(path)

    def _move_zombies(self) -> None:
        """Those that were given up go on: they may do what they like, and nothing may come of it."""
        self.zombie_steps -= 1
        attempts = [a for d in (self.driver, *self.zombie_drivers) for a in d.zombies]
        attempts += [d.attempt for d in self.zombie_drivers if d.attempt is not None]
        try:
            if self.zombie_drivers and self.chance.random() < 0.3:
                self.chance.choice(self.zombie_drivers).step()
            elif attempts:
                attempt = self.chance.choice(attempts)
                worker = attempt.workers[self.chance.choice(list(attempt.workers))]
                if worker.id in attempt.alive and not worker.subtask.is_done:
                    attempt.step(worker)
        except (WorkerDied, LostOrDoubled):
            pass  # nobody listens to a zombie's last words
        except Exception:
            pass

    def _note(self, driver: SimulatedDriver) -> None:
        self.checkpoints += len(driver.supervision.checkpoints)
        self.full_checkpoints += audit_full(self.seed, driver.checkpoints, driver.supervision.checkpoints)
        self.unaligned.update(c.checkpoint for c in driver.supervision.checkpoints if c.in_flight)
        self.restored += [n for n in driver.supervision.restored_from if n]
