"""A table of columns by slot: what is kept for each key, and when it last changed.

    slot      0   1   2   ...
    keys      k   k   k           state/columns/index.py
    groups    g   g   g           the key groups
    epochs    e   e   e           the number of the snapshot that holds the last change
    column    v   v   v           for each field: values, and whether there is one

A column is an array of 64-bit ints or floats where the type allows it, else of objects. A snapshot copies the slots
that it needs, so the stream may go on at once; rows are made of the copies off the subtask's thread, in the form of any
other keyed state (``state/heap/rows.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moorline.model import keys as key_encoding
from moorline.state.columns.index import IntIndex, ObjectIndex, Slots
from moorline.state.forms import Form
from moorline.state.types.composite import StructType

#: A table is closed at the first change of key group after so many rows.
TABLE_ROWS = 1_000_000
_DTYPES: dict[pa.DataType, Any] = {pa.int64(): np.int64, pa.float64(): np.float64}


class Column:
    """The values of one field by slot."""

    __slots__ = ("arrow", "has", "values")

    def __init__(self, arrow: pa.DataType) -> None:
        self.arrow = arrow
        self.values: npt.NDArray[Any] = np.zeros(0, _DTYPES.get(arrow, object))
        #: Is there a value?
        self.has: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)

    def grow(self, size: int) -> None:
        """Have room for at least so many slots."""
        if size > len(self.has):
            room = max(1024, 2 * len(self.has), size)
            self.values, self.has = _grown(self.values, room), _grown(self.has, room)

    def put(self, slots: Slots, array: pa.Array) -> None:
        """Set the values of some slots; nulls are none."""
        has = np.asarray(array.is_valid())
        self.has[slots] = has
        if self.values.dtype == object:
            objects = np.empty(len(array), object)
            objects[:] = array.to_pylist()
            self.values[slots] = objects
        else:
            self.values[slots] = array.fill_null(0).to_numpy(zero_copy_only=False)

    def array(self, slots: Slots) -> pa.Array:
        """The values of some slots."""
        return _array(self.values[slots], self.has[slots], self.arrow)


def _array(values: npt.NDArray[Any], has: npt.NDArray[np.bool_], arrow: pa.DataType) -> pa.Array:
    if values.dtype == object:
        return pa.array([value if there else None for value, there in zip(values, has, strict=True)], arrow)
    return pa.array(values, arrow, mask=None if has.all() else ~has)


def _grown(array: npt.NDArray[Any], room: int) -> npt.NDArray[Any]:
    grown = np.zeros(room, array.dtype)
    grown[: len(array)] = array
    return grown


@dataclass(frozen=True)
class Copied:
    """Some slots of a table as they were. Nothing in it changes any more."""

    keys: list[Any] | npt.NDArray[np.int64]
    groups: npt.NDArray[np.int64]
    columns: list[tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]]
    is_increment: bool

    def __len__(self) -> int:
        return len(self.groups)


class ColumnTable:
    """The columns of one state."""

    def __init__(self, form: Form, max_parallelism: int) -> None:
        assert isinstance(form.value, StructType), "what is kept for a key has fields"
        self.form, self._max_parallelism = form, max_parallelism
        self.columns = {field.name: Column(field.type.arrow) for field in form.value.fields}
        #: Which of the two depends on the first keys that come.
        self.index: IntIndex | ObjectIndex | None = None
        self._groups, self._epochs = np.zeros(0, np.int64), np.zeros(0, np.int64)
        #: Grows with each snapshot: what has changed since one has a higher number.
        self.epoch = 1

    def __len__(self) -> int:
        return 0 if self.index is None else len(self.index)

    # --- slots ----------------------------------------------------------------------------------

    def slots(self, keys: npt.NDArray[np.int64] | list[Any]) -> Slots:
        """The slots of a batch of keys: an array of ints, or a list of what stands for any others."""
        before = len(self)
        slots = self._int_slots(keys) if isinstance(keys, np.ndarray) else self._objects().slots(keys)
        if len(self) > before:
            self._make_room(before)
        return slots

    def touch(self, slots: Slots) -> None:
        """These have changed."""
        self._epochs[slots] = self.epoch

    def find(self, key: Any) -> int:
        """The slot of one key; -1 if it has none."""
        if self.index is None:
            return -1
        if isinstance(self.index, ObjectIndex):
            return self.index.find(key)
        if type(key) is not int or not -(1 << 63) <= key < 1 << 63:
            return -1
        return int(self.index.find(np.array([key], np.int64))[0])

    def all_keys(self) -> list[Any]:
        """All keys, by slot."""
        if self.index is None:
            return []
        return self.index.keys.tolist() if isinstance(self.index, IntIndex) else list(self.index.keys)

    def _int_slots(self, keys: npt.NDArray[np.int64]) -> Slots:
        if self.index is None:
            self.index = IntIndex()
        if isinstance(self.index, IntIndex):
            return self.index.slots(keys)
        distinct, places = np.unique(keys, return_inverse=True)
        return self.index.slots(distinct.tolist())[places]

    def _objects(self) -> ObjectIndex:
        """The index for keys of any kind: ints that are there already go over to it."""
        if not isinstance(self.index, ObjectIndex):
            index = ObjectIndex()
            if self.index is not None:
                index.slots(self.index.keys.tolist())
            self.index = index
        return self.index

    def _make_room(self, before: int) -> None:
        count = len(self)
        for column in self.columns.values():
            column.grow(count)
        if count > len(self._groups):
            room = max(1024, 2 * len(self._groups), count)
            self._groups, self._epochs = _grown(self._groups, room), _grown(self._epochs, room)
        assert self.index is not None
        fresh = self.index.keys[before:]
        if isinstance(fresh, np.ndarray):
            self._groups[before:count] = key_encoding.int_key_groups(fresh, self._max_parallelism)
        else:
            most = self._max_parallelism
            groups = (key_encoding.key_group(key, most) for key in fresh)
            self._groups[before:count] = np.fromiter(groups, np.int64, len(fresh))

    # --- snapshots ------------------------------------------------------------------------------

    def changed_since(self, epoch: int) -> Slots:
        """The slots that have changed after a snapshot of that epoch."""
        return np.flatnonzero(self._epochs[: len(self)] > epoch)

    def copied(self, slots: Slots | None) -> Copied:
        """A copy of these slots; None: of all."""
        chosen = np.arange(len(self)) if slots is None else slots
        keys: Any = []
        if isinstance(self.index, IntIndex):
            keys = self.index.keys[chosen]
        elif self.index is not None:
            known = self.index.keys
            keys = [known[slot] for slot in chosen.tolist()]
        columns = [(column.values[chosen], column.has[chosen]) for column in self.columns.values()]
        return Copied(keys, self._groups[chosen], columns, slots is not None)

    def rows(self, copied: Copied) -> Iterator[pa.Table]:
        """The rows of a copy, sorted by key group and key, in tables of bounded size."""
        if not len(copied):
            return
        column = _key_column(copied.keys)
        order = np.lexsort((_sortable(column), copied.groups))
        groups = copied.groups[order]
        ends = np.flatnonzero(np.diff(groups, append=-1)) + 1
        first = 0
        while first < len(order):
            # A file holds whole key groups.
            stop = int(ends[np.searchsorted(ends, min(first + TABLE_ROWS, len(order)))])
            yield self._rows(copied, column, order[first:stop], groups[first:stop])
            first = stop

    def _rows(self, copied: Copied, keys: pa.Array, order: Slots, groups: Slots) -> pa.Table:
        fields = [
            _array(values[order], has[order], column.arrow)
            for column, (values, has) in zip(self.columns.values(), copied.columns, strict=True)
        ]
        columns = {
            "key_group": pa.array(groups, pa.int32()),
            "key": keys.take(pa.array(order)),
            "value": pa.StructArray.from_arrays(fields, fields=list(self.form.value.arrow)),
        }
        if copied.is_increment:
            columns["gone"] = pa.array(np.zeros(len(order), np.bool_))
        return pa.table(columns)

    def take_in(self, keys: list[Any] | npt.NDArray[np.int64], value: pa.StructArray) -> None:
        """Take restored values in: they replace what is there under the same keys."""
        slots = self.slots(keys)
        for column, array in zip(self.columns.values(), value.flatten(), strict=True):
            column.put(slots, array)

    def clear(self, keys: list[Any] | npt.NDArray[np.int64]) -> None:
        """Have nothing under these keys any more."""
        slots = self.slots(keys)
        for column in self.columns.values():
            column.has[slots] = False


def _key_column(keys: list[Any] | npt.NDArray[np.int64]) -> pa.Array:
    if isinstance(keys, np.ndarray):
        return pa.array(keys)
    if set(map(type, keys)) == {str}:
        return pa.array(keys, pa.string())
    return pa.array(list(map(key_encoding.encode, keys)), pa.binary())


def _sortable(column: pa.Array) -> npt.NDArray[Any]:
    """Numbers that sort as the keys do."""
    if pa.types.is_int64(column.type):
        return np.asarray(column)
    ranks = np.empty(len(column), np.int64)
    ranks[pa.compute.sort_indices(column).to_numpy()] = np.arange(len(column))
    return ranks
