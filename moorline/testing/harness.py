"""One function of yours, run without Spark: records in, records out, state to look at.

The function runs in the same operator classes, over the same state backend, and its snapshots go through the same
files as in a job. Only Spark is missing, so a test takes milliseconds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import cloudpickle

from moorline.api.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
)
from moorline.api.job import Job
from moorline.api.streams import KeyedStream
from moorline.connectors.console import discard
from moorline.connectors.items import from_items
from moorline.errors import InvalidArgument, InvalidKey
from moorline.model import keys
from moorline.model.deployment import Deployment, OperatorRestore
from moorline.model.graph import Graph
from moorline.model.ids import Attempt, SubtaskId
from moorline.model.key_groups import owned, owner
from moorline.model.manifest import Manifest, OperatorEntry
from moorline.protocol.lowering import lower
from moorline.protocol.redistribution import key_groups_of, redistribute
from moorline.state.backend import NO_KEY
from moorline.storage.memory import MemoryStore
from moorline.subtask import snapshot as snapshots
from moorline.subtask.operator import FunctionOperator
from moorline.subtask.output import Output
from moorline.subtask.restore import open_chain

_KINDS: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("map", (MapFunction,)),
    ("filter", (FilterFunction,)),
    ("flat_map", (FlatMapFunction,)),
    ("process", (ProcessFunction, KeyedProcessFunction)),
    ("reduce", (ReduceFunction,)),
)


@dataclass(frozen=True)
class HarnessSnapshot:
    """All state of a harness at one moment, as a checkpoint would hold it."""

    manifest: Manifest
    store: MemoryStore


class OperatorHarness:
    """Runs one function in one or more subtasks.

    >>> import moorline as mo
    >>> class Count(mo.KeyedProcessFunction):
    ...     seen = mo.ValueState(int, default=0)
    ...     def process_element(self, value, ctx):
    ...         self.seen.update(self.seen.value() + 1)
    ...         yield ctx.current_key, self.seen.value()
    >>> with OperatorHarness(Count(), key=str.lower) as harness:
    ...     harness.process_all(["a", "B", "A"])
    [('a', 1), ('b', 1), ('a', 2)]
    >>> harness.state("seen", key="a")
    2

    A plain callable needs ``kind``: ``"map"``, ``"filter"``, ``"flat_map"``, ``"process"`` or ``"reduce"``.
    With ``parallelism`` above 1 each record goes to the subtask that owns its key, or in turn if there is no key;
    as in a job, each subtask has its own copy of the function (:attr:`functions`).
    """

    def __init__(
        self,
        function: Any,
        *,
        key: Callable[[Any], Any] | None = None,
        kind: str | None = None,
        parallelism: int = 1,
        max_parallelism: int | None = None,
        uid: str = "function",
    ) -> None:
        graph = _graph(function, key, kind or _kind(function), parallelism, max_parallelism, uid)
        self._start(graph, Attempt(1), None)

    @classmethod
    def restore(
        cls,
        snapshot: HarnessSnapshot,
        function: Any,
        *,
        key: Callable[[Any], Any] | None = None,
        kind: str | None = None,
        parallelism: int = 1,
        max_parallelism: int | None = None,
        uid: str = "function",
    ) -> OperatorHarness:
        """A harness that starts from a snapshot, at whatever parallelism. The arguments are those of the class."""
        graph = _graph(function, key, kind or _kind(function), parallelism, max_parallelism, uid)
        harness = cls.__new__(cls)
        harness._start(graph, Attempt(snapshot.manifest.attempt + 1), snapshot)
        return harness

    def process(self, record: Any) -> list[Any]:
        """What comes out for one record."""
        return self.process_all([record])

    def process_all(self, records: Iterable[Any]) -> list[Any]:
        """What comes out for all of them, in order, each with the state that the one before has left."""
        out: list[Any] = []
        for record in records:
            subtask = self._subtasks[self._owner(record)]
            subtask.operator.process([record])
            out += subtask.taken()
        return out

    def side_output(self, tag: OutputTag) -> list[Any]:
        """Everything that was sent to a side output so far, by subtask."""
        return [value for subtask in self._subtasks for value in subtask.side.sent(tag.name)]

    def state(self, name: str, key: Any) -> Any:
        """What a state holds for a key: a value, a list, a dict, or the result of a reduction or aggregation."""
        if self._key is None:
            raise InvalidArgument("state", name, "The function runs without a key: give the harness key=.")
        subtask = self._subtasks[
            owner(keys.key_group(key, self._max_parallelism), len(self._subtasks), self._max_parallelism)
        ]
        backend = subtask.operator.backend
        assert backend is not None
        live = subtask.states().get(name)
        if live is None:
            raise InvalidArgument("state", name, f"The function has {', '.join(subtask.states()) or 'no state'}.")
        backend.claim([key])
        backend.current.key = key
        try:
            return _shown(live)
        finally:
            backend.current.key = NO_KEY

    def snapshot(self) -> HarnessSnapshot:
        """All state as it is now. The harness goes on; the snapshot stays as it is."""
        self._checkpoint += 1
        handles = []
        for index, subtask in enumerate(self._subtasks):
            taken = snapshots.take([subtask.operator], self._checkpoint)
            mine = owned(index, len(self._subtasks), self._max_parallelism)
            write = snapshots.writer(self._store, taken, self._checkpoint, index, self._attempt, mine)
            handles += write()
            snapshots.release(taken)
        operator = self._subtasks[0].operator.operator
        entry = OperatorEntry(operator.uid, operator.name, len(handles), self._max_parallelism, handles)
        return HarnessSnapshot(Manifest("harness", self._attempt, self._checkpoint, 0, [entry]), self._store)

    @property
    def functions(self) -> list[Any]:
        """The copy of the function that each subtask runs."""
        return [subtask.operator.function for subtask in self._subtasks]

    def close(self) -> None:
        """Close the function. State can still be looked at."""
        while self._open:
            self._open.pop(0).operator.close()

    def __enter__(self) -> OperatorHarness:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, graph: Graph, attempt: Attempt, snapshot: HarnessSnapshot | None) -> None:
        if snapshot is not None:
            graph = replace(graph, max_parallelism=key_groups_of(snapshot.manifest, graph))
        self._key = graph.operators[1].inputs[0].key
        self._max_parallelism, self._attempt = graph.max_parallelism, attempt
        self._store, self._checkpoint, self._next = MemoryStore(), 0, 0
        restores: dict[SubtaskId, dict[str, OperatorRestore]] = {}
        if snapshot is not None:
            restores = redistribute(snapshot.manifest, lower(graph), "the snapshot")
            self._checkpoint = snapshot.manifest.checkpoint
        self._subtasks: list[_Subtask] = []
        #: Those that are not closed yet.
        self._open: list[_Subtask] = []
        for index in range(graph.operators[1].parallelism):
            subtask = _Subtask(graph, index, attempt, restores, snapshot.store if snapshot else None)
            self._subtasks.append(subtask)
            self._open.append(subtask)

    def _owner(self, record: Any) -> int:
        count = len(self._subtasks)
        if self._key is None:
            self._next += 1
            return (self._next - 1) % count
        key = self._key(record)
        try:
            return owner(keys.key_group(key, self._max_parallelism), count, self._max_parallelism)
        except keys.NotAKey as error:
            uid = self._subtasks[0].operator.operator.uid
            raise InvalidKey(uid, repr(key), f"{record!r:.500}", str(error)) from None


class _Subtask:
    """One subtask: an open operator, and what has come out of it."""

    def __init__(
        self,
        graph: Graph,
        index: int,
        attempt: Attempt,
        restores: dict[SubtaskId, dict[str, OperatorRestore]],
        store: MemoryStore | None,
    ) -> None:
        source, operator, sink = graph.operators
        mine = replace(operator, function=_copied(operator.function))
        plan = lower(replace(graph, operators=(source, mine, sink)))
        deployment = Deployment(plan, attempt, restores=restores)
        output = Output(attempt, 0, lambda: 0)
        first, *_ = open_chain(deployment, SubtaskId(1, index), store, output)
        assert isinstance(first, FunctionOperator)
        self.operator = first
        self.side = _SideOutputs()
        self._out = _Collected()
        first.targets, first.side_targets = [self._out], self.side

    def taken(self) -> list[Any]:
        out, self._out.records[:] = list(self._out.records), []
        return out

    def states(self) -> dict[str, Any]:
        live: dict[str, Any] = getattr(self.operator.backend, "_live", {})
        return live


class _Collected:
    """A target that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def process(self, records: list[Any]) -> None:
        self.records += records


