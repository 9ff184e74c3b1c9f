"""From a fresh process to the first record, to the first one of a second job, and from a killed worker to a new one.

Fresh processes run a small job on the embedded Spark, in turn without and with the archive of Java's classes
(``spark/session/archive.py``), which is made in a folder of the benchmark's own. Each says when it was where; the
median of the runs counts. A job with checkpoints then loses a worker to SIGKILL.

    python bench/start.py [--quick] [--runs 3]

The last line is one JSON object. Seconds of a busy machine say little, so each part is also told as its share of the
way to the first record, with the processor time that the JVM took for it; ``archive_ratio`` is the time with the
archive divided by the time without it, ``archive_jvm_ratio`` the same of the JVM's processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from pyspark import SparkContext

import moorline as mo
from moorline.spark.session import archive, jvm
from moorline.spark.session.embedded import embedded

ROOT = Path(__file__).parents[1]
#: Of the way to the first record, in their order.
PARTS = ("imports", "spark", "first_job")
DELAY_SECONDS = 1.0


def fresh(made: float) -> None:
    """In a process of its own, made at that time: a job, and another one. Prints when it was where."""
    run, imported = mo.run, time.time()  # what runs jobs is loaded when it is first named
    with embedded(32):
        started = time.time()
        java = psutil.Process(SparkContext._gateway.proc.pid)
        java_started = sum(java.cpu_times()[:2])
        firsts, began = [], []
        for _ in range(2):
            job = mo.Job("first", parallelism=2)
            numbers = job.source(mo.generate(lambda n: n, count=4, splits=2), uid="numbers")
            stamped = numbers.key_by(lambda n: n).map(lambda n: time.time(), uid="stamp")
            stamped.sink(mo.collect("out"), uid="out")
            began.append(time.time())
            firsts.append(min(run(job).collected("out")))
            if len(firsts) == 1:
                java_first = sum(java.cpu_times()[:2])
    told = {"imports": imported - made, "spark": started - imported, "first_job": firsts[0] - started}
    told |= {"first_record": firsts[0] - made, "run_to_first_record": firsts[0] - imported}
    told |= {"second_job": firsts[1] - began[1]}
    told |= {"jvm_cpu_spark": java_started, "jvm_cpu_first_job": java_first - java_started}
    print(json.dumps(told))


def measured(cache: str) -> dict[str, float]:
    environment = {**os.environ, "MOORLINE_CACHE": cache, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, __file__, "--fresh", str(time.time())]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return json.loads(done.stdout.splitlines()[-1])


def median(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]}


def with_shares(figures: dict[str, float]) -> dict[str, object]:
    whole = figures["first_record"]
    return {**figures, "shares": {part: round(figures[part] / whole, 2) for part in PARTS}}


def recovery(folder: Path) -> float:
    """Seconds from a killed worker to the first record that its successor handles, without the restart's delay."""
    seen = folder / "seen"
    seen.mkdir()

    class Seen(mo.MapFunction):
        """Notes when this process has handled its first record."""

        def open(self, ctx):
            self._is_new = True

        def map(self, value):
            if self._is_new:
                self._is_new = False
                (seen / str(os.getpid())).write_text(str(time.time()))
            return value

    job = mo.Job("recovery", parallelism=2)
    numbers = job.source(mo.generate(lambda n: n, rate=1000, splits=2), uid="numbers")
    numbers.key_by(lambda n: n % 100).map(Seen(), uid="seen").sink(mo.discard(), uid="out")
    handle = mo.start(
        job,
        checkpoints=mo.Checkpoints(str(folder / "chk"), interval="500ms"),
        restart=mo.FixedDelay(attempts=3, delay=f"{DELAY_SECONDS:g}s"),
    )
    while not handle.checkpoints:
        time.sleep(0.01)
    before = {path.name for path in seen.iterdir()}
    killed = time.time()
    os.kill(handle.worker_pids["1/0"], signal.SIGKILL)
    while not (new := [path for path in seen.iterdir() if path.name not in before and path.read_text()]):
        time.sleep(0.01)
    handle.cancel()
    return min(float(path.read_text()) for path in new) - killed - DELAY_SECONDS


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--fresh", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fresh is not None:
        fresh(options.fresh)
        return
    with tempfile.TemporaryDirectory() as named:
        cache = Path(named) / "cache"
        cache.mkdir(mode=0o700)
        java = jvm.find_java()
        assert java is not None, "no Java was found"
        place = archive.archive_in(cache, java, jvm.class_path(jvm.spark_home()))
        make = f"from moorline.spark.session.training import make; make(__import__('pathlib').Path({str(place)!r}))"
        began = time.time()
        subprocess.run([sys.executable, "-c", make], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
        making = time.time() - began
        if not place.exists():
            raise SystemExit(place.with_suffix(".failed").read_text())
        without, with_archive = [], []
        for _ in range(options.runs or (1 if options.quick else 3)):
            without.append(measured(archive.OFF))
            with_archive.append(measured(str(cache)))
        os.environ["MOORLINE_CACHE"] = str(cache)
        recovered = recovery(Path(named))
        bytes_of_archive = place.stat().st_size
    cold, bare = median(with_archive), median(without)
    result = {
        "bench": "start",
        "cold": with_shares(cold),
        "cold_without_archive": with_shares(bare),
        "archive_ratio": round(cold["first_record"] / bare["first_record"], 2),
        "archive_jvm_ratio": round(_jvm(cold) / _jvm(bare), 2),
        "second_job_ratio": round(cold["second_job"] / cold["first_record"], 2),
        "recovery_seconds_beyond_delay": round(recovered, 2),
        "recovery_ratio": round(recovered / cold["first_record"], 2),
        "archive_mb": bytes_of_archive >> 20,
        "making_seconds": round(making, 1),
    }
    print(json.dumps(result))


def _jvm(figures: dict[str, float]) -> float:
    return figures["jvm_cpu_spark"] + figures["jvm_cpu_first_job"]


if __name__ == "__main__":
    main()
