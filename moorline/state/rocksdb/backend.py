"""State in RocksDB, on the worker's disk: it may be larger than memory, and a checkpoint uploads what has changed.

The rows are drawn in ``state/rocksdb/layout.py``. Accesses go through write-back caches (``state/rocksdb/cells.py``):

    claim     the rows that the batch's keys will need are read at once
    access    a dict, nearly always
    settle    everything the batch has changed is written at once

    full          a snapshot streams rows from a view of the database, in the form every backend reads
    incremental   a snapshot is a checkpoint of RocksDB: hard links to its files, of which most are in storage already

What is read is a copy: changing a mutable value in place stores nothing until it is written back, as in Flink.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

from moorline.api.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from moorline.api.state.states import State
from moorline.errors import InvalidArgument, StateIncompatible, UnknownState
from moorline.model.key_groups import KeyGroupRange
from moorline.model.keys.identity import KeyIdentities
from moorline.model.keys.kinds import kind_of
from moorline.state.backend import (
    CurrentKey,
    Files,
    KeyedSnapshot,
    OperatorClock,
    Restored,
    RestoredFiles,
    RestoredRows,
)
from moorline.state.forms import Form, form_of
from moorline.state.peeking import KINDS, MOST_ELEMENTS, Peeked, check_count, joined
from moorline.state.rocksdb.cells import Cells, Places, Room, codec_of, row_prefix
from moorline.state.rocksdb.census import count_keys
from moorline.state.rocksdb.layout import (
    after,
    encoded_key,
    encoded_place,
    group_of,
    groups,
    heads,
    number_bytes,
    place_end,
)
from moorline.state.rocksdb.lists import Lists, RocksDbListState
from moorline.state.rocksdb.lists import Sequence as ListSequence
from moorline.state.rocksdb.maps import MapKeys, Maps, RocksDbMapState, map_codec
from moorline.state.rocksdb.readers import check_columns, readers_of
from moorline.state.rocksdb.registry import Entry, Registry
from moorline.state.rocksdb.restore import open_restored
from moorline.state.rocksdb.rows import Filling, all_rows, migrate_rows, strip_stamps, tables_of
from moorline.state.rocksdb.states import cell_state
from moorline.state.rocksdb.store import Store, new_batch
from moorline.state.rocksdb.sweep import Sweep
from moorline.state.rocksdb.timers import RocksDbTimers
from moorline.state.rocksdb.uploads import Uploads
from moorline.state.ttl.states import expiring, judged_at
from moorline.state.ttl.sweep import TURNS
from moorline.state.types.annotations import stored

#: The name of the state that holds the timers of a kind.
TIMERS = "timers:"
#: Up to so many rows are counted; of more there is an estimate.
COUNTED_ROWS = 25_000
#: Rows that are read ahead at once, and for one batch at most. Large rows are bounded by their bytes as well.
READ_ROWS, MOST_AHEAD = 2_000, 20_000
#: What remembering the place of a key costs, roughly.
PLACE_BYTES = 160


@dataclass(frozen=True)
class _Bound:
    """A state that is in use."""

    form: Form
    entry: Entry
    part: Cells | Lists | Maps | RocksDbTimers
    sweep: Sweep | None = None


class RocksDbBackend:
    """The keyed states of one operator in one subtask, in RocksDB below ``folder``, which is this attempt's own.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "counter-0"
    >>> backend = RocksDbBackend("counter", 128, key_groups=KeyGroupRange(0, 128), folder=folder)
    >>> count = backend.bind(ValueStateDescriptor("count", int, default=0))
    >>> backend.prefetch(["a"])
    >>> backend.current.key = "a"
    >>> count.update(count.value() + 1)
    >>> backend.flush()
    >>> count.value(), backend.entries()
    (1, 1)
    >>> backend.close()

    ``memory_budget`` is for RocksDB and the caches together. ``moment``, ``key_type`` and ``allow_dropped`` are as for
    the heap backend. Nothing is opened before the first use, so it can be made before a fork.
    """

    def __init__(
        self,
        uid: str,
        max_parallelism: int,
        moment: OperatorClock | None = None,
        *,
        key_groups: KeyGroupRange,
        folder: Path,
        incremental: bool = True,
        memory_budget: int = 256 << 20,
        key_type: Any = None,
        allow_dropped: frozenset[str] | None = frozenset(),
    ) -> None:
        self.current = CurrentKey()
        #: Bytes that were fetched to restore, and rows that were copied from databases other than the first.
        self.fetched_bytes = self.copied_rows = 0
        self._uid, self._max_parallelism, self._key_groups = uid, max_parallelism, key_groups
        self._moment = moment if moment is not None else OperatorClock()
        self._folder, self._incremental = folder, incremental
        self.identities = KeyIdentities(uid, key_type)
        self._allow_dropped = allow_dropped
        # Half of what is left is for the caches: they are full twice, once as the cache and once as the old one.
        self._store_memory = memory_budget * 5 // 8
        self._room = Room(memory_budget // 8, self._relieve)
        self._places = Places(max_parallelism)
        self._sequence = ListSequence()
        self._opened: tuple[Store, Registry] | None = None
        self._bound: dict[str, _Bound] = {}
        self._live: dict[str, State] = {}
        self._rows: dict[str, list[RestoredRows]] = {}
        self._prefetched = 0
        self._folders = count()
        self._uploads = Uploads()

    # --- before the first record ----------------------------------------------------------------

    def restore(self, restored: Sequence[Restored]) -> None:
        natives = [one for one in restored if isinstance(one, RestoredFiles)]
        for one in restored:
            if isinstance(one, RestoredRows):
                self._rows.setdefault(one.handle.state, []).append(one)
        if not natives:
            return
        if self._opened is not None:
            raise ValueError("native state is restored first, and at once")
        opened = open_restored(
            self._uid, natives, self._folder / "db", self._folder, self._key_groups, self._store_memory
        )
        self._opened = opened.store, opened.registry
        self._uploads.opened_with([n.handle for n in natives], opened.files, opened.version)
        self.fetched_bytes, self.copied_rows = opened.fetched_bytes, opened.copied_rows
        self._sequence.last = opened.sequence
        if not self.identities.kinds:
            self.identities.expect(self._kinds_of_keys(opened.store, opened.registry))

    def _kinds_of_keys(self, store: Store, registry: Registry) -> set[str]:
        """The kinds of some keys: a snapshot of an older version has not noted them."""
        mine, kinds = self._key_groups, set()
        for entry in registry.entries.values():
            for row, _ in islice(store.scan(*groups(entry.number, mine.first, mine.end)), 1):
                kinds.add(kind_of(encoded_key(row[2 : place_end(row)])))
        return kinds

    def _database(self) -> tuple[Store, Registry]:
        if self._opened is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            store = Store(self._folder / "db", self._store_memory)
            self._opened = store, Registry(store)
        return self._opened

    def bind(self, descriptor: StateDescriptor, scope: CurrentKey | None = None) -> State:
        name = descriptor.name
        form = form_of(descriptor, f"state {name!r} of operator {self._uid!r}", scope is not None)
        if name in self._live:
            known = self._bound[name].form
            if str(known) != str(form):
                advice = f"It was declared as {known} before. Give one of them another name."
                raise InvalidArgument(f"state {name!r} of operator {self._uid!r}", str(form), advice)
            return self._live[name]
        current = self.current if scope is None else scope
        store, _ = self._database()
        entry = self._entry(form, descriptor)
        prefix_of = row_prefix(entry.number, self._places, form.is_windowed)
        ttl = descriptor.ttl_config
        is_immutable, is_stamped = form.value.is_immutable, ttl is not None
        part: Cells | Lists | Maps
        live: State
        if isinstance(descriptor, ListStateDescriptor):
            part = Lists(store, prefix_of, codec_of(form.value, name, is_stamped), self._room, self._sequence)
            live = RocksDbListState(descriptor, part, current)
        elif isinstance(descriptor, MapStateDescriptor):
            assert form.map_key is not None
            codec = map_codec(form.value, name, is_stamped)
            part = Maps(store, prefix_of, MapKeys(form.map_key, name), codec, self._room, is_immutable=is_immutable)
            live = RocksDbMapState(descriptor, part, current)
        else:
            part = Cells(
                store, prefix_of, codec_of(form.value, name, is_stamped), self._room, is_immutable=is_immutable
            )
            inner = descriptor if ttl is None else ValueStateDescriptor(name, descriptor.type)  # type: ignore[attr-defined]
            live = cell_state(inner, part, current, is_immutable)
        sweep = None
        if ttl is not None:
            live = expiring(descriptor, live, self._moment, current)
            sweep = Sweep(store, entry.number, ttl, self._key_groups, partial(judged_at, ttl, self._moment))
        self._bound[name] = _Bound(form, entry, part, sweep)
        self._live[name] = live
        return live

    def timers(self, name: str) -> RocksDbTimers:
        state = TIMERS + name
        if state not in self._bound:
            form = Form(state, "timers", "int", stored(int, "timers"), is_windowed=True)
            store, _ = self._database()
            entry = self._entry(form, None)
            part = RocksDbTimers(store, entry.number, self._places, self.identities.shown)
            self._bound[state] = _Bound(form, entry, part)
        found = self._bound[state].part
        assert isinstance(found, RocksDbTimers)
        return found

    def _entry(self, form: Form, descriptor: StateDescriptor | None) -> Entry:
        """The place of a state in the database, with its restored content in today's types."""
        store, registry = self._database()
        entry = registry.entries.get(form.state)
        if entry is None:
            entry = registry.add(form.state, form.kind, form.type, form.is_windowed)
        elif (entry.kind, entry.is_windowed) != (form.kind, form.is_windowed):
            raise StateIncompatible(self._uid, form.state, str(entry), str(form))
        elif entry.type != form.type:
            readers = readers_of(self._uid, form, descriptor, entry.type)
            migrate_rows(store, entry.number, form, readers, self._key_groups)
        is_stamped, has_stamps = form.ttl is not None, entry.has_stamps
        if is_stamped and not entry.is_stamped and has_stamps:
            # It had a time to live, then none, and has one again: a new life begins for all of it.
            strip_stamps(store, entry.number, self._key_groups)
        now = Entry(entry.number, form.kind, form.type, form.is_windowed, is_stamped, is_stamped or has_stamps)
        if now != entry:
            entry = now
            registry.put(form.state, entry)
        filling = Filling(store, entry.number, form, self._sequence, self._max_parallelism)
        for one in self._rows.pop(form.state, ()):
            handle = one.handle
            if handle.kind != form.kind:
                raise StateIncompatible(self._uid, form.state, f"{handle.kind} of {handle.type}", str(form))
            readers = readers_of(self._uid, form, descriptor, handle.type)
            for table in one.tables():
                check_columns(self._uid, form, readers, handle.type, table)
                filling.take(table, readers, is_increment=handle.increment)
        return entry

    def check_all_bound(self) -> None:
        entries = self._opened[1].entries if self._opened is not None else {}
        left = {name: str(entry) for name, entry in entries.items() if name not in self._bound}
        left |= {name: f"{r[0].handle.kind} of {r[0].handle.type}" for name, r in self._rows.items()}
        for name, was in left.items():
            if self._allow_dropped is not None and name not in self._allow_dropped:
                raise StateIncompatible(self._uid, name, was, "nothing: the operator has no such state")
        for name in left:
            if self._opened is not None and name in entries:
                self._opened[1].drop(name)
        self._rows = {}
        if self._opened is not None:
            self._opened[0].is_restoring = False

    # --- while records are processed ------------------------------------------------------------

    def prefetch(self, keys: Iterable[Any]) -> None:
        distinct = dict.fromkeys(keys)
        self._prefetched += len(distinct)
        self._places.prepare(distinct)
        rows_left, bytes_left = MOST_AHEAD, self._room.limit
        for bound in self._bound.values():
            if isinstance(bound.part, Cells) and not bound.form.is_windowed:
                missing, done = bound.part.wanted(distinct), 0
                while done < len(missing) and rows_left > 0 and bytes_left > 0:
                    ahead = missing[done : done + min(READ_ROWS, rows_left, bound.part.fitting(bytes_left))]
                    bytes_left -= bound.part.read_ahead(ahead)
                    rows_left -= len(ahead)
                    done += len(ahead)

    def flush(self) -> None:
        self._flush()
        # Beginning to sweep costs more than looking at some rows, so small batches pay together.
        is_turn = self._prefetched >= TURNS
        for bound in self._bound.values():
            bound.part.flushed()
            if is_turn and bound.sweep is not None:
                bound.sweep.turn(self._prefetched)
        self._prefetched = 0 if is_turn else self._prefetched
        if self._room.taken > self._room.limit:
            self._relieve()
        if len(self._places) * PLACE_BYTES > self._room.limit // 4:
            self._places.clear()

    def _flush(self) -> None:
        """Write what has changed. May happen at any time: nobody but us sees it."""
        if self._opened is None:
            return
        batch = new_batch()
        for bound in self._bound.values():
            bound.part.write_into(batch)
        self._opened[0].write(batch)

    def _relieve(self) -> None:
        """The caches are full."""
        self._flush()
        for bound in self._bound.values():
            bound.part.shrink()
        self._room.taken = 0

    def keys(self, state: str) -> Iterator[Any]:
        bound = self._bound.get(state)
        if bound is None:
            raise UnknownState(self._uid, state, tuple(self._live))
        self._flush()
        store, _ = self._database()
        rows = store.scan(*groups(bound.entry.number, self._key_groups.first, self._key_groups.end))
        return (self.identities.made_from(encoded_key(head)) for head in heads(rows, False))

    def peek(self, state: str, encoded: bytes) -> Peeked:
        bound = self._bound.get(state)
        if bound is None or bound.form.kind not in KINDS:
            raise UnknownState(self._uid, state, tuple(self._live))
        self._flush()
        store, _ = self._database()
        form, ttl, number = bound.form, bound.form.ttl, bound.entry.number
        prefix = number_bytes(number) + encoded_place(encoded, self._max_parallelism)
        if form.kind in ("list", "map"):
            check_count(sum(1 for _ in islice(store.scan(prefix, after(prefix)), MOST_ELEMENTS + 1)))
        group = group_of(prefix)
        tables = tables_of(
            store.view(prefix, after(prefix)),
            number,
            form,
            KeyGroupRange(group, group + 1),
            is_stamped=ttl is not None,
            expired_at=None if ttl is None else judged_at(ttl, self._moment),
        )
        return Peeked(form.kind, form.type, joined(tables))

    def entries(self) -> int:
        if self._opened is None:
            return 0
        self._flush()
        store, _ = self._database()
        is_small = store.estimated_rows() <= COUNTED_ROWS
        states = [(b.entry.number, b.form.is_windowed) for b in self._bound.values() if b.form.kind != "timers"]
        return sum(count_keys(store, number, self._key_groups, by_window, is_small) for number, by_window in states)

    def memory_bytes(self) -> int:
        """What RocksDB and the caches take, as an estimate."""
        return self._database()[0].memory_bytes() + 2 * self._room.taken

    def close(self) -> None:
        if self._opened is not None:
            self._opened[0].close()
        self._bound, self._live, self._rows = {}, {}, {}
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- snapshots ------------------------------------------------------------------------------

    def snapshot(self, checkpoint: int, completed: int, *, canonical: bool = False) -> KeyedSnapshot:
        if not self._bound:
            return KeyedSnapshot()
        self._flush()
        return self._files(checkpoint, completed) if self._incremental and not canonical else self._all_rows()

    def _all_rows(self) -> KeyedSnapshot:
        store, _ = self._database()
        forms = [(bound.entry.number, bound.form) for bound in self._bound.values()]
        return all_rows(store, forms, self._key_groups, lambda ttl: judged_at(ttl, self._moment))

    def _files(self, checkpoint: int, completed: int) -> KeyedSnapshot:
        """A checkpoint of RocksDB."""
        store, registry = self._database()
        registry.describe(self._key_groups, self._sequence.last)
        base, version = self._uploads.base(completed), store.version()
        if base.version == version:
            # Nothing has been written since: the old handles say it all.
            done = partial(self._uploads.done, checkpoint, version, None)
            return KeyedSnapshot(reused=base.handles, done=done)
        folder = self._folder / f"checkpoint-{checkpoint}-{next(self._folders)}"
        paths = store.checkpoint(folder)
        known = base.known(paths)
        new = {name: path for name, path in paths.items() if name not in known}
        done = partial(self._uploads.done, checkpoint, version, folder)
        return KeyedSnapshot(parts=[Files(registry.states(), new, known)], done=done)

    def confirmed(self, checkpoint: int) -> None:
        """Nothing: what has completed is known by the next barrier."""
