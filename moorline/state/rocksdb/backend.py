"""State in RocksDB, on the worker's disk: it may be larger than memory, and a checkpoint uploads what has changed.

The rows are drawn in ``state/rocksdb/layout.py``. Accesses go through write-back caches (``state/rocksdb/cells.py``):

    prefetch   the rows that the batch's keys will need are read at once
    access     a dict, nearly always
    flush      everything the batch has changed is written at once

    full          a snapshot streams rows from a view of the database, in the form every backend reads
    incremental   a snapshot is a checkpoint of RocksDB: hard links to its files, of which most are in storage already

What is read is a copy: changing a mutable value in place stores nothing until it is written back, as in Flink.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from moorline.api.state.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from moorline.api.state.states import State
from moorline.model.key_groups import KeyGroupRange
from moorline.model.keys.identity import KeyIdentities
from moorline.state.backend import CurrentKey, KeyedSnapshot, OperatorClock, Restored, RestoredFiles, StateFigures
from moorline.state.forms import Form, form_of, timers_form
from moorline.state.peeking import MOST_ELEMENTS, Peeked, check_count, joined
from moorline.state.registration import TIMERS, Made, Registration
from moorline.state.rocksdb.cells import Cells, Places, Room, codec_of, row_prefix, row_prefixes
from moorline.state.rocksdb.checkpoints.uploads import Uploads
from moorline.state.rocksdb.columns import RowsInColumns
from moorline.state.rocksdb.database import Database
from moorline.state.rocksdb.layout import after, encoded_key, encoded_place, group_of, heads, number_bytes
from moorline.state.rocksdb.lists import Lists, RocksDbListState
from moorline.state.rocksdb.maps import MapKeys, Maps, RocksDbMapState, map_codec
from moorline.state.rocksdb.registry import Entry
from moorline.state.rocksdb.rows import all_rows, tables_of
from moorline.state.rocksdb.states import cell_state
from moorline.state.rocksdb.store import new_batch
from moorline.state.rocksdb.sweep import RowSweep
from moorline.state.rocksdb.timers import RocksDbTimers
from moorline.state.rocksdb.windows import TimersOfWindows, WindowsInColumns
from moorline.state.ttl.states import judged_at
from moorline.state.ttl.sweep import TURNS

#: Rows that are read ahead at once, and for one batch at most. Large rows are bounded by their bytes as well.
READ_ROWS, MOST_AHEAD = 2_000, 20_000
#: The memory that the place of a key takes, roughly.
PLACE_BYTES = 160


@dataclass(frozen=True)
class BoundState:
    """A state that is in use, or the timers of a kind."""

    form: Form
    entry: Entry
    rows: Cells | Lists | Maps | RocksDbTimers | RowsInColumns | TimersOfWindows
    sweep: RowSweep | None = None


class RocksDbBackend:
    """The keyed states of one operator in one subtask, in RocksDB below ``folder``, which is this attempt's own.

    >>> import tempfile
    >>> from moorline.api.state.descriptors import ValueStateDescriptor
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
        self.current, self.identities = CurrentKey(), KeyIdentities(uid, key_type)
        self._states = Registration[BoundState](uid, moment, allow_dropped)
        self._max_parallelism, self._incremental = max_parallelism, incremental
        # Half of what is left is for the caches: they are full twice, once as the cache and once as the old one.
        self.database = Database(uid, folder, memory_budget * 5 // 8, key_groups)
        self._room = Room(memory_budget // 8, self._relieve)
        self._places = Places(max_parallelism)
        self._prefetched = 0
        self._uploads = Uploads()
        #: The one state of an operator that works on columns. It is written when it has to be, not with each batch.
        self._columns: RowsInColumns | None = None

    # --- before the first record ----------------------------------------------------------------

    def restore(self, restored: Sequence[Restored]) -> None:
        natives = []
        for part in restored:
            if isinstance(part, RestoredFiles):
                natives.append(part)
            else:
                self._states.add_rows(part)
        if not natives:
            return
        opened = self.database.open_restored(natives)
        self._uploads.opened_with([n.handle for n in natives], opened.files, opened.version)
        if not self.identities.kinds:
            self.identities.expect(self.database.kinds_of_keys())

    def bind(self, descriptor: StateDescriptor, scope: CurrentKey | None = None) -> State:
        return self._states.bind(descriptor, self.current, scope, self._make)

    def _make(self, form: Form, plain: StateDescriptor, current: CurrentKey) -> Made[BoundState]:
        store, entry, room = self.database.store, self._entry(form, plain), self._room
        prefix_of = row_prefix(entry.number, self._places, form.is_windowed)
        name, ttl, is_immutable = form.state, form.ttl, form.value.is_immutable
        rows: Cells | Lists | Maps
        live: State
        match plain:
            case ListStateDescriptor():
                codec = codec_of(form.value, name, ttl is not None)
                rows = Lists(store, prefix_of, codec, room, self.database.sequence)
                live = RocksDbListState(plain, rows, current)
            case MapStateDescriptor():
                assert form.map_key is not None
                map_keys, codec_of_map = MapKeys(form.map_key, name), map_codec(form.value, name, ttl is not None)
                rows = Maps(store, prefix_of, map_keys, codec_of_map, room, is_immutable=is_immutable)
                live = RocksDbMapState(plain, rows, current)
            case _:
                codec = codec_of(form.value, name, ttl is not None)
                prefixes_of = row_prefixes(entry.number, self._places, form.is_windowed)
                rows = Cells(store, prefixes_of, codec, room, is_immutable=is_immutable)
                live = cell_state(plain, rows, current, is_immutable)
        return Made(BoundState(form, entry, rows, self._sweep(form, entry)), live)

    def bind_columns(self, descriptor: StateDescriptor) -> RowsInColumns:
        """The one state of an operator that works on columns, whose type has fields."""
        form = form_of(descriptor, f"state {descriptor.name!r} of operator {self._states.uid!r}", False)
        entry = self._entry(form, descriptor)
        # All of the room: it is not full twice, as the other caches are.
        rows = RowsInColumns(self.database.store, form, entry.number, self._max_parallelism, 2 * self._room.limit)
        self._states.parts[form.state] = BoundState(form, entry, rows, self._sweep(form, entry))
        self._columns = rows
        return rows

    def bind_windows(self, descriptor: StateDescriptor, lateness_ms: int) -> WindowsInColumns:
        """The windows of an operator that works on columns, with their timers."""
        form = form_of(descriptor, f"state {descriptor.name!r} of operator {self._states.uid!r}", True)
        timers_of = timers_form(TIMERS + "event")
        entry, timers = self._entry(form, descriptor), self._entry(timers_of, None)
        room, most = 2 * self._room.limit, self._max_parallelism
        rows = WindowsInColumns(
            self.database.store, form, entry.number, most, room, timers=timers.number, lateness_ms=lateness_ms
        )
        self._states.parts[form.state] = BoundState(form, entry, rows)
        self._states.parts[timers_of.state] = BoundState(timers_of, timers, TimersOfWindows())
        self._columns = rows
        return rows

    def _sweep(self, form: Form, entry: Entry) -> RowSweep | None:
        """The filter that removes rows of a state that are over their time, if it has one."""
        if form.ttl is None:
            return None
        now = partial(judged_at, form.ttl, self._states.clock)
        return RowSweep(self.database.store, entry.number, form.ttl, self.database.key_groups, now)

    def timers(self, name: str) -> RocksDbTimers:
        timers = self._states.timers(name, self._make_timers).rows
        assert isinstance(timers, RocksDbTimers)
        return timers

    def _make_timers(self, form: Form) -> BoundState:
        entry = self._entry(form, None)
        timers = RocksDbTimers(self.database.store, entry.number, self._places, self.identities.shown)
        return BoundState(form, entry, timers)

    def _entry(self, form: Form, descriptor: StateDescriptor | None) -> Entry:
        return self.database.entry(form, descriptor, self._states.take_rows(form.state), self._max_parallelism)

    def check_all_bound(self) -> None:
        unbound = self.database.unbound(self._states.parts)
        # An operator that went record by record had kinds of timers, of which it set none.
        unset = self.database.empty_timers(unbound) if self._columns is not None else set()
        self._states.check_all_bound({name: was for name, was in unbound.items() if name not in unset})
        self.database.restored(dropped=unbound)

    # --- while records are processed ------------------------------------------------------------

    def prefetch(self, keys: Iterable[Any]) -> None:
        distinct = dict.fromkeys(keys)
        self._prefetched += len(distinct)
        self._places.prepare(distinct)
        rows_left, bytes_left = MOST_AHEAD, self._room.limit
        for bound in self._states.parts.values():
            if isinstance(bound.rows, Cells) and not bound.form.is_windowed:
                missing, done = bound.rows.wanted(distinct), 0
                while done < len(missing) and rows_left > 0 and bytes_left > 0:
                    ahead = missing[done : done + min(READ_ROWS, rows_left, bound.rows.fitting(bytes_left))]
                    bytes_left -= bound.rows.ahead.read(ahead)
                    rows_left -= len(ahead)
                    done += len(ahead)

    def flush(self) -> None:
        if self._columns is not None:
            self._columns.end_batch()
            self._prefetched, self._columns.asked = self._prefetched + self._columns.asked, 0
        else:
            self._write_back()
        # Beginning to sweep costs more than looking at some rows, so small batches pay together.
        is_turn = self._prefetched >= TURNS
        for bound in self._states.parts.values():
            bound.rows.flushed()
            if is_turn and bound.sweep is not None:
                bound.sweep.turn(self._prefetched)
        self._prefetched = 0 if is_turn else self._prefetched
        if self._room.taken > self._room.limit:
            self._relieve()
        if len(self._places) * PLACE_BYTES > self._room.limit // 2:
            self._places.clear()

    def _write_back(self) -> None:
        """Write what has changed. May happen at any time: no other process sees the database."""
        if not self.database.is_open:
            return
        batch = new_batch()
        for bound in self._states.parts.values():
            bound.rows.write_into(batch)
        self.database.store.write(batch)

    def _relieve(self) -> None:
        """Write what has changed and empty the caches: they are full."""
        self._write_back()
        for bound in self._states.parts.values():
            bound.rows.shrink()
        self._room.taken = 0

    def keys(self, state: str) -> Iterator[Any]:
        bound = self._states.part(state)
        self._write_back()
        rows = self.database.rows(bound.entry)
        return (self.identities.made_from(encoded_key(head)) for head in heads(rows, False))

    def peek(self, state: str, encoded: bytes) -> Peeked:
        bound = self._states.queried(state)
        self._write_back()
        form, number, store = bound.form, bound.entry.number, self.database.store
        prefix = number_bytes(number) + encoded_place(encoded, self._max_parallelism)
        if form.has_elements:
            check_count(sum(1 for _ in islice(store.scan(prefix, after(prefix)), MOST_ELEMENTS + 1)))
        group = group_of(prefix)
        tables = tables_of(
            store.view(prefix, after(prefix)),
            number,
            form,
            KeyGroupRange(group, group + 1),
            is_stamped=form.ttl is not None,
            expired_at=self._states.judged_at(form),
        )
        return Peeked(form.kind, form.type, joined(tables))

    def entries(self) -> int:
        if not self.database.is_open:
            return 0
        self._write_back()
        return sum(self._keys_of_states().values())

    def figures(self) -> StateFigures:
        if not self.database.is_open:
            return StateFigures()
        self._write_back()
        timers = [bound for bound in self._states.parts.values() if bound.form.is_timers]
        waiting = sum(self.database.count_keys(bound.entry, by_window=True) for bound in timers)
        sizes = {"memory_bytes": self.memory_bytes(), **self.database.store.figures()}
        return StateFigures(self._keys_of_states(), waiting, sizes)

    def _keys_of_states(self) -> dict[str, int]:
        count = self.database.count_keys
        return {b.form.state: count(b.entry, by_window=b.form.is_windowed) for b in self._states.of_states()}

    def memory_bytes(self) -> int:
        """The memory that RocksDB and the caches take, as an estimate."""
        return self.database.store.memory_bytes() + 2 * self._room.taken

    def close(self) -> None:
        self.database.close()
        self._states.clear()

    # --- snapshots ------------------------------------------------------------------------------

    def snapshot(self, checkpoint: int, completed: int, *, canonical: bool = False) -> KeyedSnapshot:
        parts = self._states.parts.values()
        if not parts:
            return KeyedSnapshot()
        self._write_back()
        if self._incremental and not canonical:
            return self._uploads.snapshot(self.database, checkpoint, completed)
        forms = [(bound.entry.number, bound.form) for bound in parts]
        return all_rows(self.database.store, forms, self.database.key_groups, self._states.left_out_at)

    def confirmed(self, checkpoint: int) -> None:
        """Nothing: what has completed is known by the next barrier."""
