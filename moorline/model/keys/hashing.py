"""The stable hash of a key, and the key group that it falls into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from moorline.model.keys.encoding import encode
from moorline.model.keys.leaves import INT

_M64 = (1 << 64) - 1
#: Hashes of so many numbers are computed at a time: they stay in the processor's nearest cache.
_CHUNK = 2048


def _splitmix64(number: int) -> int:
    z = number & _M64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _M64
    return z ^ (z >> 31)


def encoded_hash(encoded: bytes) -> int:
    """64 bits that are the same in every process, on every machine, for ever."""
    if encoded[:1] == b"i":
        return _splitmix64(INT.unpack_from(encoded, 1)[0] - (1 << 63))
    return xxhash.xxh3_64_intdigest(encoded)


def encoded_key_group(encoded: bytes, max_parallelism: int) -> int:
    """The key group of an encoded key."""
    return (encoded_hash(encoded) >> 32) * max_parallelism >> 32


def key_group(key: Any, max_parallelism: int) -> int:
    """The key group of ``key``.

    >>> key_group("user-1", 128), key_group(1, 128) == key_group(True, 128)
    (14, True)
    """
    return encoded_key_group(encode(key), max_parallelism)


def int_key_groups(numbers: npt.NDArray[np.int64], max_parallelism: int) -> npt.NDArray[np.int64]:
    """:func:`key_group` for a whole column of ints."""
    groups = np.empty(len(numbers), np.int64)
    for first in range(0, len(numbers), _CHUNK):
        z = numbers[first : first + _CHUNK].astype(np.uint64)
        z ^= z >> np.uint64(30)
        z *= np.uint64(0xBF58476D1CE4E5B9)
        z ^= z >> np.uint64(27)
        z *= np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        z >>= np.uint64(32)
        z *= np.uint64(max_parallelism)
        z >>= np.uint64(32)
        groups[first : first + _CHUNK] = z
    return groups


def str_key_groups(texts: Sequence[str], max_parallelism: int) -> npt.NDArray[np.int64]:
    """:func:`key_group` for many texts at once. Raises ``UnicodeEncodeError`` for one that is no valid Unicode.

    Some 150 ns each, however many different ones there are: less than to look up in a table what is not in the
    processor's cache.

    >>> str_key_groups(["user-1", "user-2"], 128).tolist() == [key_group("user-1", 128), key_group("user-2", 128)]
    True
    """
    digest = xxhash.xxh3_64_intdigest
    hashes = np.fromiter([digest(b"s" + text.encode()) for text in texts], np.uint64, len(texts))
    return groups_of(hashes, max_parallelism)


def groups_of(hashes: npt.NDArray[np.uint64], max_parallelism: int) -> npt.NDArray[np.int64]:
    """The key groups that follow from hashes."""
    return ((hashes >> np.uint64(32)) * np.uint64(max_parallelism) >> np.uint64(32)).astype(np.int64)
