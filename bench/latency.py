"""How long a record takes from source to sink at 1,000 and at 20,000 records/s, beside a micro-batch of Spark's own.

Source, key_by, stateful operator, sink, parallelism 2, checkpoints every second. A record bears the time at which it
was due, by the schedule of its rate, and not the time at which the source came round to making it: what the source is
late counts. Then, on the same Spark, a Structured Streaming query with one shuffle and one Python stage and next to no
data: the time of one of its micro-batches.

    python bench/latency.py [--quick] [--flush 1ms] [--keys 1000] [--backend heap] [--rates 1000,20000]

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time

from pyspark.sql import SparkSession

import moorline as mo


class Due(mo.Source):
    """Records with the time at which each was due, at ``rate`` a second from its subtasks together."""

    def __init__(self, rate: float, keys: int) -> None:
        self.rate, self.keys = rate, keys

    def open(self, ctx):
        return DueReader(self.rate / ctx.parallelism, self.keys, ctx.subtask)


class DueReader(mo.SourceReader):
    def __init__(self, rate: float, keys: int, seed: int) -> None:
        self.every, self.keys = 1 / rate, keys
        self.due, self.chance = time.time(), random.Random(seed)

    def read(self, limit):
        count = min(limit, int((time.time() - self.due) / self.every))
        first, every, keys, chance = self.due, self.every, self.keys, self.chance.random
        self.due += count * every
        return [(int(chance() * keys), first + n * every) for n in range(count)]

    def positions(self):
        return {}


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


def moorline_latencies(spark: SparkSession, seconds: float, rate: float, keys: int, **options) -> tuple[list, list]:
    """Latencies in ms of the second half of the run, sorted, and the checkpoints taken."""
    job = mo.Job("latency", parallelism=2)
    (
        job.source(Due(rate, keys), uid="stamps")
        .key_by(lambda r: r[0])
        .process(Count(), uid="count")
        .sink(Latencies(), uid="latencies")
    )
    with tempfile.TemporaryDirectory() as folder:
        handle = mo.start(job, spark, checkpoints=mo.Checkpoints(folder, interval="1s"), **options)
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
    parser.add_argument("--flush", default=None)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--backend", default="heap")
    parser.add_argument("--rates", default="1000,20000")
    asked = parser.parse_args()
    spark = (
        SparkSession.builder.master("local[6]")
        .config(map=mo.spark_config())
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "FATAL")
        .getOrCreate()
    )
    options = {"backend": asked.backend, **({} if asked.flush is None else {"flush": asked.flush})}
    found = {}
    for rate in map(int, asked.rates.split(",")):
        latencies, checkpoints = moorline_latencies(spark, 16 if asked.quick else 60, rate, asked.keys, **options)
        figures = {f"p{q}_ms": round(latencies[int(len(latencies) * q / 100)], 2) for q in (50, 90, 99)}
        found[str(rate)] = {"records": len(latencies), **figures, "checkpoints": len(checkpoints)}
        print(f"{rate:,} records/s: {found[str(rate)]}", flush=True)
    batch = micro_batch_ms(spark, 12 if asked.quick else 30)
    spark.stop()
    first = next(iter(found.values()))
    print(
        json.dumps(
            {
                "bench": "latency",
                "flush": asked.flush or "default",
                "keys": asked.keys,
                "backend": asked.backend,
                **first,
                "by_rate": found,
                "micro_batch_ms": batch,
                "ratio": round(batch / first["p50_ms"], 1),
            }
        )
    )


if __name__ == "__main__":
    main()
