"""Rows of RocksDB as the rows of a snapshot, and back.

A full snapshot streams a state from a view of the database (:func:`tables_of`, off the subtask's thread); a restore
streams tables into it (:class:`Filling`). The columns are those of ``state/heap/rows.py``, so every backend can read
what any other has written.

    key_group  key  [namespace]  [map_key]  value  [last_access  ttl]

A table is cut between key groups, or between keys if one key group alone is too large for a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from moorline.model import keys
from moorline.model.key_groups import KeyGroupRange
from moorline.protocol.expiry import is_expired
from moorline.state.backend import KeyedSnapshot, Rows
from moorline.state.forms import Form
from moorline.state.heap.rows import NAMESPACE, TABLE_BYTES, TABLE_ROWS, namespaces_of
from moorline.state.readers import RowReaders
from moorline.state.rocksdb.layout import (
    after,
    element,
    encoded_key,
    group_of,
    groups,
    number_bytes,
    packed_map_key,
    place_end,
    stamp,
    time_at,
    time_bytes,
    window_at,
    window_bytes,
)
from moorline.state.rocksdb.lists import Sequence, remove_rows
from moorline.state.rocksdb.many_rows import TOO_LARGE, are_alike, elements_of, prefixes_of, value_tables
from moorline.state.rocksdb.maps import MapKeys
from moorline.state.rocksdb.store import Store, View, new_batch
from moorline.state.rocksdb.timers import by_time
from moorline.state.types.annotations import to_bytes, to_column

#: Rows are turned into columns, and written, in pieces of so many rows or bytes.
PIECE_ROWS, PIECE_BYTES = 16_384, 4 << 20


# --- from the database ------------------------------------------------------------------------


def all_rows(
    store: Store,
    forms: Iterable[tuple[int, Form]],
    key_groups: KeyGroupRange,
    left_out_at: Callable[[Form], int | None],
) -> KeyedSnapshot:
    """Everything, from views of the database as it is now. ``forms``: each with the number of its state.

    ``left_out_at``: as of when what has expired is left out; None: it is not.
    """
    views: dict[str, View] = {}
    taken = KeyedSnapshot(done=lambda handles: views.clear())
    for number, form in forms:
        views[form.state] = store.view(*groups(number, key_groups.first, key_groups.end))
        tables = partial(_viewed, views, number, form, key_groups, left_out_at(form))
        taken.parts.append(Rows(form.state, form.kind, form.type, tables))
    return taken


def _viewed(
    views: dict[str, View], number: int, form: Form, key_groups: KeyGroupRange, expired_at: int | None
) -> Iterator[pa.Table]:
    # Once: a view that has been read is of no more use, and holds on to memory.
    view, is_stamped = views.pop(form.state), form.ttl is not None
    return tables_of(view, number, form, key_groups, is_stamped=is_stamped, expired_at=expired_at)


def tables_of(
    view: View,
    number: int,
    form: Form,
    key_groups: KeyGroupRange,
    *,
    is_stamped: bool,
    expired_at: int | None = None,
) -> Iterator[pa.Table]:
    """The rows of a state, sorted, in tables of bounded size. ``view`` shows its key groups and nothing else.

    ``is_stamped``: with the stamps of the rows. ``expired_at``: without what is over its time then.
    """
    tag = tag_of_keys(view, number, key_groups)
    if are_alike(form, tag) and not is_stamped:
        yield from value_tables(view, form, tag)
        return
    piece = _Piece(form, tag, is_stamped, expired_at)
    waiting: list[pa.Table] = []
    rows = size = 0
    group, head = -1, b""
    for row, value in view.rows():
        head_end = place_end(row)
        is_same = row.startswith(head) and head_end == len(head)
        if not is_same:
            head = row[:head_end]
            is_new_group, group = group_of(row) != group, group_of(row)
            is_full = rows >= TABLE_ROWS or size >= TABLE_BYTES
            is_too_large = rows >= TOO_LARGE * TABLE_ROWS or size >= TOO_LARGE * TABLE_BYTES
            if (is_full and is_new_group) or is_too_large:
                waiting.append(piece.table())
                yield pa.concat_tables(waiting)
                waiting, rows, size = [], 0, 0
            elif len(piece) >= PIECE_ROWS or piece.size >= PIECE_BYTES:
                waiting.append(piece.table())
            piece.begin(group, head)
        added = piece.add(row, head_end, value)
        rows, size = rows + (added > 0), size + added
    if rows:
        waiting.append(piece.table())
        yield pa.concat_tables(waiting)


def tag_of_keys(view: View, number: int, key_groups: KeyGroupRange) -> bytes:
    """The tag that all keys of a state have, or nothing if they have several. Keys of a group are sorted by tag."""
    tags = set()
    for group in range(key_groups.first, key_groups.end):
        start, end = groups(number, group, group + 1)
        first = view.first(start, end)
        if first is not None:
            last = view.last(start, end)
            assert last is not None
            tags |= {first[4:5], last[4:5]}
            if len(tags) > 1:
                return b""
    return tags.pop() if tags else b""


class _Piece:
    """Some rows on their way into columns."""

    def __init__(self, form: Form, tag: bytes, is_stamped: bool, expired_at: int | None) -> None:
        self._form, self._tag, self._is_stamped, self._expired_at = form, tag, is_stamped, expired_at
        self._map_keys = None if form.map_key is None else MapKeys(form.map_key, form.state)
        self._clear()

    def _clear(self) -> None:
        self.size = 0
        self._groups: list[int] = []
        self._keys: list[Any] = []
        self._windows: list[Any] = []
        self._inner: list[Any] = []
        self._values: list[Any] = []
        self._accesses: list[int | None] = []
        self._ttls: list[int | None] = []

    def __len__(self) -> int:
        return len(self._values)

    def begin(self, group: int, head: bytes) -> None:
        """The rows of another key follow."""
        encoded = encoded_key(head[2:])
        self._group = group
        self._key = keys.decode(encoded) if self._tag in (b"i", b"s") else encoded

    def add(self, row: bytes, at: int, value: bytes) -> int:
        """One more row. Returns its size, or 0 if it was left out."""
        form = self._form
        if form.is_timers:
            window, at = window_at(row, at)
            self._windows.append(window)
            self._values.append(time_at(row, at))
        else:
            last_access, ttl, start = stamp(value)
            if self._expired_at is not None and form.ttl is not None:
                length = ttl or form.ttl.length_ms
                if is_expired(last_access, length, self._expired_at):
                    return 0
            if form.is_windowed:
                window, at = window_at(row, at)
                self._windows.append(window)
            _, start = packed_map_key(value, start)
            if self._map_keys is not None:
                self._inner.append(self._map_keys.read(row[at:], value))
            self._values.append(form.value.unpack(value[start:]))
            self._accesses.append(last_access)
            self._ttls.append(ttl)
        self._groups.append(self._group)
        self._keys.append(self._key)
        size = len(row) + len(value)
        self.size += size
        return size

    def table(self) -> pa.Table:
        form = self._form
        kind = {b"i": pa.int64(), b"s": pa.string()}.get(self._tag, pa.binary())
        columns = {"key_group": pa.array(self._groups, pa.int32()), "key": pa.array(self._keys, kind)}
        if form.is_windowed:
            windows = [w and {"start": w[0], "end": w[1]} for w in self._windows]
            columns["namespace"] = pa.array(windows, NAMESPACE)
        if form.map_key is not None:
            columns["map_key"] = to_column(form.map_key, self._inner, form.state)
        columns["value"] = to_column(form.value, self._values, form.state)
        if self._is_stamped:
            columns["last_access"] = pa.array(self._accesses, pa.int64())
            columns["ttl"] = pa.array(self._ttls, pa.int64())
        self._clear()
        return pa.table(columns)


# --- into the database ------------------------------------------------------------------------


class Filling:
    """The filling of one state with the rows of snapshots. ``readers`` make values of today's types from columns."""

    def __init__(self, store: Store, number: int, form: Form, sequence: Sequence, max_parallelism: int) -> None:
        self._store, self._number, self._form, self._sequence = store, number, form, sequence
        self._max_parallelism = max_parallelism
        self._map_keys = None if form.map_key is None else MapKeys(form.map_key, form.state)
        self._start, self._due = number_bytes(number), number_bytes(number + 1)

    def take(self, table: pa.Table, readers: RowReaders, *, is_increment: bool) -> None:
        """The rows of one table. Those of an increment replace all there was under their keys."""
        for first in range(0, table.num_rows, PIECE_ROWS):
            # A key of an increment is in one table, but it may be in several pieces of it.
            if first == 0 and is_increment:
                self._remove(self._prefixes(table))
            piece = table.slice(first, PIECE_ROWS)
            if "gone" in piece.column_names:
                piece = piece.filter(pc.invert(pc.fill_null(piece["gone"], False)))
            if piece.num_rows:
                self._write(piece, readers)

    def _remove(self, prefixes: Iterable[bytes]) -> None:
        batch = new_batch()
        for prefix in dict.fromkeys(prefixes):
            if self._form.is_timers:
                for row, _ in self._store.scan(prefix, after(prefix)):
                    batch.delete(row)
                    batch.delete(self._due + by_time(row[2:]))
            elif self._form.has_elements:
                remove_rows(self._store, batch, prefix)
            else:
                batch.delete(prefix)
        self._store.write(batch)

    def _write(self, table: pa.Table, readers: RowReaders) -> None:
        form, batch = self._form, new_batch()
        values = readers.value.from_array(table["value"].combine_chunks())
        prefixes = self._prefixes(table)
        if form.is_timers:
            for prefix, time in zip(prefixes, values):
                row = prefix + time_bytes(time)
                batch[row] = b""
                batch[self._due + by_time(row[2:])] = b""
            self._store.write(batch)
            return
        has_stamps = form.ttl is not None and "last_access" in table.column_names
        if not has_stamps and self._map_keys is None:
            rows = [p + self._sequence.next() for p in prefixes] if form.is_list else prefixes
            for row, stored in zip(rows, elements_of(form.value, values, form.state)):
                batch[row] = stored
            self._store.write(batch)
            return
        packed = (to_bytes(form.value, value, form.state) for value in values)
        accesses, ttls = self._stamps(table)
        map_keys = self._map_keys
        if map_keys is not None:
            assert readers.map_key is not None
            inner = readers.map_key.from_array(table["map_key"].combine_chunks())
            for prefix, map_key, body, last_access, ttl in zip(prefixes, inner, packed, accesses, ttls):
                batch[prefix + map_keys.row(map_key)] = element(body, last_access, ttl, map_keys.beside(map_key))
        elif form.is_list:
            for prefix, body, last_access, ttl in zip(prefixes, packed, accesses, ttls):
                batch[prefix + self._sequence.next()] = element(body, last_access, ttl)
        else:
            for prefix, body, last_access, ttl in zip(prefixes, packed, accesses, ttls):
                batch[prefix] = element(body, last_access, ttl)
        self._store.write(batch)

    def _stamps(self, table: pa.Table) -> tuple[list[Any], list[Any]]:
        # Stamps are of no use to a state without a time to live: if it gets one again, new lives begin.
        if self._form.ttl is None or "last_access" not in table.column_names:
            return [None] * table.num_rows, [None] * table.num_rows
        return table["last_access"].to_pylist(), table["ttl"].to_pylist()

    def _prefixes(self, table: pa.Table) -> list[bytes]:
        """The beginning of each row's key."""
        prefixes = prefixes_of(self._start, table["key"], self._max_parallelism)
        if self._form.is_windowed:
            prefixes = [p + window_bytes(n) for p, n in zip(prefixes, namespaces_of(table["namespace"]))]
        return prefixes


