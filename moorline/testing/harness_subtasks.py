"""Subtasks of one step, as an :class:`~moorline.testing.OperatorHarness` runs them, and their output."""

from __future__ import annotations

import copy
import pickle
import weakref
from dataclasses import replace
from typing import Any

from moorline.errors import InvalidArgument, RecordChanged
from moorline.model.copying.copies import copy_of
from moorline.model.ids import SubtaskId
from moorline.model.wire import user_code
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.elements import Barrier
from moorline.protocol.lowering import lower
from moorline.subtask.environment import Environment
from moorline.subtask.operators.source import ReadingOperator
from moorline.subtask.output import Output
from moorline.subtask.restore.chain import open_chain
from moorline.subtask.snapshot.capture import Captured, capture

#: So many of the records that were emitted last are checked after each step; all of them at the end.
RECENT = 256


class HarnessSubtask:
    """One subtask: an open operator, and what has come out of it."""

    def __init__(
        self, deployment: Deployment, uid: str, index: int, environment: Environment, checks_reuse: bool = False
    ) -> None:
        graph = deployment.plan.graph
        operators = tuple(replace(o, function=_copied(o.function)) if o.uid == uid else o for o in graph.operators)
        plan = lower(replace(graph, operators=operators))
        (vertex,) = (v.id for v in plan.vertices if uid in v.operators)
        output = Output(deployment.attempt, 0, lambda: 0)
        first, *_ = open_chain(replace(deployment, plan=plan), SubtaskId(vertex, index), environment, output)
        assert first.operator.uid == uid
        self.operator = first
        self.side = SideOutputs()
        self._out = Collected()
        #: Of what was taken last.
        self.timestamps: list[int | None] = []
        first.targets, first.side_targets = [self._out], self.side
        self._emitted = Emitted(uid) if checks_reuse else None
        if self._emitted is not None:
            first.own = self._emitted
        if first.backend is not None:
            # State can be looked at after the function is closed, and most tests close nothing: what a backend holds
            # on disk goes with this object, or when the process ends.
            weakref.finalize(self, first.backend.close)

    def check_emitted(self, *, all_of_them: bool = False) -> None:
        """Raise if one of the records that were emitted last, or of all of them, has changed since."""
        if self._emitted is not None:
            self._emitted.check(None if all_of_them else RECENT)

    def taken(self) -> list[Any]:
        out, self._out.records[:] = list(self._out.records), []
        self.timestamps, self._out.timestamps[:] = list(self._out.timestamps), []
        return out

    @property
    def watermarks(self) -> list[int | None]:
        return self._out.watermarks

    @property
    def has_ended(self) -> bool:
        return bool(getattr(self.operator, "has_ended", True))

    def read(self) -> None:
        """Have a source read what it has, once."""
        if not isinstance(self.operator, ReadingOperator):
            raise InvalidArgument("read", self.operator.operator.uid, "It is no source: use process().")
        if not self.operator.has_ended:
            self.operator.read()

    def take(self, barrier: Barrier) -> list[Captured]:
        """The synchronous part of a snapshot."""
        self.operator.before_barrier()
        try:
            return capture([self.operator], barrier)
        finally:
            self.operator.after_snapshot()

    def states(self) -> dict[str, Any]:
        context = getattr(self.operator, "_runtime_context", None)
        return context.live if context is not None else {}


class Collected:
    """A target that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.timestamps: list[int | None] = []
        #: None: nothing is to be expected for a while.
        self.watermarks: list[int | None] = []

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        self.records += records
        self.timestamps += timestamps or [None] * len(records)

    def watermark(self, time: int) -> None:
        self.watermarks.append(time)

    def idle(self) -> None:
        self.watermarks.append(None)


class Emitted:
    """Every record that can change and was emitted, with what it was then. Takes the place of ``owned_of``."""

    def __init__(self, uid: str) -> None:
        self._uid = uid
        #: The record itself, its content and how it looked.
        self._records: list[tuple[Any, Any, str]] = []

    def __call__(self, made: Any, value: Any) -> Any:
        copied = copy_of(value)
        if copied is not value:
            self._records.append((value, _content(value), f"{value!r:.500}"))
        return copied

    def check(self, last: int | None) -> None:
        for value, content, shown in self._records[-last if last else 0 :]:
            if _content(value) != content:
                raise RecordChanged(self._uid, shown, f"{value!r:.500}")


def _content(value: Any) -> Any:
    try:
        return pickle.dumps(value)
    except Exception:  # it is only looked at here, never sent
        return repr(value)


class SideOutputs(dict[str, list[Any]]):
    """Side outputs of any name, all of which are read."""

    def __bool__(self) -> bool:
        return True

    def get(self, tag: str, default: Any = None) -> list[Any]:
        return self.setdefault(tag, [Collected()])

    def sent(self, tag: str) -> list[Any]:
        return [record for collected in self.get(tag) for record in collected.records]


def _copied(function: Any) -> Any:
    try:
        # Its classes stay what they are, also those that a test has defined on the spot.
        return copy.deepcopy(function)
    except TypeError:
        return user_code.loads(user_code.dumps(function))
