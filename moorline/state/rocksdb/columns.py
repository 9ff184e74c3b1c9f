"""A state of RocksDB whose values lie in columns while they are worked on: a cache of slots over the rows.

``aggregate`` (``subtask/columns/aggregate.py``) asks for the slots of a batch of keys. Those of keys that are not here
are filled from RocksDB in one read, in the order of the rows. What changes is only marked, and written in bulk when a
snapshot or a query wants it, when much has changed, or when there is no room any more; so a key that is in every batch
is written once for each snapshot. The rows are those of any value state (``state/rocksdb/cells.py``): an operator that
goes record by record can take them over, and back.

The cache is emptied when it is full, and fills again with what is asked for. With a time to live a slot has the stamp
of its row (``state/columns/stamps.py``). What is over its time is not written any more, and removed under the cache
(``sweep.py``): what is here of such a row is over its time too, or marked as changed and written again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import rocksdict

from moorline.errors import StateTypeMismatch
from moorline.state.columns.index import Slots
from moorline.state.columns.table import Column, ColumnTable
from moorline.state.forms import Form
from moorline.state.rocksdb.cells import ENTRY_BYTES, GROWTH, in_order
from moorline.state.rocksdb.layout import (
    element,
    int_places,
    number_bytes,
    packed_value,
    place,
    stamp,
    str_places,
)
from moorline.state.rocksdb.many_rows import elements_of
from moorline.state.rocksdb.store import Store, new_batch
from moorline.state.types.composite import OptionalType, StructType
from moorline.state.types.leaf import LeafType, StoredType, encode

#: With so many changed values they are written. It takes a tenth of a second or two, and the stream waits.
MOST_DIRTY = 1 << 17
#: A batch of writes has so many rows at most.
WRITTEN_ROWS = 1 << 14


class RowsInColumns:
    """The rows of one state, and those that are in columns just now. ``room``: the bytes that these may take."""

    def __init__(
        self,
        store: Store,
        form: Form,
        number: int,
        max_parallelism: int,
        room: int,
        table: ColumnTable | None = None,
    ) -> None:
        assert isinstance(form.value, StructType), "what is kept for a key has fields"
        self._store, self.form, self._number, self._most = store, form, number, max_parallelism
        self._room = room
        self._table = ColumnTable(form, max_parallelism) if table is None else table
        #: The columns by slot: the same objects for good, for kernels hold on to them.
        self.columns: dict[str, Column] = self._table.columns
        #: By slot: its row key; None: it was not needed yet.
        self._rows: npt.NDArray[np.object_] = np.zeros(0, np.object_)
        self._is_loaded, self._is_dirty = np.zeros(0, np.bool_), np.zeros(0, np.bool_)
        self._row_bytes = 0
        #: How many keys have been asked for since somebody set it to 0.
        self.asked = 0
        #: The last time by which keys were judged. None: there is no time to live.
        self._now: int | None = None
        # As msgpack and Arrow have them, fields of plain kinds need no object of their own in between.
        self._is_plain = all(_is_plain(field.type) for field in form.value.fields)

    def __len__(self) -> int:
        return len(self._table)

    # --- access ---------------------------------------------------------------------------------

    def slots(self, keys: npt.NDArray[np.int64] | list[Any]) -> Slots:
        """The slots of a batch of keys, with what is stored for them."""
        slots = self._table.slots(keys)
        self.asked += len(slots)
        self._have_room(int(slots.max(initial=-1)) + 1)
        fresh = slots[~self._is_loaded[slots]]
        if len(fresh):
            fresh = np.unique(fresh)
            self._is_loaded[fresh] = True
            self._load(fresh)
        return slots

    def touch(self, slots: Slots) -> None:
        """These have changed."""
        self._is_dirty[slots] = True

    def renew(self, slots: Slots, now: int) -> None:
        """These are touched. What was untouched for too long begins anew."""
        self._table.renew(slots, now)
        self._now = now

    def _have_room(self, size: int) -> None:
        if size > len(self._is_loaded):
            room = max(1024, 2 * size)
            for name in ("_rows", "_is_loaded", "_is_dirty"):
                before = getattr(self, name)
                grown = np.zeros(room, before.dtype)
                grown[: len(before)] = before
                setattr(self, name, grown)

    def _names(self, slots: Slots) -> list[bytes]:
        """The row keys of some slots."""
        missing = slots[~self._rows[slots].astype(np.bool_)]
        if len(missing):
            self._rows[missing] = self._row_keys(missing)
        return self._rows[slots].tolist()  # type: ignore[no-any-return]

    def _load(self, slots: Slots) -> Slots:
        """Fill slots with what is stored for their keys. Returns those of which something is."""
        names = self._names(slots)
        order = in_order(names)
        found = self._store.multi_get([names[n] for n in order])
        there = [n for n, row in enumerate(found) if row is not None]
        if not there:
            return slots[:0]
        rows = [row for row in found if row is not None]
        self._row_bytes = max(self._row_bytes, sum(map(len, rows)) // len(rows))
        chosen = slots[[order[n] for n in there]]
        if self._table.stamps is not None:
            self._table.stamps.put(chosen, pa.array([stamp(row)[0] for row in rows], pa.int64()))
        arrays = self._unpacked([row[1:] if not row[0] else packed_value(row) for row in rows])
        for column, array in zip(self.columns.values(), arrays, strict=True):
            column.put(chosen, array)
        return chosen

    def _row_keys(self, slots: Slots) -> list[bytes]:
        start, most, keys = number_bytes(self._number), self._most, self._table.keys_of(slots)
        if isinstance(keys, np.ndarray):
            return int_places(keys, most, start)
        if set(map(type, keys)) == {str}:
            return [start + made for made in str_places(keys, most)]
        return [start + place(key, most) for key in keys]

    def _unpacked(self, packed: list[bytes]) -> list[pa.Array]:
        value = self.form.value
        assert isinstance(value, StructType)
        if not self._is_plain:
            return value.to_array(list(map(value.unpack, packed))).flatten()  # type: ignore[no-any-return]
        parts = zip(*map(value.decode, packed), strict=True)
        return [pa.array(part, field.type.arrow) for part, field in zip(parts, value.fields, strict=True)]

    # --- batches --------------------------------------------------------------------------------

    def end_batch(self) -> None:
        """Write what has changed if that is much, and empty the cache if it is full."""
        is_full = len(self._table) * (ENTRY_BYTES + GROWTH * self._row_bytes) > self._room
        if is_full or np.count_nonzero(self._is_dirty) >= MOST_DIRTY:
            self.write()
        if is_full:
            self.shrink()

    def write(self) -> None:
        """Write what has changed."""
        slots = self._table.live(np.flatnonzero(self._is_dirty), self._now)
        # In the order of the rows: RocksDB then goes on where it is.
        slots = slots[in_order(self._names(slots))] if len(slots) else slots
        for first in range(0, len(slots), WRITTEN_ROWS):
            batch = new_batch()
            self._write_rows(batch, slots[first : first + WRITTEN_ROWS])
            self._store.write(batch)
        self._is_dirty[:] = False

    def _write_rows(self, batch: rocksdict.WriteBatch, slots: Slots) -> None:
        """Add the rows of some slots to a batch of writes."""
        for row, packed in zip(self._names(slots), self._packed(slots), strict=True):
            batch[row] = packed

    def _packed(self, slots: Slots) -> list[bytes]:
        value, state = self.form.value, self.form.state
        assert isinstance(value, StructType)
        arrays = [column.array(slots) for column in self.columns.values()]
        if self._is_plain:
            try:
                rows = [b"\0" + encode(parts) for parts in zip(*(a.to_pylist() for a in arrays), strict=True)]
            except (TypeError, ValueError) as error:
                raise StateTypeMismatch(state, value.name, str(error)) from None
        else:
            struct = pa.StructArray.from_arrays(arrays, fields=list(value.arrow))
            rows = elements_of(value, value.from_array(struct), state)
        if self._table.stamps is not None:
            # A batch has one time, so there are few of them.
            touched = self._table.stamps.of(slots).tolist()
            heads = {time: element(b"", time) for time in set(touched)}
            rows = [heads[time] + row[1:] for time, row in zip(touched, rows, strict=True)]
        self._row_bytes = sum(map(len, rows)) // len(rows)
        return rows

    def write_into(self, batch: rocksdict.WriteBatch) -> None:
        """As of the other kinds of rows: it writes by itself, in pieces."""
        self.write()

    def flushed(self) -> None:
        """Nothing: :meth:`end_batch` is called instead."""

    def shrink(self) -> None:
        """Forget what is here. Everything has been written."""
        self._table.forget()
        self._is_loaded[:] = False
        self._rows[:] = None


def _is_plain(stored_type: StoredType) -> bool:
    bare = stored_type.inner if isinstance(stored_type, OptionalType) else stored_type
    return type(bare) is LeafType and bare.lift is None