def strip_stamps(store: Store, number: int, key_groups: KeyGroupRange) -> None:
    """Remove the stamps from all rows of a state."""
    batch = new_batch()
    for row, value in store.scan(*groups(number, key_groups.first, key_groups.end)):
        _, _, at = stamp(value)
        if at > 1:
            map_key, at = packed_map_key(value, at)
            batch[row] = element(value[at:], None, None, map_key)
            if batch.size_in_bytes() >= PIECE_BYTES:
                store.write(batch)
                batch = new_batch()
    store.write(batch)


def migrate_rows(store: Store, number: int, form: Form, readers: RowReaders, key_groups: KeyGroupRange) -> None:
    """Rewrite all rows of a state whose stored type is not the declared one. If it fails, only a copy is spoilt."""
    map_keys = None if form.map_key is None else MapKeys(form.map_key, form.state)
    start, end = groups(number, key_groups.first, key_groups.end)
    batch, size = new_batch(), 0
    for row, value in store.scan(start, end):
        last_access, ttl, at = stamp(value)
        packed_key, at = packed_map_key(value, at)
        body = to_bytes(form.value, readers.value.unpack(value[at:]), form.state)
        beside = None
        if map_keys is not None:
            assert readers.map_key is not None
            head = place_end(row)
            if form.is_windowed:
                _, head = window_at(row, head)
            inner = readers.map_key.unpack(packed_key if packed_key is not None else _packed(row[head:]))
            new, beside = row[:head] + map_keys.row(inner), map_keys.beside(inner)
            if new != row:
                batch.delete(row)
                row = new
        batch[row] = element(body, last_access, ttl, beside)
        size += len(row) + len(body)
        if size >= PIECE_BYTES:
            store.write(batch)
            batch, size = new_batch(), 0
    store.write(batch)


def _packed(ending: bytes) -> bytes:
    """The packed form of a map key that stands in its row key alone: an int, str or bytes."""
    return msgspec.msgpack.encode(keys.decode(ending))
