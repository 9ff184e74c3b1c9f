"""Rows per second of columns beside Flink's SQL, in Java, and beside records: totals per key, and sums in windows.

Sales of random customers are written as Parquet once, with times in order. Each job reads these files at parallelism 2
with checkpoints on, into a sink that forgets; what is timed is from the start of a job until it has
ended. First all of them run over a small set, and their results are compared with what DuckDB finds in it.

    totals    count and sum of each customer so far, of those that have changed
    windows   count and sum of each customer in tumbling windows of ten seconds of event time

Flink runs twice: as it comes, with an update for each row, and with its mini-batches (5,000 rows or 100 ms), which emit
less, as Moorline does.

    python bench/columns.py [--quick] [--rocksdb] [--texts] [--no-peer] [--keys 100000] [--rows 30000000]

The last line is one JSON object. ``by_flink`` is Moorline's rows/s over Flink's as it comes, ``by_mini_batches`` over
those of its mini-batches, ``by_records`` over the same job in Python functions of one record.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from peers import flink
from pyspark.sql import SparkSession

import moorline as mo

PARALLELISM = 2
#: Rows in a second of event time.
DENSITY = 100_000
WINDOW_MS = 10_000
BLOCK = 1 << 18
#: Record by record a job reads so many times fewer rows.
FEWER = 8
MINI_BATCHES = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "100 ms",
    "table.exec.mini-batch.size": "5000",
}
TOTALS = "SELECT customer, COUNT(*) AS n, SUM(cents) AS total FROM {} GROUP BY customer"
Job = Callable[[Path, mo.Sink], mo.Job]


def write(folder: Path, rows: int, keys: int, texts: bool, density: int = DENSITY) -> Path:
    """Sales in as many files as there are subtasks; each reaches from the first moment to the last."""
    folder.mkdir()
    chance = np.random.default_rng(7)
    customer = pa.string() if texts else pa.int64()
    schema = pa.schema([("customer", customer), ("cents", pa.int64()), ("at", pa.int64())])
    writers = [pq.ParquetWriter(folder / f"part-{n}.parquet", schema) for n in range(PARALLELISM)]
    for first in range(0, rows, BLOCK):
        numbers = np.arange(first, min(first + BLOCK, rows))
        customers = chance.integers(0, keys, len(numbers))
        made = pa.array([f"customer-{n}" for n in customers]) if texts else pa.array(customers)
        cents = pa.array(chance.integers(0, 1000, len(numbers)))
        times = pa.array(numbers * 1000 // density)
        block = pa.RecordBatch.from_arrays([made, cents, times], schema=schema)
        for n, writer in enumerate(writers):
            writer.write_batch(block.take(pa.array(np.flatnonzero(numbers % PARALLELISM == n))))
    for writer in writers:
        writer.close()
    return folder


# --- the jobs ------------------------------------------------------------------------------------


def totals_in_columns(folder: Path, sink: mo.Sink) -> mo.Job:
    job = mo.Job("columns", parallelism=PARALLELISM)
    rows = job.source(mo.read_files(folder, format="parquet"), uid="sales").with_schema(_schema(folder), uid="columns")
    rows.key_by("customer").aggregate(n=mo.count(), total=mo.sum("cents"), uid="totals").sink(sink, uid="out")
    return job


def windows_in_columns(folder: Path, sink: mo.Sink) -> mo.Job:
    job = mo.Job("windows", parallelism=PARALLELISM)
    rows = job.source(mo.read_files(folder, format="parquet"), uid="sales").with_schema(_schema(folder), uid="columns")
    keyed = rows.with_watermark("at", "0s", uid="times").key_by("customer")
    windows = keyed.window(mo.TumblingEventTimeWindows(f"{WINDOW_MS}ms"))
    windows.aggregate(n=mo.count(), total=mo.sum("cents"), uid="totals").sink(sink, uid="out")
    return job


class Totals(mo.KeyedProcessFunction):
    """Count and sum of a key, record by record."""

    totals = mo.ValueState(tuple[int, int], default=(0, 0))

    def process_element(self, value, ctx):
        count, total = self.totals.value()
        count, total = count + 1, total + value["cents"]
        self.totals.update((count, total))
        yield {"customer": value["customer"], "n": count, "total": total}


def totals_in_records(folder: Path, sink: mo.Sink) -> mo.Job:
    job = mo.Job("records", parallelism=PARALLELISM)
    rows = job.source(mo.read_files(folder, format="parquet"), uid="sales")
    rows.key_by(lambda r: r["customer"]).process(Totals(), uid="totals").sink(sink, uid="out")
    return job


class CountAndSum(mo.AggregateFunction):
    """Count and sum of a key and window, record by record."""

    accumulator_type = tuple[int, int]

    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + 1, accumulator[1] + value["cents"]

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


class WithWindow(mo.ProcessWindowFunction):
    """A row for each key and window."""

    def process(self, key, context, elements):
        for n, total in elements:
            yield {"customer": key, "n": n, "total": total, "window_start": context.window().start}


def windows_in_records(folder: Path, sink: mo.Sink) -> mo.Job:
    job = mo.Job("window-records", parallelism=PARALLELISM)
    by_time = mo.WatermarkStrategy.monotonous(timestamp=lambda r: r["at"])
    rows = job.source(mo.read_files(folder, format="parquet"), uid="sales", watermarks=by_time)
    windows = rows.key_by(lambda r: r["customer"]).window(mo.TumblingEventTimeWindows(f"{WINDOW_MS}ms"))
    windows.aggregate(CountAndSum(), WithWindow(), uid="totals").sink(sink, uid="out")
    return job


JOBS: dict[str, tuple[Job, Job]] = {
    "totals": (totals_in_columns, totals_in_records),
    "windows": (windows_in_columns, windows_in_records),
}
FLINK_SQL = {
    "totals": TOTALS.format("sales"),
    "windows": "SELECT customer, COUNT(*) AS n, SUM(cents) AS total, window_start "
    f"FROM TUMBLE(TABLE sales, DESCRIPTOR(ts), INTERVAL '{WINDOW_MS // 1000}' SECOND) "
    "GROUP BY customer, window_start, window_end",
}


def _schema(folder: Path) -> pa.Schema:
    return pq.read_schema(folder / "part-0.parquet")


# --- results -------------------------------------------------------------------------------------


def expected(folder: Path) -> dict[str, set[tuple[Any, ...]]]:
    """What DuckDB finds."""
    sales = f"'{folder}/*.parquet'"
    windows = f'SELECT customer, count(*), sum(cents)::BIGINT, "at" // {WINDOW_MS} FROM {sales} GROUP BY ALL'
    with duckdb.connect() as database:
        return {
            "totals": set(database.execute(TOTALS.format(sales)).fetchall()),
            "windows": set(database.execute(windows).fetchall()),
        }


def found(name: str, rows: Iterable[dict[str, Any]]) -> set[tuple[Any, ...]]:
    """The results that there are in the end, in the form of :func:`expected`."""
    if name == "windows":
        return {(r["customer"], r["n"], r["total"], _window(r["window_start"])) for r in rows}
    last: dict[Any, tuple[int, int]] = {}
    for row in rows:
        last[row["customer"]] = max(last.get(row["customer"], (0, 0)), (row["n"], row["total"]))
    return {(customer, *totals) for customer, totals in last.items()}


def _window(start: Any) -> int:
    """The number of a window: our columns have a moment, our records milliseconds, and Flink's text a local one."""
    if isinstance(start, str):
        start = np.datetime64(start).astype("datetime64[ms]").astype(int)
    return int(start.timestamp() * 1000 if hasattr(start, "timestamp") else start) // WINDOW_MS


