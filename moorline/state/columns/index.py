"""From keys to slots: for each key of a batch, the number of the slot that its values lie in.

Keys that are ints, or pairs of ints, lie in a hash table of NumPy arrays with open addressing: a batch is looked up in
a few rounds, each of which moves those on whose place is taken by another key. All other keys lie in a dict.

A key that is removed gives its slot back, and a later one gets it. Its place in the hash table stays marked, for others
may have been moved on over it; when marks and keys fill half of the table, it is made anew of the keys alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Slots = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int64]

#: Odd numbers whose multiples spread neighbours widely. The first is the fraction of the golden ratio in 64 bits.
_SPREAD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_FIRST_BITS = 10
#: In place of a slot: nothing was ever here, or a key that was removed. Below these: a row that claims the place.
_EMPTY, _REMOVED, _CLAIMED = -1, -2, -3


class SlotNumbers:
    """The numbers of slots: which of them are in use, and which one comes next.

    >>> numbers = SlotNumbers()
    >>> numbers.take(3).tolist(), numbers.give_back(np.array([1])), numbers.take(2).tolist()
    ([0, 1, 2], None, [1, 3])
    """

    def __init__(self) -> None:
        #: All slots that were ever in use are below this.
        self.size = 0
        self._free = np.empty(0, np.int64)
        self._is_used = np.zeros(0, np.bool_)
        self._fresh: list[Slots] = []

    def __len__(self) -> int:
        return self.size - len(self._free)

    def take(self, count: int) -> Slots:
        """So many slots that are not in use: those first that were given back."""
        again = max(0, len(self._free) - count)
        taken, self._free = self._free[again:], self._free[:again]
        if fresh := count - len(taken):
            taken = np.concatenate([taken, np.arange(self.size, self.size + fresh)])
            self.size += fresh
            self._is_used = grown(self._is_used, self.size)
        self._is_used[taken] = True
        self._fresh.append(taken)
        return taken

    def fresh(self) -> Slots:
        """The slots that were taken since this was last asked."""
        taken, self._fresh = self._fresh, []
        return np.concatenate(taken) if taken else np.empty(0, np.int64)

    def give_back(self, slots: Slots) -> None:
        """These are not in use any more. Each of them is there once."""
        self._is_used[slots] = False
        if len(slots) == len(self):
            self.size, self._free = 0, self._free[:0]  # nothing is left: begin anew
        else:
            self._free = np.concatenate([self._free, slots])

    def used(self) -> Slots:
        """All slots in use."""
        return np.flatnonzero(self._is_used[: self.size])


def grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """``array`` with room for at least so many; what is new is zero."""
    if size <= len(array):
        return array
    larger = np.zeros(max(1024, 2 * len(array), size), array.dtype)
    larger[: len(array)] = array
    return larger


class IntIndex:
    """The slots of keys that are 64-bit ints; with ``width=2``, pairs of them.

    >>> index = IntIndex()
    >>> index.slots(np.array([7, 9, 7])).tolist(), index.slots(np.array([9, 8])).tolist(), len(index)
    ([0, 1, 0], [1, 2], 3)
    >>> index.remove(np.array([1]))
    >>> index.find(np.array([7, 9, 8])).tolist(), index.slots(np.array([5])).tolist()
    ([0, -1, 2], [1])
    """

    def __init__(self, width: int = 1) -> None:
        self.numbers = SlotNumbers()
        #: The keys by slot: of pairs, the first and the second ones.
        self._keys = [np.empty(0, np.int64) for _ in range(width)]
        self._allocate(_FIRST_BITS)

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def size(self) -> int:
        """All slots are below this."""
        return self.numbers.size

    def keys_of(self, slots: Slots, part: int = 0) -> Ints:
        """The keys of some slots; ``part``: which of a pair."""
        return self._keys[part][slots]

    def slots(self, *keys: Ints) -> Slots:
        """The slot of each key. Keys that are new get one."""
        at, found = self._located(keys)
        if (is_new := found < 0).any():
            rows = np.flatnonzero(is_new)
            fresh = [part[rows] for part in keys]
            if 2 * (len(self) + self._removed + len(rows)) > 1 << self._bits:
                self._rebuild(len(self) + len(rows))
                found[rows] = self._insert(fresh, self._places(fresh))
            else:
                found[rows] = self._insert(fresh, at[rows])
        return found

    def find(self, *keys: Ints) -> Slots:
        """The slot of each key; -1 for those that have none."""
        return self._located(keys)[1]

    def remove(self, slots: Slots) -> None:
        """The keys of these slots, each of them once, have none any more."""
        at, _ = self._located([part[slots] for part in self._keys])
        self._slots[at] = _REMOVED
        self._removed += len(slots)
        self.numbers.give_back(slots)
        if not len(self.numbers):
            # Of half the size: one that was large for once does not stay so.
            self._allocate(max(_FIRST_BITS, self._bits - 1))

    def _located(self, keys: Any) -> tuple[Slots, Slots]:
        """The place at which the search for each key ended, and the slot there; -1 if it has none."""
        at = self._places(keys)
        found = self._slots[at]
        waiting = np.flatnonzero(self._is_other(found, at, keys))
        while len(waiting):
            at[waiting] = places = (at[waiting] + 1) & self._mask
            slots = self._slots[places]
            found[waiting] = slots
            waiting = waiting[self._is_other(slots, places, [part[waiting] for part in keys])]
        return at, found.astype(np.int64)

    def _is_other(self, slots: npt.NDArray[np.int32], at: Slots, keys: Any) -> npt.NDArray[np.bool_]:
        """Which of the places hold, or held, another key?"""
        is_other: npt.NDArray[np.bool_] = self._tables[0][at] != keys[0]
        for table, part in zip(self._tables[1:], keys[1:], strict=True):
            is_other |= table[at] != part
        if self._removed:
            is_other |= slots == _REMOVED
        # A place that is empty has no key, whatever stands in it.
        is_other &= slots != _EMPTY
        return is_other

    def _insert(self, keys: Any, at: Slots) -> Slots:
        """Slots for keys that have none, and may come several times. ``at``: from where to look for a place."""
        out = np.empty(len(at), np.int64)
        waiting = np.arange(len(at))
        while len(waiting):
            places = at[waiting]
            free = self._slots[places] < 0
            if free.any():
                rows, wanted = waiting[free], places[free]
                was = self._slots[wanted]
                # Of several that want one place the first one gets it.
                self._slots[wanted[::-1]] = _CLAIMED - rows[::-1].astype(np.int32)
                won = self._slots[wanted] == _CLAIMED - rows
                self._removed -= int(np.count_nonzero(was[won] == _REMOVED))
                self._take(wanted[won], [part[rows[won]] for part in keys])
            slots = self._slots[places]
            is_other = self._tables[0][places] != keys[0][waiting]
            for table, part in zip(self._tables[1:], keys[1:], strict=True):
                is_other |= table[places] != part[waiting]
            out[waiting] = slots
            waiting = waiting[is_other]
            at[waiting] = (at[waiting] + 1) & self._mask
        return out

    def _take(self, places: Slots, keys: Any) -> None:
        """Put new keys into places of their own."""
        slots = self.numbers.take(len(places))
        self._slots[places] = slots
        for number, part in enumerate(keys):
            self._tables[number][places] = part
            self._keys[number] = grown(self._keys[number], self.size)
            self._keys[number][slots] = part

    def _rebuild(self, count: int) -> None:
        """Make the table anew, with room for so many keys."""
        bits = self._bits
        while 3 * count > 1 << bits:  # not 2, or the marks of a few removed keys would fill it at once
            bits += 1
        self._allocate(bits)
        slots = self.numbers.used()
        keys = [part[slots] for part in self._keys]
        at, left = self._places(keys), slots.astype(np.int32)
        while len(left):
            free = self._slots[at] < 0
            self._slots[at[free]] = left[free]
            for table, part in zip(self._tables, keys, strict=True):
                table[at[free]] = part[free]
            # Of several that want one place the last one got it, in all arrays.
            moves = self._slots[at] != left
            left, keys, at = left[moves], [part[moves] for part in keys], (at[moves] + 1) & self._mask

    def _allocate(self, bits: int) -> None:
        self._bits, self._mask = bits, (1 << bits) - 1
        self._slots = np.full(1 << bits, _EMPTY, np.int32)
        self._tables = [np.zeros(1 << bits, np.int64) for _ in self._keys]
        #: Places that are marked as those of removed keys.
        self._removed = 0

    def _places(self, keys: Any) -> Slots:
        spread: npt.NDArray[np.uint64] = keys[0].view(np.uint64) * _SPREAD[0]
        if len(keys) > 1:
            spread += keys[1].view(np.uint64) * _SPREAD[1]
        return (spread >> np.uint64(64 - self._bits)).astype(np.int64)


class ObjectIndex:
    """The slots of keys of any kind.

    >>> index = ObjectIndex()
    >>> index.slots(["b", "a", "b"]).tolist(), index.keys_of(np.array([1, 0]))
    ([0, 1, 0], ['a', 'b'])
    """

    def __init__(self) -> None:
        self.numbers = SlotNumbers()
        self._slots: dict[Any, int] = {}
        #: The keys by slot.
        self._keys: list[Any] = []

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def size(self) -> int:
        """All slots are below this."""
        return self.numbers.size

    def keys_of(self, slots: Slots) -> list[Any]:
        """The keys of some slots."""
        return list(map(self._keys.__getitem__, slots.tolist()))

    def slots(self, keys: list[Any]) -> Slots:
        """The slot of each key. Keys that are new get one, in the order they come."""
        found = list(map(self._slots.get, keys))
        if None in found:
            fresh = list(dict.fromkeys(key for key, slot in zip(keys, found) if slot is None))
            taken = self.numbers.take(len(fresh))
            self._keys += [None] * (self.size - len(self._keys))
            for key, slot in zip(fresh, taken.tolist()):
                self._slots[key], self._keys[slot] = slot, key
            found = list(map(self._slots.__getitem__, keys))
        return np.array(found, np.int64)

    def find(self, key: Any) -> int:
        """The slot of a key; -1 if it has none."""
        return self._slots.get(key, -1)

    def adopt(self, keys: list[Any], slots: Slots, numbers: SlotNumbers) -> None:
        """Take the keys of another index over, with their slots."""
        self.numbers, self._keys = numbers, [None] * numbers.size
        for key, slot in zip(keys, slots.tolist(), strict=True):
            self._slots[key], self._keys[slot] = slot, key

    def remove(self, slots: Slots) -> None:
        """The keys of these slots, each of them once, have none any more."""
        for slot in slots.tolist():
            del self._slots[self._keys[slot]]
            self._keys[slot] = None
        self.numbers.give_back(slots)
