"""One function of yours, run without Spark: records in, records out, state to look at.

The function runs in the same operator classes, over the same state backend, and its snapshots go through the same
files as in a job. Only Spark is missing, so a test takes milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import repeat
from types import TracebackType
from typing import Any

from moorline.api.functions.base import OutputTag
from moorline.api.streams import Stream
from moorline.errors import InvalidArgument, InvalidKey
from moorline.model import keys
from moorline.model.columns import ColumnBatch
from moorline.model.config.state import ON_THE_HEAP, StateConfig
from moorline.model.graph import Graph, Partitioning
from moorline.model.ids import Attempt, CheckpointId, SubtaskId
from moorline.model.key_groups import owned, owner
from moorline.model.manifest import Manifest, OperatorEntry
from moorline.model.times import MAX_TIME
from moorline.model.wire.deployment import Deployment, OperatorRestore
from moorline.model.wire.elements import Barrier
from moorline.model.wire.figures import UserMetric
from moorline.model.wire.messages import AddSplits, Order
from moorline.protocol.lowering import lower
from moorline.protocol.redistribution import key_groups_of, redistribute
from moorline.state.backend import NO_KEY
from moorline.storage.stores.memory import MemoryStore
from moorline.subtask.environment import Environment
from moorline.subtask.operators.source import ReadingOperator
from moorline.subtask.snapshot.capture import done
from moorline.subtask.snapshot.writer import Writer
from moorline.testing.clock import ManualClock
from moorline.testing.harness_graph import graph_of, kind_of, step_of
from moorline.testing.harness_splits import HarnessSplits
from moorline.testing.harness_subtasks import HarnessSubtask

#: So long a source may give nothing before :meth:`OperatorHarness.read` gives up.
READ_SECONDS = 10


@dataclass(frozen=True)
class HarnessSnapshot:
    """All state of a harness at one moment, as a checkpoint would hold it."""

    manifest: Manifest
    store: MemoryStore


class OperatorHarness:
    """A harness that runs one function in one or more subtasks, without Spark.

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

    ``check_object_reuse=True`` raises :class:`~moorline.errors.RecordChanged` if the function changes a record after
    it has emitted it: a job does not mind, unless it runs with ``object_reuse=True``.
    """

    #: When each of the records that came out last happened; None where it is not known.
    timestamps: list[int | None]

    def __init__(
        self,
        function: Any,
        *,
        key: Callable[[Any], Any] | None = None,
        kind: str | None = None,
        parallelism: int = 1,
        max_parallelism: int | None = None,
        uid: str = "function",
        check_object_reuse: bool = False,
    ) -> None:
        build = step_of(function, key, kind or kind_of(function), uid)
        self._start(graph_of(build, 1, parallelism, max_parallelism), ON_THE_HEAP, None, check_object_reuse)

    @classmethod
    def of(
        cls,
        build: Callable[..., Stream | None],
        *,
        inputs: int = 1,
        parallelism: int = 1,
        max_parallelism: int | None = None,
        state: StateConfig = ON_THE_HEAP,
        snapshot: HarnessSnapshot | None = None,
        check_object_reuse: bool = False,
    ) -> OperatorHarness:
        """A harness around any one step: ``build`` is given a stream (or two), adds the step and returns its output.

        >>> import moorline as mo
        >>> class Both(mo.CoProcessFunction):
        ...     def process_element1(self, value, ctx): yield "left", value
        ...     def process_element2(self, value, ctx): yield "right", value
        >>> harness = OperatorHarness.of(lambda a, b: a.connect(b).process(Both(), uid="both"), inputs=2)
        >>> harness.process(1) + harness.process(2, side=1)
        [('left', 1), ('right', 2)]

        A source is a step without an input: ``build`` is given the job, and :meth:`read` asks it for records.

        >>> harness = OperatorHarness.of(lambda job: job.source(mo.from_items("ab")), inputs=0)
        >>> harness.read()
        ['a', 'b']
        """
        harness = cls.__new__(cls)
        harness._start(graph_of(build, inputs, parallelism, max_parallelism), state, snapshot, check_object_reuse)
        return harness

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
        build = step_of(function, key, kind or kind_of(function), uid)
        return cls.of(build, parallelism=parallelism, max_parallelism=max_parallelism, snapshot=snapshot)

    def process(self, record: Any, timestamp: int | None = None, *, side: int = 0) -> list[Any]:
        """The output for one record. ``side=1``: it comes in by the second input."""
        receivers = self._subtasks if side and self._is_broadcast else [self._subtasks[self._owner(record, side)]]
        stamps = None if timestamp is None else [timestamp]
        return self._each(receivers, lambda subtask: subtask.operator.process([record], stamps, side))

    def process_all(self, records: Iterable[Any]) -> list[Any]:
        """The output for all of them, in order, each with the state that the one before has left."""
        return [value for record in records for value in self.process(record)]

    def process_batch(
        self, records: Iterable[Any], timestamps: Iterable[int] | None = None, *, side: int = 0
    ) -> list[Any]:
        """The output for all of them at once, by subtask: under load a job processes hundreds at a time.

        >>> harness = OperatorHarness(lambda n: n + 1, kind="map")
        >>> harness.process_batch([1, 2, 3])
        [2, 3, 4]
        """
        stamps = repeat(None) if timestamps is None else timestamps
        taken = records if isinstance(records, ColumnBatch) else list(records)
        shares: dict[int, tuple[list[int], list[Any]]] = {}
        for place, (record, timestamp) in enumerate(zip(taken, stamps)):
            is_for_all = side and self._is_broadcast
            for index in range(len(self._subtasks)) if is_for_all else (self._owner(record, side),):
                share = shares.setdefault(index, ([], []))
                share[0].append(place)
                share[1].append(timestamp)

        def process(subtask: HarnessSubtask) -> None:
            places, times = shares[self._subtasks.index(subtask)]
            own: Any = taken.of(places) if isinstance(taken, ColumnBatch) else [taken[place] for place in places]
            subtask.operator.process(own, None if timestamps is None else times, side)

        return self._each([self._subtasks[index] for index in sorted(shares)], process)

    def watermark(self, time: int) -> list[Any]:
        """The output when event time has come this far."""
        return self._each(self._subtasks, lambda subtask: subtask.operator.watermark(time))

    def finish(self) -> list[Any]:
        """The output when all input has ended, and with it time."""
        return self.watermark(MAX_TIME)

    def read(self, at_least: int = 1) -> list[Any]:
        """The next records of a source: at least so many, unless it ends before. 0: those that it has just now.

        An enumerator looks for splits first, if the harness's clock says that its interval is over.
        """
        out: list[Any] = []
        patience = time.monotonic() + READ_SECONDS
        while True:
            self._splits.look(self.clock.now_ms())
            new = self._each(self._open, lambda subtask: subtask.read())
            self._pass_reports()
            out += new
            if len(out) >= at_least or all(subtask.has_ended for subtask in self._open):
                return out
            if not new:
                if time.monotonic() > patience:
                    raise TimeoutError(f"the source gave {len(out)} records, and in {READ_SECONDS} seconds no more")
                time.sleep(0.001)

    def advance_clock(self, ms: int) -> list[Any]:
        """The output when the wall clock has gone on by so many milliseconds.

        It starts at 0; in a harness that starts from a snapshot, when that was taken.
        """
        self.clock.advance(ms / 1000)

        def tick(subtask: HarnessSubtask) -> None:
            due = subtask.operator.next_tick_ms()
            if due is not None and due <= self.clock.now_ms():
                subtask.operator.tick(self.clock.now_ms())

        return self._each(self._subtasks, tick)

    def _each(self, subtasks: list[HarnessSubtask], call: Callable[[HarnessSubtask], Any]) -> list[Any]:
        out: list[Any] = []
        self.timestamps = []
        for subtask in subtasks:
            call(subtask)
            out += subtask.taken()
            self.timestamps += subtask.timestamps
            subtask.check_emitted()
        return out

    @property
    def watermarks(self) -> list[int | None]:
        """The watermarks that have come out so far, by subtask; None where a subtask went idle."""
        return [time for subtask in self._subtasks for time in subtask.watermarks]

    def side_output(self, tag: OutputTag) -> list[Any]:
        """Everything that was sent to a side output so far, by subtask."""
        return [value for subtask in self._subtasks for value in subtask.side.sent(tag.name)]

    def state(self, name: str, key: Any) -> Any:
        """The content of a state for a key: a value, a list, a dict, or the result of a reduction or aggregation."""
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
        moment = subtask.operator.moment
        moment.processing_ms = max(moment.processing_ms, self.clock.now_ms())
        identity = backend.identities.of(key)
        backend.prefetch([identity])
        backend.current.key = identity
        try:
            return _shown(live)
        finally:
            backend.current.key = NO_KEY

    def snapshot(self) -> HarnessSnapshot:
        """All state as it is now. The harness goes on; the snapshot stays as it is."""
        self._checkpoint += 1
        barrier = Barrier(CheckpointId(self._checkpoint), self.clock.now_ms(), completed=self._checkpoint - 1)
        handles = []
        for index, subtask in enumerate(self._subtasks):
            taken = subtask.take(barrier)
            key_groups = owned(index, len(self._subtasks), self._max_parallelism)
            written = Writer(self._store, taken, self._checkpoint, index, self._attempt, key_groups)()
            done(taken, written)
            handles += written
        operator = self._subtasks[0].operator.operator
        rekey = operator.options.get("rekey")
        entry = OperatorEntry(
            operator.uid,
            operator.name,
            len(handles),
            self._max_parallelism,
            self._splits.with_states(handles),
            rekey.name if rekey else "",
        )
        manifest = Manifest("harness", self._attempt, self._checkpoint, self.clock.now_ms(), [entry])
        return HarnessSnapshot(manifest, self._store)

    def confirm(self) -> None:
        """The last snapshot's checkpoint is complete."""
        for subtask in self._subtasks:
            subtask.operator.confirmed(self._checkpoint)

    def abort(self) -> None:
        """The last snapshot's checkpoint was given up."""
        for subtask in self._subtasks:
            subtask.operator.aborted(self._checkpoint)

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics that the function has defined, by name, over all subtasks.

        A number for a counter and a gauge, the count of a meter, and ``count``, ``sum``, ``min`` and ``max`` of a
        distribution or histogram.
        """
        together: dict[str, UserMetric] = {}
        for subtask in self._subtasks:
            subtask.operator.metrics.look(self.clock.now_ms())
            for name, metric in subtask.operator.metrics.report().items():
                together[name] = together[name].plus(metric) if name in together else metric
        return {name: _number(metric) for name, metric in together.items()}

    @property
    def functions(self) -> list[Any]:
        """The copy of the function that each subtask runs."""
        return [subtask.operator.operator.function for subtask in self._subtasks]

    @property
    def read_bytes(self) -> int:
        """The bytes of the snapshot that were read to restore it, by all subtasks together."""
        return self._reads.bytes

    def close(self) -> None:
        """Close the function. State can still be looked at."""
        self._splits.close()
        open_ones = list(self._open)
        while self._open:
            self._open.pop(0).operator.close()
        for subtask in open_ones:
            subtask.check_emitted(all_of_them=True)

    def __enter__(self) -> OperatorHarness:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _start(
        self, built: tuple[Graph, str], state: StateConfig, snapshot: HarnessSnapshot | None, checks_reuse: bool
    ) -> None:
        graph, uid = built
        attempt = Attempt(1 if snapshot is None else snapshot.manifest.attempt + 1)
        if snapshot is not None:
            graph = replace(graph, max_parallelism=key_groups_of(snapshot.manifest, graph))
        operator = graph.by_uid[uid]
        self._keys = {i.side: i.key for i in operator.inputs}
        self._key = self._keys.get(0)
        self._is_broadcast = any(i.side and i.partitioning is Partitioning.BROADCAST for i in operator.inputs)
        self._max_parallelism, self._attempt = graph.max_parallelism, attempt
        self._checkpoint, self._next = 0, 0
        #: Increments refer to files of the snapshots before them, so a restored harness writes to the same place.
        self._store = snapshot.store if snapshot else MemoryStore()
        self.clock = ManualClock(0 if snapshot is None else snapshot.manifest.created_ms)
        restores: dict[SubtaskId, dict[str, OperatorRestore]] = {}
        restored: CheckpointId | None = None
        if snapshot is not None:
            restores = redistribute(snapshot.manifest, lower(graph), "the snapshot")
            self._checkpoint = snapshot.manifest.checkpoint
            restored = CheckpointId(self._checkpoint)
        deployment = Deployment(lower(graph), attempt, restored, restores, state=state)
        environment = Environment(self.clock.now_ms, _ignore, _no_background, self._store, wall_ms=self.clock.now_ms)
        self._reads = environment.reads
        self._subtasks: list[HarnessSubtask] = []
        #: Those that are not closed yet.
        self._open: list[HarnessSubtask] = []
        for index in range(operator.parallelism):
            subtask = HarnessSubtask(deployment, uid, index, environment, checks_reuse)
            self._subtasks.append(subtask)
            self._open.append(subtask)
        taken = None if snapshot is None else (snapshot.manifest, snapshot.store)
        self._splits = HarnessSplits(deployment, taken, self._order)

    def _pass_reports(self) -> None:
        for subtask in self._open:
            operator = subtask.operator
            if isinstance(operator, ReadingOperator) and (report := operator.pop_report()) is not None:
                self._splits.reported(operator.subtask, report)

    def _order(self, subtask: SubtaskId, order: Order) -> None:
        source = self._subtasks[subtask.index].operator
        assert isinstance(source, ReadingOperator) and isinstance(order, AddSplits)
        source.add_splits(order)

    def _owner(self, record: Any, side: int = 0) -> int:
        count = len(self._subtasks)
        if side not in self._keys:
            has = f"{len(self._keys)} inputs" if self._keys else "no input: use read()"
            raise InvalidArgument("side", side, f"The step has {has}.")
        key_of = self._keys[side]
        if key_of is None:
            self._next += 1
            return (self._next - 1) % count
        key = key_of(record)
        try:
            return owner(keys.key_group(key, self._max_parallelism), count, self._max_parallelism)
        except keys.NotAKey as error:
            uid = self._subtasks[0].operator.operator.uid
            raise InvalidKey(uid, repr(key), f"{record!r:.500}", str(error)) from None


def _ignore(report: Any) -> None:
    """Drop a report: a harness has no driver."""


def _no_background(work: Any, done: Any) -> None:
    raise NotImplementedError("a harness writes its snapshots itself")


def _number(metric: UserMetric) -> Any:
    match metric.kind:
        case "counter":
            return int(metric.value)
        case "gauge":
            return metric.value
        case "meter":
            return metric.count
        case _:
            return metric


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
