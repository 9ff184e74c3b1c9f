"""JSON lines in a bucket, counted by key, into partitioned Parquet in the bucket, with workers killed by -9."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import cloudpickle
import pyarrow.parquet as pq
import pytest
from buckets import Bucket
from real_servers import S3Server, s3_server  # noqa: F401
from waiting import eventually

import moorline as mo

pytestmark = pytest.mark.spark

OBJECTS, LINES, KEYS = 12, 300, 9


@pytest.fixture(autouse=True)
def by_value():
    """A worker cannot import a test module."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


class Count(mo.KeyedProcessFunction):
    count = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        self.count.update(self.count.value() + 1)
        yield {"key": value["key"], "count": self.count.value(), "day": f"2026-01-{value['key'] % 3 + 1:02}"}


def lines_of(number: int) -> list[dict]:
    return [{"key": (number * LINES + line) % KEYS} for line in range(LINES)]


def put(bucket: Bucket, first: int, end: int) -> None:
    for number in range(first, end):
        text = "".join(json.dumps(record) + "\n" for record in lines_of(number))
        bucket.put(f"in/hour={number}/clicks.jsonl", text)


def published(bucket: Bucket) -> Counter:
    """Rows as a reader finds them who knows nothing of Moorline, each with the day of its folder."""
    rows: Counter = Counter()
    for key in bucket.keys("out"):
        if ".moorline-staging" not in key:
            day = key.split("/")[1].removeprefix("day=")
            for row in pq.read_table(io.BytesIO(bucket.get(key))).to_pylist():
                rows[(row["key"], row["count"], day)] += 1
    return rows


def expected() -> Counter:
    seen: Counter = Counter()
    rows: Counter = Counter()
    for number in range(OBJECTS):
        for record in lines_of(number):
            seen[record["key"]] += 1
            rows[(record["key"], seen[record["key"]], f"2026-01-{record['key'] % 3 + 1:02}")] += 1
    return rows


def test_each_record_is_counted_and_published_once_with_workers_killed(spark, s3_server: S3Server, tmp_path: Path):  # noqa: F811
    bucket = Bucket(s3_server)
    put(bucket, 0, 4)
    job = mo.Job("clicks", parallelism=2)
    clicks = job.source(
        mo.read_files(f"{bucket.url}/in/hour=*/*.jsonl", watch="200ms", storage_options=bucket.options), uid="clicks"
    )
    counted = clicks.key_by(lambda click: click["key"]).process(Count(), uid="count")
    counted.sink(
        mo.write_files(f"{bucket.url}/out", partition_by="day", roll_size="64KB", storage_options=bucket.options),
        uid="files",
    )
    handle = mo.start(job, spark, checkpoints=mo.Checkpoints(str(tmp_path), interval="200ms", timeout="60s"))
    for round, worker in enumerate(["0/0", "1/1"], start=1):
        rows = 4 * LINES * round
        eventually(lambda: sum(published(bucket).values()) == rows or not handle.is_active, f"{rows} rows")  # noqa: B023
        put(bucket, 4 * round, 4 * round + 4)
        os.kill(handle.worker_pids[worker], signal.SIGKILL)
        eventually(lambda: len(handle.failures) >= round or not handle.is_active, "the end of the attempt")  # noqa: B023
    eventually(lambda: sum(published(bucket).values()) == OBJECTS * LINES or not handle.is_active, "all rows")
    result = handle.stop()
    assert result is not None
    assert len(result.failures) >= 2, "two workers were killed"
    assert min(result.restored_from[1:]) > 0
    assert published(bucket) == expected()
    assert [key for key in bucket.keys("out") if ".moorline-staging" in key] == []


def test_a_batch_reads_and_writes_in_a_bucket(spark, s3_server: S3Server):  # noqa: F811
    bucket = Bucket(s3_server)
    put(bucket, 0, 4)
    job = mo.Job("clicks", parallelism=2)
    clicks = job.source(mo.read_files(f"{bucket.url}/in", storage_options=bucket.options), uid="clicks")
    days = clicks.map(lambda click: {**click, "count": 1, "day": f"2026-01-{click['key'] % 3 + 1:02}"}, uid="days")
    sink = mo.write_files(f"{bucket.url}/out", partition_by="day", storage_options=bucket.options)
    days.sink(sink, uid="files")
    mo.run(job, spark, mode="batch")
    found: Counter = Counter()
    for (key, _, day), rows in published(bucket).items():
        found[(key, day)] += rows
    keys = Counter(record["key"] for number in range(4) for record in lines_of(number))
    assert found == {(key, f"2026-01-{key % 3 + 1:02}"): count for key, count in keys.items()}
    assert [key for key in bucket.keys("out") if ".moorline-staging" in key] == []
