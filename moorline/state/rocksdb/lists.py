"""A list per key in RocksDB: each element is a row, so adding one reads nothing.

Elements wait until the batch is over, or until the list is read. Their sequence numbers rise over all lists of the
backend, so the rows of a list are in the order in which its elements were added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import rocksdict

from moorline.api.state.descriptors import ListStateDescriptor
from moorline.api.state.states import ListState
from moorline.model.durations import Duration
from moorline.state.backend import CurrentKey
from moorline.state.rocksdb.cells import ENTRY_BYTES, GROWTH, Codec, Room
from moorline.state.rocksdb.layout import after, sequence_bytes
from moorline.state.rocksdb.states import refuse_ttl
from moorline.state.rocksdb.store import Store, new_batch

#: A list or map of more rows than this is removed by a mark for the whole range. Each such mark costs every later read
#: some time until it is compacted away, so few rows are removed one by one.
FEW_ROWS = 64


def remove_rows(store: Store, batch: rocksdict.WriteBatch, prefix: bytes) -> None:
    """Remove everything that begins with ``prefix`` and has been written."""
    end, rows = after(prefix), []
    for row, _ in store.scan(prefix, end):
        rows.append(row)
        if len(rows) > FEW_ROWS:
            batch.delete_range(prefix, end)
            return
    for row in rows:
        batch.delete(row)


class Sequence:
    """The numbers of the elements of all lists of a backend."""

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> bytes:
        self.last += 1
        return sequence_bytes(self.last)


class Lists:
    """The rows of one list state."""

    def __init__(
        self, store: Store, prefix_of: Callable[[Any], bytes], codec: Codec, room: Room, sequence: Sequence
    ) -> None:
        self._store, self._prefix_of, self._room, self._sequence = store, prefix_of, room, sequence
        self._encode, self._decode = codec
        #: Elements that are not written yet, as row values.
        self._added: dict[Any, list[bytes]] = {}
        #: Keys whose written rows are to be removed first.
        self._cleared: set[Any] = set()
        #: What of the room they have taken.
        self._taken = 0

    def read(self, key: Any) -> list[Any]:
        if key in self._added or key in self._cleared:
            batch = new_batch()
            self._write_key(batch, key)
            self._store.write(batch)
        prefix, decode = self._prefix_of(key), self._decode
        return [decode(value) for _, value in self._store.scan(prefix, after(prefix))]

    def add(self, key: Any, value: Any) -> None:
        row = self._encode(value)
        waiting = self._added.get(key)
        if waiting is None:
            self._added[key] = [row]
        else:
            waiting.append(row)
        self._take(len(row))

    def replace(self, key: Any, values: Iterable[Any]) -> None:
        rows = [self._encode(value) for value in values]
        self._cleared.add(key)
        if rows:
            self._added[key] = rows
        else:
            self._added.pop(key, None)
        self._take(sum(map(len, rows)))

    def _take(self, row_bytes: int) -> None:
        self._taken += ENTRY_BYTES + GROWTH * row_bytes
        self._room.take(row_bytes)

    def _write_key(self, batch: rocksdict.WriteBatch, key: Any) -> None:
        prefix = self._prefix_of(key)
        if key in self._cleared:
            self._cleared.discard(key)
            remove_rows(self._store, batch, prefix)
        for row in self._added.pop(key, ()):
            batch[prefix + self._sequence.next()] = row

    def write_into(self, batch: rocksdict.WriteBatch) -> None:
        """Add what has changed to a batch of writes."""
        for key in [*self._cleared, *(k for k in self._added if k not in self._cleared)]:
            self._write_key(batch, key)
        self._room.taken -= self._taken
        self._taken = 0

    def flushed(self) -> None:
        """The batch is over. Nothing is kept."""

    shrink = forget = flushed


class RocksDbListState(ListState[Any]):
    """A list per key."""

    def __init__(self, descriptor: ListStateDescriptor, lists: Lists, current: CurrentKey) -> None:
        super().__init__(descriptor.type, name=descriptor.name)
        self._lists, self._current = lists, current

    def get(self) -> list[Any]:
        return self._lists.read(self._current.key)

    def add(self, value: Any, *, ttl: Duration | None = None) -> None:
        if ttl is not None:
            refuse_ttl(self, ttl)
        self._lists.add(self._current.key, value)

    def add_all(self, values: Iterable[Any]) -> None:
        key, add = self._current.key, self._lists.add
        for value in values:
            add(key, value)

    def update(self, values: Iterable[Any]) -> None:
        self._lists.replace(self._current.key, values)

    def clear(self) -> None:
        self._lists.replace(self._current.key, ())
