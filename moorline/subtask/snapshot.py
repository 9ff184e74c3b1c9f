"""One subtask's part of a checkpoint: the quick part on its thread, the slow part off it.

    1  what must go before the barrier is emitted, then the barrier   (``subtask/task.py``)
    2  sinks stage, functions fill their states, keyed state is       synchronous: the stream waits
       marked or copied by pointer
    3  files are encoded and written                                  in the background: the stream goes on
    4  the acknowledgement                                            only when every file is durable

Handles of small operator states travel inside the acknowledgement instead of a file of their own. Keyed state that an
earlier checkpoint has in storage already is named again and not written again (``state/backend.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from moorline.errors import FailureReason, StateError, StateTypeMismatch
from moorline.failpoints import failpoint
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import (
    ElementsHandle,
    FileHandle,
    InFlightHandle,
    KeyedHandle,
    NativeFile,
    NativeHandle,
    OperatorHandles,
    RawHandle,
    file_handle,
)
from moorline.model.wire.elements import Barrier
from moorline.model.wire.messages import Acknowledged, Declined, Report
from moorline.snapshots.rows import file_rows
from moorline.state.backend import Files, KeyedSnapshot, Rows
from moorline.state.composite import CompositeBackend
from moorline.state.folding import fold
from moorline.state.types import plain
from moorline.storage import layout
from moorline.storage import segments as snapshots
from moorline.storage.blobs import BlobStore
from moorline.subtask.in_flight import Waiting
from moorline.subtask.operators.base import ChainedOperator
from moorline.subtask.operators.operator_state import Elements
from moorline.subtask.operators.sink import SinkOperator
from moorline.subtask.operators.source import SourceOperator

#: Operator states up to this size need no file.
INLINE_BYTES = 16 << 10
#: A chain is folded piece by piece, in key-group ranges of about so many rows.
FOLD_ROWS = 500_000


@dataclass(frozen=True)
class Taken:
    """One operator's state as it was at the barrier."""

    uid: str
    keyed: KeyedSnapshot | None
    elements: list[Elements]
    #: By key group.
    raw_keyed: dict[int, bytes]
    #: Kinds of keys that it has seen.
    keys: list[str]


def stage(operators: list[ChainedOperator], checkpoint: int) -> None:
    """Have the sinks stage what they were given. All there is to do where snapshots go nowhere."""
    for operator in reversed(operators):
        if isinstance(operator, SinkOperator):
            operator.prepare(checkpoint)


def stage_outside(operators: list[ChainedOperator], checkpoint: int) -> None:
    """Have state that is kept outside ready to be applied, where snapshots go nowhere."""
    for operator in operators:
        if isinstance(operator.backend, CompositeBackend):
            operator.backend.stage(checkpoint)


def take(operators: list[ChainedOperator], barrier: Barrier) -> list[Taken]:
    """The synchronous part. Operators are given in chain order and asked from the tail, as Flink does."""
    stage(operators, barrier.checkpoint)
    taken = []
    for operator in reversed(operators):
        elements, raw_keyed = operator.state.snapshot(barrier.checkpoint, barrier.triggered_ms)
        keyed = None
        if operator.backend is not None:
            # No batch may have come for a while, and what is over its time by now may be left out.
            operator.moment.processing_ms = max(operator.moment.processing_ms, operator.wall_ms())
            is_savepoint = bool(barrier.savepoint)
            keyed = operator.backend.snapshot(barrier.checkpoint, barrier.completed, canonical=is_savepoint)
        if isinstance(operator, (SinkOperator, SourceOperator)):
            uid = operator.operator.uid
            elements += [(s, m, "plain", [_encode(uid, s, v) for v in vs]) for s, m, vs in operator.elements()]
        kinds = [] if operator.backend is None else sorted(operator.backend.identities.kinds)
        taken.append(Taken(operator.operator.uid, keyed, elements, raw_keyed, kinds))
    failpoint("ckpt.sync")
    return taken


def _encode(uid: str, state: str, value: object) -> bytes:
    try:
        return plain.encode(value)
    except plain.NotPlain as error:
        raise StateTypeMismatch(f"{state} of operator {uid}", "plain data", str(error)) from None


