"""A whole job in one thread without Spark: the real driver and subtask code over the simulator's exchange, no faults.

What Spark adds to a scenario (processes, sockets) is tested in ``tests/spark``; here the scenario itself is, in
milliseconds. Output goes to a ledger, so that what was committed can be told from what was only computed.
"""

from __future__ import annotations

import itertools
import random
from concurrent.futures import Future
from typing import Any

import moorline as mo
from moorline.driver.requests import SnapshotRequest
from moorline.driver.supervision import Supervision
from moorline.model.config.run import RunConfig
from moorline.model.wire.elements import unpack_results
from moorline.storage.history import History
from moorline.storage.stores.memory import MemoryStore
from moorline.subtask.failure_report import describe_failure
from moorline.testing.simulation.audit.ledger import Ledger
from moorline.testing.simulation.cluster import Attempt
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.faults.injection import Injection

NUMBERS = itertools.count(1)


def place() -> str:
    """A folder for a savepoint that nobody else has."""
    return f"memory://scenario-{next(NUMBERS)}"


class WholeJob:
    """One run of a job. Wants are methods; ``until`` lets the world go on until something is so."""

    loads = None

    def __init__(self, job: mo.Job, store: MemoryStore | None = None, **config: Any) -> None:
        self.store = store if store is not None else MemoryStore()
        self.chance = random.Random(0)
        self.injection = Injection(Faults(), 0, lambda: 0, self.chance, self.chance)
        self.now_ms = 0.0
        config.setdefault("checkpoints", mo.Checkpoints("memory://", interval="40ms"))
        config.setdefault("restart", mo.FixedDelay(10, "5ms"))
        history = History(self.store, job.name) if config["checkpoints"] is not None else None
        self.job = job
        self.attempt: Attempt | None = None
        self.supervision = Supervision(
            job.graph(), RunConfig(**config), history, self, self.chance, lambda: int(self.now_ms)
        )
        self.supervision.start(0)

    # --- what a cluster does, and what the simulator's workers ask their world for -----------------

    def launch(self, deployment: Any) -> None:
        self.attempt = Attempt(self, deployment)

    def send(self, subtask: Any, order: Any) -> None:
        if self.attempt is not None:
            self.attempt.workers[subtask].orders.append(order)

    def cancel(self) -> None:
        if self.attempt is not None:
            self.attempt.is_over = True

    def has_room(self, slots: int) -> bool:
        return True

    def background(self, line: str, work: Any, done: Any, /) -> None:
        work()
        done(None)

    def step(self) -> None:
        self.now_ms += 1
        attempt, supervision, now = self.attempt, self.supervision, int(self.now_ms)
        if attempt is not None and not attempt.is_over and self.chance.random() < 0.75:
            worker = attempt.workers[self.chance.choice(list(attempt.workers))]
            if not worker.subtask.is_done:
                try:
                    attempt.step(worker)
                except Exception as error:
                    worker.reports.append(describe_failure(error))
            return
        if attempt is not None and attempt.is_over:
            self.attempt = None
            supervision.attempt_ended(attempt.deployment.attempt, None, "cancelled", now)
        elif attempt is not None and all(w.subtask.is_done for w in attempt.workers.values()):
            attempt.finish_done()
            self.attempt = None
            supervision.attempt_ended(attempt.deployment.attempt, unpack_results(attempt.results), None, now)
        elif attempt is not None:
            for worker in attempt.workers.values():
                if worker.reports:
                    supervision.reported(attempt.deployment.attempt, worker.id, worker.reports.popleft(), now)
        supervision.time_passed(now)

    # --- wants ------------------------------------------------------------------------------------

    def until(self, condition: Any) -> WholeJob:
        for _ in range(200_000):
            if condition():
                return self
            self.step()
        raise AssertionError(f"it never came to that; the job is {self.supervision.status}: {self.supervision.error}")

    def checkpoints(self, number: int) -> WholeJob:
        """Until so many more checkpoints are complete."""
        before = len(self.supervision.checkpoints)
        return self.until(lambda: len(self.supervision.checkpoints) >= before + number)

    def savepoint(self) -> str:
        request = SnapshotRequest(savepoint=place())
        self.supervision.request(request, int(self.now_ms))
        self.until(request.answer.done)
        request.answer.result(0)
        return request.savepoint

    def stop(self, *, drain: bool = False) -> str:
        request = SnapshotRequest(savepoint=place(), drain=drain)
        self.supervision.stop_with_savepoint(request, int(self.now_ms))
        self.finish()
        request.answer.result(0)
        return request.savepoint

    def rescale(self, parallelism: int) -> WholeJob:
        answer: Future[int] = Future()
        self.supervision.rescale(self.job.graph(parallelism), answer, int(self.now_ms))
        return self.until(answer.done)

    def crash(self) -> WholeJob:
        """Lose a worker, and wait until the job is back."""
        before = len(self.supervision.restored_from)
        assert self.attempt is not None
        self.supervision.line_lost(self.attempt.deployment.attempt, next(iter(self.attempt.workers)))
        return self.until(lambda: len(self.supervision.restored_from) > before)

    def finish(self) -> WholeJob:
        self.until(lambda: self.supervision.status.is_terminal)
        if self.supervision.error is not None:
            raise self.supervision.error
        return self


def committed(name: str) -> list[Any]:
    """What sinks have committed to a ledger."""
    return Ledger.of(name).records()
