"""The keyed state of an operator that works on columns. See ``state/columns/table.py`` for how it lies in memory.

It is stored as any other keyed state: the same rows, chains of increments (``state/heap/chains.py``), the same types.
So it is rescaled, queried, read as tables and evolved in the same ways, and an operator that goes record by record can
take it over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moorline.api.state.descriptors import StateDescriptor
from moorline.api.state.states import State
from moorline.errors import UnknownState
from moorline.model import keys
from moorline.model.config.thresholds import FOLDING, Folding
from moorline.model.keys.identity import KeyIdentities
from moorline.model.manifest import KeyedHandle, NativeHandle
from moorline.protocol.increments import is_fold_due
from moorline.state.backend import (
    CurrentKey,
    KeyedSnapshot,
    OperatorClock,
    Restored,
    RestoredFiles,
    Rows,
    StateFigures,
    TimerStore,
)
from moorline.state.columns.index import Slots
from moorline.state.columns.removed import Idents
from moorline.state.columns.rows import Copied
from moorline.state.columns.table import ColumnTable
from moorline.state.columns.window_table import WindowTable, WindowTimers
from moorline.state.forms import Form, form_of
from moorline.state.heap.chains import Chains
from moorline.state.peeking import Peeked, joined
from moorline.state.readers import checked_tables, readers_of_handle
from moorline.state.registration import Registration


class StoredColumns(Protocol):
    """The columns that are stored as one state: a table, or the timers of its windows."""

    @property
    def form(self) -> Form: ...
    def __len__(self) -> int: ...
    def all_keys(self) -> list[Any]: ...
    def slots_of(self, key: Any) -> Slots: ...
    def changed_since(self, epoch: int) -> Slots: ...
    def removed_since(self, epoch: int) -> list[Idents] | None: ...
    def copied(self, slots: Slots | None, gone: list[Idents] | None = None, now: int | None = None) -> Copied: ...
    def rows(self, copied: Copied) -> Iterator[pa.Table]: ...
    def take_in(self, keys: Any, value: Any, spans: Any = ..., stamps: Any = ...) -> None: ...
    def clear(self, keys: Any, spans: Any = ...) -> None: ...


class ColumnBackend:
    """The one state, in columns, of one operator in one subtask."""

    def __init__(
        self,
        uid: str,
        max_parallelism: int,
        moment: OperatorClock | None = None,
        *,
        incremental: bool = False,
        key_type: Any = None,
        allow_dropped: frozenset[str] | None = frozenset(),
        folding: Folding = FOLDING,
    ) -> None:
        self.current, self.identities = CurrentKey(), KeyIdentities(uid, key_type)
        self._states = Registration[StoredColumns](uid, moment, allow_dropped)
        self._max_parallelism, self._folding = max_parallelism, folding
        self._chains = Chains() if incremental else None
        self._tables: list[ColumnTable] = []
        #: By checkpoint, the epoch of the table that its snapshot ended.
        self._epochs: dict[int, int] = {}

    # --- before the first record ----------------------------------------------------------------

    def restore(self, restored: Sequence[Restored]) -> None:
        for part in restored:
            if isinstance(part, RestoredFiles):
                self._states.refuse_files(part, "state in columns, which is rows")
            self._states.add_rows(part)

    def bind_columns(self, descriptor: StateDescriptor) -> ColumnTable:
        """The table of a state whose type has fields, with its restored content."""
        form = form_of(descriptor, f"state {descriptor.name!r} of operator {self._states.uid!r}", False)
        table = ColumnTable(form, self._max_parallelism, self._chains is not None)
        self._tables.append(table)
        self._fill(table, descriptor)
        return table

    def bind_windows(self, descriptor: StateDescriptor, lateness_ms: int) -> WindowTable:
        """The table of a state of windows, whose timers are stored too."""
        form = form_of(descriptor, f"state {descriptor.name!r} of operator {self._states.uid!r}", True)
        table = WindowTable(form, self._max_parallelism, self._chains is not None)
        self._tables.append(table)
        self._fill(table, descriptor)
        self._fill(WindowTimers(table, lateness_ms), None)
        return table

    def _fill(self, part: StoredColumns, descriptor: StateDescriptor | None) -> None:
        """Register what is to be stored, with its restored content."""
        form, uid = part.form, self._states.uid
        is_altered, chain = False, self._states.take_rows(form.state)
        for restored in chain:
            readers = readers_of_handle(uid, form, descriptor, restored)
            is_same = descriptor is None or restored.handle.type == form.type
            is_altered = is_altered or not is_same or restored.handle.file is None
            for rows in checked_tables(uid, form, readers, restored):
                is_altered = is_altered or ("last_access" in rows.column_names) != (form.ttl is not None)
                _take_in(part, rows, None if is_same else readers.value)
        if self._chains is not None and not is_altered:
            self._chains.restored(form.state, [restored.handle for restored in chain])
        self._states.parts[form.state] = part

    def bind(self, descriptor: StateDescriptor, scope: CurrentKey | None = None) -> State:
        self._refuse("states that are asked for key by key")

    def timers(self, name: str) -> TimerStore:
        self._refuse("timers")

    def _refuse(self, what: str) -> NoReturn:
        raise NotImplementedError(f"operator {self._states.uid!r} works on columns and has no {what}")

    def check_all_bound(self) -> None:
        self._states.check_all_bound()

    # --- while records are processed ------------------------------------------------------------

    def prefetch(self, keys_of_batch: Iterable[Any]) -> None:
        """Nothing: it is all here."""

    def flush(self) -> None:
        """Nothing: it is all here."""

    def keys(self, state: str) -> Iterator[Any]:
        return iter(self._states.part(state).all_keys())

    def peek(self, state: str, encoded: bytes) -> Peeked:
        table = self._states.part(state)
        if table.form.is_timers:
            raise UnknownState(self._states.uid, state, tuple(part.form.state for part in self._states.of_states()))
        slots = table.slots_of(keys.decode_identity(encoded))
        now = self._states.judged_at(table.form)
        found = joined(table.rows(table.copied(slots, now=now))) if len(slots) else None
        return Peeked(table.form.kind, table.form.type, found if found is None else found.drop_columns(["gone"]))

    def entries(self) -> int:
        return sum(map(len, self._states.of_states()))

    def figures(self) -> StateFigures:
        return StateFigures({table.form.state: len(table) for table in self._states.of_states()})

    def forget(self) -> None:
        """Drop everything: in a batch job, the input of the keys that are here has ended."""
        for table in self._tables:
            table.forget()

    def close(self) -> None:
        self._states.clear()

    # --- snapshots ------------------------------------------------------------------------------

    def snapshot(self, checkpoint: int, completed: int, *, canonical: bool = False) -> KeyedSnapshot:
        taken = KeyedSnapshot()
        if canonical:
            completed = 0  # built on nothing, so it is all there
        base = {} if self._chains is None else self._chains.base(completed)
        for name, table in self._states.parts.items():
            chain = base.get(name, [])
            copied = self._copied(table, chain, completed, taken)
            if copied is None or copied.is_increment:
                taken.reused += chain
            if copied is not None:
                form, tables = table.form, partial(table.rows, copied)
                taken.parts.append(Rows(form.state, form.kind, form.type, tables, copied.is_increment))
        self._cut(checkpoint, completed)
        if self._chains is not None:
            self._chains.begin(checkpoint)
            taken.done = partial(self._done, checkpoint, taken.foldable or frozenset())
        return taken

    def _cut(self, checkpoint: int, completed: int) -> None:
        """A snapshot has been taken."""
        for table in self._tables:
            if table.removed is not None and completed in self._epochs:
                table.removed.forget(self._epochs[completed])
            self._epochs[checkpoint] = table.epoch
            table.epoch += 1
        self._epochs = {n: epoch for n, epoch in self._epochs.items() if n >= completed}

    def _copied(self, part: StoredColumns, chain: Sequence[Any], completed: int, taken: KeyedSnapshot) -> Copied | None:
        """A copy of what the snapshot is to hold; None if what it builds on has it all."""
        if not chain:
            return part.copied(None, now=self._states.left_out_at(part.form))
        # Restored values have epoch 0, and no snapshot of ours has it.
        since = self._epochs.get(completed, 0)
        changed, gone = part.changed_since(since), part.removed_since(since)
        if gone is None:
            return part.copied(None, now=self._states.left_out_at(part.form))
        count = len(changed) + sum(map(len, gone))
        if not count:
            return None
        if is_fold_due(chain, count, self._folding):
            if len(part) <= self._folding.copied_entries:
                return part.copied(None, now=self._states.left_out_at(part.form))
            taken.fold, taken.foldable = True, (taken.foldable or frozenset()) | {part.form.state}
        return part.copied(changed, gone)

    def _done(self, checkpoint: int, foldable: frozenset[str], handles: list[KeyedHandle] | None) -> None:
        assert self._chains is not None
        rows = None if handles is None else [h for h in handles if not isinstance(h, NativeHandle)]
        self._chains.ended(checkpoint, rows, foldable)

    def confirmed(self, checkpoint: int) -> None:
        """Nothing: what has completed is known by the next barrier."""


def _take_in(part: StoredColumns, rows: pa.Table, reader: Any) -> None:
    """Take restored rows in. ``reader``: of values that were stored with another type."""
    if "gone" in rows.column_names:
        is_gone = pc.fill_null(rows["gone"], False)
        gone = rows.filter(is_gone)
        if gone.num_rows:
            part.clear(*_keys(gone))
        rows = rows.filter(pc.invert(is_gone))
    if not rows.num_rows:
        return
    value = rows["value"].combine_chunks()
    if reader is not None:
        value = part.form.value.to_array(reader.from_array(value))
    found, *spans = _keys(rows)
    stamps = rows["last_access"].combine_chunks() if "last_access" in rows.column_names else None
    part.take_in(found, value, spans[0] if spans else None, stamps)


def _keys(rows: pa.Table) -> list[Any]:
    """The keys of rows, and their windows if they have any."""
    column = rows["key"].combine_chunks()
    found: list[Any] = [column.to_pylist()]
    if pa.types.is_int64(column.type):
        found = [np.array(column)]
    elif pa.types.is_binary(column.type):
        found = [[keys.decode_identity(encoded) for encoded in column.to_pylist()]]
    if "namespace" in rows.column_names:
        namespace = rows["namespace"].combine_chunks()
        found.append(tuple(np.array(pc.struct_field(namespace, name)) for name in ("start", "end")))
    return found
