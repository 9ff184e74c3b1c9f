"""How long an aligned checkpoint takes at saturation, against the speed of the receiver: 1 µs to 1 ms per record.

A source that makes records as fast as it may, key_by, a function with state that takes its time for each record, and
checkpoints every two seconds, parallelism 2, on the heap and on RocksDB. What a barrier waits for is what is in flight
in front of the function.

    python bench/checkpoint.py [--quick]

The last line is one JSON object: by backend and microseconds per record, the longest and the median time from trigger
to last acknowledgement, how much of that was writing, the records per second, and the bytes in flight.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time

from pyspark.sql import SparkSession

import moorline as mo

KEYS = 100_000


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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    spark = (
        SparkSession.builder.master("local[6]")
        .config(map=mo.spark_config())
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "FATAL")
        .getOrCreate()
    )
    found: dict[str, dict] = {}
    for backend in ("heap", "rocksdb"):
        for us in (1, 1000) if quick else (1, 10, 100, 1000):
            figures = measured(spark, us, backend, 9 if quick else 20)
            found.setdefault(backend, {})[f"{us} us"] = figures
            print(f"{backend}, {us} µs per record: {figures}", flush=True)
    spark.stop()
    print(json.dumps({"bench": "checkpoint", "aligned": found}))


if __name__ == "__main__":
    main()
