"""The job that chaos tests kill, and a driver process for it.

    python chaos_job.py FOLDER --master M [--executor-timeout 20s]

Reads cells from its input, a JSON object per line, runs one after the other in one Spark session and prints one JSON
line for each. A cell is a failpoint plan, a backend, the systems that it reads and writes (``chaos_ends.py``), and
something that is asked of the running job.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from chaos_ends import ENDS, End, Place
from pyspark.sql import SparkSession

import moorline as mo
from moorline import failpoints
from moorline.errors import MoorlineError

RECORDS = 120_000
#: So long the job waits for its kill in the middle of its input. Then it goes on, and the test says that nothing came.
PATIENCE = 300
#: Three JVMs start on two cores, for a minute: a compiler that optimises for hours to come only delays them.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Gated(mo.Source):
    """A source that waits after a quarter until the job is steady, and half-way until something was killed.

    So on a slow machine too there is something to commit once the job is steady, and the kill comes in time.
    """

    def __init__(self, source: mo.Source, cell: Cell, points: str) -> None:
        self._source, self._cell, self._points = source, cell, points

    @property
    def enumerates(self):
        return self._source.enumerates

    @property
    def is_bounded(self):
        return self._source.is_bounded

    def check(self):
        self._source.check()

    def open(self, ctx):
        return GatedReader(self._source.open(ctx), self._cell, self._points)

    def open_enumerator(self, ctx):
        return self._source.open_enumerator(ctx)


class GatedReader(mo.SourceReader):
    def __init__(self, reader: mo.SourceReader, cell: Cell, points: str) -> None:
        self._reader, self._points, self._until = reader, points, time.monotonic() + PATIENCE
        self._number, self._records = ENDS[cell.ends].number, cell.records
        self._is_open = False
        #: The number of the last record: about so many have all subtasks read.
        self._at = 0

    def read(self, limit):
        if not self._is_open and self._waits():
            time.sleep(0.002)
            self.split = self.timestamps = None
            return []
        records = self._reader.read(min(limit, 500))
        self.split, self.timestamps = self._reader.split, self._reader.timestamps
        if records:
            self._at = self._number(records[-1])
        return records

    def _waits(self) -> bool:
        points = Path(self._points)
        if self._at > self._records // 2 or time.monotonic() > self._until:
            self._is_open = bool(marks(points)) or time.monotonic() > self._until
            return not self._is_open
        return self._at > self._records // 4 and not (points / "steady").exists()

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


def build(place: Place, end: End, cell: Cell) -> mo.Job:
    job, number = mo.Job("chaos", parallelism=2), end.number
    source = end.source(place)
    # Where the input comes while the job runs, it is held back by whoever brings it.
    gated = source if end.is_endless else Gated(source, cell, str(place.folder / "points"))
    watermarks = end.flow.watermarks
    readings = job.source(gated, uid="readings", watermarks=None if watermarks is None else watermarks(number))
    second = None if end.second is None else end.second(place)
    totals = end.flow.build(job, readings, number, second).rebalance()
    for uid, sink in end.sinks(place).items():
        totals.sink(sink, uid=uid, parallelism=2)
    return job


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
    #: What it reads and writes: one of chaos_ends.ENDS, with the addresses of its servers.
    ends: str = "files"
    source: str = ""
    sink: str = ""
    records: int = RECORDS

    def place(self, folder: Path) -> Place:
        """Where it reads and writes, in the folder of its test."""
        return Place(folder / self.name, self.records, self.source, self.sink)


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
        build(cell.place(folder.parent), ENDS[cell.ends], cell),
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


def ended(handle: mo.Handle, folder: Path, cell: Cell) -> Any:
    """What a job has come to. One without an end is stopped when as many rows are there as a plain loop makes."""
    end = ENDS[cell.ends]
    wanted = end.flow.loop(cell.records).total()
    while end.is_endless and handle.is_active:
        try:
            if all(len(rows) >= wanted for rows in end.found(cell.place(folder.parent)).values()):
                handle.stop()
        except Exception:  # the server was killed, or the job is over
            traceback.print_exc()
        time.sleep(0.5)
    return handle.wait()


def run_cell(spark: SparkSession, folder: Path, cell: Cell) -> dict[str, Any]:
    out, points = folder / "out", folder / "points"
    points.mkdir(parents=True, exist_ok=True)
    (points / "driver.pid").write_text(str(os.getpid()))
    failpoints.arm(failpoints.Plan(cell.plan, str(points)))
    began = time.monotonic()
    handle = start(spark, folder, cell, cell.restore)
    became = ask(handle, folder, cell.action) if cell.action else ""
    runs = [ended(handle, folder, cell)]
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
        print(json.dumps({**asdict(cell), "cell": cell.name, **report}), flush=True)
    spark.stop()
    sys.exit(0)


if __name__ == "__main__":
    main()
