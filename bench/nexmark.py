"""The queries of Nexmark on generated events, with checkpoints on: results checked, and rows per second.

Events are made from a seed and written as Parquet. First each query runs over a small set of them, and what comes out
is compared with what DuckDB finds in the same files. Then it runs over the large set, into a sink that forgets; beside
it the same in Flink's SQL, over the same files, at the same parallelism and interval of checkpoints, if Flink and its
Parquet format can be had.

    python bench/nexmark.py [--quick] [--no-peer] [--only q1,q5] [--events 5000000] [--rocksdb] [--check-only]
        [--trust] [--trust-peer] [--patience 300]

Parallelism 2. What is timed is from the start of a job, which is planned by then, until it has ended with its last
checkpoint.
What Flink finds in the small set is compared as well, q12 aside: windows by the clock that the end of the input cuts
off are given up by both. The last line is one JSON object; ``ratio`` is Moorline's rows/s over Flink's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import cloudpickle
import nexmark_queries
from nexmark_queries.all_queries import QUERIES
from nexmark_queries.events import Shape, write
from nexmark_queries.expected import difference, expected, found, found_by_flink
from nexmark_queries.flink import SQL, declared
from nexmark_queries.query import Query
from nexmark_queries.tables import Tables
from peers import flink
from pyspark.sql import SparkSession

import moorline as mo

#: Events that are checked: far enough apart that there are windows of them.
CHECKED = Shape(8_000, spacing_us=12_500)
PARALLELISM = 2


def job_of(name: str, query: Query, folder: Path, sink: mo.Sink, checked: bool = False) -> mo.Job:
    job = mo.Job(f"nexmark-{name}", parallelism=PARALLELISM)
    build = (checked and query.checked) or query.build
    build(Tables(job, folder)).sink(sink, uid="out")
    return job


def check(name: str, folder: Path, spark: SparkSession, backend: Any) -> None:
    """Raise if the query does not find what DuckDB does."""
    query = QUERIES[name]
    columns, wanted = expected(name, folder)
    with tempfile.TemporaryDirectory() as checkpoints:
        job = job_of(name, query, folder, mo.collect("out"), checked=True)
        result = mo.run(job, spark, checkpoints=mo.Checkpoints(checkpoints, interval="1s"), backend=backend)
    assert wanted, f"{name} finds nothing: these events do not check it"
    differs = difference(wanted, found(query, result.collected("out"), columns))
    assert not differs, f"{name}: {differs}"


def measured(name: str, folder: Path, rows: int, spark: SparkSession, interval: str, backend: Any) -> dict[str, Any]:
    """The rows that the query reads in a second."""
    with tempfile.TemporaryDirectory() as checkpoints:
        job = job_of(name, QUERIES[name], folder, mo.discard())
        began = time.perf_counter()
        handle = mo.start(job, spark, checkpoints=mo.Checkpoints(checkpoints, interval=interval), backend=backend)
        try:
            handle.wait()
            took = time.perf_counter() - began
        finally:
            if handle.is_active:
                handle.cancel()
    return {"seconds": round(took, 2), "per_second": round(rows / took), "checkpoints": len(handle.checkpoints)}


def flink_job(
    what: str, names: list[str], folder: Path, interval: str, backend: str, timeout: float = 7200
) -> dict[str, Any]:
    """What Flink makes of some queries. Raises ``flink.NotInstalled``."""
    job = {
        "settings": flink.settings(backend, interval, PARALLELISM),
        "tables": declared(folder),
        "queries": {name: SQL[name] for name in names},
        "what": what,
    }
    return flink.run(job, flink.parquet(), timeout=timeout)


def check_flink(names: list[str], folder: Path, backend: str) -> dict[str, str]:
    """What is wrong with the results of Flink, for each query; empty if they are right."""
    wrong = {}
    collected = flink_job("collect", [name for name in names if name != "q12"], folder, "1s", backend)
    for name, result in collected.items():
        columns, wanted = expected(name, folder)
        wrong[name] = result.get("error") or difference(wanted, found_by_flink(result, columns))
        print(f"{name}: Flink {wrong[name] or 'finds the same'}", flush=True)
    return wrong


def measure_flink(
    results: dict[str, dict[str, Any]], folder: Path, interval: str, backend: str, patience: float
) -> None:
    """Add what Flink takes, and the ratio, to the figures of queries. Each has a cluster of its own."""
    for name, figures in results.items():
        try:
            drained = flink_job("drain", [name], folder, interval, backend, patience)[name]
        except subprocess.TimeoutExpired:
            drained = {"error": f"not done after {patience:.0f} s"}
        if "error" in drained:
            figures["peer"] = drained["error"]
            print(f"{name}: Flink: {figures['peer']}", flush=True)
            continue
        seconds = drained["seconds"]
        per_second = round(figures["rows"] / seconds)
        figures["flink"] = {"seconds": round(seconds, 2), "per_second": per_second}
        figures["ratio"] = round(figures["moorline"]["per_second"] / per_second, 2)
        print(f"{name}: Flink: {figures['flink']}, ratio {figures['ratio']}", flush=True)


def table(found: dict[str, dict[str, Any]]) -> str:
    """The figures of all queries."""
    lines = [f"{'query':6} {'rows/s':>11} {'Flink':>11} {'ratio':>6}  what it is"]
    for name, figures in found.items():
        own, peer = figures["moorline"]["per_second"], figures.get("flink", {}).get("per_second")
        beside = f"{peer:>11,} {figures['ratio']:>6}" if peer else f"{'-':>11} {'-':>6}"
        lines.append(f"{name:6} {own:>11,} {beside}  {QUERIES[name].title}")
    return "\n".join(lines)


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer events")
    parser.add_argument("--no-peer", action="store_true", help="without Flink")
    parser.add_argument("--only", default=",".join(QUERIES), help="some of the queries")
    parser.add_argument("--events", type=int, help="how many events are measured")
    parser.add_argument("--rocksdb", action="store_true", help="state in RocksDB")
    parser.add_argument("--check-only", action="store_true", help="without any measurement")
    parser.add_argument("--patience", type=float, default=300, help="seconds after which Flink is given up")
    parser.add_argument("--trust", action="store_true", help="without a look at what all but the first query find")
    parser.add_argument("--trust-peer", action="store_true", help="without a look at what Flink finds")
    asked = parser.parse_args()
    asked.trust_peer = asked.trust_peer or asked.trust
    names = asked.only.split(",")
    if unknown := [name for name in names if name not in QUERIES]:
        parser.error(f"there is no query {unknown[0]}: {', '.join(QUERIES)}")
    backend = "rocksdb" if asked.rocksdb else "heap"
    events, interval = asked.events or (300_000 if asked.quick else 5_000_000), "2s" if asked.quick else "10s"
    cloudpickle.register_pickle_by_value(nexmark_queries)  # workers have no folder of benchmarks
    spark = spark_session()
    results: dict[str, dict[str, Any]] = {name: {} for name in names}
    failed: dict[str, str] = {}
    peer = "not asked for"
    with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as large:
        write(CHECKED, Path(small))
        for name in names[:1] if asked.trust else names:  # the first one also has Spark started
            try:
                check(name, Path(small), spark, backend)
                print(f"{name} finds what DuckDB finds", flush=True)
            except Exception as error:  # the others are looked at all the same
                failed[name] = f"{type(error).__name__}: {error}"
                print(f"{name} fails: {failed[name]}", flush=True)
        names = [name for name in names if name not in failed]
        if not asked.check_only:
            rows = write(Shape(events), Path(large))
            for name in names:
                results[name]["rows"] = read = sum(rows[of] for of in QUERIES[name].reads)
                results[name]["moorline"] = measured(name, Path(large), read, spark, interval, backend)
                print(f"{name}: {results[name]}", flush=True)
        spark.stop()  # Flink has the machine for itself
        if not asked.no_peer:
            try:
                wrong = {} if asked.trust_peer else check_flink(names, Path(small), backend)
                differs = "; ".join(f"{name}: {what}" for name, what in wrong.items() if what)
                peer = "trusted" if asked.trust_peer else differs or "finds the same"
                if not asked.check_only:
                    measure_flink(
                        {name: results[name] for name in names}, Path(large), interval, backend, asked.patience
                    )
            except flink.NotInstalled as why:
                peer = str(why)
                print(peer, flush=True)
    if not asked.check_only:
        print(table({name: results[name] for name in names}))
    checked = {
        "checked": names[:1] if asked.trust else names,
        "of_events": CHECKED.events,
        "failed": failed,
        "peer": peer,
    }
    print(json.dumps({"bench": "nexmark", "backend": backend, "events": events, **checked, "queries": results}))
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
