"""A Spark job that is none: workers that move when a seed says so, and what is on its way between them.

What Spark does with the rows of a stage is simulated here; what a worker does with them is the real code. Used by
``testing/simulation/simulator.py``, which decides who moves.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from moorline.model.config.thresholds import SliceRule
from moorline.model.ids import SubtaskId
from moorline.model.wire import user_code
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.messages import Order, Progress, Report
from moorline.storage.stores.memory import MemoryStore
from moorline.subtask.environment import Done, Environment
from moorline.subtask.snapshot.pace import Pace
from moorline.subtask.task import Subtask
from moorline.testing.simulation.faults.injection import Injection, UnsureStore
from moorline.testing.simulation.jobs.loads import Loads

#: State is so small here that it would be one slice.
SLICES_OF_TWO = SliceRule(slice_ms=0, first_rows=2, least_rows=2, most_rows=2)


class World(Protocol):
    """The part of the world that workers see."""

    store: MemoryStore
    chance: random.Random
    injection: Injection

    @property
    def now_ms(self) -> float: ...

    @property
    def loads(self) -> Loads | None: ...


@dataclass
class Worker:
    """One simulated Spark task."""

    id: SubtaskId
    subtask: Subtask
    orders: deque[Order] = field(default_factory=deque)
    #: Slow work that was handed to another thread, and results on their way back.
    uploads: deque[tuple[Callable[[], Any], Done]] = field(default_factory=deque)
    #: Commits of sinks, on a thread of their own.
    commits: deque[tuple[Callable[[], Any], Done]] = field(default_factory=deque)
    finished: deque[Callable[[], None]] = field(default_factory=deque)
    reports: deque[Report] = field(default_factory=deque)
    has_started: bool = False
    #: It is stopped: it does nothing, says nothing, and its line stays open.
    is_hanging: bool = False
    #: It has raised, and does nothing more.
    has_failed: bool = False
    #: What it has raised while another of its threads was at work.
    failed_meanwhile: BaseException | None = None


class Attempt:
    """One simulated Spark job."""

    def __init__(self, world: World, deployment: Deployment) -> None:
        self.world, self.deployment = world, deployment
        self.plan = deployment.plan
        self.links: dict[tuple[int, int, int], deque[bytes]] = {}
        #: What goes back round a loop: from whom and to whom.
        self.feedback: dict[tuple[SubtaskId, SubtaskId], deque[bytes]] = {}
        self.results: list[bytes] = []
        self.is_over = False
        shipped = user_code.dumps(deployment)
        self.workers: dict[SubtaskId, Worker] = {}
        for subtask in self.plan.subtasks():
            self.workers[subtask] = self._worker(user_code.loads(shipped), subtask)
        self.alive = set(self.workers)

    def _worker(self, deployment: Deployment, subtask: SubtaskId) -> Worker:
        worker: Worker

        def report(message: Report) -> None:
            worker.reports.append(message)

        def background(work: Callable[[], Any], done: Done) -> None:
            worker.uploads.append((work, done))

        def commits(work: Callable[[], Any], done: Done) -> None:
            worker.commits.append((work, done))

        store = UnsureStore(self.world.store, self.world.injection, may_kill=True) if deployment.location else None
        environment = Environment(
            lambda: self.world.now_ms,
            report,
            background,
            store,
            flush_ms=2,
            wall_ms=lambda: int(self.world.now_ms),
            # Frames are left half done now and then, whatever it is that has come up.
            has_urgent_work=lambda: self.world.chance.random() < 0.2,
            slice_records=2,
            # And senders wait for a word of their receivers again and again, from the beginning.
            first_window=256,
            commits=commits,
            pace=Pace(rest=lambda seconds: self._between_slices(worker), rule=SLICES_OF_TWO),
        )
        worker = Worker(subtask, Subtask(deployment, subtask, environment))
        return worker

    def step(self, worker: Worker) -> None:
        """Let one worker do one thing. Raises what it dies of."""
        chance, subtask = self.world.chance, worker.subtask
        if not worker.has_started:
            worker.has_started = True
            subtask.start()
        elif worker.finished and chance.random() < 0.6:
            worker.finished.popleft()()
        elif worker.uploads and chance.random() < 0.3:
            self._run_beside(worker, worker.uploads)
        elif worker.commits and chance.random() < 0.1:
            self._run_beside(worker, worker.commits)
        elif worker.orders and chance.random() < 0.5:
            subtask.order(worker.orders.popleft())
        elif chance.random() < 0.2 and subtask.tick():
            pass
        elif chance.random() < 0.05:
            worker.reports.append(self._progress(worker))
        else:
            self._input_or_work(worker)
        self._carry(worker, subtask.output.take(is_idle=chance.random() < 0.5))
        if self.world.loads is not None and chance.random() < 0.2:
            worker.reports.append(self._progress(worker))
        for head, frame in subtask.output.take_feedback():
            self.feedback.setdefault((worker.id, head), deque()).append(frame)

    def _progress(self, worker: Worker) -> Progress:
        progress, loads = worker.subtask.progress(), self.world.loads
        return progress if loads is None else loads.made_up(progress, worker.id, self.world.now_ms)

    def _run_beside(self, worker: Worker, line: deque[tuple[Callable[[], Any], Done]]) -> None:
        """Another thread of the worker gets its next piece of work done."""
        work, done = line.popleft()
        try:
            result = work()
        except Exception as error:  # for done to judge
            failure = error
            worker.finished.append(lambda: done(None, failure))
        else:
            worker.finished.append(lambda: done(result, None))
        if worker.failed_meanwhile is not None:
            raise worker.failed_meanwhile

    def _between_slices(self, worker: Worker) -> None:
        """The thread that encodes state rests: the other has its turn, and may change what is not encoded yet."""
        if self.world.chance.random() < 0.3 and worker.failed_meanwhile is None:
            try:
                self._input_or_work(worker)
            except BaseException as error:  # what the worker dies of is not the business of the one who writes
                worker.failed_meanwhile = error

    def _input_or_work(self, worker: Worker) -> None:
        stage, slot = self.plan.slot(worker.id)
        ready = [q for (s, _, to), q in self.links.items() if (s, to) == (stage, slot) and q]
        self._bring_back(worker)
        if worker.subtask.has_feedback and self.world.chance.random() < 0.5:
            worker.subtask.work()
        elif ready and not worker.subtask.is_input_paused:
            worker.subtask.frame(self.world.chance.choice(ready).popleft())
        else:
            worker.subtask.work()

    def _bring_back(self, worker: Worker) -> None:
        """Some of what goes round a loop reaches its head: from any sender, in the order in which it was sent."""
        for (_, to), queue in self.feedback.items():
            while to == worker.id and queue and self.world.chance.random() < 0.6:
                worker.subtask.feedback(queue.popleft())

    def _carry(self, worker: Worker, rows: list[tuple[int, bytes]]) -> None:
        stage, slot = self.plan.slot(worker.id)
        for target, frame in rows:
            if not frame:
                continue
            if stage + 1 == len(self.plan.widths):
                self.results.append(frame)
            else:
                self.links.setdefault((stage + 1, slot, target), deque()).append(frame)

    def give_signs_of_life(self, heard: Callable[[SubtaskId], None]) -> None:
        """Every worker that has begun and does not hang is heard of, whatever it is busy with."""
        for worker in self.workers.values():
            if worker.has_started and not worker.is_hanging:
                heard(worker.id)

    def bury(self) -> None:
        """All its processes are gone, and with them what they held."""
        for worker in self.workers.values():
            for operator in worker.subtask._operators:
                if operator.backend is not None:
                    operator.backend.close()

    def finish_done(self) -> None:
        """Workers whose subtask is done pass on what is left and go, stage by stage."""
        for worker in sorted(self.workers.values(), key=lambda w: self.plan.slot(w.id)):
            stage, slot = self.plan.slot(worker.id)
            for (s, _, to), queue in list(self.links.items()):
                while (s, to) == (stage, slot) and queue:
                    worker.subtask.frame(queue.popleft())
            self._carry(worker, worker.subtask.output.take_rest())
