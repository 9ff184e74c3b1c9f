"""Keyed state that lives in an outside store: PostgreSQL, Redis, or one of your own.

Reads go through to the store, ahead of each batch. Writes wait in the worker (``state/external/table.py``) until the
checkpoint that covers them is complete, and are then applied to the store. Two promises follow:

    what others read in the store is covered by a complete checkpoint, and never vanishes again
    a restored checkpoint finds the store no older than itself, and an error if it is newer

    barrier n        what has changed since the last barrier becomes layer n. The snapshot holds all layers that are
                     not known to be applied, so that it is enough whatever has become of the confirmations
    confirmed(n)     layers up to n are applied in one go, the mark moves to n (``api/state/external.py``)
    barrier m > n    says that n has completed: the same, if the confirmation got lost
    nothing changed  a layer is empty: the mark stays where it is, for the store is as of that barrier and of this one
    restore of n     take over (``protocol/takeover.py``), apply what the snapshot holds, read

So the final checkpoint after a savepoint that the job was stopped with leaves the mark at the savepoint, and the job
can go on from either of them.

The snapshot also says for each key group how far the store had come when it was taken (``state/external/progress.py``).
With it a restore can tell that the store has lost something, which a database that was put back to a backup or a Redis
that started empty will not say by itself.

Timers stay in the worker, on the heap.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from moorline.api.state.descriptors import StateDescriptor, ValueStateDescriptor
from moorline.api.state.external import Change, ExternalStore, Owner, Place, StoreSession
from moorline.api.state.states import State
from moorline.errors import InvalidArgument, StateIncompatible, UnknownState
from moorline.model import keys
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import KeyedHandle, RowsHandle, StoreHandle
from moorline.protocol.takeover import StoreStart, take_over
from moorline.state.backend import (
    CurrentKey,
    KeyedSnapshot,
    OperatorClock,
    Restored,
    RestoredFiles,
    RestoredRows,
    Rows,
    TimerStore,
)
from moorline.state.external.progress import STORE, Told, tell, told_in
from moorline.state.external.table import ExternalTable
from moorline.state.forms import form_of
from moorline.state.heap.backend import TIMERS, HeapBackend
from moorline.state.heap.rows import Content
from moorline.state.heap.states import live_state
from moorline.state.heap.table import StoredTable
from moorline.state.peeking import Peeked, rows_of
from moorline.state.ttl.states import expiring, judged_at

#: So many documents are asked for at once.
READ_AT_ONCE = 5_000
#: Documents are counted up to here; beyond, their number is an estimate.
COUNT_UP_TO = 100_000


class ExternalBackend:
    """The keyed states of one operator in one subtask, in an outside store.

    >>> from moorline.connectors.memory_state import memory_state
    >>> store = memory_state("doctest")
    >>> backend = ExternalBackend("counter", 128, store=store, job="job", key_groups=KeyGroupRange(0, 128))
    >>> count = backend.bind(ValueStateDescriptor("count", int, default=0))
    >>> backend.prefetch(["a"])
    >>> backend.current.key = "a"
    >>> count.update(count.value() + 1)
    >>> taken = backend.snapshot(1, completed=0)
    >>> len(store.data.documents)
    0
    >>> backend.confirmed(1)
    >>> len(store.data.documents)
    1

    ``attempt`` numbers the starts of the job, ``restored`` is the checkpoint it is restored from.
    """

    def __init__(
        self,
        uid: str,
        max_parallelism: int,
        moment: OperatorClock | None = None,
        *,
        store: ExternalStore,
        job: str,
        key_groups: KeyGroupRange,
        attempt: int = 1,
        restored: int | None = None,
        key_type: Any = None,
        allow_dropped: frozenset[str] | None = frozenset(),
    ) -> None:
        self.current = CurrentKey()
        self._uid, self._max_parallelism = uid, max_parallelism
        self._moment = moment if moment is not None else OperatorClock()
        self._store, self._key_groups = store, key_groups
        self._owner = Owner(job, uid, attempt, key_groups.first, key_groups.end, uuid.uuid4().hex)
        self._allow_dropped = allow_dropped
        self._heap = HeapBackend(uid, max_parallelism, self._moment, key_type=key_type, allow_dropped=allow_dropped)
        self.identities = self._heap.identities
        self._tables: dict[str, ExternalTable] = {}
        self._live: dict[str, State] = {}
        self._restored: dict[str, list[RestoredRows]] = {}
        self._restored_from, self._told = restored, dict[int, Told]()
        #: Documents of the restored checkpoint that the store may not have yet.
        self._to_apply: list[Change] = []
        self._session: StoreSession | None = None
        #: The store has all of this checkpoint.
        self._reached = 0
        self._prefetched: set[Any] = set()
        self._entries = 0

    # --- before the first record ----------------------------------------------------------------

    def restore(self, restored: Sequence[Restored]) -> None:
        for one in restored:
            if isinstance(one, RestoredFiles):
                names = ", ".join(name for name, _, _ in one.handle.states)
                was = f"files of the {one.handle.backend} backend"
                raise StateIncompatible(self._uid, names, was, f"state in {self._store.where}")
            if one.handle.kind == "timers":
                self._heap.restore([one])
            elif isinstance(one.handle, StoreHandle) and one.handle.state == STORE + self._store.label:
                self._told |= told_in(one)
            else:
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
        table = ExternalTable(form, self._max_parallelism, self._store.cache_bytes, self._touched)
        self._tables[name] = table
        self._take_rows(table, self._restored.pop(name, []), descriptor)
        current = self.current if scope is None else scope
        inner = descriptor
        if descriptor.ttl_config is not None and descriptor.kind in ("reducing", "aggregating", "value"):
            inner = ValueStateDescriptor(name, descriptor.type)  # type: ignore[attr-defined]
        live = live_state(inner, table.table, current, form.value.is_immutable)
        if descriptor.ttl_config is not None:
            entries = table.entries
            live = expiring(descriptor, live, self._moment, current, partial(self._idents, table), entries.get)
        self._live[name] = live
        return live

    def _take_rows(self, table: ExternalTable, restored: list[RestoredRows], descriptor: StateDescriptor) -> None:
        """Make documents of restored rows."""
        rows, name = StoredTable(table.form, True), table.form.state
        for one in restored:
            rows.fill(self._uid, one, descriptor)
        spaces: dict[bytes, dict[Any, Any]] = {}
        for ident, live in rows.table.entries.items():
            key, namespace = ident if table.form.is_windowed else (ident, None)
            spaces.setdefault(keys.encode(key), {})[namespace] = live
        for gone in (key for told in self._told.values() for state, key in told.gone if state == name):
            spaces.setdefault(gone, {})
        for encoded, found in spaces.items():
            place = Place(name, keys.encoded_key_group(encoded, self._max_parallelism), encoded)
            text = self._shown(encoded) if self._store.wants_text else None
            self._to_apply.append(table.change(place, table.documents.write(found), text))

    def timers(self, name: str) -> TimerStore:
        return self._heap.timers(name)

    def check_all_bound(self) -> None:
        self._heap.check_all_bound()
        for state, (one, *_) in self._restored.items():
            names, was = {state}, f"{one.handle.kind} of {one.handle.type}"
            if isinstance(one.handle, StoreHandle):
                names = {name for told in told_in(one).values() for name in told.states}
                was = f"documents in {state.removeprefix(STORE)}"
            if self._allow_dropped is not None and names - self._allow_dropped:
                name = ", ".join(sorted(names - self._allow_dropped))
                raise StateIncompatible(self._uid, name, was, f"nothing: no such state is in {self._store.where}")
        self._restored = {}
        self._start()

    def _start(self) -> StoreSession:
        """Take over from whoever was there before, and bring the store to what was restored."""
        if self._session is not None:
            return self._session
        session = self._store.open(self._owner)
        try:
            self._begin(session)
        except BaseException:
            session.close()
            raise
        self._session = session
        return session

    def _begin(self, session: StoreSession) -> None:
        restored = self._restored_from
        if self._told or (self._to_apply and restored is None):
            restored = max((t.checkpoint for t in self._told.values()), default=0)
        as_of = max((t.as_of for t in self._told.values()), default=restored)
        start = StoreStart(
            self._owner,
            self._store.where,
            {name: str(table.form) for name, table in self._tables.items()},
            self._store.on_fresh_start,
            restored,
            {group: told.reached for group, told in self._told.items()},
            self._allow_dropped,
            as_of,
        )
        session.take_over(partial(take_over, start=start))
        if as_of is not None:
            session.apply(as_of, self._to_apply)
            self._reached, self._to_apply = as_of, []
        self._entries = session.count(COUNT_UP_TO)

    # --- while records are processed ------------------------------------------------------------

    def prefetch(self, keys_of_batch: Iterable[Any]) -> None:
        self.flush()
        self._prefetched = set(keys_of_batch)
        self._heap.prefetch(self._prefetched)
        for table in self._tables.values():
            table.keep_only(self._prefetched)
        self._fetch(list(self._prefetched))

    def _touched(self, key: Any) -> None:
        """A key is used that was not announced."""
        self._fetch([key])
        self._prefetched.add(key)

    def _fetch(self, keys_wanted: Sequence[Any]) -> None:
        """Bring the content of keys in, for all states at once: one round trip."""
        session = self._start()
        missing = [(t, key, place) for t in self._tables.values() for key, place in t.missing(keys_wanted)]
        for n in range(0, len(missing), READ_AT_ONCE):
            part = missing[n : n + READ_AT_ONCE]
            found = {d.place: d.content for d in session.read([place for _, _, place in part])}
            for table, key, place in part:
                table.load(key, (place, found.get(place)))

    def flush(self) -> None:
        for table in self._tables.values():
            self._entries += table.flush()

    def keys(self, state: str) -> Iterator[Any]:
        table = self._tables.get(state)
        if table is None:
            raise UnknownState(self._uid, state, tuple(self._live))
        found = (key for page in self._pages(table) for key in self._all_of(page) if self._idents_of(table, key))
        return map(self.identities.shown, found)

    def peek(self, state: str, encoded: bytes) -> Peeked:
        """What the operator itself would read: also what the store has not been told yet."""
        table = self._tables.get(state)
        if table is None:
            raise UnknownState(self._uid, state, tuple(self._live))
        key, ttl = keys.decode_identity(encoded), table.form.ttl
        # Brought in as if a record had touched it, and dropped with the next batch.
        self._fetch([key])
        entries = {ident: dict.__getitem__(table.entries, ident) for ident in table.idents_of(key)}
        now = None if ttl is None else judged_at(ttl, self._moment)
        return rows_of(table.form, Content(entries, None, now), self._max_parallelism)

    def _pages(self, table: ExternalTable) -> Iterator[list[Any]]:
        """All keys of a state, page by page, with the state's content while the page is looked at."""
        self.flush()
        unapplied = table.unapplied()
        ours = [key for key, (_, content) in unapplied.items() if content is not None]
        for n in range(0, len(ours), READ_AT_ONCE):
            self._turn_over()
            self._fetch(ours[n : n + READ_AT_ONCE])
            yield ours[n : n + READ_AT_ONCE]
        for documents in self._start().scan(table.form.state):
            self._turn_over()
            found = {keys.decode_identity(document.place.key): document for document in documents}
            page = [key for key in found if key not in unapplied]
            for key, _ in table.missing(page):
                table.load(key, found[key])
            yield page

    def _turn_over(self) -> None:
        """What was brought in for the last page is not needed any more."""
        self.flush()
        for table in self._tables.values():
            table.keep_only(self._prefetched)

    def _all_of(self, page: list[Any]) -> list[Any]:
        """The same keys, with the content of all other states too."""
        self._fetch(page)
        return page

    def _idents(self, table: ExternalTable) -> Iterator[Any]:
        """What every entry is kept under, for the removal of what is over its time."""
        return (ident for page in self._pages(table) for key in page for ident in self._idents_of(table, key))

    def _idents_of(self, table: ExternalTable, key: Any) -> list[Any]:
        # Other keys may have been claimed since the page was brought in.
        if key not in table.entries.loaded:
            self._fetch([key])
        return table.idents_of(key)

    def _shown(self, encoded: bytes) -> Any:
        """The key if it can be made, else its encoding."""
        try:
            return keys.decode(encoded, self.identities.classes)
        except keys.UnknownClass:
            return encoded

    def entries(self) -> int:
        return self._entries + self._heap.entries()

    def close(self) -> None:
        self._heap.close()
        if self._session is not None:
            self._session.close()

    # --- checkpoints ----------------------------------------------------------------------------

    def snapshot(self, checkpoint: int, completed: int, *, canonical: bool = False) -> KeyedSnapshot:
        self._start()
        self.flush()
        # The confirmation may have been lost.
        self.confirmed(completed)
        taken = self._heap.snapshot(checkpoint, completed, canonical=canonical)
        gone: list[Place] = []
        for name, table in self._tables.items():
            rows, gone_here = table.cut(checkpoint)
            taken.parts.append(Rows(name, table.form.kind, table.form.type, rows))
            gone += gone_here
        # At least 1: where nothing was ever stored, the first checkpoint has all there is.
        changed = self._changed(checkpoint) or self._reached or 1
        told = Told(checkpoint, self._reached, list(self._tables), changed=changed)
        tables = partial(tell, told, gone, self._key_groups, self._max_parallelism)
        taken.parts.append(Rows(STORE + self._store.label, StoreHandle.kind, "bytes", tables))
        heap_done = taken.done
        taken.done = lambda handles: heap_done(_of_heap(handles))
        return taken

    def confirmed(self, checkpoint: int) -> None:
        changed = self._changed(checkpoint)
        if changed:
            changes = [c for t in self._tables.values() for c in t.changes(changed, self._store.wants_text)]
            self._start().apply(changed, changes)
            self._reached = changed
        for table in self._tables.values():
            table.applied(checkpoint)

    def _changed(self, checkpoint: int) -> int:
        """The last barrier up to ``checkpoint`` before which something changed that is not applied; 0: none."""
        layers = (layer for table in self._tables.values() for layer in table.layers)
        return max((number for number, written in layers if written and number <= checkpoint), default=0)


def _of_heap(handles: list[KeyedHandle] | None) -> list[KeyedHandle] | None:
    if handles is None:
        return None
    return [h for h in handles if isinstance(h, RowsHandle) and h.state.startswith(TIMERS)]
