"""How long an aligned checkpoint takes at saturation, against the speed of the receiver: 1 µs to 1 ms per record.

A source that makes records as fast as it may, key_by, a function with state that takes its time for each record, and
checkpoints every two seconds, parallelism 2, on the heap and on RocksDB. What a barrier waits for is what is in flight
in front of the function.

Then a savepoint of a million keys, with a count and a sum each, while 100,000 records come each second, and the start
from it at parallelism 4, until all subtasks run; beside it the same with Flink, if it can be installed into an
environment of its own: a GROUP BY of its SQL, in Java, with its local cluster.

    python bench/checkpoint.py [--quick] [--no-peer] [--only saturation,savepoint]

The last line is one JSON object: by backend and microseconds per record, the longest and the median time from trigger
to last acknowledgement, how much of that was writing, the records per second, and the bytes in flight; by backend the
seconds of savepoint and restore, Flink's, and ours divided by Flink's.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

import moorline as mo

KEYS = 100_000
#: Records per second while a savepoint is taken.
SAVED_RATE = 100_000


def payment(number: int) -> tuple[int, int]:
    # A multiplier that leaves no order: neighbours in the stream are far apart in memory.
    return (number * 0x9E3779B97F4A7C15 >> 20) % KEYS, number % 1000


class Slow(mo.KeyedProcessFunction):
    """Counts, and takes ``us`` microseconds for a record."""

    count = mo.ValueState(int, default=0)

    def __init__(self, us: float) -> None:
        self.us = us

    def process_element(self, value, ctx):
        self.count.update(self.count.value() + 1)
        if self.us >= 1000:
            time.sleep(self.us / 1e6)  # as if it asked a server
        elif self.us > 1:
            over = time.perf_counter() + self.us / 1e6
            while time.perf_counter() < over:
                pass


def measured(spark: SparkSession, us: float, backend: str, seconds: float) -> dict:
    job = mo.Job("checkpoint", parallelism=2)
    (
        job.source(mo.generate(payment), uid="payments")
        .key_by(lambda r: r[0])
        .process(Slow(us), uid="slow")
        .sink(mo.discard(), uid="out")
    )
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = mo.Checkpoints(folder, interval="2s", timeout="2min")
        handle = mo.start(job, spark, checkpoints=checkpoints, backend=backend)
        try:
            while not handle.progress["operators"].get("slow", {}).get("records_in", 0):
                time.sleep(0.1)
            time.sleep(seconds / 2)
            skipped, began, first = len(handle.checkpoints), time.perf_counter(), _records(handle)
            in_flight = []
            while time.perf_counter() - began < seconds or len(handle.checkpoints) < skipped + 2:
                time.sleep(0.2)
                in_flight.append(handle.progress["operators"]["payments"].get("in_flight_bytes", -1))
            rate = (_records(handle) - first) / (time.perf_counter() - began)
            taken = handle.checkpoints[skipped:]
        finally:
            handle.cancel()
    return {
        "longest_ms": max(c.duration_ms for c in taken),
        "median_ms": statistics.median(c.duration_ms for c in taken),
        "writing_ms": max(c.sync_ms + c.async_ms for c in taken),
        "checkpoints": len(taken),
        "records_per_second": round(rate),
        "in_flight_bytes": round(statistics.median(in_flight)),
    }


def _records(handle: mo.Handle) -> int:
    return handle.progress["operators"].get("slow", {}).get("records_in", 0)


# --- a savepoint of a million keys ---------------------------------------------------------------


class Totals(mo.KeyedProcessFunction):
    """A count and a sum per key."""

    total = mo.ValueState(tuple[int, int], default=(0, 0))

    def process_element(self, value, ctx):
        count, total = self.total.value()
        self.total.update((count + 1, total + value[1]))


def saved_and_restored(spark: SparkSession, backend: str, keys: int) -> dict:
    """Seconds that a savepoint takes, and from a start at parallelism 4 until all subtasks run."""

    def totals() -> mo.Job:
        job = mo.Job("savepoint", parallelism=2)
        numbers = mo.generate(lambda n: (n % keys, n), rate=SAVED_RATE)
        stream = job.source(numbers, uid="numbers").key_by(lambda r: r[0])
        stream.process(Totals(), uid="totals").sink(mo.discard(), uid="out")
        return job

    with tempfile.TemporaryDirectory() as folder:
        checkpoints = mo.Checkpoints(f"{folder}/checkpoints", interval="10min")
        handle = mo.start(totals(), spark, checkpoints=checkpoints, backend=backend)
        try:
            while handle.is_active and handle.progress["operators"].get("totals", {}).get("records_in", 0) < 1.2 * keys:
                time.sleep(0.1)
            began = time.perf_counter()
            path = handle.savepoint(f"{folder}/savepoint")
            saved = time.perf_counter() - began
        finally:
            handle.cancel()
        began = time.perf_counter()
        handle = mo.start(totals(), spark, restore=path, parallelism=4, checkpoints=checkpoints, backend=backend)
        try:
            while handle.is_active and handle.status is not mo.JobStatus.RUNNING:
                time.sleep(0.02)
            restored = time.perf_counter() - began
        finally:
            handle.cancel()
    return {"savepoint_s": round(saved, 2), "restore_s": round(restored, 2)}


#: The same job in Flink's SQL. Prints one JSON object.
PEER = '''
import json, sys, tempfile, time, urllib.request

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

backend, seconds = sys.argv[3], float(sys.argv[4])
keys, rate, port = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[5])


def start(parallelism, savepoint=None):
    """Start the job. The client of it, and how long it took until all subtasks were running."""
    conf = Configuration()
    wanted = {
        "parallelism.default": str(parallelism),
        "taskmanager.numberOfTaskSlots": str(parallelism),
        "state.backend.type": backend,
        "rest.port": str(port),
        "taskmanager.memory.task.heap.size": "1g",
        "taskmanager.memory.managed.size": "256m",
        "execution.checkpointing.interval": "10min",
        "table.exec.mini-batch.enabled": "false",
    }
    if savepoint:
        wanted["execution.state-recovery.path"] = savepoint
    for name, value in wanted.items():
        conf.set_string(name, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(conf).build()
    tables = TableEnvironment.create(settings)
    tables.execute_sql(
        f"CREATE TABLE numbers (id BIGINT) WITH ('connector'='datagen', 'rows-per-second'='{rate}',"
        " 'fields.id.kind'='sequence', 'fields.id.start'='0', 'fields.id.end'='1000000000')"
    )
    tables.execute_sql("CREATE TABLE out (k BIGINT, c BIGINT, s BIGINT) WITH ('connector'='blackhole')")
    began = time.perf_counter()
    result = tables.execute_sql(
        f"INSERT INTO out SELECT k, COUNT(*), SUM(id) FROM (SELECT MOD(id, {keys}) AS k, id FROM numbers) GROUP BY k"
    )
    client = result.get_job_client()
    while True:
        try:
            answer = urllib.request.urlopen(f"http://localhost:{port}/jobs/{client.get_job_id()}", timeout=5)
            vertices = json.load(answer)["vertices"]
            if vertices and all(v["tasks"]["RUNNING"] == v["parallelism"] for v in vertices):
                return client, time.perf_counter() - began
        except OSError:
            pass
        time.sleep(0.02)


with tempfile.TemporaryDirectory() as folder:
    client, _ = start(2)
    time.sleep(seconds)
    began = time.perf_counter()
    path = client.trigger_savepoint(folder).result()
    saved = time.perf_counter() - began
    client.cancel().result()
    time.sleep(2)
    client, restored = start(4, path)
    client.cancel().result()
print(json.dumps({"savepoint_s": round(saved, 2), "restore_s": round(restored, 2)}))
'''


def install_flink(folder: str) -> tuple[Path | None, str]:
    """A Python that has Flink, in an environment of its own; or why there is none."""
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True, timeout=120)
        python = Path(folder) / "bin" / "python"
        command = [python, "-m", "pip", "install", "--quiet", "apache-flink"]
        subprocess.run(command, check=True, capture_output=True, timeout=900, text=True)
        return python, ""
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        return None, f"Flink could not be installed: {said[-1] if said else error}"


def with_flink(python: Path, backend: str, keys: int) -> dict:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    wanted = [keys, SAVED_RATE, {"heap": "hashmap"}.get(backend, backend), 2 + 1.2 * keys / SAVED_RATE, port]
    command = [python, "-c", PEER, *map(str, wanted)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    return json.loads(ran.stdout.splitlines()[-1])


def savepoints(spark: SparkSession, keys: int, with_peer: bool) -> dict[str, dict]:
    found: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as folder:
        python, why = install_flink(folder) if with_peer else (None, "not asked for")
        saved_and_restored(spark, "heap", 1000)  # the JVM has seen the plan
        for backend in ("heap", "rocksdb"):
            found[backend] = figures = saved_and_restored(spark, backend, keys)
            if python is None:
                figures["peer"] = why
            else:
                figures["flink"] = flink = with_flink(python, backend, keys)
                for what in ("savepoint_s", "restore_s"):
                    figures[f"{what}_by_flinks"] = round(figures[what] / flink[what], 2)
            print(f"{backend}, {keys:,} keys: {figures}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--only", default="saturation,savepoint")
    asked = parser.parse_args()
    quick = asked.quick
    spark = (
        SparkSession.builder.master("local[10]")
        .config(map=mo.spark_config())
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "FATAL")
        .getOrCreate()
    )
    found: dict[str, dict] = {}
    for backend in ("heap", "rocksdb") if "saturation" in asked.only else ():
        for us in (1, 1000) if quick else (1, 10, 100, 1000):
            figures = measured(spark, us, backend, 9 if quick else 20)
            found.setdefault(backend, {})[f"{us} us"] = figures
            print(f"{backend}, {us} µs per record: {figures}", flush=True)
    saved = {}
    if "savepoint" in asked.only:
        saved = savepoints(spark, 100_000 if quick else 1_000_000, not asked.no_peer)
    spark.stop()
    print(json.dumps({"bench": "checkpoint", "aligned": found, "savepoint": saved}))


if __name__ == "__main__":
    main()
