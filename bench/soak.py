"""Does anything grow in an hour, and do many jobs leave anything behind?

    python bench/soak.py [--quick] [--minutes N] [--rate N] [--jobs N]

First a hundred small jobs run one after the other in one Spark session: some on the heap and some in RocksDB, some
stopped, some failing. When they are over there must be no more threads, files, processes, ports and folders than after
the first few. Then two jobs, one on the heap and one in RocksDB, run side by side at a modest rate with checkpoints,
keyed state that expires, timers and windows: keys come and go all the time, and live state stays the same in size.

Growth is measured over the second half of the run, as a fraction of the mean: near 0 means that it levels off. Memory
of Python is what belongs to a process alone (USS), memory of Java the resident memory, and the heap after a
collection. The exit code is 1 if anything has grown beyond its limit. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

import moorline as mo
from moorline.errors import JobFailed

#: A key gets this many records, one after the other, and is then never heard of again.
RECORDS_PER_KEY = 4
TTL_SECONDS = 10
WINDOW_SECONDS = 2
#: As the embedded Spark has it, with the smallest heap that Spark takes, so that a leak in it shows within the hour.
JVM, HEAP = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "480m"
#: After so long Spark lets go of idle threads: two pools of up to 128 that remove what jobs have left.
POOL_SECONDS = 65
#: Growth in the second half beyond which it counts as a leak.
LIMIT, QUICK_LIMIT = 0.05, 0.35
MIB = 2**20

Sample = dict[str, float]


# --- the jobs -----------------------------------------------------------------------------------


class Visits(mo.KeyedProcessFunction):
    """Counts the visits of a key, and lists them, in state that expires; a timer tells the count."""

    count = mo.ValueState(int, ttl=mo.StateTtlConfig(f"{TTL_SECONDS}s"))
    recent = mo.ListState(str, ttl=mo.StateTtlConfig(f"{TTL_SECONDS}s"))
    by_hour = mo.MapState(int, int, ttl=mo.StateTtlConfig(f"{TTL_SECONDS}s"))

    def process_element(self, value, ctx):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.recent.add("x" * 100)
        self.by_hour.put(value[0] % 24, count)
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 1000)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), self.count.value() or 0


def visit(number: int) -> tuple[int, int]:
    return number // RECORDS_PER_KEY, 1


def endless(name: str, rate: int) -> mo.Job:
    job = mo.Job(name, parallelism=2)
    visits = job.source(mo.generate(visit, splits=2, rate=rate), uid="visits")
    counted = visits.key_by(lambda v: v[0]).process(Visits(), uid="count")
    per_group = counted.key_by(lambda c: c[0] % 50).window(mo.TumblingProcessingTimeWindows(f"{WINDOW_SECONDS}s"))
    per_group.reduce(lambda a, b: (a[0], a[1] + b[1]), uid="sums").sink(mo.discard(), uid="out")
    return job


def small(number: int, folder: Path) -> mo.Job:
    # A job that has ended leaves one entry of its history, which keeps old drivers out: so the names are few.
    job = mo.Job(f"small-{number % 10}", parallelism=2)

    def pass_on(value: tuple[int, int]) -> tuple[int, int]:
        if number % 10 == 9 and value[0] == 100:
            raise ValueError("every tenth job fails")
        return value

    visits = job.source(mo.generate(visit, count=None if number % 10 == 5 else 2000, splits=2, rate=8000), uid="visits")
    counted = visits.map(pass_on, uid="pass").key_by(lambda v: v[0]).process(Visits(), uid="count")
    rows = counted.map(lambda c: {"key": c[0], "count": c[1]}, uid="rows")
    rows.sink(mo.write_files(str(folder / "out"), format="jsonl"), uid="files")
    return job


# --- what there is -------------------------------------------------------------------------------


def family() -> tuple[psutil.Process, list[psutil.Process], list[psutil.Process]]:
    """The driver, its JVM (one, in local mode), and all Python processes below."""
    me = psutil.Process()
    java, workers = [], []
    for process in me.children(recursive=True):
        with suppress(psutil.Error):
            (java if "java" in process.name() else workers).append(process)
    return me, java, workers


def total(processes: list[psutil.Process], figure: Callable[[psutil.Process], float]) -> float:
    found = 0.0
    for process in processes:
        with suppress(psutil.Error):
            found += figure(process)
    return found


def sample(spark: SparkSession, folder: Path) -> Sample:
    me, java, workers = family()
    jvm: Any = spark._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    found = {
        "driver MiB": me.memory_full_info().uss / MIB,
        "driver threads": me.num_threads(),
        "driver files": me.num_fds(),
        "jvm MiB": total(java, lambda p: p.memory_info().rss) / MIB,
        "jvm heap MiB": (runtime.totalMemory() - runtime.freeMemory()) / MIB,
        "jvm threads": total(java, lambda p: p.num_threads()),
        "jvm files": total(java, lambda p: p.num_fds()),
        "workers MiB": total(workers, lambda p: p.memory_full_info().uss) / MIB,
        "workers": len(workers),
        "worker threads": total(workers, lambda p: p.num_threads()),
        "worker files": total(workers, lambda p: p.num_fds()),
        "ports": total([me, *java, *workers], lambda p: sum(c.status == "LISTEN" for c in p.net_connections("tcp"))),
    }
    for name in ("checkpoints", "local", "spark", "tmp"):
        sizes = list(file_sizes(folder / name))
        found[f"{name}: files"] = len(sizes)
        found[f"{name}: MiB"] = sum(sizes) / MIB
    return found


def file_sizes(folder: Path) -> Iterator[int]:
    """Of all files below it, while others come and go."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                yield os.stat(os.path.join(parent, name)).st_size


