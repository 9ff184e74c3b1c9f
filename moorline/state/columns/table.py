"""A table of columns by slot: what is kept for each key, and when it last changed.

    slot      0   1   2   ...
    keys      k   k   k           state/columns/index.py
    groups    g   g   g           the key groups; of keys that are not ints they are found out for a snapshot
    windows   w   w   w           in a state of windows: their numbers, state/columns/spans.py
    epochs    e   e   e           the number of the snapshot that holds the last change
    born      e   e   e           the number of the first snapshot that it is in
    column    v   v   v           for each field: values, and whether there is one

A column is an array of 64-bit ints or floats where the type allows it, else of objects. A slot that is not in use has
no values; a key that is removed gives its slot back. What is stored of it, and how, is ``state/columns/rows.py``'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moorline.model import keys as key_encoding
from moorline.model.arrow_values import cast_column, refuse_loss
from moorline.state.columns.index import IntIndex, ObjectIndex, Slots, grown
from moorline.state.columns.removed import UNKNOWN, Idents, Ints, RemovedKeys
from moorline.state.columns.rows import Copied, Values, array_of, rows_of
from moorline.state.columns.spans import WindowNumbers
from moorline.state.columns.stamps import Stamps
from moorline.state.forms import Form
from moorline.state.types.composite import StructType
from moorline.state.types.leaf import StoredType

_DTYPES: dict[pa.DataType, Any] = {pa.int64(): np.int64, pa.float64(): np.float64}

#: A batch of keys: an array of ints, or a list of what stands for any others.
Keys = npt.NDArray[np.int64] | list[Any]


class Column:
    """The values of one field by slot."""

    __slots__ = ("has", "stored", "values")

    def __init__(self, stored: StoredType) -> None:
        #: How a value is stored. Some (decimals, moments) are stored as texts: here they are Python's own.
        self.stored = stored
        self.values: npt.NDArray[Any] = np.zeros(0, _DTYPES.get(stored.arrow, object))
        #: Is there a value?
        self.has: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)

    def grow(self, size: int) -> None:
        """Have room for at least so many slots."""
        if size > len(self.has):
            self.values, self.has = grown(self.values, size), grown(self.has, size)

    def put(self, slots: Slots, array: pa.Array) -> None:
        """Set the values of some slots, from their stored form; nulls are none."""
        has = np.asarray(array.is_valid())
        self.has[slots] = has
        if self.values.dtype == object:
            objects = np.empty(len(array), object)
            objects[:] = self.stored.from_array(array)
            self.values[slots] = objects
        else:
            self.values[slots] = array.fill_null(0).to_numpy(zero_copy_only=False)

    def clear(self, slots: Slots) -> None:
        """Have no values in some slots."""
        self.has[slots] = False
        self.values[slots] = None if self.values.dtype == object else 0

    def array(self, slots: Slots) -> pa.Array:
        """The values of some slots, in their stored form."""
        return array_of(self.values[slots], self.has[slots], self.stored.arrow, self.stored)

    def shown(self, slots: Slots, arrow: pa.DataType) -> pa.Array:
        """The values of some slots as a column of another type."""
        if self.values.dtype != object:
            return cast_column(self.array(slots), arrow)
        if pa.types.is_timestamp(arrow):  # kept while the column was of a smaller unit, or had another zone
            refuse_loss(self.values[slots][self.has[slots]].tolist(), arrow)
        return array_of(self.values[slots], self.has[slots], arrow)


class ColumnTable:
    """The columns of one state. ``notes_removed``: for increments, note which keys are removed."""

    def __init__(self, form: Form, max_parallelism: int, notes_removed: bool = False) -> None:
        assert isinstance(form.value, StructType), "what is kept for a key has fields"
        self.form, self.max_parallelism = form, max_parallelism
        self.columns = {field.name: Column(field.type) for field in form.value.fields}
        #: Which of the two depends on the first keys that come. In a state of windows, of keys and windows.
        self.index: IntIndex | ObjectIndex | None = None
        self._groups, self._epochs, self._born = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
        #: The windows that there are, and the number of each slot's.
        self.windows = WindowNumbers() if form.is_windowed else None
        self.window_of = np.zeros(0, np.int64)
        self.removed = RemovedKeys() if notes_removed else None
        #: Where there is a time to live.
        self.stamps = None if form.ttl is None else Stamps(form.ttl)
        #: Grows with each snapshot: what has changed since one has a higher number.
        self.epoch = 1

    def __len__(self) -> int:
        return 0 if self.index is None else len(self.index)

    @property
    def size(self) -> int:
        """All slots are below this."""
        return 0 if self.index is None else self.index.size

    # --- slots ----------------------------------------------------------------------------------

    def slots(self, keys: Keys, windows: Slots | None = None) -> Slots:
        """The slots of a batch of keys. ``windows``: in a state of windows, the number of each one's."""
        if isinstance(keys, np.ndarray):
            slots = self._int_slots(keys, windows)
        else:
            slots = self._objects().slots(_joined(keys, windows))
        assert self.index is not None
        if len(fresh := self.index.numbers.fresh()):
            self._open(fresh)
        return slots

    def touch(self, slots: Slots) -> None:
        """These have changed."""
        self._epochs[slots] = self.epoch

    def remove(self, slots: Slots) -> None:
        """Forget the keys of these slots, each of them once, and give the slots back."""
        if not len(slots):
            return
        assert self.index is not None
        if self.removed is not None:
            self.removed.note(self.epoch, self.idents(slots[self._born[slots] < self.epoch]))
        for column in self.columns.values():
            column.clear(slots)
        if self.windows is not None:
            self.windows.drop(self.window_of[slots])
        self.index.remove(slots)

    def forget(self) -> None:
        """Forget all keys, as if none had come."""
        used = self.used()
        for column in self.columns.values():
            column.clear(used)
        self.index = None
        if self.windows is not None:
            self.windows = WindowNumbers()

    def renew(self, slots: Slots, now: int) -> None:
        """These are touched. What was untouched for too long begins anew."""
        assert self.stamps is not None
        over = slots[self.stamps.is_over(slots, now)]
        for column in self.columns.values():
            column.clear(over)
        self.stamps.touch(slots, now)

    def live(self, slots: Slots, now: int | None) -> Slots:
        """Those of some slots that are not over their time. None: time does not count."""
        return slots if self.stamps is None or now is None else slots[~self.stamps.is_over(slots, now)]

    def used(self) -> Slots:
        """All slots in use."""
        return np.empty(0, np.int64) if self.index is None else self.index.numbers.used()

    def slots_of(self, key: Any) -> Slots:
        """The slots of one key: at most one, but in a state of windows."""
        used = self.used()
        if self.windows is None or not len(used):
            slot = self._find(key)
            return np.array([slot] if slot >= 0 else [], np.int64)
        keys = self.keys_of(used)
        if isinstance(keys, np.ndarray):
            return used[keys == key] if _is_int64(key) else used[:0]
        return used[[known == key for known in keys]]

    def _find(self, key: Any) -> int:
        if self.index is None:
            return -1
        if isinstance(self.index, ObjectIndex):
            return self.index.find(key)
        return int(self.index.find(np.array([key], np.int64))[0]) if _is_int64(key) else -1

    def keys_of(self, slots: Slots) -> Keys:
        """The keys of some slots."""
        if isinstance(self.index, ObjectIndex):
            keys = self.index.keys_of(slots)
            return keys if self.windows is None else [key for key, _ in keys]
        return np.empty(0, np.int64) if self.index is None else self.index.keys_of(slots)

    def all_keys(self) -> list[Any]:
        """All keys, each once."""
        keys = self.keys_of(self.used())
        known = keys.tolist() if isinstance(keys, np.ndarray) else keys
        return known if self.windows is None else list(dict.fromkeys(known))

    def idents(self, slots: Slots) -> Idents:
        """The keys of some slots as rows have them: with key groups, and with their windows."""
        spans = None
        if self.windows is not None:
            numbers = self.window_of[slots]
            spans = self.windows.starts[numbers], self.windows.ends[numbers]
        return Idents(self.keys_of(slots), self._groups[slots], spans)

    def _int_slots(self, keys: Ints, windows: Slots | None) -> Slots:
        parts = (keys,) if windows is None else (keys, windows)
        if self.index is None:
            self.index = IntIndex(len(parts))
        if isinstance(self.index, IntIndex):
            return self.index.slots(*parts)
        if windows is not None:
            return self.index.slots(_joined(keys.tolist(), windows))
        distinct, places = np.unique(keys, return_inverse=True)
        return self.index.slots(distinct.tolist())[places]

    def _objects(self) -> ObjectIndex:
        """The index for keys of any kind: ints that are there already go over to it, each to the same slot."""
        if not isinstance(self.index, ObjectIndex):
            index = ObjectIndex()
            if self.index is not None:
                used = self.used()
                numbers = None if self.windows is None else self.window_of[used]
                index.adopt(_joined(self.index.keys_of(used).tolist(), numbers), used, self.index.numbers)
            self.index = index
        return self.index

    def _open(self, fresh: Slots) -> None:
        """Make slots ready that were not in use."""
        index, size = self.index, self.size
        assert index is not None
        for column in self.columns.values():
            column.grow(size)
        self._groups, self._epochs = grown(self._groups, size), grown(self._epochs, size)
        self._born = grown(self._born, size)
        self._born[fresh], self._epochs[fresh] = self.epoch, 0
        if self.stamps is not None:
            self.stamps.open(fresh, size)
        if self.windows is not None:
            self.window_of = grown(self.window_of, size)
            if isinstance(index, IntIndex):
                self.window_of[fresh] = index.keys_of(fresh, 1)
            else:
                self.window_of[fresh] = [number for _, number in index.keys_of(fresh)]
            self.windows.add(self.window_of[fresh])
        keys = self.keys_of(fresh)
        if isinstance(keys, np.ndarray):
            self._groups[fresh] = key_encoding.int_key_groups(keys, self.max_parallelism)
        else:
            self._groups[fresh] = UNKNOWN  # it costs more than all else that is done for a new key

    # --- snapshots ------------------------------------------------------------------------------

    def changed_since(self, epoch: int) -> Slots:
        """The slots that have changed after a snapshot of that epoch."""
        used = self.used()
        return used[self._epochs[used] > epoch]

    def removed_since(self, epoch: int) -> list[Idents] | None:
        """The keys that were removed after a snapshot of that epoch. None: it is not known any more."""
        if self.removed is None or self.removed.forgotten >= epoch:
            return None
        return self.removed.since(epoch)

    def copied(self, slots: Slots | None, gone: list[Idents] | None = None, now: int | None = None) -> Copied:
        """A copy of these slots; None: of all. ``now``: without what is over its time then."""
        chosen = self.live(self.used() if slots is None else slots, now)
        columns: list[Values] = [(c.values[chosen], c.has[chosen], c.stored) for c in self.columns.values()]
        stamps = None if self.stamps is None else self.stamps.of(chosen)
        return Copied(self.idents(chosen), columns, slots is not None, gone or [], stamps)

    def rows(self, copied: Copied) -> Iterator[pa.Table]:
        """The rows of a copy, sorted by key group and key, in tables of bounded size."""
        return rows_of(copied, self.form.value.arrow, self.max_parallelism)

    def take_in(
        self, keys: Keys, value: pa.StructArray, spans: tuple[Ints, Ints] | None = None, stamps: pa.Array | None = None
    ) -> None:
        """Take restored values in: they replace what is there under the same keys."""
        slots = self.slots(keys, self._numbers(spans))
        self._born[slots] = 0
        if self.stamps is not None:
            self.stamps.put(slots, stamps)
        for column, array in zip(self.columns.values(), value.flatten(), strict=True):
            column.put(slots, array)

    def clear(self, keys: Keys, spans: tuple[Ints, Ints] | None = None) -> None:
        """Have nothing under these keys any more: a restored increment says so."""
        self.remove(np.unique(self.slots(keys, self._numbers(spans))))
        if self.removed is not None:
            self.removed.forget(self.epoch)  # the chain that is restored has it already

    def _numbers(self, spans: tuple[Ints, Ints] | None) -> Slots | None:
        if spans is None or self.windows is None:
            return None
        of = self.windows.of
        return np.fromiter((of(span) for span in zip(*(part.tolist() for part in spans))), np.int64, len(spans[0]))


def _joined(keys: list[Any], windows: Slots | None) -> list[Any]:
    return keys if windows is None else list(zip(keys, windows.tolist(), strict=True))


def _is_int64(key: Any) -> bool:
    return type(key) is int and -(1 << 63) <= key < 1 << 63
