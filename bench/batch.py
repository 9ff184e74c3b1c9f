"""A keyed function over 20 million records as a batch job, beside ``groupBy().applyInPandas`` doing the same.

200 records for each key, 2 cores, a Python function per record with a sum and a count as state: after every tenth
reading it tells their mean. Both read the same DataFrame and count what comes out, which must be the same number.
The JVM gets 1 GiB (``--jvm``); the peak of all Python workers together is sampled. Then count, sum and largest value of
each key, in columns, beside ``groupBy().agg`` with the same as functions of pandas.

    python bench/batch.py [--quick] [--jvm 1g] [--records 20000000] [--only function,aggregate]

The last line is one JSON object; ``ratio`` is the time of Spark's own way divided by ours, ``cpu_ratio`` the same of
the processor time of the JVM and all workers, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from typing import Any

import pandas as pd
import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import pandas_udf

import moorline as mo

#: Of each key.
READINGS = 200
EVERY = 10


def readings(spark: SparkSession, records: int) -> DataFrame:
    sensors = records // READINGS
    return spark.range(0, records, 1, 4).selectExpr(
        f"id * 2654435761 % {sensors} as sensor", "id * 7919 % 1000003 as value"
    )


class Means(mo.KeyedProcessFunction):
    """The mean so far, at every tenth reading."""

    so_far = mo.ValueState(tuple[int, int])

    def process_element(self, value, ctx):
        count, total = self.so_far.value() or (0, 0)
        count, total = count + 1, total + value[1]
        self.so_far.update((count, total))
        if count % EVERY == 0:
            yield value[0], total // count


def ours(spark: SparkSession, records: int) -> int:
    job = mo.Job("means", parallelism=2)
    source = job.source(mo.from_dataframe(readings(spark, records), records="tuple"), uid="readings")
    source.key_by(lambda r: r[0]).process(Means(), uid="means").sink(mo.collect("means"), uid="out")
    return mo.to_dataframe(job, spark, schema="sensor long, mean long").count()


def theirs(spark: SparkSession, records: int) -> int:
    def means(frame):
        count, total, found = 0, 0, []
        for value in frame["value"].tolist():
            count, total = count + 1, total + value
            if count % EVERY == 0:
                found.append(total // count)
        return pd.DataFrame({"sensor": frame["sensor"].iloc[: len(found)], "mean": found})

    return readings(spark, records).groupBy("sensor").applyInPandas(means, "sensor long, mean long").count()


def aggregated(spark: SparkSession, records: int) -> int:
    """In columns. The sum of all results."""
    job = mo.Job("totals", parallelism=2)
    rows = job.source(mo.from_dataframe(readings(spark, records), records="columns"), uid="readings")
    totals = rows.key_by("sensor").aggregate(n=mo.count(), total=mo.sum("value"), most=mo.max("value"), uid="totals")
    totals.sink(mo.collect("totals"), uid="out")
    return summed(mo.to_dataframe(job, spark, schema="sensor long, n long, total long, most long"))


def aggregated_in_pandas(spark: SparkSession, records: int) -> int:
    @pandas_udf("long")
    def n(values: pd.Series) -> int:
        return len(values)

    @pandas_udf("long")
    def total(values: pd.Series) -> int:
        return values.sum()

    @pandas_udf("long")
    def most(values: pd.Series) -> int:
        return values.max()

    of = [function("value").alias(name) for name, function in (("n", n), ("total", total), ("most", most))]
    return summed(readings(spark, records).groupBy("sensor").agg(*of))


def summed(results: DataFrame) -> int:
    row = results.selectExpr("sum(n) + sum(total) + sum(most) + count(*)").first()
    return int(row[0])


#: Ours, and Spark's own way to the same.
COMPARED = {"function": (ours, theirs), "aggregate": (aggregated, aggregated_in_pandas)}


class Peak:
    """The largest sum of what this process's Python workers and its JVM had in memory."""

    def __init__(self) -> None:
        self.workers = self.jvm = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.25):
            workers = jvm = 0
            for process in psutil.Process().children(recursive=True):
                try:
                    size = process.memory_info().rss
                    if process.name().startswith("java"):
                        jvm += size
                    else:
                        workers += size
                except psutil.Error:
                    continue
            self.workers, self.jvm = max(self.workers, workers), max(self.jvm, jvm)


def processor_seconds() -> float:
    """What the JVM and the workers have used so far, those that have ended among them."""
    used = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        used += times.user + times.system + times.children_user + times.children_system
    return used


def measured(what, spark: SparkSession, records: int) -> dict[str, Any]:
    with Peak() as peak:
        began, used = time.perf_counter(), processor_seconds()
        found = what(spark, records)
        seconds, used = time.perf_counter() - began, processor_seconds() - used
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(used, 1),
        "records_per_second": round(records / seconds),
        "found": found,
        "workers_peak_mb": peak.workers >> 20,
        "jvm_peak_mb": peak.jvm >> 20,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jvm", default="1g")
    parser.add_argument("--records", type=int)
    parser.add_argument("--only", default=",".join(COMPARED))
    options = parser.parse_args()
    records = options.records or (1_000_000 if options.quick else 20_000_000)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.driver.memory", options.jvm)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    results: dict[str, dict[str, object]] = {}
    for name in options.only.split(","):
        pair = COMPARED[name]
        for what in pair:
            what(spark, 20_000)  # workers are started and the JVM has seen the plan
        batch, sparks = (measured(what, spark, records) for what in pair)
        results[name] = {
            "moorline": batch,
            "spark": sparks,
            "ratio": round(sparks["seconds"] / batch["seconds"], 2),
            "cpu_ratio": round(sparks["cpu_seconds"] / batch["cpu_seconds"], 2),
        }
        print(f"{name}: {results[name]}", flush=True)
        if batch["found"] != sparks["found"]:
            raise SystemExit("the two did not do the same")
    shape = {"records": records, "keys": records // READINGS, "jvm": options.jvm}
    print(json.dumps({"bench": "batch", **shape, **results}))
    spark.stop()


if __name__ == "__main__":
    main()
