"""A job's supervision over a cluster that only writes down what it is told, and storage in memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import moorline as mo
from moorline.driver.supervision import Supervision
from moorline.errors import StorageError
from moorline.model.config.run import RunConfig
from moorline.model.ids import SubtaskId
from moorline.model.manifest import OperatorHandles
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.messages import Acknowledged, Confirm, InputEnded, Order, Report, Running, Trigger
from moorline.storage.history import History
from moorline.storage.stores.memory import MemoryStore


class RecordingCluster:
    """Runs nothing: keeps what it was told to launch, to send and to cancel."""

    def __init__(self) -> None:
        self.launched: list[Deployment] = []
        self.orders: list[tuple[SubtaskId, Order]] = []
        self.cancelled = 0
        self.work: list[tuple[Callable[[], Any], Callable[[BaseException | None], None]]] = []

    def background(self, line: str, work: Callable[[], Any], done: Callable[[BaseException | None], None], /) -> None:
        self.work.append((work, done))

    def do_work(self) -> None:
        """Do what is to be done off the driver's thread, one piece of it."""
        work, done = self.work.pop(0)
        try:
            work()
        except Exception as error:
            done(error)
        else:
            done(None)

    def launch(self, deployment: Deployment) -> None:
        self.launched.append(deployment)

    def send(self, subtask: SubtaskId, order: Order) -> None:
        self.orders.append((subtask, order))

    def cancel(self) -> None:
        self.cancelled += 1

    def has_room(self, slots: int) -> bool:
        return slots <= 12

    def take(self, kind: type[Order]) -> list[tuple[SubtaskId, Any]]:
        """The orders of one kind since the last look; those of other kinds stay."""
        taken = [o for o in self.orders if isinstance(o[1], kind)]
        self.orders = [o for o in self.orders if not isinstance(o[1], kind)]
        return taken


class FailingStore(MemoryStore):
    """A store that can be told to fail."""

    failing = False

    def _check(self, path: str) -> None:
        if self.failing:
            raise StorageError(path, "reach", "the network is down")

    def put(self, path: str, data: bytes) -> None:
        self._check(path)
        super().put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._check(path)
        return super().put_if_absent(path, data)

    def list(self, prefix: str = "") -> list:
        self._check(prefix)
        return super().list(prefix)


def small_job(sink: mo.Sink | None = None) -> mo.Job:
    """Two sources, two counters with the sink chained to them: four subtasks."""
    job = mo.Job("small", parallelism=2)
    job.source(mo.from_items([1, 2, 3]), uid="numbers").key_by(lambda n: n).map(lambda n: n, uid="count").sink(
        sink or mo.collect("out"), uid="out"
    )
    return job


class World:
    """One supervision, under a clock that is told what time it is."""

    def __init__(
        self,
        *,
        store: MemoryStore | None = None,
        checkpoints: mo.Checkpoints | None = None,
        job: mo.Job | None = None,
        cluster: Any = None,
        history: History | None = None,
        **config: Any,
    ) -> None:
        self.now_ms = 1_000
        self.cluster = cluster or RecordingCluster()
        self.store = store
        graph = (job or small_job()).graph()
        self.history = history or (History(store, graph.job) if store is not None else None)
        if store is not None and checkpoints is None:
            checkpoints = mo.Checkpoints("memory://small", interval="1s", timeout="10s")
        self.supervision = Supervision(
            graph,
            RunConfig(checkpoints=checkpoints, **config),
            self.history,
            self.cluster,
            random.Random(0),
            lambda: self.now_ms,
        )

    # --- what the world does -------------------------------------------------------------------

    def start(self) -> World:
        self.supervision.start(self.now_ms)
        return self

    def run(self) -> World:
        """Start, and have every subtask say that it runs."""
        self.start()
        self.all_report(Running(pid=7))
        return self

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.supervision.time_passed(self.now_ms)

    def report(self, subtask: SubtaskId, report: Report, attempt: int | None = None) -> None:
        number = self.deployment.attempt if attempt is None else attempt
        self.supervision.reported(number, subtask, report, self.now_ms)
        self.supervision.time_passed(self.now_ms)

    def all_report(self, report: Report) -> None:
        for subtask in self.subtasks:
            self.report(subtask, report)

    def acknowledge(self, checkpoint: int) -> None:
        uids = {v.id: v.operators for v in self.deployment.plan.vertices}
        for subtask in self.subtasks:
            handles = [OperatorHandles(uid) for uid in uids[subtask.vertex]]
            self.report(subtask, Acknowledged(checkpoint=checkpoint, operators=handles))

    def complete(self) -> int:
        """Let the next periodic checkpoint be due and everybody acknowledge it. Returns its number."""
        self.pass_time(1_000)
        number = self.triggered()
        self.acknowledge(number)
        return number

    def end_attempt(self, results: dict | None = None, error: str | None = None) -> None:
        self.supervision.attempt_ended(self.deployment.attempt, results, error, self.now_ms)

    def end_input(self) -> None:
        for subtask in self.deployment.plan.source_subtasks():
            self.report(subtask, InputEnded())

    def finish(self) -> None:
        """From running to the end of the input, the final checkpoint and the end."""
        self.end_input()
        number = self.triggered(final=True)
        self.cluster.take(Confirm)
        self.acknowledge(number)
        assert all(order.final for _, order in self.cluster.take(Confirm))
        self.end_attempt(results={"out": [1, 2, 3]})

    # --- what can be seen ----------------------------------------------------------------------

    def triggered(self, final: bool = False) -> int:
        """The number of the checkpoint that the sources were just told to start."""
        orders = self.cluster.take(Trigger)
        assert {s for s, _ in orders} == set(self.deployment.plan.source_subtasks()), orders
        ((number, is_final),) = {(order.checkpoint, order.final) for _, order in orders}
        assert is_final is final
        return number

    @property
    def deployment(self) -> Deployment:
        return self.cluster.launched[-1]

    @property
    def subtasks(self) -> list[SubtaskId]:
        return list(self.deployment.plan.subtasks())

    @property
    def status(self) -> mo.JobStatus:
        return self.supervision.status

    def manifests(self) -> list[int]:
        assert self.store is not None
        found = [r.entry for r in History(self.store, "small").read()]
        return [e.checkpoint for e in found if hasattr(e, "checkpoint")]
