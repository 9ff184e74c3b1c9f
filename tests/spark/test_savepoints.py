"""Savepoints and rescales of jobs on real Spark."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter

import pyarrow.parquet as pq
import pytest
from waiting import PATIENCE, eventually

import moorline as mo
from moorline.errors import InvalidArgument, OperatorNotFound, ParallelismTooHigh, SnapshotNotFound

pytestmark = pytest.mark.spark


def counting(out, *, count=None, rate=3_000, parallelism=2, uid="count", name="counting", sink="files", key_groups=16):
    class Count(mo.KeyedProcessFunction):
        seen = mo.ValueState(int, default=0)

        def process_element(self, n, ctx):
            self.seen.update(self.seen.value() + 1)
            yield {"n": n, "seen": self.seen.value()}

    job = mo.Job(name, parallelism=parallelism, max_parallelism=key_groups)
    (
        job.source(mo.generate(lambda n: n, count=count, splits=4, rate=rate), uid="numbers")
        .key_by(lambda n: n % 10)
        .process(Count(), uid=uid)
        .sink(mo.write_files(out, format="jsonl"), uid=sink)
    )
    return job


def published(out):
    return [json.loads(line) for path in sorted(out.glob("part-*.jsonl")) for line in path.read_text().splitlines()]


def audit(rows, count):
    """Every number once, and the counts of each key without a gap."""
    assert sorted(r["n"] for r in rows) == list(range(count))
    assert Counter((r["n"] % 10, r["seen"]) for r in rows) == Counter(
        (key, k + 1) for key in range(10) for k in range(len(range(key, count, 10)))
    )


@pytest.mark.parametrize(
    ("before", "after", "first_backend", "second_backend"),
    [(2, 2, "heap", "heap"), (2, 4, "heap", "rocksdb"), (4, 2, "rocksdb", "heap")],
)
def test_a_job_goes_on_from_a_savepoint_at_any_parallelism_on_any_backend(
    spark, tmp_path, before, after, first_backend, second_backend
):
    out, count = tmp_path / "out", 12_000
    chk = mo.Checkpoints(str(tmp_path / "chk"), interval="200ms")
    handle = mo.start(
        counting(out, count=count, rate=500, parallelism=before), spark, checkpoints=chk, backend=first_backend
    )
    eventually(lambda: len(handle.checkpoints) >= 2, "checkpoints")
    assert handle.stop(savepoint=str(tmp_path / "sp")) is not None
    # It can be moved, and what it came from is not needed.
    shutil.move(tmp_path / "sp", tmp_path / "moved")
    shutil.rmtree(tmp_path / "chk")
    assert all(p.suffix in (".parquet", ".json") for p in (tmp_path / "moved").rglob("*") if p.is_file())
    mo.run(
        counting(out, count=count, rate=None, parallelism=after),
        spark,
        checkpoints=chk,
        restore=str(tmp_path / "moved"),
        backend=second_backend,
    )
    audit(published(out), count)


def test_a_savepoint_is_taken_while_the_job_goes_on_and_two_jobs_start_from_it(spark, tmp_path):
    out, count = tmp_path / "out", 15_000
    handle = mo.start(
        counting(out, count=count), spark, checkpoints=mo.Checkpoints(str(tmp_path / "chk"), interval="200ms")
    )
    eventually(lambda: len(handle.checkpoints) >= 1, "a checkpoint")
    path = handle.savepoint(str(tmp_path / "sp"))
    before = len(handle.checkpoints)
    eventually(lambda: len(handle.checkpoints) > before or not handle.is_active, "the job goes on")
    with pytest.raises(InvalidArgument, match="already"):
        handle.savepoint(path)
    assert handle.wait(PATIENCE) is not None
    audit(published(out), count)

    (keyed,) = {p.name.split("-")[0] for p in (tmp_path / "sp").rglob("count/*.parquet")}
    assert keyed == "seen"
    rows = sum(pq.read_table(p).num_rows for p in (tmp_path / "sp").rglob("count/*.parquet"))
    assert rows == 10

    seen = {}
    for name in ("left", "right"):
        fork = tmp_path / name
        # Another folder is another sink: what the first one has staged is not its business.
        forked = counting(fork, count=count, rate=None, name=name, sink=f"files-{name}")
        mo.run(forked, spark, restore=path, allow_non_restored_state=True)
        seen[name] = Counter((r["n"], r["seen"]) for r in published(fork))
    # A key's records come from several splits, in any order among them: which of them has which number may differ.
    for part in (lambda n, k: n, lambda n, k: (n % 10, k)):
        left, right = (Counter(part(*row) for row in seen[name].elements()) for name in ("left", "right"))
        assert left == right
    assert 0 < sum(seen["left"].values()) < count, "they went on from where the savepoint was"
    highest = {key: len(range(key, count, 10)) for key in range(10)}
    found = Counter()
    for n, k in seen["left"]:
        found[n % 10] = max(found[n % 10], k)
    assert found == highest


def test_state_of_an_operator_that_is_gone_is_an_error_unless_it_is_allowed(spark, tmp_path):
    handle = mo.start(counting(tmp_path / "out"), spark)
    eventually(lambda: handle.progress["records_in"] > 100, "records")
    path = handle.savepoint(str(tmp_path / "sp"))
    handle.cancel()
    renamed = counting(tmp_path / "out", count=100, rate=None, uid="other")
    with pytest.raises(OperatorNotFound, match="allow_non_restored_state"):
        mo.run(renamed, spark, restore=path)
    mo.run(renamed, spark, restore=path, allow_non_restored_state=True)
    with pytest.raises(SnapshotNotFound, match=r"manifest\.json"):
        mo.run(renamed, spark, restore=str(tmp_path / "nowhere"))


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_job_grows_beyond_the_key_groups_of_its_checkpoints(spark, tmp_path, backend):
    out, count = tmp_path / "out", 8_000
    chk = mo.Checkpoints(str(tmp_path / "chk"), interval="200ms")
    handle = mo.start(counting(out, count=count, key_groups=2), spark, checkpoints=chk, backend=backend)
    eventually(lambda: len(handle.checkpoints) >= 2, "checkpoints")
    handle.cancel()
    wider = counting(out, count=count, rate=None, parallelism=3, key_groups=6)
    mo.run(wider, spark, checkpoints=chk, restore="latest", backend=backend)
    audit(published(out), count)


def test_live_rescales_under_load_with_a_kill_in_between_end_exactly_once(spark, tmp_path):
    out, count = tmp_path / "out", 60_000
    chk = mo.Checkpoints(str(tmp_path / "chk"), interval="300ms")
    handle = mo.start(
        counting(out, count=count, rate=4_000), spark, checkpoints=chk, restart=mo.FixedDelay(10, "100ms")
    )
    eventually(lambda: len(handle.checkpoints) >= 1, "a checkpoint")
    with pytest.raises(ParallelismTooHigh):
        handle.rescale(17)
    handle.rescale(4)
    assert len(handle.worker_pids) == 8
    restores = len(handle.restored_from)
    os.kill(handle.worker_pids["1/0"], signal.SIGKILL)
    eventually(lambda: len(handle.restored_from) > restores and len(handle.worker_pids) == 8, "a restart")
    handle.rescale({"count": 3})
    assert sum(name.startswith("1/") for name in handle.worker_pids) == 3
    handle.rescale(1)
    assert handle.wait(PATIENCE) is not None
    assert not [f for f in handle.failures if "rescale" in f], "a rescale is no failure"
    audit(published(out), count)
