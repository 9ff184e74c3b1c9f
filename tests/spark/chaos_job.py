"""The job that chaos tests kill, the plain loop it is compared with, and a driver process for it.

    python chaos_job.py FOLDER --master M [--executor-timeout 20s]

Reads cells from its input, a JSON object per line, runs one after the other in one Spark session and prints one JSON
line for each. A cell is a failpoint plan, a backend, and something that is asked of the running job.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import moorline as mo
from moorline import failpoints
from moorline.errors import MoorlineError

RECORDS, RATE, KEYS, SPLITS, EVERY = 120_000, 60_000, 1000, 4, 10
ROW = pa.schema([(name, pa.int64()) for name in ("key", "count", "sum", "last")])
#: So long the job waits for its kill in the middle of its input. Then it goes on, and the test says that nothing came.
PATIENCE = 90
#: Three JVMs start on two cores, for a minute: a compiler that optimises for hours to come only delays them.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def reading(number: int) -> tuple[int, int]:
    # KEYS is a multiple of SPLITS, so all records of a key come from one split, in order.
    return number % KEYS, number * 7 % 101


class Gated(mo.Source):
    """A source that waits after a quarter until the job is steady, and half-way until something was killed.

    So on a slow machine too there is something to commit once the job is steady, and the kill comes in time.
    """

    def __init__(self, source: mo.Source, points: str) -> None:
        self._source, self._points = source, points

    @property
    def enumerates(self):
        return self._source.enumerates

    @property
    def is_bounded(self):
        return self._source.is_bounded

    def check(self):
        self._source.check()

    def open(self, ctx):
        return GatedReader(self._source.open(ctx), self._points)

    def open_enumerator(self, ctx):
        return self._source.open_enumerator(ctx)


class GatedReader(mo.SourceReader):
    def __init__(self, reader: mo.SourceReader, points: str) -> None:
        self._reader, self._points, self._until = reader, points, time.monotonic() + PATIENCE
        self._is_open = False

    def read(self, limit):
        if not self._is_open and self._waits():
            time.sleep(0.002)
            return []
        return self._reader.read(min(limit, 500))

    def _waits(self) -> bool:
        at, points = self._at(), Path(self._points)
        if at > RECORDS // 2 or time.monotonic() > self._until:
            self._is_open = bool(marks(points)) or time.monotonic() > self._until
            return not self._is_open
        return at > RECORDS // 4 and not (points / "steady").exists()

    def _at(self) -> int:
        """About how many records all subtasks have read."""
        # A partition of Kafka has an offset and an end; a split of the generator has the number of its next record.
        places = self._reader.positions().values()
        return max((place[0] * SPLITS if isinstance(place, list) else place for place in places), default=0)

    def positions(self):
        return self._reader.positions()

    def splits(self):
        return self._reader.splits()

    def add_splits(self, splits):
        self._reader.add_splits(splits)

    def no_more_splits(self):
        self._reader.no_more_splits()

    def notify_checkpoint_complete(self, checkpoint):
        self._reader.notify_checkpoint_complete(checkpoint)

    def close(self):
        self._reader.close()


def marks(points: Path) -> list[str]:
    """The failpoints that have fired."""
    return sorted(p.name for p in points.iterdir() if not p.name.endswith((".pid", ".tmp", "asked", "steady")))


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


def build(folder: Path, kafka: str = "") -> mo.Job:
    if kafka:
        return from_kafka_to_kafka(folder, kafka)
    job = mo.Job("chaos", parallelism=2)
    generated = mo.generate(reading, count=RECORDS, splits=SPLITS, rate=RATE)
    readings = job.source(Gated(generated, str(folder / "points")), uid="readings")
    totals = readings.key_by(lambda r: r[0]).process(Totals(), uid="totals").rebalance()
    # The same twice: committed by workers, and by the driver in one step.
    totals.sink(mo.write_files(str(folder / "out"), format="jsonl"), uid="files", parallelism=2)
    totals.sink(mo.write_delta(folder / "table", schema=ROW), uid="table", parallelism=2)
    return job


def from_kafka_to_kafka(folder: Path, brokers: str) -> mo.Job:
    """The same job between two topics, which are called after the folders that it runs in."""
    job = mo.Job("chaos", parallelism=2)
    source = mo.read_kafka(brokers, f"{folder.parent.name}-in", end="latest", interval="500ms")
    readings = job.source(Gated(source, str(folder / "points")), uid="readings")
    totals = readings.key_by(lambda r: r[0]).process(Totals(), uid="totals").rebalance()
    out = mo.write_kafka(brokers, f"{folder.parent.name}-{folder.name}", key=lambda r: str(r["key"]))
    totals.sink(out, uid="topic", parallelism=2)
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


def in_table(folder: str) -> Counter:
    rows = DeltaTable(folder).to_pyarrow_table().to_pylist()
    return Counter((row["key"], row["count"], row["sum"], row["last"]) for row in rows)


def published(out: str) -> Counter:
    found = Counter()
    for path in Path(out).glob("part-*.jsonl"):
        for row in msgspec.json.decode(b"[" + path.read_bytes().strip().replace(b"\n", b",") + b"]"):
            found[row["key"], row["count"], row["sum"], row["last"]] += 1
    return found


@dataclass
class Cell:
    """One run of the job, in a folder of its own, and what is done to it."""

    name: str
    plan: str = ""
    backend: str = "heap"
    #: Asked of the job once it has checkpoints: savepoint, rescale or stop. Plans wait for it by ``?asked``.
    action: str = ""
    restore: str | None = None
    heartbeat: str = "50s"
    start_timeout: str = "10min"
    #: Brokers, for a job that goes from Kafka to Kafka.
    kafka: str = ""


def note(handle: mo.Handle, folder: Path) -> None:
    """Keep the numbers of a worker of the stateful operator and of its executor where failpoints find them.

    With two checkpoints the job is steady: plans wait for it by ``?steady``.
    """
    known = None
    while handle.is_active:
        if len(handle.checkpoints) >= 2:
            (folder / "steady").touch()
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


def start(spark: SparkSession, folder: Path, cell: Cell, restore: str | None) -> mo.Handle:
    handle = mo.start(
        build(folder, cell.kafka),
        spark,
        checkpoints=mo.Checkpoints(str(folder / "checkpoints"), interval="250ms", timeout="60s", tolerable_failures=5),
        restart=mo.FixedDelay(attempts=8, delay="100ms"),
        restore=restore,
        backend=mo.RocksDb(folder=str(folder / "local"), memory="16MB") if cell.backend == "rocksdb" else "heap",
        heartbeat_timeout=cell.heartbeat,
        start_timeout=cell.start_timeout,
    )
    threading.Thread(target=note, args=(handle, folder / "points"), daemon=True).start()
    return handle


def ask(handle: mo.Handle, folder: Path, action: str) -> str:
    """Ask for something right after a checkpoint, so that the next barrier belongs to it. Returns what became of it."""
    before = len(handle.checkpoints)
    while len(handle.checkpoints) < before + 2 and handle.is_active:
        time.sleep(0.005)
    (folder / "points" / "asked").touch()
    try:
        if action == "savepoint":
            handle.savepoint(str(folder / "savepoint"), timeout=60)
        elif action == "rescale":
            handle.rescale({"totals": 3}, timeout=60)
        elif action == "stop":
            handle.stop(60, savepoint=str(folder / "savepoint"))
    except MoorlineError as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def run_cell(spark: SparkSession, folder: Path, cell: Cell) -> dict[str, Any]:
    out, points = folder / "out", folder / "points"
    points.mkdir(parents=True, exist_ok=True)
    (points / "driver.pid").write_text(str(os.getpid()))
    failpoints.arm(failpoints.Plan(cell.plan, str(points)))
    began = time.monotonic()
    handle = start(spark, folder, cell, cell.restore)
    became = ask(handle, folder, cell.action) if cell.action else ""
    result = handle.wait()
    runs = [result]
    if cell.action == "stop" and became == "done":
        # It has ended at the savepoint, and goes on from there.
        runs.append(start(spark, folder, cell, str(folder / "savepoint")).wait())
    return {
        "seconds": round(time.monotonic() - began, 1),
        "became": became,
        "checkpoints": sum(len(r.checkpoints) for r in runs),
        "failures": [f for r in runs for f in r.failures],
        "restored_from": [n for r in runs for n in r.restored_from],
        "fired": marks(points),
        "leftovers": sorted(str(p.relative_to(out)) for p in out.rglob(".*")),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--master", required=True)
    parser.add_argument("--executor-timeout", default="20s", help="so long Spark waits for an executor's heartbeat")
    options = parser.parse_args()
    spark = (
        SparkSession.builder.master(options.master)
        .config(map=mo.spark_config())
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.executor.heartbeatInterval", "1s")
        .config("spark.network.timeout", "60s")
        .config("spark.network.timeoutInterval", "2s")
        .config("spark.storage.blockManagerHeartbeatTimeoutMs", options.executor_timeout)
        .config("spark.log.level", "FATAL")
        .config("spark.local.dir", str(options.folder / "spark"))
        .config("spark.driver.extraJavaOptions", SHORT_LIVED)
        .config("spark.executor.extraJavaOptions", SHORT_LIVED)
        .getOrCreate()
    )
    print("ready", flush=True)
    for line in sys.stdin:
        cell = Cell(**json.loads(line))
        try:
            report = run_cell(spark, options.folder / cell.name, cell)
        except Exception as error:
            report = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        print(json.dumps({"cell": cell.name, "plan": cell.plan, **report}), flush=True)
    spark.stop()
    sys.exit(0)


if __name__ == "__main__":
    main()
