"""The job that chaos tests kill, the plain loop it is compared with, and a driver process for it.

    python chaos_job.py FOLDER [--master M] [--restore] [--cells JSON]

Runs one cell after the other in one Spark session and prints one JSON line per cell. A cell is a failpoint plan.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import msgspec
import psutil
from pyspark.sql import SparkSession

import moorline as mo
from moorline import failpoints

RECORDS = int(os.environ.get("CHAOS_RECORDS", "1000000"))
RATE = int(os.environ.get("CHAOS_RATE", "150000"))
KEYS, SPLITS, EVERY = 1000, 4, 10
#: Three JVMs start on two cores, for a minute: a compiler that optimises for hours to come only delays them.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def reading(number: int) -> tuple[int, int]:
    # KEYS is a multiple of SPLITS, so all records of a key come from one split, in order.
    return number % KEYS, number * 7 % 101


class Totals(mo.KeyedProcessFunction):
    """Every tenth record of a key: how many there were and their sum, kept in two states that must agree."""

    total = mo.ValueState(tuple[int, int], default=(0, 0))
    last = mo.ListState(int)

    def process_element(self, value, ctx):
        count, total = self.total.value()
        count, total = count + 1, total + value[1]
        self.total.update((count, total))
        self.last.add(value[1])
        if count % EVERY == 0:
            yield {"key": value[0], "count": count, "sum": total, "last": sum(self.last)}
            self.last.clear()


def build(out: str) -> mo.Job:
    job = mo.Job("chaos", parallelism=2)
    half = job.source(mo.generate(reading, count=RECORDS, splits=SPLITS, rate=RATE), uid="readings")
    half.key_by(lambda r: r[0]).process(Totals(), uid="totals").rebalance().sink(
        mo.write_files(out, format="jsonl"), uid="files", parallelism=2
    )
    return job


def plain_loop() -> Counter:
    found, state, last = Counter(), {}, {}
    for number in range(RECORDS):
        key, value = reading(number)
        count, total = state.get(key, (0, 0))
        state[key] = count, total = count + 1, total + value
        last[key] = last.get(key, 0) + value
        if count % EVERY == 0:
            found[key, count, total, last.pop(key)] += 1
    return found


def published(out: str) -> Counter:
    found = Counter()
    for path in Path(out).glob("part-*.jsonl"):
        for row in msgspec.json.decode(b"[" + path.read_bytes().strip().replace(b"\n", b",") + b"]"):
            found[row["key"], row["count"], row["sum"], row["last"]] += 1
    return found


def note_pids(handle: mo.Handle, folder: Path) -> None:
    """Keep the numbers of a worker of the stateful operator and of its executor where failpoints find them."""
    known = None
    while handle.is_active:
        pid = handle.worker_pids.get("1/0")
        if pid and pid != known:
            try:
                executor = psutil.Process(pid).parent().parent().pid
            except (psutil.Error, AttributeError):
                continue
            for name, number in (("worker", pid), ("executor", executor)):
                (folder / f"{name}.tmp").write_text(str(number))
                (folder / f"{name}.tmp").rename(folder / f"{name}.pid")
            known = pid
        time.sleep(0.05)


def run_cell(spark: SparkSession, folder: Path, plan: str, restore: bool) -> dict:
    out, points = folder / "out", folder / "points"
    points.mkdir(parents=True, exist_ok=True)
    (points / "driver.pid").write_text(str(os.getpid()))
    failpoints.arm(failpoints.Plan(plan, str(points)))
    began = time.monotonic()
    handle = mo.start(
        build(str(out)),
        spark,
        checkpoints=mo.Checkpoints(str(folder / "checkpoints"), interval="400ms", timeout="60s", tolerable_failures=5),
        restart=mo.FixedDelay(attempts=8, delay="200ms"),
        restore="latest" if restore else None,
        heartbeat_timeout="4s" if ":stop" in plan else "50s",
    )
    threading.Thread(target=note_pids, args=(handle, points), daemon=True).start()
    result = handle.wait()
    return {
        "plan": plan,
        "seconds": round(time.monotonic() - began, 1),
        "checkpoints": len(result.checkpoints),
        "failures": result.failures,
        "restored_from": result.restored_from,
        "fired": sorted(p.name for p in points.iterdir() if not p.name.endswith((".pid", ".tmp"))),
        "leftovers": sorted(str(p.relative_to(out)) for p in out.rglob(".*")),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master", default="local-cluster[2,4,1024]")
    parser.add_argument("--restore", action="store_true")
    parser.add_argument("--cells", default='[["cell", ""]]')
    options = parser.parse_args()
    spark = (
        SparkSession.builder.master(options.master)
        .config(map=mo.spark_config())
        .config("spark.ui.enabled", "false")
        .config("spark.executor.heartbeatInterval", "1s")
        .config("spark.network.timeout", "20s")
        .config("spark.network.timeoutInterval", "5s")
        .config("spark.log.level", "FATAL")
        .config("spark.local.dir", str(options.folder / "spark"))
        .config("spark.driver.extraJavaOptions", SHORT_LIVED)
        .config("spark.executor.extraJavaOptions", SHORT_LIVED)
        .getOrCreate()
    )
    for name, plan in json.loads(options.cells):
        report = {"cell": name, **run_cell(spark, options.folder / name, plan, options.restore)}
        print(json.dumps(report), flush=True)
    spark.stop()
    sys.exit(0)


if __name__ == "__main__":
    main()