def done(taken: list[Taken], handles: list[OperatorHandles] | None) -> None:
    """The files are durable, or (None) never will be: tell the backends, on the subtask's thread."""
    written = {h.uid: h.keyed for h in handles or ()}
    for operator in taken:
        if operator.keyed is not None:
            # Raw state is none of the backend's.
            keyed = [] if handles is None else written[operator.uid]
            operator.keyed.done(None if handles is None else [h for h in keyed if not isinstance(h, RawHandle)])


class Writer:
    """The asynchronous part, to be called off the subtask's thread."""

    def __init__(
        self,
        store: BlobStore,
        taken: list[Taken],
        checkpoint: int,
        subtask: int,
        attempt: int,
        mine: KeyGroupRange,
        waiting: Sequence[Waiting] = (),
    ) -> None:
        self._store, self._taken, self._mine, self._waiting = store, taken, mine, waiting
        self._checkpoint, self._subtask, self._attempt = checkpoint, subtask, attempt

    def __call__(self) -> list[OperatorHandles]:
        handles = []
        for operator in self._taken:
            keyed = [] if operator.keyed is None else self._keyed(operator.uid, operator.keyed)
            if operator.raw_keyed:
                keyed.append(self._raw(operator.uid, operator.raw_keyed))
            elements = [self._elements(operator.uid, *e) for e in operator.elements if e[3]]
            waiting = [w for w in self._waiting if w.origin.uid == operator.uid]
            handles.append(
                OperatorHandles(operator.uid, keyed, elements, list(self._in_flight(waiting)), operator.keys)
            )
        failpoint("ckpt.uploaded")
        return handles

    def _path(self, uid: str, state: str, suffix: str = "parquet") -> str:
        return layout.data_path(self._checkpoint, uid, state, self._subtask, self._attempt, suffix=suffix)

    def _elements(self, uid: str, state: str, mode: str, type_name: str, encoded: list[bytes]) -> ElementsHandle:
        if sum(map(len, encoded)) <= INLINE_BYTES:
            return ElementsHandle(state, mode, len(encoded), inline=encoded, type=type_name)
        file = snapshots.write_elements(self._store, self._path(uid, state), encoded)
        return ElementsHandle(state, mode, len(encoded), file=file, type=type_name)

    def _in_flight(self, waiting: list[Waiting]) -> Iterator[InFlightHandle]:
        for one in waiting:
            encoded, records, pickled = one.encode()
            if not records:
                continue
            file = None
            if sum(map(len, encoded)) > INLINE_BYTES:
                file = snapshots.write_elements(self._store, self._path(one.origin.uid, "in-flight"), encoded)
            origin = one.origin
            yield InFlightHandle(
                upstream=origin.upstream,
                tag=origin.tag,
                side=origin.side,
                partitioning=origin.partitioning,
                first=self._mine.first,
                end=self._mine.end,
                records=records,
                count=len(encoded),
                pickled=pickled,
                inline=[] if file else encoded,
                file=file,
                loop=origin.loop,
            )

    def _raw(self, uid: str, groups: dict[int, bytes]) -> FileHandle:
        numbers = sorted(groups)
        columns = {
            "key_group": pa.array(numbers, pa.int32()),
            "value": pa.array([groups[n] for n in numbers], pa.large_binary()),
        }
        return self._rows(uid, "raw", "raw", "bytes", pa.table(columns), False)

    def _keyed(self, uid: str, snapshot: KeyedSnapshot) -> list[KeyedHandle]:
        def folds(state: str) -> bool:
            return snapshot.fold and (snapshot.foldable is None or state in snapshot.foldable)

        handles = [h for h in snapshot.reused if isinstance(h, NativeHandle) or not folds(h.state)]
        for part in snapshot.parts:
            if isinstance(part, Files):
                handles.append(self._native(uid, part))
            elif not folds(part.state):
                handles += [
                    self._rows(uid, part.state, part.kind, part.type, table, part.increment)
                    for table in part.tables()
                    if table.num_rows
                ]
        reused = [h for h in snapshot.reused if not isinstance(h, NativeHandle) and folds(h.state)]
        handles += self._folded(uid, reused, [p for p in snapshot.parts if isinstance(p, Rows) and folds(p.state)])
        return handles

    def _rows(self, uid: str, state: str, kind: str, type_name: str, table: pa.Table, increment: bool) -> FileHandle:
        file = snapshots.write_rows(self._store, self._path(uid, state), table)
        groups = table["key_group"]
        mine = KeyGroupRange(groups[0].as_py(), groups[-1].as_py() + 1)
        return file_handle(state, kind, type_name, mine, table.num_rows, file, increment)

    def _native(self, uid: str, part: Files) -> NativeHandle:
        files = list(part.known.values())
        for name, path in part.paths.items():
            if name not in part.known:
                target = self._path(uid, "native", "bin")
                files.append(NativeFile(name, snapshots.write_file(self._store, target, path)))
        first, end = self._mine.first, self._mine.end
        states = list(part.states)
        return NativeHandle(first, end, "rocksdb", files, states)

    # --- folding a chain into a new base ---------------------------------------------------------

    def _folded(self, uid: str, reused: list[FileHandle], parts: list[Rows]) -> Iterator[FileHandle]:
        chains: dict[str, list[FileHandle]] = {}
        for handle in reused:
            chains.setdefault(handle.state, []).append(handle)
        fresh = {part.state: part for part in parts}
        for state in {**chains, **fresh}:
            chain, part = chains.get(state, []), fresh.get(state)
            # What is new is as much as has changed, and in memory anyway.
            new = [(t, part.increment) for t in part.tables()] if part is not None else []
            kind, type_name = (part.kind, part.type) if part is not None else (chain[-1].kind, chain[-1].type)
            for groups in self._pieces(chain, sum(t.num_rows for t, _ in new)):
                table = fold([*self._read(chain, groups), *((_cut(t, groups), i) for t, i in new)])
                if table is not None and table.num_rows:
                    yield self._rows(uid, state, kind, type_name, table, False)

    def _pieces(self, chain: list[FileHandle], fresh_rows: int) -> Iterable[KeyGroupRange]:
        count = 1 + (sum(h.rows for h in chain) + fresh_rows) // FOLD_ROWS
        width = max(1, -(-(self._mine.end - self._mine.first) // count))
        for first in range(self._mine.first, self._mine.end, width):
            yield KeyGroupRange(first, min(first + width, self._mine.end))

    def _read(self, chain: list[FileHandle], groups: KeyGroupRange) -> Iterator[tuple[pa.Table, bool]]:
        for handle in chain:
            if groups & handle.key_groups:
                yield from ((table, handle.increment) for table in file_rows(handle, groups, self._store))


def acknowledging(
    write: Writer, report: Callable[[Report], None], checkpoint: int, align_ms: int, sync_ms: int
) -> Callable[[], list[OperatorHandles]]:
    """``write``, and a report of how it went, from whatever thread it runs on.

    The subtask's own thread may be held back by the next stage for minutes, and the driver waits for this.
    """
    began = time.perf_counter()

    def work() -> list[OperatorHandles]:
        try:
            handles = write()
        except Exception as error:
            if not isinstance(error, StateError):  # which fails the attempt: no other checkpoint would fare better
                reason = FailureReason.UPLOAD_FAILED.name
                report(Declined(checkpoint=checkpoint, reason=reason, detail=str(error)))
            raise
        report(
            Acknowledged(
                checkpoint=checkpoint,
                operators=handles,
                align_ms=align_ms,
                sync_ms=sync_ms,
                async_ms=round(1000 * (time.perf_counter() - began)),
                in_flight_records=sum(h.records for o in handles for h in o.in_flight),
            )
        )
        return handles

    return work


def written(
    barrier: Barrier, taken: list[Taken], handles: list[OperatorHandles] | None, error: BaseException | None
) -> None:
    """How the writing went. Called on the subtask's thread."""
    # Nothing is ever built on a savepoint.
    done(taken, None if error is not None or barrier.savepoint else handles)
    if isinstance(error, StateError):
        raise error  # a value that cannot be stored: every further checkpoint would meet it again


def _cut(table: pa.Table, groups: KeyGroupRange) -> pa.Table:
    column = table["key_group"]
    return table.filter(pc.and_(pc.greater_equal(column, groups.first), pc.less(column, groups.end)))
