"""From keys to slots, a batch at a time.

Keys of 64-bit ints lie in a hash table of NumPy arrays with open addressing: a batch is looked up in a few rounds, each
of which moves those on whose place is taken by another key. All other keys lie in a dict.

Slots are numbered in the order in which keys come, and are never given back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Slots = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int64]

#: The fraction of the golden ratio in 64 bits: its multiples spread neighbours widely.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_FIRST_BITS = 10


class IntIndex:
    """The slots of keys that are 64-bit ints.

    >>> index = IntIndex()
    >>> index.slots(np.array([7, 9, 7])).tolist(), index.slots(np.array([9, 8])).tolist(), len(index)
    ([0, 1, 0], [1, 2], 3)
    """

    def __init__(self) -> None:
        self._count = 0
        self._keys = np.empty(0, np.int64)
        self._allocate(_FIRST_BITS)

    def __len__(self) -> int:
        return self._count

    @property
    def keys(self) -> Ints:
        """The keys by slot."""
        return self._keys[: self._count]

    def slots(self, keys: Ints) -> Slots:
        """The slot of each key. Keys that are new get the next ones, in the order they come."""
        found = self.find(keys)
        if (is_new := found < 0).any():
            fresh, first = np.unique(keys[is_new], return_index=True)
            self._insert(fresh[np.argsort(first)])
            found[is_new] = self.find(keys[is_new])
        return found

    def find(self, keys: Ints) -> Slots:
        """The slot of each key; -1 for those that have none."""
        at = self._places(keys)
        found = self._slots[at]
        # A place that is empty has no key, whatever stands in it.
        is_other = (found >= 0) & (self._table[at] != keys)
        waiting = np.flatnonzero(is_other)
        while len(waiting):
            at[waiting] = places = (at[waiting] + 1) & self._mask
            slots = self._slots[places]
            found[waiting] = slots
            waiting = waiting[(slots >= 0) & (self._table[places] != keys[waiting])]
        return found.astype(np.int64)

    def _insert(self, keys: Ints) -> None:
        """Give keys that have none a slot. Each of them is there once."""
        total = self._count + len(keys)
        if total > len(self._keys):
            grown = np.empty(max(1024, 2 * len(self._keys), total), np.int64)
            grown[: self._count] = self.keys
            self._keys = grown
        self._keys[self._count : total] = keys
        bits = self._bits
        while 2 * total > 1 << bits:
            bits += 1
        if bits > self._bits:
            self._allocate(bits)
            self._put(self._keys[:total], np.arange(total, dtype=np.int32))
        else:
            self._put(keys, np.arange(self._count, total, dtype=np.int32))
        self._count = total

    def _put(self, keys: Ints, slots: npt.NDArray[np.int32]) -> None:
        at = self._places(keys)
        while len(keys):
            is_free = self._slots[at] < 0
            places = at[is_free]
            # Of several that want one place the last one gets it, in both arrays.
            self._slots[places], self._table[places] = slots[is_free], keys[is_free]
            left = self._slots[at] != slots
            keys, slots, at = keys[left], slots[left], (at[left] + 1) & self._mask

    def _allocate(self, bits: int) -> None:
        self._bits, self._mask = bits, (1 << bits) - 1
        self._slots = np.full(1 << bits, -1, np.int32)
        self._table = np.zeros(1 << bits, np.int64)

    def _places(self, keys: Ints) -> Slots:
        spread: npt.NDArray[np.uint64] = keys.view(np.uint64) * _SPREAD
        return (spread >> np.uint64(64 - self._bits)).astype(np.int64)


class ObjectIndex:
    """The slots of keys of any kind.

    >>> index = ObjectIndex()
    >>> index.slots(["b", "a", "b"]).tolist(), index.keys
    ([0, 1, 0], ['b', 'a'])
    """

    def __init__(self) -> None:
        self._slots: dict[Any, int] = {}
        #: The keys by slot.
        self.keys: list[Any] = []

    def __len__(self) -> int:
        return len(self.keys)

    def slots(self, keys: list[Any]) -> Slots:
        """The slot of each key. Keys that are new get the next ones, in the order they come."""
        slots, known = self._slots, self.keys
        out = np.empty(len(keys), np.int64)
        for n, key in enumerate(keys):
            slot = slots.get(key)
            if slot is None:
                slot = slots[key] = len(known)
                known.append(key)
            out[n] = slot
        return out

    def find(self, key: Any) -> int:
        """The slot of a key; -1 if it has none."""
        return self._slots.get(key, -1)
