"""Does memory level off when a sink is too slow? Full speed into a sink that sleeps, for ten minutes.

    python bench/memory.py [--quick]

Samples the resident memory of the driver's JVM, the Python driver and all workers. ``slope`` is the growth per minute
over the second half of the run, as a fraction of the mean: near 0 means that it levels off. The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import psutil

import moorline as mo


def record(number: int) -> tuple[int, str]:
    return number % 1000, "x" * 100


class SlowSink(mo.Sink):
    """Takes its time for every batch."""

    def open(self, ctx):
        return SlowWriter()


class SlowWriter(mo.SinkWriter):
    def write(self, records):
        time.sleep(0.05)


def count(value, ctx):
    return [value]


def resident() -> tuple[int, int]:
    """Bytes of Java and bytes of Python, over this process and all below it."""
    java = python = 0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            memory = process.memory_info().rss
            if "java" in process.name():
                java += memory
            else:
                python += memory
        except psutil.NoSuchProcess:
            continue
    return java, python


def slope_per_minute(times: list[float], sizes: list[float]) -> float:
    """Growth per minute by least squares, as a fraction of the mean."""
    return 60 * statistics.linear_regression(times, sizes).slope / statistics.mean(sizes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    seconds = 30 if parser.parse_args().quick else 600
    job = mo.Job("memory", parallelism=2)
    job.source(mo.generate(record), uid="source").key_by(lambda r: r[0]).process(count, uid="count").sink(
        SlowSink(), uid="slow"
    )
    handle = mo.start(job)
    while handle.progress["records_in"] < 100_000 and handle.is_active:
        time.sleep(0.1)
    times, java, python = [], [], []
    began = time.monotonic()
    while time.monotonic() - began < seconds and handle.is_active:
        sizes = resident()
        times.append(time.monotonic() - began)
        java.append(sizes[0])
        python.append(sizes[1])
        time.sleep(0.5)
    progress = handle.progress["operators"]
    handle.cancel()
    half = len(times) // 2
    in_flight = progress["source"]["records_out"] - progress["count"]["records_in"]
    print(f"{seconds} s, {progress['count']['records_in']:,} records through, {in_flight:,} in flight at the end")
    print(
        json.dumps(
            {
                "bench": "memory",
                "seconds": seconds,
                "records": progress["count"]["records_in"],
                "in_flight": in_flight,
                "java_mib": round(java[-1] / 2**20),
                "python_mib": round(python[-1] / 2**20),
                "java_slope_per_minute": round(slope_per_minute(times[half:], java[half:]), 4),
                "python_slope_per_minute": round(slope_per_minute(times[half:], python[half:]), 4),
                "java_peak_over_end": round(max(java) / java[-1], 3),
                "python_peak_over_end": round(max(python) / python[-1], 3),
            }
        )
    )


if __name__ == "__main__":
    main()