def check(names: list[str], folder: Path, spark: SparkSession, backend: Any) -> None:
    """Raise if a job does not find what DuckDB does."""
    wanted = expected(folder)
    for name in names:
        for build in JOBS[name]:
            with tempfile.TemporaryDirectory() as checkpoints:
                job = build(folder, mo.collect("out"))
                result = mo.run(job, spark, checkpoints=mo.Checkpoints(checkpoints, interval="1s"), backend=backend)
            assert found(name, result.collected("out")) == wanted[name], f"{name} differ: {build.__name__}"
    print("the jobs find what DuckDB finds", flush=True)


# --- speed ---------------------------------------------------------------------------------------


def measured(build: Job, folder: Path, rows: int, spark: SparkSession, interval: str, backend: Any) -> float:
    """Rows per second of a job."""
    with tempfile.TemporaryDirectory() as checkpoints:
        job = build(folder, mo.discard())
        began = time.perf_counter()
        handle = mo.start(job, spark, checkpoints=mo.Checkpoints(checkpoints, interval=interval), backend=backend)
        try:
            handle.wait()
            return rows / (time.perf_counter() - began)
        finally:
            if handle.is_active:
                handle.cancel()


def by_flink(what: str, names: list[str], folder: Path, interval: str, backend: str, **more: str) -> dict[str, Any]:
    """What Flink makes of the queries. Raises ``flink.NotInstalled``."""
    kind = "STRING" if pa.types.is_string(_schema(folder).field("customer").type) else "BIGINT"
    table = (
        f"CREATE TABLE sales (customer {kind}, cents BIGINT, `at` BIGINT, ts AS TO_TIMESTAMP_LTZ(`at`, 3), "
        f"WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem', 'path' = '{folder.as_uri()}', 'format' = 'parquet')"
    )
    job = {
        "settings": flink.settings(backend, interval, PARALLELISM) | more,
        "tables": [table],
        "queries": {name: FLINK_SQL[name] for name in names},
        "what": what,
    }
    return flink.run(job, flink.parquet(), timeout=900)


