"""What a record and a byte cost as a job grows: more keys, more subtasks, larger records.

A source at full speed, key_by, a count and a sum per key, a sink; full speed means that the time on a clock says how
busy the machine is, so all costs are processor time, of the JVM and of all workers, over some seconds in which the job
runs. Checkpoints every five seconds. One thing grows at a time:

    keys          10,000 to 5 million, parallelism 2, pairs of ints; measured when nearly all keys have come once
    parallelism   1 to 16, 100,000 keys
    bytes         100 bytes to 1 megabyte in a record, parallelism 2, 1,000 keys: the cost of a byte

    python bench/growth.py [--quick] [--only keys,parallelism,bytes]

The last line is one JSON object: for each size the cost, the records per second and the memory of the workers, and for
each of the three the worst step: how many times the cost of the size before it a size takes at most.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from itertools import pairwise
from typing import Any

import psutil
from pyspark.sql import SparkSession

import moorline as mo

SIZES = {
    "keys": [10_000, 100_000, 1_000_000, 5_000_000],
    "parallelism": [1, 2, 4, 8, 16],
    "bytes": [100, 1_000, 10_000, 100_000, 1_000_000],
}
QUICK = {"keys": [10_000, 100_000], "parallelism": [1, 4], "bytes": [100, 10_000]}
#: From one size to the next the cost of a record, or of a byte, may grow so many times: beyond that it is a cliff.
CLIFF = 3.0


class Totals(mo.KeyedProcessFunction):
    """A count and a sum per key."""

    total = mo.ValueState(tuple[int, int], default=(0, 0))

    def process_element(self, value, ctx):
        count, total = self.total.value()
        self.total.update((count + 1, total + len(value[1]) if type(value[1]) is bytes else total + value[1]))
        if count % 10 == 9:
            yield value[0], count


def numbers(keys: int) -> mo.Source:
    """Pairs of ints. Keys in no order: neighbours in the stream are far apart in memory."""
    return mo.generate(lambda n: ((n * 0x9E3779B97F4A7C15 >> 20) % keys, n % 1000))


def blobs(size: int, keys: int = 1000) -> mo.Source:
    """Records of ``size`` bytes. Each is a new object, as if it had been read."""
    return mo.generate(lambda n: (n % keys, n.to_bytes(8, "big") * (size // 8)))


def spent() -> tuple[float, float]:
    """Processor seconds of the JVM and of the workers so far."""
    jvm = workers = 0.0
    for child in psutil.Process().children(recursive=True):
        try:
            used = sum(child.cpu_times()[:2])
            jvm, workers = (jvm + used, workers) if "java" in child.name() else (jvm, workers + used)
        except psutil.Error:
            continue
    return jvm, workers


def workers_mb(handle: mo.Handle) -> int:
    """The memory of all workers of the job together."""
    return sum(psutil.Process(pid).memory_info().rss for pid in handle.worker_pids.values()) >> 20


def measured(spark: SparkSession, source: mo.Source, parallelism: int, first: int, seconds: float) -> dict[str, Any]:
    """Costs once the function has had ``first`` records, and the JVM has compiled what it runs."""
    job = mo.Job("growth", parallelism=parallelism)
    stream = job.source(source, uid="source").key_by(lambda r: r[0])
    stream.process(Totals(), uid="totals").sink(mo.discard(), uid="out")

    def records() -> int:
        return handle.progress["operators"].get("totals", {}).get("records_in", 0)

    with tempfile.TemporaryDirectory() as folder:
        handle = mo.start(job, spark, checkpoints=mo.Checkpoints(folder, interval="5s"))
        try:
            while not records() and handle.is_active:
                time.sleep(0.1)
            began = time.perf_counter()
            while handle.is_active and (time.perf_counter() - began < seconds / 2 or records() < first):
                time.sleep(0.1)
            before, had, began = spent(), records(), time.perf_counter()
            time.sleep(seconds)
            count, took = records() - had, time.perf_counter() - began
            jvm, workers = (after - earlier for after, earlier in zip(spent(), before))
            if not handle.is_active:
                handle.wait()  # raises what the job has failed with
            memory, checkpoints = workers_mb(handle), list(handle.checkpoints)
        finally:
            handle.cancel()
    return {
        "ns_per_record": round((jvm + workers) / max(1, count) * 1e9),
        "jvm_ns": round(jvm / max(1, count) * 1e9),
        "workers_ns": round(workers / max(1, count) * 1e9),
        "records_per_second": round(count / took),
        "cores": round((jvm + workers) / took, 2),
        "workers_mb": memory,
        "checkpoint_ms": max((c.duration_ms for c in checkpoints), default=None),
    }


def grown(spark: SparkSession, what: str, size: int, seconds: float) -> dict[str, Any]:
    match what:
        case "keys":
            # Keys come at random: after three records for each, 95 of 100 have come.
            return measured(spark, numbers(size), 2, 3 * size, seconds)
        case "parallelism":
            return measured(spark, numbers(100_000), size, 100_000, seconds)
        case _:
            found = measured(spark, blobs(size), 2, 0, seconds)
            return {"ns_per_byte": round(found["ns_per_record"] / size, 3), **found}


def worst_step(costs: list[float]) -> float:
    """How many times the cost of the size before it a size takes at most."""
    return round(max(after / before for before, after in pairwise(costs)), 2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=",".join(SIZES))
    asked = parser.parse_args()
    sizes = QUICK if asked.quick else SIZES
    spark = (
        SparkSession.builder.master("local[34]")
        .config(map=mo.spark_config())
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "FATAL")
        .getOrCreate()
    )
    found: dict[str, dict[str, Any]] = {}
    steps: dict[str, float] = {}
    grown(spark, "parallelism", 1, 4 if asked.quick else 10)  # the JVM compiles what it runs
    for what in asked.only.split(","):
        found[what] = {}
        for size in sizes[what]:
            found[what][str(size)] = figures = grown(spark, what, size, 5 if asked.quick else 8)
            print(f"{what} {size:,}: {figures}", flush=True)
        cost = "ns_per_byte" if what == "bytes" else "ns_per_record"
        steps[what] = worst_step([figures[cost] for figures in found[what].values()])
    spark.stop()
    cliffs = [what for what, step in steps.items() if step > CLIFF]
    print(json.dumps({"bench": "growth", "worst_step": steps, "cliffs": cliffs, "by_size": found}))


if __name__ == "__main__":
    main()
