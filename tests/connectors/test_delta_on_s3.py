"""A Delta table in a bucket as a sink: staged files and commits go through an object store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from real_servers import SECRET, S3Server, s3_server  # noqa: F401

import moorline as mo
from moorline.api.sinks import CommitterContext, SinkContext
from moorline.connectors.tables.staging import sink_tag
from moorline.testing import OperatorHarness

SCHEMA = pa.schema([("number", pa.int64()), ("day", pa.string())])
LINE = "cd" * 16


@pytest.fixture
def table(s3_server: S3Server) -> tuple[str, dict[str, str]]:  # noqa: F811
    options = {
        "AWS_ENDPOINT_URL": s3_server.endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    return f"s3://{s3_server.new_bucket()}/tables/numbers", options


def rows(table: tuple[str, dict[str, str]]) -> list[Any]:
    uri, options = table
    return sorted(row["number"] for row in DeltaTable(uri, storage_options=options).to_pyarrow_table().to_pylist())


def test_records_are_committed_once_and_taken_back(table):
    uri, options = table
    sink = mo.write_delta(uri, schema=SCHEMA, partition_by="day", storage_options=options)
    sink.check()
    staged = {}
    writer = sink.open(SinkContext("job", "out", 0, 1, 1, lineage=LINE))
    for checkpoint in (1, 2, 3):
        writer.write([{"number": 10 * checkpoint + n, "day": f"d{n % 2}"} for n in range(4)])
        staged[checkpoint] = writer.prepare(checkpoint)
    assert rows(table) == []

    def commit(checkpoint: int) -> None:
        committer = sink.open_committer(CommitterContext("job", "out", 1, LINE))
        committer.commit(LINE, checkpoint, staged[checkpoint])

    with ThreadPoolExecutor(3) as drivers:
        for done in [drivers.submit(commit, 1) for _ in range(3)]:
            done.result()
    commit(2)
    commit(2)
    assert rows(table) == [10, 11, 12, 13, 20, 21, 22, 23]
    sink.roll_back("job", "out", 1)
    assert rows(table) == [10, 11, 12, 13]
    commit(3)
    assert rows(table) == [10, 11, 12, 13, 30, 31, 32, 33]
    writer.write([{"number": 99, "day": "d0"}])
    writer.prepare(4)
    sink.clean_up("job", "out")
    left = {file.checkpoint for file in sink.location.staged(sink_tag("job", "out"))}
    assert left == {1, 2, 3}, "what was in the table once is left to those who read older versions of it"


def test_a_table_in_a_bucket_is_read(table):
    uri, options = table
    rows = [{"number": n, "day": f"d{n % 3}"} for n in range(50)]
    write_deltalake(uri, pa.Table.from_pylist(rows), partition_by=["day"], storage_options=options)
    source = mo.read_delta(uri, follow=True, interval="1s", storage_options=options)
    source.check()
    with OperatorHarness.of(lambda job: job.source(source, uid="table"), inputs=0, parallelism=2) as reading:
        found = reading.read(50)
        write_deltalake(uri, pa.table({"number": [50], "day": ["d0"]}), mode="append", storage_options=options)
        reading.advance_clock(1_000)
        found += reading.read(1)
    assert sorted(row["number"] for row in found) == list(range(51))