def check_flink(names: list[str], folder: Path, backend: str) -> None:
    """Raise if Flink does not find what DuckDB does."""
    wanted = expected(folder)
    for name, result in by_flink("collect", names, folder, "1s", backend).items():
        assert "error" not in result, result
        rows = [dict(zip(result["columns"], row)) for row in result["rows"]]
        assert found(name, rows) == wanted[name], f"{name} of Flink differ"
    print("Flink finds what DuckDB finds", flush=True)


def spark_session() -> SparkSession:
    return (
        SparkSession.builder.master("local[16]")
        .config(map=mo.spark_config())
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "FATAL")
        .getOrCreate()
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rocksdb", action="store_true")
    parser.add_argument("--texts", action="store_true", help="keys are texts instead of ints")
    parser.add_argument("--no-peer", action="store_true", help="without Flink")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--only", default=",".join(JOBS))
    asked = parser.parse_args()
    names, backend = asked.only.split(","), "rocksdb" if asked.rocksdb else "heap"
    full = 8_000_000 if asked.rocksdb else 30_000_000
    rows, interval = asked.rows or (2_000_000 if asked.quick else full), "2s" if asked.quick else "10s"
    results: dict[str, dict[str, Any]] = {name: {} for name in names}
    with tempfile.TemporaryDirectory() as temporary:
        small = write(Path(temporary) / "small", 20_000, 200, asked.texts, density=500)
        large = write(Path(temporary) / "large", rows, asked.keys, asked.texts)
        fewer = write(Path(temporary) / "fewer", rows // FEWER, asked.keys, asked.texts)
        spark = spark_session()
        check(names, small, spark, backend)
        for name in names:
            columns, records = JOBS[name]
            speed = measured(columns, large, rows, spark, interval, backend)
            slow = measured(records, fewer, rows // FEWER, spark, interval, backend)
            results[name] = {"per_second": round(speed), "records_per_second": round(slow)}
            results[name]["by_records"] = round(speed / slow, 2)
            print(f"{name}: {results[name]}", flush=True)
        spark.stop()  # Flink has the machine for itself
        peer = "not asked for"
        if not asked.no_peer:
            try:
                check_flink(names, small, backend)
                peer = flink.VERSION
                for kind, more in (("flink", {}), ("mini_batches", MINI_BATCHES)):
                    for name, drained in by_flink("drain", names, large, interval, backend, **more).items():
                        per_second = rows / drained["seconds"]
                        results[name][f"{kind}_per_second"] = round(per_second)
                        results[name][f"by_{kind}"] = round(results[name]["per_second"] / per_second, 2)
                        print(f"{name}, {kind}: {per_second:,.0f} rows/s", flush=True)
            except flink.NotInstalled as why:
                peer = str(why)
    kind = "text" if asked.texts else "int"
    shape = {"backend": backend, "keys": asked.keys, "kind": kind, "rows": rows, "peer": peer}
    print(json.dumps({"bench": "columns", **shape, "results": results}))


if __name__ == "__main__":
    main()
