"""One simulated driver: a real supervision, and the cluster it commands, in which anything can go wrong."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from moorline.driver.supervision import Supervision
from moorline.model.config.restarts import ExponentialDelay
from moorline.model.config.run import RunConfig
from moorline.model.config.state import RocksDb
from moorline.model.ids import SubtaskId
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.elements import unpack_results
from moorline.model.wire.messages import AddSplits, Confirm, Hold, Order, Progress
from moorline.storage.history import History
from moorline.testing.simulation.cluster import Attempt
from moorline.testing.simulation.faults.injection import UnsureStore
from moorline.testing.simulation.jobs.loads import QUICK

if TYPE_CHECKING:
    from moorline.testing.simulation.simulator import Simulation

ALIVE = Progress(records_in=0, records_out=0)


class SimulatedDriver:
    """One simulated driver: a supervision and the cluster it commands."""

    def __init__(self, world: Simulation, parallelism: int, restore: str | None) -> None:
        self.world = world
        self.version = int(restore is not None)
        # A driver that takes over runs the next version of the job, if it has one.
        simulated = world.simulated(parallelism, self.version)
        folder = world.setup.rocksdb_folder
        config = RunConfig(
            checkpoints=world.checkpoints_wanted(),
            restart=ExponentialDelay(initial=0.005, maximum=0.02, reset_after=1),
            restore=restore,
            backend=RocksDb(memory="8MB", folder=folder) if folder is not None else "heap",
            autoscale=QUICK if world.loads is not None else None,
            heartbeat_timeout="1s",
            start_timeout="1s",
            thresholds=world.setup.thresholds,
        )
        history = History(UnsureStore(world.store, world.injection, may_kill=False), simulated.job.name)
        graph = simulated.graph()
        self.expected, self.audits = simulated.expected, simulated.audits
        self.is_poisoned = simulated.is_poisoned
        self.checkpoints = config.checkpoints
        self.retained = config.checkpoints.retained if config.checkpoints else 0
        self.operators = list(graph.operators)
        self.attempt: Attempt | None = None
        self.zombies: list[Attempt] = []
        #: Work off the driver's thread: to be done, or done and not yet reported.
        self._work: deque[tuple[Callable[[], Any], Callable[[BaseException | None], None]]] = deque()
        self._reports: deque[Callable[[], None]] = deque()
        self.supervision = Supervision(
            world.with_key_groups(graph), config, history, self, world.chance, lambda: int(world.now_ms)
        )

    # What a Cluster does.

    def launch(self, deployment: Deployment) -> None:
        self.attempt = Attempt(self.world, deployment)
        self.world.attempts.append(self.attempt)

    def send(self, subtask: SubtaskId, order: Order) -> None:
        injection = self.world.injection
        if self.attempt is None:
            return
        if not isinstance(order, (Hold, AddSplits)) and not (isinstance(order, Confirm) and order.final):
            # The final confirmation cannot be lost: a line that breaks fails the attempt. Nor can a word to wait, or
            # splits.
            if not hasattr(order, "triggered_ms") and injection.happens(injection.faults.lost_notification):
                return
            if not hasattr(order, "triggered_ms") and injection.happens(injection.faults.repeated_order):
                self.attempt.workers[subtask].orders.append(order)
        self.attempt.workers[subtask].orders.append(order)

    def cancel(self) -> None:
        if self.attempt is not None and not self.attempt.is_over:
            self.attempt.is_over = True
            self.world.zombies.maybe_keep_workers(self, self.attempt)

    def background(self, line: str, work: Callable[[], Any], done: Callable[[BaseException | None], None], /) -> None:
        self._work.append((work, done))

    def has_room(self, slots: int) -> bool:
        has_room = self.world.chance.random() < 0.8
        self.world.injected["rescale by itself"] += has_room
        return has_room

    def step(self) -> None:
        """Deliver one report, or let time pass for the supervision."""
        world, attempt = self.world, self.attempt
        self._work_in_background()
        if attempt is not None and attempt.is_over:
            self.attempt = None
            self.supervision.attempt_ended(attempt.deployment.attempt, None, "cancelled", int(world.now_ms))
        elif attempt is not None and all(w.subtask.is_done for w in attempt.workers.values()):
            attempt.finish_done()
            self.attempt = None
            results = unpack_results(attempt.results)
            self.supervision.attempt_ended(attempt.deployment.attempt, results, None, int(world.now_ms))
        else:
            running = self.supervision.running
            if attempt is not None and running is not None:
                beats, now = running.heartbeats, int(world.now_ms)
                attempt.give_signs_of_life(lambda subtask: beats.heard(subtask, ALIVE, now))
            waiting = [w for a in (attempt, *self.zombies) if a for w in a.workers.values() if w.reports]
            if waiting:
                worker = world.chance.choice(waiting)
                number = worker.subtask.attempt
                self.supervision.reported(number, worker.id, worker.reports.popleft(), int(world.now_ms))
        self.supervision.time_passed(int(world.now_ms))

    def _work_in_background(self) -> None:
        """Do a piece of work, or report the end of one: a driver may die between the two."""
        if not self._work and not self._reports:
            return
        if self._reports and self.world.injection.later_chance.random() < 0.5:
            self._reports.popleft()()
        elif self._work and self.world.injection.later_chance.random() < 0.3:
            work, done = self._work.popleft()
            error: Exception | None = None
            try:
                work()
            except Exception as failure:  # as in ``driver/connectors/background.py``
                error = failure
            self._reports.append(partial(done, error))
