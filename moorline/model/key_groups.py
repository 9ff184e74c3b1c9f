"""Key groups: which subtask owns which key.

A key hashes to one of ``max_parallelism`` key groups, for the life of the job.
A subtask owns one contiguous range of key groups, for the life of an attempt.
Rescaling moves ranges, never keys, so a snapshot can be split without reading all of it.

If the number of key groups is changed after all, a range of new ones still comes from one range of old ones, because
a key group is a range of hashes (``model/keys/encoding.py``): see :func:`covering`.
"""

from __future__ import annotations

from dataclasses import dataclass

#: A key group is stored in 16 bits.
MAX_KEY_GROUPS = 1 << 15


@dataclass(frozen=True, slots=True)
class KeyGroupRange:
    """Key groups ``first`` up to, not including, ``end``."""

    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first

    def __contains__(self, key_group: int) -> bool:
        return self.first <= key_group < self.end

    def __and__(self, other: KeyGroupRange) -> KeyGroupRange:
        first = max(self.first, other.first)
        return KeyGroupRange(first, max(first, min(self.end, other.end)))

    def __str__(self) -> str:
        return f"[{self.first},{self.end})"


def owner(key_group: int, parallelism: int, max_parallelism: int) -> int:
    """The subtask that owns ``key_group``."""
    return key_group * parallelism // max_parallelism


def owned(subtask: int, parallelism: int, max_parallelism: int) -> KeyGroupRange:
    """The key groups that ``subtask`` owns: the exact inverse of :func:`owner`."""

    # Same rounding as Flink's KeyGroupRangeAssignment; owned() and owner() must agree for every shape.
    def first(i: int) -> int:
        return -(-i * max_parallelism // parallelism)

    return KeyGroupRange(first(subtask), first(subtask + 1))


def covering(key_groups: KeyGroupRange, max_parallelism: int, other: int) -> KeyGroupRange:
    """The key groups, of ``other`` in all, that have the keys of ``key_groups`` of ``max_parallelism``, and some more.

    >>> covering(KeyGroupRange(64, 96), 128, 16), covering(KeyGroupRange(0, 1), 3, 2)
    (KeyGroupRange(first=8, end=12), KeyGroupRange(first=0, end=1))
    """
    if not key_groups:
        return KeyGroupRange(0, 0)

    # Key group g has the hashes h, of 32 bits, with h * max_parallelism >> 32 == g.
    def first_hash(key_group: int) -> int:
        return -(-(key_group << 32) // max_parallelism)

    lowest, highest = first_hash(key_groups.first), first_hash(key_groups.end) - 1
    return KeyGroupRange(lowest * other >> 32, (highest * other >> 32) + 1)


def default_max_parallelism(parallelism: int) -> int:
    """One and a half times the parallelism, rounded up to a power of two, between 128 and 32,768."""
    wanted = parallelism + parallelism // 2
    return min(max(1 << max(wanted - 1, 0).bit_length(), 128), MAX_KEY_GROUPS)
