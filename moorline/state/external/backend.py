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

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from moorline.api.state.descriptors import StateDescriptor
from moorline.api.state.external import ExternalStore, Place
from moorline.api.state.states import State
from moorline.errors import StateIncompatible
from moorline.model import keys
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import KeyedHandle, RowsHandle, StoreHandle
from moorline.model.type_tree.tree import BYTES
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
from moorline.state.external.connection import StoreConnection
from moorline.state.external.progress import STORE, StoreProgress, read_progress, write_progress
from moorline.state.external.table import ExternalTable
from moorline.state.forms import TIMERS_KIND, Form
from moorline.state.heap.backend import HeapBackend
from moorline.state.heap.rows import Content
from moorline.state.heap.states import live_state
from moorline.state.peeking import Peeked, rows_of
from moorline.state.registration import TIMERS, Made, Registration

#: So many documents are asked for at once.
READ_AT_ONCE = 5_000


class ExternalBackend:
    """The keyed states of one operator in one subtask, in an outside store.

    >>> from moorline.api.state.descriptors import ValueStateDescriptor
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
        self._states = Registration[ExternalTable](uid, moment, allow_dropped)
        clock = self._states.clock
        self._heap = HeapBackend(uid, max_parallelism, clock, key_type=key_type, allow_dropped=allow_dropped)
        self.current, self.identities = CurrentKey(), self._heap.identities
        self._max_parallelism, self._key_groups = max_parallelism, key_groups
        self._connection = StoreConnection(
            store, self._states, job=job, key_groups=key_groups, attempt=attempt, restored=restored
        )
        self._prefetched: set[Any] = set()

    # --- before the first record ----------------------------------------------------------------

    def restore(self, restored: Sequence[Restored]) -> None:
        store = self._connection.store
        for part in restored:
            if isinstance(part, RestoredFiles):
                self._states.refuse_files(part, f"state in {store.where}")
            match part.handle:
                case RowsHandle(kind=kind) if kind == TIMERS_KIND:
                    self._heap.restore([part])
                case StoreHandle(state=state) if state == STORE + store.label:
                    self._connection.restore_progress(part)
                case _:
                    self._states.add_rows(part)

    def bind(self, descriptor: StateDescriptor, scope: CurrentKey | None = None) -> State:
        return self._states.bind(descriptor, self.current, scope, self._make)

    def _make(self, form: Form, plain: StateDescriptor, current: CurrentKey) -> Made[ExternalTable]:
        table = ExternalTable(form, self._max_parallelism, self._connection.store.cache_bytes, self._touched)
        restored = self._states.take_rows(form.state)
        self._connection.restore_rows(table, restored, plain, self.identities, self._max_parallelism)
        live = live_state(plain, table.table, current, form.value.is_immutable)
        return Made(table, live, partial(self._idents, table), table.entries.get)

    def timers(self, name: str) -> TimerStore:
        return self._heap.timers(name)

    def check_all_bound(self) -> None:
        self._heap.check_all_bound()
        for state, part in self._states.take_unbound().items():
            names, was = {state}, f"{part.handle.kind} of {part.handle.type}"
            if isinstance(part.handle, StoreHandle):
                names = {name for progress in read_progress(part).values() for name in progress.states}
                was = f"documents in {state.removeprefix(STORE)}"
            if kept := self._states.not_droppable(names):
                expected = f"nothing: no such state is in {self._connection.store.where}"
                raise StateIncompatible(self._states.uid, ", ".join(sorted(kept)), was, expected)
        self._connection.session()

    # --- while records are processed ------------------------------------------------------------

    def prefetch(self, keys_of_batch: Iterable[Any]) -> None:
        self.flush()
        self._prefetched = set(keys_of_batch)
        self._heap.prefetch(self._prefetched)
        for table in self._states.parts.values():
            table.keep_only(self._prefetched)
        self._fetch(list(self._prefetched))

    def _touched(self, key: Any) -> None:
        """A key is used that was not announced."""
        self._fetch([key])
        self._prefetched.add(key)

    def _fetch(self, keys_wanted: Sequence[Any]) -> None:
        """Bring the content of keys in, for all states at once: one round trip."""
        session = self._connection.session()
        missing = [(t, key, place) for t in self._states.parts.values() for key, place in t.missing(keys_wanted)]
        for n in range(0, len(missing), READ_AT_ONCE):
            part = missing[n : n + READ_AT_ONCE]
            contents = {d.place: d.content for d in session.read([place for _, _, place in part])}
            for table, key, place in part:
                table.load(key, (place, contents.get(place)))

    def flush(self) -> None:
        for table in self._states.parts.values():
            self._connection.entries += table.flush()

    def keys(self, state: str) -> Iterator[Any]:
        table = self._states.part(state)
        stored = (key for page in self._pages(table) for key in self._all_of(page) if self._idents_of(table, key))
        return map(self.identities.shown, stored)

    def peek(self, state: str, encoded: bytes) -> Peeked:
        """The content that the operator itself would read: also what is not applied to the store yet."""
        table = self._states.queried(state)
        key = keys.decode_identity(encoded)
        # Brought in as if a record had touched it, and dropped with the next batch.
        self._fetch([key])
        entries = {ident: dict.__getitem__(table.entries, ident) for ident in table.idents_of(key)}
        content = Content(entries, None, self._states.judged_at(table.form))
        return rows_of(table.form, content, self._max_parallelism)

    def _pages(self, table: ExternalTable) -> Iterator[list[Any]]:
        """All keys of a state, page by page, with the state's content while the page is looked at."""
        self.flush()
        unapplied = table.unapplied()
        ours = [key for key, (_, content) in unapplied.items() if content is not None]
        for n in range(0, len(ours), READ_AT_ONCE):
            self._turn_over()
            self._fetch(ours[n : n + READ_AT_ONCE])
            yield ours[n : n + READ_AT_ONCE]
        for documents in self._connection.session().scan(table.form.state):
            self._turn_over()
            by_key = {keys.decode_identity(document.place.key): document for document in documents}
            page = [key for key in by_key if key not in unapplied]
            for key, _ in table.missing(page):
                table.load(key, by_key[key])
            yield page

    def _turn_over(self) -> None:
        """Drop what was brought in for the last page."""
        self.flush()
        for table in self._states.parts.values():
            table.keep_only(self._prefetched)

    def _all_of(self, page: list[Any]) -> list[Any]:
        """The same keys, with the content of all other states too."""
        self._fetch(page)
        return page

    def _idents(self, table: ExternalTable) -> Iterator[Any]:
        """The identities of all entries, for the removal of what is over its time."""
        return (ident for page in self._pages(table) for key in page for ident in self._idents_of(table, key))

    def _idents_of(self, table: ExternalTable, key: Any) -> list[Any]:
        # Other keys may have been prefetched since the page was brought in.
        if key not in table.entries.loaded:
            self._fetch([key])
        return table.idents_of(key)

    def entries(self) -> int:
        return self._connection.entries + self._heap.entries()

    def figures(self) -> StateFigures:
        figures = self._heap.figures()
        # What is counted outside is all states of the store together.
        outside = self._connection.entries
        return StateFigures(figures.keys | ({self._connection.store.label: outside} if outside else {}), figures.timers)

    def close(self) -> None:
        self._heap.close()
        self._connection.close()

    # --- checkpoints ----------------------------------------------------------------------------

    def snapshot(self, checkpoint: int, completed: int, *, canonical: bool = False) -> KeyedSnapshot:
        connection = self._connection
        connection.session()
        self.flush()
        # The confirmation may have been lost.
        self.confirmed(completed)
        taken = self._heap.snapshot(checkpoint, completed, canonical=canonical)
        gone: list[Place] = []
        for name, table in self._states.parts.items():
            rows, gone_here = table.cut(checkpoint)
            taken.parts.append(Rows(name, table.form.kind, table.form.type, rows))
            gone += gone_here
        # At least 1: where nothing was ever stored, the first checkpoint has all there is.
        changed = self._changed(checkpoint) or connection.reached or 1
        progress = StoreProgress(checkpoint, connection.reached, list(self._states.parts), changed=changed)
        tables = partial(write_progress, progress, gone, self._key_groups, self._max_parallelism)
        taken.parts.append(Rows(STORE + connection.store.label, StoreHandle.kind, BYTES, tables))
        heap_done = taken.done
        taken.done = lambda handles: heap_done(_of_heap(handles))
        return taken

    def confirmed(self, checkpoint: int) -> None:
        tables, with_text = self._states.parts.values(), self._connection.store.wants_text
        changed = self._changed(checkpoint)
        if changed:
            self._connection.apply(changed, [change for t in tables for change in t.changes(changed, with_text)])
        for table in tables:
            table.applied(checkpoint)

    def _changed(self, checkpoint: int) -> int:
        """The last barrier up to ``checkpoint`` before which something changed that is not applied; 0: none."""
        layers = (layer for table in self._states.parts.values() for layer in table.layers)
        return max((number for number, written in layers if written and number <= checkpoint), default=0)


def _of_heap(handles: list[KeyedHandle] | None) -> list[KeyedHandle] | None:
    if handles is None:
        return None
    return [h for h in handles if isinstance(h, RowsHandle) and h.state.startswith(TIMERS)]
