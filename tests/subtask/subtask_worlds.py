"""A subtask in a world of its own: a clock that stands still, storage in memory, uploads done when they are told to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import moorline as mo
from moorline.model.ids import Attempt, SubtaskId
from moorline.model.wire import elements
from moorline.model.wire.deployment import Deployment, OperatorRestore
from moorline.model.wire.elements import BARRIER, BATCH, END, HEAD, Barrier
from moorline.model.wire.messages import Report
from moorline.protocol.flow import MOST_WINDOW
from moorline.protocol.lowering import lower
from moorline.storage.blobs import BlobStore
from moorline.storage.stores.memory import MemoryStore
from moorline.subtask.environment import Environment, at_once
from moorline.subtask.task import Subtask
from moorline.testing import ManualClock


class World:
    """One subtask of ``job``, by the uid of an operator of its vertex."""

    def __init__(
        self,
        job: mo.Job,
        uid: str,
        *,
        index: int = 0,
        attempt: int = 1,
        store: BlobStore | None = None,
        restore: dict[str, OperatorRestore] | None = None,
        first_window: int = MOST_WINDOW,
    ) -> None:
        self.plan = lower(job.graph())
        (vertex,) = (v for v in self.plan.vertices if uid in v.operators)
        self.id = SubtaskId(vertex.id, index)
        self.attempt = attempt
        self.clock = ManualClock(1_000)
        self.reports: list[Report] = []
        self.uploads: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []
        deployment = Deployment(self.plan, Attempt(attempt), restores={self.id: restore or {}})
        #: Commits of sinks that take their time.
        self.commits: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []
        environment = Environment(
            self.clock.now_ms,
            self.reports.append,
            lambda work, done: self.uploads.append((work, done)),
            store,
            commits=lambda work, done: self.commits.append((work, done)),
            first_window=first_window,
        )
        self.subtask = Subtask(deployment, self.id, environment)

    def start(self) -> World:
        self.subtask.start(pid=42)
        return self

    def upload(self) -> None:
        """Do the slow work that has piled up, and bring the news back."""
        while self.uploads:
            at_once(*self.uploads.pop(0))

    def commit(self) -> None:
        """Make one commit that is due, and bring the news back."""
        at_once(*self.commits.pop(0))

    def send(self, records: list[Any], *, link: int | None = None, sender: int = 0) -> None:
        self.subtask.frame(self._head(BATCH, link, sender) + elements.pack_records(records))

    def barrier(self, checkpoint: int, *, sender: int = 0, final: bool = False) -> None:
        self.subtask.frame(
            elements.pack_barrier(self._head(BARRIER, None, sender), Barrier(checkpoint, 0, final))  # type: ignore[arg-type]
        )

    def end(self, *, sender: int = 0) -> None:
        self.subtask.frame(self._head(END, None, sender))

    def _head(self, kind: int, link: int | None, sender: int) -> bytes:
        if link is None:
            link = next(n.id for n in self.plan.links if n.target == self.id.vertex)
        stage, slot = self.plan.slot(self.id)
        return HEAD.pack(kind, self.attempt, stage, slot, link, sender)

    def rows(self) -> list[bytes]:
        """The frames that have come out since the last look."""
        return [frame for _, frame in self.subtask.output.take_rest() if frame]


def memory() -> MemoryStore:
    return MemoryStore("subtask")
