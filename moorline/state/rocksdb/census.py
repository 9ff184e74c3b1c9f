"""How many keys a state in RocksDB has, without reading all of it.

RocksDB's own estimate counts rows, and every overwritten version of one until it is compacted. Keys are spread evenly
over key groups by their hash, so the keys of a few key groups say how many there are in all of them.
"""

from __future__ import annotations

from itertools import islice

from moorline.model.key_groups import KeyGroupRange
from moorline.state.rocksdb.layout import groups, heads
from moorline.state.rocksdb.store import Store

#: Rows that are read of a large state: a few milliseconds, and some per cent of error.
SAMPLED_ROWS = 2_000


def count_keys(store: Store, number: int, key_groups: KeyGroupRange, by_window: bool, whole: bool) -> int:
    """The number of keys, or of pairs of key and window: exact if ``whole`` or few, else by a sample."""
    if whole:
        rows = store.scan(*groups(number, key_groups.first, key_groups.end))
        return sum(1 for _ in heads(rows, by_window))
    total, read, counted, done = key_groups.end - key_groups.first, 0, 0, 0
    for group in range(key_groups.first, key_groups.end):
        left = SAMPLED_ROWS - read
        found = list(islice(store.scan(*groups(number, group, group + 1)), left))
        keys = sum(1 for _ in heads(found, by_window))
        read += len(found)
        if len(found) == left:
            # This key group is not read to its end. If it is the first, what is known is the keys in so many rows.
            return counted * total // done if done else keys * store.estimated_rows() // len(found)
        counted, done = counted + keys, done + 1
    return counted
