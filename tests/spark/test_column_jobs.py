"""Jobs in columns on real Spark: over the exchange, with a worker killed, rescaled, in batch mode and in RocksDB."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from waiting import eventually

import moorline as mo

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True, scope="module")
def _functions_travel_by_value():
    """Workers have no folder of tests."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


ROWS, USERS = 200_000, 500
SCHEMA = "user string, cents bigint, page string"


def visits(numbers: np.ndarray) -> pa.RecordBatch:
    users = pc.binary_join_element_wise("user-", pa.array(numbers % USERS).cast(pa.string()), "")
    pages = pa.array(np.where(numbers % 3 == 0, "/", "/shop"))
    return pa.RecordBatch.from_arrays([users, pa.array(numbers * 7 % 101), pages], names=["user", "cents", "page"])


def job_of(source: mo.Source, name: str) -> mo.Job:
    job = mo.Job(name, parallelism=2)
    rows = job.source(source, uid="visits").with_schema(SCHEMA, uid="columns")
    shops = rows.filter_batches(lambda batch: pc.equal(batch["page"], "/shop"), uid="shops")
    totals = shops.key_by("user").aggregate(n=mo.count(), total=mo.sum("cents"), most=mo.max("cents"), uid="totals")
    totals.sink(mo.collect("out"), uid="out")
    return job


def expected() -> dict[str, tuple[int, int, int]]:
    kept: dict[str, list[int]] = {}
    for number in range(ROWS):
        if number % 3:
            kept.setdefault(f"user-{number % USERS}", []).append(number * 7 % 101)
    return {user: (len(cents), sum(cents), max(cents)) for user, cents in kept.items()}


def last_of_each(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int, int]]:
    """The totals with the highest count of each user."""
    found: dict[str, tuple[int, int, int]] = {}
    for row in rows:
        totals = row["n"], row["total"], row["most"]
        found[row["user"]] = max(found.get(row["user"], totals), totals)
    return found


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_worker_is_killed_and_the_job_rescaled(spark, tmp_path, backend):
    source = mo.generate_batches(visits, count=ROWS, splits=4, rate=12_000)
    handle = mo.start(
        job_of(source, f"columns-{backend}"),
        spark,
        checkpoints=mo.Checkpoints(str(tmp_path), interval="200ms"),
        restart=mo.FixedDelay(attempts=5, delay="100ms"),
        backend=backend,
    )
    eventually(lambda: len(handle.checkpoints) >= 2, "two checkpoints", 300)
    os.kill(handle.worker_pids["1/0"], signal.SIGKILL)
    eventually(lambda: any(n > 0 for n in handle.restored_from), "a checkpoint is restored", 300)
    before = len(handle.checkpoints)
    eventually(lambda: len(handle.checkpoints) > before, "another checkpoint", 300)
    handle.rescale(3, timeout=300)
    result = handle.wait()
    assert last_of_each(result.collected("out")) == expected()
    assert any(n > 0 for n in result.restored_from)
    counts = Counter((row["user"], row["n"]) for row in result.collected("out"))
    assert max(counts.values()) == 1, "a count of a user came twice"


def test_a_batch_job_emits_one_row_for_each_key(spark):
    result = mo.run(job_of(mo.generate_batches(visits, count=20_000), "columns-batch"), spark, mode="batch")
    rows = result.collected("out")
    assert len(rows) == len({row["user"] for row in rows}) == USERS
    kept = [number for number in range(20_000) if number % 3 and number % USERS == 7]
    assert {row["user"]: row["n"] for row in rows}["user-7"] == len(kept)


def test_records_one_by_one_and_batches_mix_in_one_chain(spark):
    job = mo.Job("mixed", parallelism=2)
    rows = job.source(mo.from_items([{"user": "ada", "cents": n} for n in range(10)]), uid="items")
    columns = rows.with_schema("user string, cents bigint", uid="columns")
    doubled = columns.map(lambda row: {**row, "cents": 2 * row["cents"]}, uid="double")
    again = doubled.with_schema("user string, cents bigint", uid="again").rebalance()
    euros = again.map_batches(
        lambda frame: frame.assign(euros=frame.cents / 100), frames="pandas", uid="euros", parallelism=1
    )
    euros.sink(mo.collect("out"), uid="out")
    out = mo.run(job, spark).collected("out")
    assert sorted(row["euros"] for row in out) == [n / 50 for n in range(10)]
