"""The asynchronous part of a snapshot: state becomes files, and the files become handles.

Handles of small operator states travel inside the acknowledgement instead of a file of their own. Keyed state that an
earlier checkpoint has in storage already is named again and not written again (``state/backend.py``); a chain of
increments that has grown too long is folded into a new base.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from moorline.errors import SnapshotCorrupt
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
    file_handle,
)
from moorline.model.type_tree.tree import BYTES, StateType, Type
from moorline.snapshots.rows import file_rows
from moorline.state.backend import WHOLE, Files, KeyedSnapshot, Rows
from moorline.state.folding import fold
from moorline.storage import layout
from moorline.storage import segments as snapshots
from moorline.storage.blobs import BlobStore
from moorline.subtask.snapshot.capture import Captured
from moorline.subtask.snapshot.in_flight import Waiting
from moorline.subtask.snapshot.pace import Pace

#: Operator states up to this size need no file.
INLINE_BYTES = 16 << 10
_CHAIN_LOST = (
    "A file of an earlier checkpoint cannot be read, and no checkpoint that builds on it can be restored. The next one "
    "is written whole; until it is complete, do not stop the job. Find out what happens to files in your storage."
)
#: A chain is folded piece by piece, in key-group ranges of about so many rows.
FOLD_ROWS = 500_000


class Writer:
    """The asynchronous part, to be called off the subtask's thread. ``pace``: None if nothing else is going on."""

    def __init__(
        self,
        store: BlobStore,
        captured: list[Captured],
        checkpoint: int,
        subtask: int,
        attempt: int,
        key_groups: KeyGroupRange,
        waiting: Sequence[Waiting] = (),
        pace: Pace | None = None,
        notice: Callable[[str, str, str], None] = lambda uid, kind, text: None,
    ) -> None:
        self._store, self._captured, self._key_groups, self._waiting = store, captured, key_groups, waiting
        self._checkpoint, self._subtask, self._attempt = checkpoint, subtask, attempt
        self._pace, self._slices, self._notice = pace, WHOLE, notice

    def __call__(self) -> list[OperatorHandles]:
        if self._pace is None:
            return self._write()
        with self._pace.of_a_snapshot() as self._slices:
            return self._write()

    def _write(self) -> list[OperatorHandles]:
        handles = []
        for operator in self._captured:
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

    def _elements(self, uid: str, state: str, mode: str, stored_type: Type, encoded: list[bytes]) -> ElementsHandle:
        if sum(map(len, encoded)) <= INLINE_BYTES:
            return ElementsHandle(state, mode, len(encoded), inline=encoded, type=stored_type)
        file = snapshots.write_elements(self._store, self._path(uid, state), encoded)
        return ElementsHandle(state, mode, len(encoded), file=file, type=stored_type)

    def _in_flight(self, waiting: list[Waiting]) -> Iterator[InFlightHandle]:
        for queue in waiting:
            encoded, records, pickled = queue.encode()
            if not records:
                continue
            file = None
            if sum(map(len, encoded)) > INLINE_BYTES:
                file = snapshots.write_elements(self._store, self._path(queue.origin.uid, "in-flight"), encoded)
            origin = queue.origin
            yield InFlightHandle(
                upstream=origin.upstream,
                tag=origin.tag,
                side=origin.side,
                partitioning=origin.partitioning,
                first=self._key_groups.first,
                end=self._key_groups.end,
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
        return self._rows(uid, "raw", "raw", BYTES, pa.table(columns), False)

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
                    for table in part.tables_in(self._slices)
                    if table.num_rows
                ]
        reused = [h for h in snapshot.reused if not isinstance(h, NativeHandle) and folds(h.state)]
        handles += self._folded(uid, reused, [p for p in snapshot.parts if isinstance(p, Rows) and folds(p.state)])
        return handles

    def _rows(
        self, uid: str, state: str, kind: str, stored_type: StateType, table: pa.Table, increment: bool
    ) -> FileHandle:
        file = snapshots.write_rows(self._store, self._path(uid, state), table)
        groups = table["key_group"]
        written = KeyGroupRange(groups[0].as_py(), groups[-1].as_py() + 1)
        return file_handle(state, kind, stored_type, written, table.num_rows, file, increment)

    def _native(self, uid: str, part: Files) -> NativeHandle:
        files = list(part.known.values())
        for name, path in part.paths.items():
            if name not in part.known:
                target = self._path(uid, "native", "bin")
                files.append(NativeFile(name, snapshots.write_file(self._store, target, path)))
        first, end = self._key_groups.first, self._key_groups.end
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
            new = [] if part is None else [t for t in part.tables_in(self._slices) if t.num_rows]
            kind, stored_type = (part.kind, part.type) if part is not None else (chain[-1].kind, chain[-1].type)
            is_increment = part is not None and part.increment
            write = partial(self._rows, uid, state, kind, stored_type)
            try:
                yield from [write(table, False) for table in self._fold(chain, [(t, is_increment) for t in new])]
            except SnapshotCorrupt as error:
                # The state itself is well: go on without a fold, and the backend writes all of it the next time.
                self._notice(uid, "chain_lost", f"{_CHAIN_LOST} State {state!r}: {error}")
                yield from chain
                yield from (write(table, is_increment) for table in new)

    def _fold(self, chain: list[FileHandle], new: list[tuple[pa.Table, bool]]) -> Iterator[pa.Table]:
        """The sum of a chain and of what is new on top of it, in tables of bounded size."""
        for groups in self._pieces(chain, sum(t.num_rows for t, _ in new)):
            table = fold([*self._read(chain, groups), *((_cut(t, groups), i) for t, i in new)])
            self._slices.done(0)
            if table is not None and table.num_rows:
                yield table

    def _pieces(self, chain: list[FileHandle], fresh_rows: int) -> Iterable[KeyGroupRange]:
        count = 1 + (sum(h.rows for h in chain) + fresh_rows) // FOLD_ROWS
        width = max(1, -(-(self._key_groups.end - self._key_groups.first) // count))
        for first in range(self._key_groups.first, self._key_groups.end, width):
            yield KeyGroupRange(first, min(first + width, self._key_groups.end))

    def _read(self, chain: list[FileHandle], groups: KeyGroupRange) -> Iterator[tuple[pa.Table, bool]]:
        for handle in chain:
            if groups & handle.key_groups:
                yield from ((table, handle.increment) for table in file_rows(handle, groups, self._store))


def _cut(table: pa.Table, groups: KeyGroupRange) -> pa.Table:
    column = table["key_group"]
    return table.filter(pc.and_(pc.greater_equal(column, groups.first), pc.less(column, groups.end)))