class _SideOutputs(dict[str, list[Any]]):
    """Every side output has somebody who listens, whatever its name."""

    def __bool__(self) -> bool:
        return True

    def get(self, tag: str, default: Any = None) -> list[Any]:
        return self.setdefault(tag, [_Collected()])

    def sent(self, tag: str) -> list[Any]:
        return [record for collected in self.get(tag) for record in collected.records]


def _copied(function: Any) -> Any:
    try:
        # Its classes stay what they are, also those that a test has defined on the spot.
        return copy.deepcopy(function)
    except TypeError:
        return cloudpickle.loads(cloudpickle.dumps(function))


def _kind(function: Any) -> str:
    for kind, classes in _KINDS:
        if isinstance(function, classes):
            return kind
    raise InvalidArgument(
        "function", function, f"Say what it is: kind= one of {', '.join(repr(k) for k, _ in _KINDS)}."
    )


def _graph(
    function: Any,
    key: Callable[[Any], Any] | None,
    kind: str,
    parallelism: int,
    max_parallelism: int | None,
    uid: str,
) -> Graph:
    """A job of a source, the function and a sink, with all the checks of a real one."""
    if kind not in dict(_KINDS):
        raise InvalidArgument("kind", kind, f"It is one of {', '.join(repr(k) for k, _ in _KINDS)}.")
    job = Job("harness", parallelism=parallelism, max_parallelism=max_parallelism)
    stream = job.source(from_items([]), uid="harness-source", parallelism=1)
    # Never chained to the source: the harness takes its place.
    stream = stream.rebalance() if key is None else stream.key_by(key)
    if kind == "reduce" and not isinstance(stream, KeyedStream):
        raise InvalidArgument("kind", kind, "A reduction needs a key: give the harness key=.")
    getattr(stream, kind)(function, uid=uid).sink(discard(), uid="harness-sink")
    return job.graph()


def _shown(live: Any) -> Any:
    descriptor = live.descriptor
    match descriptor.kind:
        case "value":
            return live.value()
        case "list":
            return list(live.get())
        case "map":
            return dict(live.items())
        case _:
            return live.get()
