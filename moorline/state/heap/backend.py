"""State as live Python objects in the worker: nothing is serialised when it is accessed.

A table is a dict from key to value, list or dict. A snapshot takes the dict's entries by pointer and shares the values
with the stream until they are written; ``state/heap/states.py`` copies such a value before its first change (and, where
the type would let the user change it in place, before handing it out). Without a snapshot in the air nothing is copied.

    full          every snapshot holds everything: the dict is copied, values are not
    incremental   a snapshot holds the keys that have changed since the one it builds on (``state/heap/chains.py``):
                  its synchronous part takes as long as there are changes, whatever the size of the state

Keys stand in the dict as ``model/keys/identity.py`` says: the plain ones themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from moorline.api.state.descriptors import StateDescriptor, ValueStateDescriptor
from moorline.api.state.states import State
from moorline.errors import InvalidArgument, StateIncompatible, UnknownState
from moorline.model.config.thresholds import FOLDING, Folding
from moorline.model.keys.identity import KeyIdentities
from moorline.model.manifest import FileHandle, KeyedHandle, NativeHandle
from moorline.protocol.increments import is_fold_due
from moorline.state.backend import CurrentKey, KeyedSnapshot, OperatorClock, Restored, RestoredFiles, RestoredRows, Rows
from moorline.state.forms import Form, form_of
from moorline.state.heap.chains import Chains
from moorline.state.heap.rows import Content
from moorline.state.heap.states import live_state
from moorline.state.heap.table import StoredTable
from moorline.state.heap.timers import HeapTimers
from moorline.state.peeking import KINDS, Peeked, rows_of
from moorline.state.ttl.states import expiring, judged_at
from moorline.state.types.annotations import stored

#: The name of the state that holds the timers of a kind.
TIMERS = "timers:"


class HeapBackend:
    """The keyed states of one operator in one subtask, on the heap.

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
        self.current = CurrentKey()
        self._uid, self._max_parallelism = uid, max_parallelism
        self._moment = moment if moment is not None else OperatorClock()
        self.identities = KeyIdentities(uid, key_type)
        self._allow_dropped, self._folding = allow_dropped, folding
        self._tables: dict[str, StoredTable] = {}
        self._live: dict[str, State] = {}
        self._timers: dict[str, HeapTimers] = {}
        self._restored: dict[str, list[RestoredRows]] = {}
        self._chains = Chains() if incremental else None

    # --- before the first record ----------------------------------------------------------------

    def restore(self, restored: Sequence[Restored]) -> None:
        for one in restored:
            if isinstance(one, RestoredFiles):
                names = ", ".join(name for name, _, _ in one.handle.states)
                raise StateIncompatible(
                    self._uid, names, f"files of the {one.handle.backend} backend", "state on the heap, which is rows"
                )
            self._restored.setdefault(one.handle.state, []).append(one)

    def bind(self, descriptor: StateDescriptor, scope: CurrentKey | None = None) -> State:
        name = descriptor.name
        form = form_of(descriptor, f"state {name!r} of operator {self._uid!r}", scope is not None)
        if name in self._live:
            known = self._tables[name].form
            if str(known) != str(form):
                advice = f"It was declared as {known} before. Give one of them another name."
                raise InvalidArgument(f"state {name!r} of operator {self._uid!r}", str(form), advice)
            return self._live[name]
        typed = self._table(form, descriptor)
        current = self.current if scope is None else scope
        inner = descriptor
        if descriptor.ttl_config is not None and descriptor.kind in ("reducing", "aggregating", "value"):
            inner = ValueStateDescriptor(name, descriptor.type)  # type: ignore[attr-defined]
        live = live_state(inner, typed.table, current, form.value.is_immutable)
        if descriptor.ttl_config is not None:
            live = expiring(descriptor, live, self._moment, current, typed.idents, typed.table.entries.get)
        self._live[name] = live
        return live

    def timers(self, name: str) -> HeapTimers:
        if name not in self._timers:
            form = Form(TIMERS + name, "timers", "int", stored(int, "timers"), is_windowed=True)
            typed = self._table(form, None)
            self._timers[name] = HeapTimers(typed.table, self.identities.shown)
        return self._timers[name]

    def _table(self, form: Form, descriptor: StateDescriptor | None) -> StoredTable:
        """A table with its restored content."""
        typed = StoredTable(form, self._chains is not None)
        chain = self._restored.pop(form.state, [])
        for one in chain:
            typed.fill(self._uid, one, descriptor)
        if self._chains is not None and not typed.is_altered:
            self._chains.restored(form.state, [one.handle for one in chain])
        self._tables[form.state] = typed
        return typed

    def check_all_bound(self) -> None:
        for state, (one, *_) in self._restored.items():
            if self._allow_dropped is not None and state not in self._allow_dropped:
                was = f"{one.handle.kind} of {one.handle.type}"
                raise StateIncompatible(self._uid, state, was, "nothing: the operator has no such state")
        self._restored = {}

    # --- while records are processed ------------------------------------------------------------

    def prefetch(self, keys_of_batch: Iterable[Any]) -> None:
        """Nothing: it is all here."""

    def flush(self) -> None:
        """Nothing: what is changed is changed at once."""

    def keys(self, state: str) -> Iterator[Any]:
        typed = self._tables.get(state)
        if typed is None:
            raise UnknownState(self._uid, state, tuple(self._live))
        return map(self.identities.shown, typed.keys())

    def peek(self, state: str, encoded: bytes) -> Peeked:
        """Quick, but for a state of windows: all of its windows are looked through for those of the key."""
        typed = self._tables.get(state)
        if typed is None or typed.form.kind not in KINDS:
            raise UnknownState(self._uid, state, tuple(self._live))
        now = None if typed.form.ttl is None else judged_at(typed.form.ttl, self._moment)
        return rows_of(typed.form, typed.of_key(encoded, now), self._max_parallelism)

    def entries(self) -> int:
        return sum(len(t) for t in self._tables.values() if t.form.kind != "timers")

    def close(self) -> None:
        self._tables, self._timers, self._restored = {}, {}, {}

    # --- snapshots ------------------------------------------------------------------------------

    def snapshot(self, checkpoint: int, completed: int, *, canonical: bool = False) -> KeyedSnapshot:
        taken = KeyedSnapshot()
        if canonical:
            completed = 0  # built on nothing, so it is all there
        base = {} if self._chains is None else self._chains.base(completed)
        held: list[tuple[StoredTable, dict[Any, Any]]] = []
        for name, typed in self._tables.items():
            chain = base.get(name, [])
            content = self._content(typed, chain, completed, taken)
            if content is None:
                taken.reused += chain
                continue
            form, is_increment = typed.form, content.gone is not None
            tables = partial(typed.tables, content, self._max_parallelism)
            taken.reused += chain if is_increment else []
            taken.parts.append(Rows(form.state, form.kind, form.type, tables, is_increment))
            typed.table.pending_snapshots.append(content.entries)
            held.append((typed, content.entries))
        if self._chains is not None:
            for name, typed in self._tables.items():
                typed.cut(checkpoint, completed, is_first=not self._chains.may_be_built_on(name))
            self._chains.begin(checkpoint)
        taken.done = partial(self._done, checkpoint, held)
        return taken

    def _content(
        self, typed: StoredTable, chain: list[FileHandle], completed: int, taken: KeyedSnapshot
    ) -> Content | None:
        """What the snapshot is to hold of one table; None if what it builds on has it all."""
        if not chain:
            return typed.everything(self._expired_at(typed.form))
        changed = typed.changed_since(completed)
        if not changed:
            return None
        if is_fold_due(chain, typed.rows_of(changed), self._folding):
            if len(typed) <= self._folding.copied_entries:
                return typed.everything(self._expired_at(typed.form))
            taken.fold, taken.foldable = True, (taken.foldable or frozenset()) | {typed.form.state}
        return typed.changes(changed)

    def _expired_at(self, form: Form) -> int | None:
        ttl = form.ttl
        return judged_at(ttl, self._moment) if ttl is not None and ttl.cleanup_full_snapshot else None

    def _done(
        self, checkpoint: int, held: list[tuple[StoredTable, dict[Any, Any]]], handles: list[KeyedHandle] | None
    ) -> None:
        """The files are durable, or never will be: stop sharing values with the snapshot."""
        for typed, entries in held:
            typed.table.pending_snapshots = [other for other in typed.table.pending_snapshots if other is not entries]
        if self._chains is not None:
            rows = None if handles is None else [h for h in handles if not isinstance(h, NativeHandle)]
            self._chains.ended(checkpoint, rows)

    def confirmed(self, checkpoint: int) -> None:
        """Nothing: what has completed is known by the next barrier."""
