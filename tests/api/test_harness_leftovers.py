"""A harness leaves nothing on disk, whether it is closed or not."""

from __future__ import annotations

import gc
import subprocess
import sys

import moorline as mo
from moorline.model.config.state import RocksDb, StateConfig
from moorline.testing import OperatorHarness


class Count(mo.KeyedProcessFunction):
    seen = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        self.seen.update(self.seen.value() + 1)
        yield self.seen.value()


def on_rocksdb(folder) -> OperatorHarness:
    return OperatorHarness.of(
        lambda stream: stream.key_by(lambda r: r).process(Count(), uid="count"),
        parallelism=2,
        state=StateConfig(rocksdb=RocksDb(folder=str(folder)), incremental=True),
    )


def test_its_folders_go_with_it(tmp_path):
    harness = on_rocksdb(tmp_path)
    assert harness.process_all("abca") == [1, 1, 1, 2]
    assert len(list(tmp_path.iterdir())) == 2
    del harness
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_state_can_be_looked_at_after_it_is_closed_and_a_snapshot_after_it_is_gone(tmp_path):
    with on_rocksdb(tmp_path) as harness:
        harness.process_all("abca")
        snapshot = harness.snapshot()
    assert harness.state("seen", "a") == 2
    del harness
    gc.collect()
    restored = OperatorHarness.restore(snapshot, Count(), key=lambda r: r, uid="count")
    assert restored.process("a") == [3]


def test_its_folders_go_when_the_process_ends(tmp_path):
    script = (
        "import sys; sys.path[:0] = sys.argv[2:]; from test_harness_leftovers import on_rocksdb;"
        "from pathlib import Path; harness = on_rocksdb(sys.argv[1]); print(harness.process('a'));"
        "print(len(list(Path(sys.argv[1]).iterdir())))"
    )
    command = [sys.executable, "-c", script, str(tmp_path), *sys.path]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert (ended.stdout, ended.stderr) == ("[1]\n2\n", "")
    assert list(tmp_path.iterdir()) == []