def cpu_seconds() -> float:
    me, java, workers = family()
    return total([me, *java, *workers], lambda p: sum(p.cpu_times()[:2]))


def growth(times: list[float], values: list[float]) -> tuple[float, float]:
    """Over the given time, by least squares, as a fraction of the mean; and how far values are from that line."""
    mean = statistics.mean(values)
    if not mean or len(values) < 3:
        return 0.0, 0.0
    slope, start = statistics.linear_regression(times, values)
    swing = statistics.pstdev(value - start - slope * at for at, value in zip(times, values))
    return slope * (times[-1] - times[0]) / mean, swing


# --- the two parts -------------------------------------------------------------------------------


def many_jobs(spark: SparkSession, folder: Path, count: int, idle: float) -> tuple[list[str], list[Sample]]:
    """Run them. Returns what was left behind, and what there was after the first few and after all."""
    # Each of the ten names twice: what a job leaves that began anew is one entry more than after its first start.
    few = min(count, 20)
    for number in range(few):
        run_small(spark, number, folder)
    before = settled(spark, folder, idle)
    for number in range(few, count):
        run_small(spark, number, folder)
    after = settled(spark, folder, idle)
    left = []
    for name, number in after.items():
        allowed = before.get(name, 0)
        if "MiB" in name:
            allowed = 1.1 * allowed + 5
        elif "jvm" in name:  # its pools breathe
            allowed = 1.1 * allowed + (8 if idle >= POOL_SECONDS else 260)
        if number > allowed:
            left.append(f"{name}: {before.get(name, 0):,.0f} after {few} jobs, {number:,.0f} after {count}")
    return left, [before, after]


def run_small(spark: SparkSession, number: int, folder: Path) -> None:
    backend: Any = mo.RocksDb(folder=str(folder / "local"), memory="8MB") if number % 2 else "heap"
    handle = mo.start(
        small(number, folder),
        spark,
        checkpoints=mo.Checkpoints(str(folder / "checkpoints"), interval="200ms", at_end="delete"),
        restart=mo.NoRestart(),
        backend=backend,
        console=number % 4 == 0,
    )
    if number % 10 == 5:
        wait_until(lambda: len(handle.checkpoints) >= 1 or not handle.is_active)
        handle.stop()
    try:
        handle.wait()
    except JobFailed:
        # A failed job keeps its last checkpoint for people to go on from, if it came that far: nothing is left behind.
        shutil.rmtree(folder / "checkpoints" / handle.job, ignore_errors=True)
    shutil.rmtree(folder / "out", ignore_errors=True)


def settled(spark: SparkSession, folder: Path, idle: float) -> Sample:
    """What there is when nothing has run for a while: the lowest of some samples, for pools let go one by one."""
    time.sleep(idle)
    samples = []
    for _ in range(5):
        samples.append(sample(spark, folder))
        time.sleep(1)
    return {name: min(s[name] for s in samples) for name in samples[0]}


def wait_until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        time.sleep(0.05)


