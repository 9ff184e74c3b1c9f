"""State far beyond its memory budget, in RocksDB on Spark: incremental checkpoints, a kill, another parallelism."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter

import pytest
from waiting import eventually

import moorline as mo

pytestmark = pytest.mark.spark

KEYS, UPDATES, VALUE = 40_000, 6_000, 4_096
#: What one worker may use. Two of them hold KEYS * VALUE bytes of state: five times as much each.
BUDGET = 16 << 20
assert KEYS * VALUE / 2 >= 4 * BUDGET


def job(pause: float, parallelism: int) -> mo.Job:
    """Its classes are made in here, so that they go to the workers by value: those cannot import a test."""
    all_keys, updates, value_bytes = KEYS, UPDATES, VALUE

    def blob(key, version):
        return random.Random(key << 20 | version).randbytes(value_bytes)

    def record(n):
        if n < all_keys:
            return "load", n
        if n < all_keys + updates:
            return "update", n % (all_keys // 100)
        return "look", n - all_keys - updates

    class Phases(mo.Source):
        """Every key once, as fast as can be; then one key in a hundred, slowly; then every key is looked at."""

        def __init__(self, pause: float):
            self.pause = pause

        def open(self, ctx):
            return PhasesReader(self.pause, ctx)

    class PhasesReader(mo.SourceReader):
        def __init__(self, pause, ctx):
            self.pause, self.mine = pause, ctx.owns(0)
            self.at = ctx.positions.get(0, 0)
            self.next = 0.0

        def read(self, limit):
            end = 2 * all_keys + updates
            if not self.mine or self.at == end:
                return None
            limit = min(limit, 256)
            if all_keys <= self.at < all_keys + updates:
                if time.monotonic() < self.next:
                    return []
                self.next = time.monotonic() + self.pause
                limit = 20
            numbers = range(self.at, min(self.at + limit, end))
            self.at = numbers.stop
            return [record(n) for n in numbers]

        def positions(self):
            return {0: self.at} if self.mine else {}

    class Versions(mo.KeyedProcessFunction):
        content = mo.ValueState(bytes)
        version = mo.ValueState(int, default=0)

        def process_element(self, value, ctx):
            what, key = value
            version = self.version.value()
            if what == "look":
                yield key, version, self.content.value() == blob(key, version)
            else:
                self.version.update(version + 1)
                self.content.update(blob(key, version + 1))

    made = mo.Job("versions", parallelism=parallelism, max_parallelism=16)
    looked = made.source(Phases(pause), uid="phases", parallelism=1).key_by(lambda r: r[1])
    looked.process(Versions(), uid="versions").sink(mo.collect("looked"), uid="out")
    return made


def test_state_of_several_times_the_memory_budget_survives_a_kill_and_a_rescale(spark, tmp_path):
    config = mo.Checkpoints(str(tmp_path / "chk"), interval="700ms", timeout="120s", retained=2)
    backend = mo.RocksDb(memory=BUDGET, folder=str(tmp_path))
    handle = mo.start(job(0.2, 2), spark, checkpoints=config, backend=backend, restart=mo.FixedDelay(5, "100ms"))

    def loaded():
        assert handle.is_active, handle.failures
        return [c for c in handle.checkpoints if c.size > 0.8 * KEYS * VALUE]

    eventually(lambda: len(loaded()) >= 4, "checkpoints of all of the state")
    # One key in a hundred changes: what is uploaded is in proportion to that, not to the state. For a while RocksDB
    # compacts what was loaded, and what it has written anew is uploaded too.
    eventually(lambda: min(c.uploaded / c.size for c in loaded()[1:]) < 0.1, "a checkpoint uploads what has changed")

    os.kill(next(pid for name, pid in handle.worker_pids.items() if name.startswith("1/")), signal.SIGKILL)
    eventually(lambda: handle.restored_from and handle.restored_from[-1] > 0, "a restore")
    before = len(handle.checkpoints)
    eventually(lambda: len(handle.checkpoints) > before, "a checkpoint after the restore")
    assert handle.stop() is not None

    handle = mo.start(job(0.0, 3), spark, checkpoints=config, backend=backend, restore="latest")
    looked = handle.wait().collected("looked")
    assert handle.restored_from[-1] > 0
    updates = Counter(n % (KEYS // 100) for n in range(KEYS, KEYS + UPDATES))
    assert sorted(looked) == [(key, 1 + updates[key], True) for key in range(KEYS)]
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("moorline-")], "local files are removed"
