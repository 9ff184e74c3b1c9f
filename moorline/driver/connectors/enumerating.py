"""The enumerators of an attempt: sources whose splits the driver finds while the job runs.

``protocol/connectors/enumerating.py`` decides. Enumerators run on a thread of their own, because they ask
outside systems.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

from moorline.api.sources import EnumeratorContext, Source, SplitEnumerator, owner_of
from moorline.driver.cluster import Background
from moorline.errors import MoorlineError, SnapshotCorrupt, StateTypeMismatch
from moorline.model.connector_states import ANNOUNCED, ENUMERATOR, POSITIONS
from moorline.model.graph import Graph, Plan
from moorline.model.ids import SubtaskId
from moorline.model.manifest import ElementsHandle, OperatorHandles
from moorline.model.wire.deployment import Deployment, ElementsSlice, OperatorRestore
from moorline.model.wire.messages import AddSplits, Order
from moorline.protocol.connectors.enumerating import Action, Assign, Enumerating, GiveUpLooking, LookForSplits
from moorline.state.types import plain
from moorline.storage import segments
from moorline.storage.blobs import BlobStore

log = logging.getLogger("moorline")


@dataclass(frozen=True)
class RestoredSplits:
    """The splits of one source in a snapshot."""

    positions: dict[Any, Any]
    state: Any = None


def enumerated_sources(graph: Graph) -> dict[str, Source]:
    """The sources whose splits the driver finds, by uid."""
    sources = {o.uid: o.function for o in graph.operators if isinstance(o.function, Source)}
    return {uid: source for uid, source in sources.items() if source.enumerates}


def splits_in(
    handles: Iterable[OperatorHandles], uids: Iterable[str], store: BlobStore | None
) -> dict[str, RestoredSplits]:
    """The splits of these sources in a snapshot."""
    positions: dict[str, dict[Any, Any]] = {uid: {} for uid in uids}
    states: dict[str, Any] = {}
    for operator in handles:
        if operator.uid not in positions:
            continue
        for handle in operator.elements:
            if handle.state == POSITIONS:
                for element in _elements(handle, store):
                    match element:
                        case [int(split) | str(split), position]:
                            positions[operator.uid][split] = position
                        case _:
                            cause = f"positions of source {operator.uid!r} are not what they should be"
                            raise SnapshotCorrupt("the manifest", cause)
            elif handle.state == ENUMERATOR:
                states[operator.uid] = _elements(handle, store)[0]
    return {uid: RestoredSplits(found, states.get(uid)) for uid, found in positions.items()}


def _elements(handle: ElementsHandle, store: BlobStore | None) -> list[Any]:
    encoded = handle.inline
    if handle.file is not None:
        assert store is not None, "there is no storage, and a file in it"
        encoded = segments.read_elements(store, handle.file)
    return [plain.decode(data) for data in encoded]


def all_splits(plan: Plan) -> dict[SubtaskId, dict[str, OperatorRestore]]:
    """Every split of a batch job's sources, to be given to subtasks as if they had been restored.

    Returns when the enumerators say that there will be no more.
    """
    shares: dict[SubtaskId, dict[str, OperatorRestore]] = {}
    for uid, source in enumerated_sources(plan.graph).items():
        vertex = next(v for v in plan.vertices if uid in v.operators)
        context = EnumeratorContext(plan.graph.job, uid, 1, parallelism=vertex.parallelism, is_batch=True)
        enumerator = source.open_enumerator(context)
        splits: dict[Any, Any] = {}
        try:
            while (found := enumerator.discover()) is not None:
                splits.update(found)
                if not found:
                    time.sleep(enumerator.interval_ms / 1000)
            announcement = enumerator.announcement()
        finally:
            enumerator.close()
        inline = [_encode(uid, [split, position]) for split, position in splits.items()]
        handle = ElementsHandle(POSITIONS, "union", len(inline), inline=inline)
        elements: dict[str, tuple[ElementsSlice, ...]] = {POSITIONS: (ElementsSlice(handle, 0, len(inline)),)}
        if announcement is not None:
            said = ElementsHandle(ANNOUNCED, "union", 1, inline=[_encode(uid, announcement)])
            elements[ANNOUNCED] = (ElementsSlice(said, 0, 1),)
        restore = OperatorRestore(elements=elements)
        for index in range(vertex.parallelism):
            shares.setdefault(SubtaskId(vertex.id, index), {})[uid] = restore
    return shares


class AttemptEnumerators:
    """The enumerators of one attempt. Runs on the driver's one thread."""

    def __init__(
        self,
        deployment: Deployment,
        restored: Mapping[str, RestoredSplits],
        send: Callable[[SubtaskId, Order], None],
        background: Background,
    ) -> None:
        self._send, self._background = send, background
        self._deployment, self._restored = deployment, restored
        graph, plan = deployment.plan.graph, deployment.plan
        self._sources = enumerated_sources(graph)
        self._machines: dict[str, Enumerating] = {}
        self._vertices = {uid: vertex.id for vertex in plan.vertices for uid in vertex.operators}
        for uid in self._sources:
            state = restored[uid].state if uid in restored else None
            parallelism = plan.vertices[self._vertices[uid]].parallelism
            # An attempt that is only to commit and to end reads nothing; its snapshots have what was known before.
            due_ms = None if deployment.is_paused else 0
            self._machines[uid] = Enumerating(parallelism, owner_of, SplitEnumerator.interval_ms, state, due_ms)
        self._enumerators: dict[str, SplitEnumerator] = {}
        self._found: dict[str, tuple[Any, Any, Any]] = {}
        #: By source and subtask: what readers have reported since the last look.
        self._reports: dict[str, dict[int, bytes]] = {}
        self._now_ms = 0
        self._failure: str | None = None
        self._is_over = False

    def states(self) -> dict[str, ElementsHandle]:
        """The enumerators' states, of the splits that subtasks have been sent so far, to be part of a snapshot."""
        known = {uid: machine.state for uid, machine in self._machines.items() if machine.state is not None}
        return {
            uid: ElementsHandle(ENUMERATOR, "union", 1, inline=[_encode(uid, state)]) for uid, state in known.items()
        }

    def next_due_ms(self) -> int | None:
        """The time at which :meth:`time_passed` has something to do."""
        due = [m.due_ms for m in self._machines.values() if m.due_ms is not None and not m.is_looking]
        return min(due, default=None)

    def time_passed(self, now_ms: int) -> None:
        """Look for splits where that is due."""
        self._now_ms = now_ms
        for uid, machine in self._machines.items():
            self._obey(uid, machine.time_passed(now_ms))

    def reported(self, subtask: SubtaskId, report: bytes) -> None:
        """A reader has something to say to its enumerator."""
        for uid, machine in self._machines.items():
            if self._vertices[uid] == subtask.vertex:
                self._reports.setdefault(uid, {})[subtask.index] = report
                machine.reported()

    def completed(self, states: Mapping[str, ElementsHandle]) -> None:
        """A checkpoint is complete that has these :meth:`states`."""
        for uid, handle in states.items():
            if uid in self._enumerators and not self._is_over:
                acknowledge = partial(self._enumerators[uid].checkpoint_completed, plain.decode(handle.inline[0]))
                self._background("enumerators", acknowledge, partial(self._acknowledged, uid))

    def _acknowledged(self, uid: str, error: BaseException | None) -> None:
        if error is not None and not self._is_over:
            why = str(error) if isinstance(error, MoorlineError) else f"{type(error).__name__}: {error}"
            self._failure = f"source {uid!r} could not acknowledge a checkpoint: {why}"

    def pop_failure(self) -> str | None:
        """The new reason why the attempt cannot go on."""
        failure, self._failure = self._failure, None
        return failure

    def close(self) -> None:
        """The attempt is over."""
        if not self._is_over:
            self._is_over = True
            for enumerator in self._enumerators.values():
                self._background("enumerators", enumerator.close, _closed)

    def _obey(self, uid: str, actions: list[Action]) -> None:
        for action in actions:
            log.debug("source %s: %s", uid, action)
            match action:
                case LookForSplits():
                    look = partial(self._look, uid, self._reports.pop(uid, {}))
                    self._background("enumerators", look, partial(self._looked, uid))
                case Assign(subtask, splits, no_more, announcement):
                    encoded = [plain.encode([split, position]) for split, position in splits.items()]
                    announced = b"" if announcement is None else plain.encode(announcement)
                    order = AddSplits(splits=encoded, no_more=no_more, announced=announced)
                    self._send(SubtaskId(self._vertices[uid], subtask), order)
                case GiveUpLooking(why):
                    self._failure = f"splits of source {uid!r} could not be found: {why}"
                case _:
                    assert_never(action)

    def _look(self, uid: str, reports: dict[int, bytes]) -> None:
        """Have the enumerator look, on the background's thread."""
        if uid not in self._enumerators:
            restored = self._restored.get(uid, RestoredSplits({}))
            job, attempt = self._deployment.plan.graph.job, self._deployment.attempt
            parallelism = self._machines[uid].parallelism
            context = EnumeratorContext(job, uid, attempt, restored.positions, restored.state, parallelism)
            self._enumerators[uid] = self._sources[uid].open_enumerator(context)
        enumerator = self._enumerators[uid]
        for subtask, report in reports.items():
            enumerator.reported(subtask, plain.decode(report))
        splits = enumerator.discover()
        state, announcement = enumerator.snapshot(), enumerator.announcement()
        for value in (state, announcement, *([split, position] for split, position in (splits or {}).items())):
            _encode(uid, value)
        self._found[uid] = splits, state, announcement

    def _looked(self, uid: str, error: BaseException | None) -> None:
        if self._is_over:
            return
        machine = self._machines[uid]
        if error is not None:
            why = str(error) if isinstance(error, MoorlineError) else f"{type(error).__name__}: {error}"
            self._obey(uid, machine.failed(why))
            return
        machine.interval_ms = self._enumerators[uid].interval_ms
        splits, state, announcement = self._found.pop(uid)
        self._obey(uid, machine.looked(splits, state, self._now_ms, announcement))


def _encode(uid: str, value: object) -> bytes:
    try:
        return plain.encode(value)
    except plain.NotPlain as error:
        raise StateTypeMismatch(f"splits of source {uid!r}", "plain data", str(error)) from None


def _closed(error: BaseException | None) -> None:
    if error is not None:
        log.warning("an enumerator could not be closed: %s", error)
