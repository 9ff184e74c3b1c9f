"""State as live Python objects in the worker: nothing is serialised when it is accessed.

A table is a dict from key to value, list or dict. A snapshot takes the dict's entries by pointer and shares the values
with the stream until they are written; ``state/heap/states.py`` copies such a value before its first change (and, where
the type would let the user change it in place, before handing it out). Without a pending snapshot nothing is copied.

    full          every snapshot holds everything: the dict is copied, values are not
    incremental   a snapshot holds the keys that have changed since the one it builds on (``state/heap/chains.py``):
                  its synchronous part takes as long as there are changes, whatever the size of the state

Keys stand in the dict as ``model/keys/identity.py`` says: the plain ones themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from moorline.api.state.descriptors import StateDescriptor
from moorline.api.state.states import State
from moorline.model.config.thresholds import FOLDING, Folding
from moorline.model.keys.identity import KeyIdentities
from moorline.model.manifest import FileHandle, KeyedHandle, NativeHandle
from moorline.protocol.increments import is_fold_due
from moorline.state.backend import CurrentKey, KeyedSnapshot, OperatorClock, Restored, RestoredFiles, Rows, StateFigures
from moorline.state.forms import Form
from moorline.state.heap.chains import Chains
from moorline.state.heap.rows import Content
from moorline.state.heap.states import live_state
from moorline.state.heap.table import StoredTable
from moorline.state.heap.timers import HeapTimers
from moorline.state.peeking import Peeked, rows_of
from moorline.state.registration import Made, Registration


class HeapBackend:
    """The keyed states of one operator in one subtask, on the heap.

    >>> from moorline.api.state.descriptors import ValueStateDescriptor
    >>> backend = HeapBackend("counter", max_parallelism=128)
    >>> count = backend.bind(ValueStateDescriptor("count", int, default=0))
    >>> backend.current.key = "a"
    >>> count.update(count.value() + 1)
    >>> [part.state for part in backend.snapshot(1, completed=0).parts], backend.entries()
    (['count'], 1)

    ``moment`` says what time it is, for states with a time to live. ``key_type`` is the declared type of the keys:
    with it, restored keys of the job's own classes are there at once. ``allow_dropped`` names restored states that
    need not be bound any more; None means any.
    """

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
        self._states = Registration[StoredTable](uid, moment, allow_dropped)
        self._max_parallelism, self._folding = max_parallelism, folding
        self._timers: dict[str, HeapTimers] = {}
        self._chains = Chains() if incremental else None

    # --- before the first record ----------------------------------------------------------------

    def restore(self, restored: Sequence[Restored]) -> None:
        for part in restored:
            if isinstance(part, RestoredFiles):
                self._states.refuse_files(part, "state on the heap, which is rows")
            self._states.add_rows(part)

    def bind(self, descriptor: StateDescriptor, scope: CurrentKey | None = None) -> State:
        return self._states.bind(descriptor, self.current, scope, self._make)

    def _make(self, form: Form, plain: StateDescriptor, current: CurrentKey) -> Made[StoredTable]:
        stored = self._table(form, plain)
        live = live_state(plain, stored.table, current, form.value.is_immutable)
        return Made(stored, live, stored.idents, stored.table.entries.get)

    def timers(self, name: str) -> HeapTimers:
        if name not in self._timers:
            stored = self._states.timers(name, self._table)
            self._timers[name] = HeapTimers(stored.table, self.identities.shown)
        return self._timers[name]

    def _table(self, form: Form, descriptor: StateDescriptor | None = None) -> StoredTable:
        """A table with its restored content."""
        stored = StoredTable(form, self._chains is not None)
        chain = self._states.take_rows(form.state)
        for rows in chain:
            stored.fill(self._states.uid, rows, descriptor)
        if self._chains is not None and not stored.is_altered:
            self._chains.restored(form.state, [rows.handle for rows in chain])
        return stored

    def check_all_bound(self) -> None:
        self._states.check_all_bound()

    # --- while records are processed ------------------------------------------------------------

    def prefetch(self, keys_of_batch: Iterable[Any]) -> None:
        """Nothing: it is all here."""

    def flush(self) -> None:
        """Nothing: what is changed is changed at once."""

    def keys(self, state: str) -> Iterator[Any]:
        return map(self.identities.shown, self._states.part(state).keys())

    def peek(self, state: str, encoded: bytes) -> Peeked:
        """Quick, but for a state of windows: all of its windows are looked through for those of the key."""
        stored = self._states.queried(state)
        content = stored.of_key(encoded, self._states.judged_at(stored.form))
        return rows_of(stored.form, content, self._max_parallelism)

    def stored_entries(self, state: str) -> dict[Any, Any]:
        """The entries of a state as they are stored: with stamps, and accumulators as such."""
        return self._states.part(state).table.entries

    def entries(self) -> int:
        return sum(map(len, self._states.of_states()))

    def figures(self) -> StateFigures:
        parts = self._states.parts.values()
        keys = {stored.form.state: len(stored) for stored in parts if not stored.form.is_timers}
        return StateFigures(keys, sum(len(stored) for stored in parts if stored.form.is_timers))

    def close(self) -> None:
        self._states.clear()
        self._timers = {}

    # --- snapshots ------------------------------------------------------------------------------

    def snapshot(self, checkpoint: int, completed: int, *, canonical: bool = False) -> KeyedSnapshot:
        taken = KeyedSnapshot()
        if canonical:
            completed = 0  # built on nothing, so it is all there
        base = {} if self._chains is None else self._chains.base(completed)
        held: list[tuple[StoredTable, dict[Any, Any]]] = []
        for name, stored in self._states.parts.items():
            chain = base.get(name, [])
            content = self._content(stored, chain, completed, taken)
            if content is None:
                taken.reused += chain
                continue
            form, is_increment = stored.form, content.gone is not None
            tables = partial(stored.tables, content, self._max_parallelism)
            taken.reused += chain if is_increment else []
            taken.parts.append(Rows(form.state, form.kind, form.type, tables, is_increment, tables))
            stored.table.pending_snapshots.append(content.entries)
            held.append((stored, content.entries))
        if self._chains is not None:
            for name, stored in self._states.parts.items():
                stored.cut(checkpoint, completed, is_first=not self._chains.may_be_built_on(name))
            self._chains.begin(checkpoint)
        taken.done = partial(self._done, checkpoint, held, taken.foldable or frozenset())
        return taken

    def _content(
        self, stored: StoredTable, chain: list[FileHandle], completed: int, taken: KeyedSnapshot
    ) -> Content | None:
        """The content of one table that the snapshot is to hold; None if what it builds on has it all."""
        if not chain:
            return stored.everything(self._states.left_out_at(stored.form))
        changed = stored.changed_since(completed)
        if not changed:
            return None
        state = stored.form.state
        if is_fold_due(chain, stored.rows_of(changed), self._folding):
            rule, entries = self._folding, len(stored)
            is_quick = entries <= rule.copied_entries or len(changed) >= rule.copied_share * entries
            if is_quick:
                return stored.everything(self._states.left_out_at(stored.form))
            taken.fold, taken.foldable = True, (taken.foldable or frozenset()) | {state}
        return stored.changes(changed)

    def _done(
        self,
        checkpoint: int,
        held: list[tuple[StoredTable, dict[Any, Any]]],
        foldable: frozenset[str],
        handles: list[KeyedHandle] | None,
    ) -> None:
        """The files are durable, or never will be: stop sharing values with the snapshot."""
        for stored, entries in held:
            stored.table.pending_snapshots = [other for other in stored.table.pending_snapshots if other is not entries]
        if self._chains is not None:
            rows = None if handles is None else [h for h in handles if not isinstance(h, NativeHandle)]
            self._chains.ended(checkpoint, rows, foldable)

    def confirmed(self, checkpoint: int) -> None:
        """Nothing: what has completed is known by the next barrier."""
