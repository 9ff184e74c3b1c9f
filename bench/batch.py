"""A keyed function over 20 million records as a batch job, beside ``groupBy().applyInPandas`` doing the same.

200 records for each key, 2 cores, a Python function per record with one value of state: it lets a reading pass if it
is larger than all before it. Both read the same DataFrame and count what comes out. The JVM gets 1 GiB (``--jvm``);
the peak of all Python workers together is sampled.

    python bench/batch.py [--quick] [--jvm 1g] [--records 20000000]

The last line is one JSON object; ``ratio`` is applyInPandas' time divided by ours.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time

import psutil
from pyspark.sql import DataFrame, SparkSession

import moorline as mo

#: Of each key.
READINGS = 200


def readings(spark: SparkSession, records: int) -> DataFrame:
    sensors = records // READINGS
    return spark.range(0, records, 1, 4).selectExpr(
        f"id * 2654435761 % {sensors} as sensor", "id * 7919 % 1000003 as value"
    )


class LargerThanBefore(mo.KeyedProcessFunction):
    """Lets a reading pass if there was none as large."""

    largest = mo.ValueState(int)

    def process_element(self, value, ctx):
        largest = self.largest.value()
        if largest is None or value[1] > largest:
            self.largest.update(value[1])
            yield value


def ours(spark: SparkSession, records: int) -> int:
    job = mo.Job("larger", parallelism=2)
    source = job.source(mo.from_dataframe(readings(spark, records), records="tuple"), uid="readings")
    source.key_by(lambda r: r[0]).process(LargerThanBefore(), uid="larger").sink(mo.collect("larger"), uid="out")
    return mo.to_dataframe(job, spark, schema="sensor long, value long").count()


def theirs(spark: SparkSession, records: int) -> int:
    def larger(frame):
        largest, kept = None, []
        for number, value in enumerate(frame["value"].tolist()):
            if largest is None or value > largest:
                largest = value
                kept.append(number)
        return frame.iloc[kept]

    return readings(spark, records).groupBy("sensor").applyInPandas(larger, "sensor long, value long").count()


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


def measured(what, spark: SparkSession, records: int) -> dict[str, object]:
    with Peak() as peak:
        began = time.perf_counter()
        found = what(spark, records)
        seconds = time.perf_counter() - began
    return {
        "seconds": round(seconds, 1),
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
    for what in (ours, theirs):
        what(spark, 20_000)  # workers are started and the JVM has seen the plan
    batch, pandas = measured(ours, spark, records), measured(theirs, spark, records)
    print(f"moorline {batch}\napplyInPandas {pandas}")
    result = {"bench": "batch", "records": records, "keys": records // READINGS, "jvm": options.jvm, "moorline": batch}
    result |= {"apply_in_pandas": pandas, "ratio": round(pandas["seconds"] / batch["seconds"], 2)}
    result["same_count"] = batch["found"] == pandas["found"]
    print(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main()