def soak(
    spark: SparkSession, folder: Path, seconds: float, rate: int, every: float
) -> tuple[list[Sample], list[float], list[str]]:
    """Samples of two jobs that run side by side, when they were taken, and what has failed meanwhile."""
    backends: dict[str, Any] = {"heap": "heap", "rocksdb": mo.RocksDb(folder=str(folder / "local"), memory="32MB")}
    handles = [
        mo.start(
            endless(f"soak-{name}", rate // 2),
            spark,
            checkpoints=mo.Checkpoints(str(folder / "checkpoints"), interval="2s", retained=2),
            backend=backend,
        )
        for name, backend in backends.items()
    ]
    # Until state has been expiring for a while: before that it has to grow.
    time.sleep(2 * TTL_SECONDS)
    samples, times = [], []
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if not all(handle.is_active for handle in handles):
            break
        samples.append(sample(spark, folder))
        times.append(time.monotonic() - began)
        if len(times) % max(1, int(60 / every)) == 1:
            show_progress(samples[-1], times[-1], handles)
        time.sleep(every)
    failures = [f"{handle.job}: {failure}" for handle in handles for failure in handle.failures]
    failures += [f"{handle.job} has ended by itself" for handle in handles if not handle.is_active]
    for handle in handles:
        handle.cancel()
    return samples, times, failures


def show_progress(now: Sample, at: float, handles: list[mo.Handle]) -> None:
    done = ", ".join(f"{len(h.checkpoints):,} checkpoints, {h.progress['records_in']:,} records" for h in handles)
    memory = ", ".join(f"{n} {now[n]:,.0f}" for n in ("driver MiB", "jvm heap MiB", "jvm MiB", "workers MiB"))
    print(f"  {at / 60:5.1f} min: {memory}; {done}", flush=True)


def verdicts(samples: list[Sample], times: list[float], limit: float) -> dict[str, tuple[float, float, float, bool]]:
    """Of each figure: at half-time, at the end, its growth in between, and whether that is too much."""
    half = len(times) // 2
    found = {}
    for name in samples[-1]:
        values = [s.get(name, 0.0) for s in samples[half:]]
        grown, swing = growth(times[half:], values)
        # A file or a thread more or less is not a slope, nor is less than the figure comes and goes by: RocksDB's files
        # do with each compaction.
        is_noise = statistics.mean(values) * abs(grown) < (4 if "MiB" in name else max(2, swing))
        found[name] = values[0], values[-1], grown, grown > limit and not is_noise
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--rate", type=int, default=400, help="records per second, of both jobs together")
    parser.add_argument("--jobs", type=int)
    options = parser.parse_args()
    seconds = 60 * (options.minutes or (1 if options.quick else 60))
    jobs = options.jobs if options.jobs is not None else 15 if options.quick else 100
    folder = Path(tempfile.mkdtemp(prefix="moorline-soak-"))
    for name in ("tmp", "local", "spark", "checkpoints"):
        (folder / name).mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
    spark = (
        SparkSession.builder.master("local[32,1]")
        .config(map={**mo.spark_config(), "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"})
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.log.level", "OFF")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", JVM)
        .config("spark.driver.memory", HEAP)
        .getOrCreate()
    )
    left: list[str] = []
    if jobs:
        began = time.monotonic()
        left, (few, all_) = many_jobs(spark, folder, jobs, 5 if options.quick else POOL_SECONDS)
        print(f"{jobs} jobs in one session, in {time.monotonic() - began:.0f} s")
        print(f"  {'':<20}{f'after {min(jobs, 20)}':>12}{f'after {jobs}':>12}")
        for name in all_:
            print(f"  {name:<20}{few.get(name, 0):>12,.1f}{all_[name]:>12,.1f}")
        print("left behind: " + ("; ".join(left) or "nothing"), flush=True)
    began, cpu_before = time.monotonic(), cpu_seconds()
    samples, times, failures = soak(spark, folder, seconds, options.rate, every=1 if seconds <= 120 else 10)
    cores = (cpu_seconds() - cpu_before) / (time.monotonic() - began)
    limit = QUICK_LIMIT if seconds <= 600 else LIMIT
    found = verdicts(samples, times, limit)
    print(f"{seconds / 60:.0f} minutes at {options.rate} records/s, {cores:.2f} cores; the second half:")
    print(f"  {'':<20}{'half-time':>12}{'end':>12}{'growth':>10}")
    for name, (middle, end, grown, is_leak) in found.items():
        print(f"  {name:<20}{middle:>12,.1f}{end:>12,.1f}{grown:>10.1%}{'   grows' if is_leak else ''}")
    spark.stop()
    shutil.rmtree(folder, ignore_errors=True)
    grows = [name for name, (*_, is_leak) in found.items() if is_leak]
    result = {"bench": "soak", "minutes": seconds / 60, "jobs": jobs, "rate": options.rate, "cores": round(cores, 2)}
    result["growth"] = {name: round(grown, 4) for name, (_, _, grown, _) in found.items()}
    print(json.dumps({**result, "left_behind": left, "grows": grows, "failures": failures}))
    sys.exit(1 if grows or left or failures else 0)


if __name__ == "__main__":
    main()
