"""Harnesses on every backend, for tests of what was emitted."""

from __future__ import annotations

import itertools

from moorline.connectors.memory_state import memory_state
from moorline.model.config.state import RocksDb, StateConfig
from moorline.testing import OperatorHarness

BACKENDS = ("heap", "rocksdb", "external")
RECORDS = [("a", 1), ("b", 2), ("a", 3), ("a", 4)]
names = itertools.count()


def store_of(backend):
    return memory_state(f"emitted-{next(names)}") if backend == "external" else None


def harness(backend, build, **options):
    config = StateConfig(RocksDb(memory="16MB")) if backend == "rocksdb" else StateConfig()
    return OperatorHarness.of(build, state=config, **options)


def processed(backend, function, records=RECORDS, **options):
    """What comes out of a keyed process function for one batch."""
    with harness(backend, lambda s: s.key_by(lambda r: r[0]).process(function, uid="f"), **options) as world:
        return world.process_batch(records)


def numbered(*ns):
    return [{"key": "a", "n": n} for n in ns]
