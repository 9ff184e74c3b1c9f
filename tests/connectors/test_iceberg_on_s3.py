"""An Iceberg table in a bucket as a sink: staged files go through an object store, the catalog is elsewhere."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from real_servers import SECRET, S3Server, s3_server  # noqa: F401

import moorline as mo
from moorline.api.sinks import CommitterContext, SinkContext
from moorline.connectors.iceberg.catalog import TableFiles
from moorline.connectors.tables.staging import sink_tag

SCHEMA = pa.schema([("number", pa.int64()), ("day", pa.string())])
LINE = "cd" * 16


def test_records_are_committed_once_and_taken_back(s3_server: S3Server, tmp_path):  # noqa: F811
    options = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{s3_server.new_bucket()}/tables",
        "s3.endpoint": s3_server.endpoint,
        "s3.access-key-id": "testing",
        "s3.secret-access-key": SECRET,
        "s3.region": "us-east-1",
    }
    sink = mo.write_iceberg("shop.numbers", catalog_options=options, schema=SCHEMA, partition_by="day")
    sink.check()
    staged = {}
    writer = sink.open(SinkContext("job", "out", 0, 1, 1, lineage=LINE))
    for checkpoint in (1, 2, 3):
        writer.write([{"number": 10 * checkpoint + n, "day": f"d{n % 2}"} for n in range(4)])
        staged[checkpoint] = writer.prepare(checkpoint)

    def rows() -> list[int]:
        table = load_catalog("default", **options).load_table("shop.numbers")
        return sorted(table.scan().to_arrow()["number"].to_pylist())

    def commit(checkpoint: int) -> None:
        committer = sink.open_committer(CommitterContext("job", "out", 1, LINE))
        committer.commit(LINE, checkpoint, staged[checkpoint])

    assert rows() == []
    with ThreadPoolExecutor(3) as drivers:
        for done in [drivers.submit(commit, 1) for _ in range(3)]:
            done.result()
    commit(2)
    commit(2)
    assert rows() == [10, 11, 12, 13, 20, 21, 22, 23]
    sink.roll_back("job", "out", 1)
    assert rows() == [10, 11, 12, 13]
    commit(3)
    assert rows() == [10, 11, 12, 13, 30, 31, 32, 33]
    writer.write([{"number": 99, "day": "d0"}])
    writer.prepare(4)
    sink.clean_up("job", "out")
    left = {file.checkpoint for file in TableFiles(sink.address.load()).staged(sink_tag("job", "out"))}
    assert left == {1, 2, 3}, "what was in the table once is left to those who read older snapshots of it"
