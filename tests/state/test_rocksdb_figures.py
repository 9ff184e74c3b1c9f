"""The figures of RocksDB: what is read from and written to it, its files and its rows."""

from __future__ import annotations

from moorline.api.state.descriptors import ValueStateDescriptor
from moorline.model.key_groups import KeyGroupRange
from moorline.state.rocksdb.backend import RocksDbBackend


def test_rows_are_counted_that_are_read_and_written(tmp_path):
    backend = RocksDbBackend("op", 128, key_groups=KeyGroupRange(0, 128), folder=tmp_path / "db", memory_budget=8 << 20)
    value = backend.bind(ValueStateDescriptor("value", int))
    for first in (0, 100):
        keys = range(first, first + 100)
        backend.prefetch(keys)
        for key in keys:
            backend.current.key = key
            value.update(key)
        backend.flush()
    figures = backend.figures()
    assert figures.keys == {"value": 200}
    sizes = figures.sizes
    assert sizes["rows_written"] >= 200
    assert sizes["rows_read"] >= 200, "each key was asked for before it was written"
    assert sizes["rows"] >= 200 and sizes["slows_writes"] == 0
    assert sizes["memory_bytes"] > 0
    backend.close()
