"""The database of one subtask's backend: when it is opened, where each state lies in it, how many keys there are.

It is opened at its first use: empty, or from the files of checkpoints (``checkpoints/restore.py``). Nothing is open
before, so a backend can be made before a fork. A state that is bound gets its place (:meth:`Database.entry`), with the
restored content in today's types: rows of the database are migrated, rows of snapshots are filled in.

**Counting.** RocksDB's own estimate counts rows, and every overwritten version of one until it is compacted. Keys are
spread evenly over key groups by their hash, so the keys of a few key groups say how many there are in all of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from moorline.api.state.descriptors import StateDescriptor
from moorline.errors import StateIncompatible
from moorline.model.key_groups import KeyGroupRange
from moorline.model.keys.kinds import kind_of
from moorline.state.backend import RestoredFiles, RestoredRows
from moorline.state.forms import TIMERS_KIND, Form
from moorline.state.readers import checked_tables, readers_of, readers_of_handle
from moorline.state.rocksdb.checkpoints.restore import Opened, open_restored
from moorline.state.rocksdb.layout import encoded_key, groups, heads, place_end
from moorline.state.rocksdb.lists import Sequence as ListSequence
from moorline.state.rocksdb.registry import Entry, Registry
from moorline.state.rocksdb.rows import Filling, migrate_rows, strip_stamps
from moorline.state.rocksdb.store import Row, Store

#: Up to so many rows are counted; of more there is an estimate.
COUNTED_ROWS = 25_000
#: Rows that are read of a large state: a few milliseconds, and some per cent of error.
SAMPLED_ROWS = 2_000


class Database:
    """The database below ``folder``, which is this attempt's own, with the rows of ``key_groups``."""

    def __init__(self, uid: str, folder: Path, memory: int, key_groups: KeyGroupRange) -> None:
        self._uid, self.folder, self._memory, self.key_groups = uid, folder, memory, key_groups
        self._opened: tuple[Store, Registry] | None = None
        #: Numbers the elements of lists.
        self.sequence = ListSequence()
        #: Bytes that were fetched to restore, and rows that were copied from databases other than the first.
        self.fetched_bytes = self.copied_rows = 0

    # --- opening --------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    @property
    def store(self) -> Store:
        return self._open()[0]

    @property
    def registry(self) -> Registry:
        return self._open()[1]

    def _open(self) -> tuple[Store, Registry]:
        if self._opened is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            store = Store(self.folder / "db", self._memory)
            self._opened = store, Registry(store)
        return self._opened

    def open_restored(self, natives: Sequence[RestoredFiles]) -> Opened:
        """Open it with what the files of checkpoints have of our key groups."""
        if self._opened is not None:
            raise ValueError("native state is restored first, and at once")
        opened = open_restored(self._uid, natives, self.folder / "db", self.folder, self.key_groups, self._memory)
        self._opened = opened.store, opened.registry
        self.fetched_bytes, self.copied_rows = opened.fetched_bytes, opened.copied_rows
        self.sequence.last = opened.sequence
        return opened

    def close(self) -> None:
        """Close it, if it is open, and remove its folder."""
        if self._opened is not None:
            self._opened[0].close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- the place of a state -------------------------------------------------------------------

    def entry(
        self, form: Form, descriptor: StateDescriptor | None, restored: Iterable[RestoredRows], max_parallelism: int
    ) -> Entry:
        """The place of a state, with its restored content in today's types."""
        store, registry = self._open()
        entry = registry.entries.get(form.state)
        if entry is None:
            entry = registry.add(form.state, form.kind, form.type, form.is_windowed)
        elif (entry.kind, entry.is_windowed) != (form.kind, form.is_windowed):
            raise StateIncompatible(self._uid, form.state, str(entry), str(form))
        elif entry.type != form.type:
            readers = readers_of(self._uid, form, descriptor, entry.type)
            migrate_rows(store, entry.number, form, readers, self.key_groups)
        is_stamped, has_stamps = form.ttl is not None, entry.has_stamps
        if is_stamped and not entry.is_stamped and has_stamps:
            # It had a time to live, then none, and has one again: a new life begins for all of it.
            strip_stamps(store, entry.number, self.key_groups)
        now = Entry(entry.number, form.kind, form.type, form.is_windowed, is_stamped, is_stamped or has_stamps)
        if now != entry:
            entry = now
            registry.put(form.state, entry)
        filling = Filling(store, entry.number, form, self.sequence, max_parallelism)
        for rows in restored:
            readers = readers_of_handle(self._uid, form, descriptor, rows)
            for table in checked_tables(self._uid, form, readers, rows):
                filling.take(table, readers, is_increment=rows.handle.increment)
        return entry

    def unbound(self, bound: Collection[str]) -> dict[str, str]:
        """The states in it beside those that are bound, and how each is stored."""
        entries = {} if self._opened is None else self._opened[1].entries
        return {name: str(entry) for name, entry in entries.items() if name not in bound}

    def empty_timers(self, names: Iterable[str]) -> set[str]:
        """Those of some states in it that are kinds of timers, of which none is set."""
        entries = {name: self.registry.entries[name] for name in names}
        timers = {name: entry for name, entry in entries.items() if entry.kind == TIMERS_KIND}
        return {name for name, entry in timers.items() if next(self.rows(entry), None) is None}

    def restored(self, dropped: Iterable[str]) -> None:
        """Everything is bound. Remove the states that are to be dropped."""
        if self._opened is not None:
            store, registry = self._opened
            for name in dropped:
                registry.drop(name)
            store.is_restoring = False

    # --- what is in it --------------------------------------------------------------------------

    def rows(self, entry: Entry) -> Iterator[Row]:
        """All rows of a state, as they are now."""
        return self.store.scan(*groups(entry.number, self.key_groups.first, self.key_groups.end))

    def kinds_of_keys(self) -> set[str]:
        """The kinds of some keys: a snapshot of an older version has not noted them."""
        first_rows = (row for entry in self.registry.entries.values() for row, _ in islice(self.rows(entry), 1))
        return {kind_of(encoded_key(row[2 : place_end(row)])) for row in first_rows}

    def count_keys(self, entry: Entry, *, by_window: bool) -> int:
        """The keys of a state. ``by_window``: its pairs of key and window are counted instead.

        Exact if they are few, else by a sample.
        """
        is_small = self.store.estimated_rows() <= COUNTED_ROWS
        return (self._counted if is_small else self._sampled)(entry, by_window)

    def _counted(self, entry: Entry, by_window: bool) -> int:
        return sum(1 for _ in heads(self.rows(entry), by_window))

    def _sampled(self, entry: Entry, by_window: bool) -> int:
        store, first, end = self.store, self.key_groups.first, self.key_groups.end
        read = counted = done = 0
        for group in range(first, end):
            left = SAMPLED_ROWS - read
            rows = list(islice(store.scan(*groups(entry.number, group, group + 1)), left))
            keys = sum(1 for _ in heads(rows, by_window))
            read += len(rows)
            if len(rows) == left:
                # This key group is not read to its end. If it is the first, what is known is the keys in so many rows.
                return counted * (end - first) // done if done else keys * store.estimated_rows() // len(rows)
            counted, done = counted + keys, done + 1
        return counted
