"""A Delta table that is followed, through keyed state, into an Iceberg table and a SQL database, with a worker killed.

``make chaos`` has all phases of it (``test_outside_chaos.py``).
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog
from waiting import eventually

import moorline as mo

pytestmark = pytest.mark.spark

KEYS, ROWS = 13, 2_000


def counting(orders: Path, database: Path, catalog: dict[str, str]) -> mo.Job:
    """The number of orders of a customer so far, with each order."""
    keys, schema = KEYS, pa.schema([("n", pa.int64()), ("customer", pa.int64()), ("seen", pa.int64())])

    class Count(mo.KeyedProcessFunction):
        seen = mo.ValueState(int, default=0)

        def process_element(self, row, ctx):
            self.seen.update(self.seen.value() + 1)
            yield {"n": row["n"], "customer": ctx.current_key, "seen": self.seen.value()}

    job = mo.Job("tables", parallelism=2)
    rows = job.source(mo.read_delta(orders, follow=True, interval="100ms"), uid="orders")
    counted = rows.key_by(lambda row: row["n"] % keys).process(Count(), uid="count")
    counted.sink(mo.write_iceberg("shop.counts", catalog_options=catalog, schema=schema), uid="table")
    counted.sink(mo.write_sql(f"sqlite:///{database}", "counts", key="n"), uid="database", parallelism=1)
    return job


def test_a_delta_table_becomes_an_iceberg_table_and_rows_of_a_database(spark, tmp_path):
    orders, database = tmp_path / "orders", tmp_path / "shop.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE counts (n INTEGER PRIMARY KEY, customer INTEGER, seen INTEGER)")
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/tables"}

    def add(first: int, end: int) -> None:
        write_deltalake(str(orders), pa.table({"n": list(range(first, end))}), mode="append")

    def in_table() -> list[dict[str, int]]:
        return load_catalog("default", **catalog).load_table("shop.counts").scan().to_arrow().to_pylist()

    def in_database() -> list[dict[str, int]]:
        with sqlite3.connect(database) as connection:
            found = connection.execute("SELECT n, customer, seen FROM counts").fetchall()
        return [{"n": n, "customer": customer, "seen": seen} for n, customer, seen in found]

    add(0, ROWS // 2)
    checkpoints = mo.Checkpoints(str(tmp_path / "chk"), interval="200ms")
    restart = mo.FixedDelay(attempts=3, delay="10ms")
    handle = mo.start(counting(orders, database, catalog), spark, checkpoints=checkpoints, restart=restart)
    try:
        eventually(lambda: handle.worker_pids and len(handle.checkpoints) > 1 and in_database(), "something is there")
        os.kill(handle.worker_pids["1/0"], signal.SIGKILL)
        add(ROWS // 2, ROWS)
        eventually(lambda: not handle.is_active or len(in_table()) >= ROWS <= len(in_database()), "all of it")
        result = handle.stop()
    finally:
        if handle.is_active:
            handle.cancel()
    assert len(result.failures) == 1 and result.restored_from[-1] > 0
    expected = Counter((n % KEYS, n // KEYS + 1) for n in range(ROWS))
    for found in (in_table(), in_database()):
        assert sorted(row["n"] for row in found) == list(range(ROWS)), "each order once"
        assert Counter((row["customer"], row["seen"]) for row in found) == expected, "counted without a gap"
    assert sorted(map(repr, in_table())) == sorted(map(repr, in_database())), "both sinks have the same"
