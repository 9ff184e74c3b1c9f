"""How long a record takes from source to sink at 1,000 records/s, beside one micro-batch of Spark's own streaming.

Source, key_by, stateful operator, sink, parallelism 2, checkpoints every second. Then, on the same Spark, a Structured
Streaming query with one shuffle and one Python stage and next to no data: the time of one of its micro-batches.

    python bench/latency.py [--quick]

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time

from pyspark.sql import SparkSession

import moorline as mo

RATE = 1000


def stamped(number: int) -> tuple[int, float]:
    return number % 997, time.time()


class Count(mo.KeyedProcessFunction):
    count = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        self.count.update(self.count.value() + 1)
        yield value


class Latencies(mo.Sink):
    """Notes when each record arrives; hands the latencies to the driver at the end."""

    def open(self, ctx):
        return LatencyWriter()


class LatencyWriter(mo.SinkWriter):
    def __init__(self):
        self.seen = []

    def write(self, records):
        now = time.time()
        self.seen += [(now, now - sent) for _, sent in records]

    def results(self):
        return "latencies", self.seen


def moorline_latencies(spark: SparkSession, seconds: float) -> tuple[list[float], list]:
    """Latencies in ms of the second half of the run, sorted, and the checkpoints taken."""
    job = mo.Job("latency", parallelism=2)
    (
        job.source(mo.generate(stamped, rate=RATE), uid="stamps")
        .key_by(lambda r: r[0])
        .process(Count(), uid="count")
        .sink(Latencies(), uid="latencies")
    )
    with tempfile.TemporaryDirectory() as folder:
        handle = mo.start(job, spark, checkpoints=mo.Checkpoints(folder, interval="1s"))
        while handle.status is not mo.JobStatus.RUNNING and handle.is_active:
            time.sleep(0.1)
        time.sleep(seconds)
        result = handle.stop()
    seen = sorted(result.collected("latencies"))
    steady = seen[len(seen) // 2 :]
    return sorted(1000 * latency for _, latency in steady), result.checkpoints


def micro_batch_ms(spark: SparkSession, seconds: float) -> float:
    """The median time of a micro-batch with one shuffle and one Python stage and at most a row in it."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")

    def touch(batches):
        yield from batches

    query = (
        session.readStream.format("rate")
        .option("rowsPerSecond", 1)
        .load()
        .repartition(2, "value")
        .mapInArrow(touch, "timestamp timestamp, value long")
        .writeStream.format("noop")
        .trigger(processingTime="0 seconds")
        .start()
    )
    time.sleep(seconds)
    times = [p["durationMs"]["triggerExecution"] for p in query.recentProgress if "addBatch" in p["durationMs"]]
    query.stop()
    return statistics.median(times[len(times) // 2 :])


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
    latencies, checkpoints = moorline_latencies(spark, 16 if quick else 60)
    batch = micro_batch_ms(spark, 12 if quick else 30)
    spark.stop()
    p50, p99 = (latencies[int(len(latencies) * q)] for q in (0.5, 0.99))
    print(f"moorline p50 {p50:.1f} ms, p99 {p99:.1f} ms; one Spark micro-batch {batch:.0f} ms")
    print(
        json.dumps(
            {
                "bench": "latency",
                "records": len(latencies),
                "p50_ms": round(p50, 2),
                "p90_ms": round(latencies[int(len(latencies) * 0.9)], 2),
                "p99_ms": round(p99, 2),
                "checkpoints": len(checkpoints),
                "micro_batch_ms": batch,
                "ratio": round(batch / p50, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
