"""How long a record takes from source to sink at 1,000 and at 20,000 records/s, beside bytewax and a micro-batch.

Source, key_by, stateful operator, sink, parallelism 2, checkpoints every second. A record bears the time at which it
was due, by the schedule of its rate, and not the time at which the source came round to making it: what the source is
late counts. Beside it, if it can be installed into an environment of its own, the same with bytewax on one worker,
which snapshots every second too. Then, on the same Spark, a Structured Streaming query with one shuffle and one Python
stage and next to no data: the time of one of its micro-batches.

    python bench/latency.py [--quick] [--flush 1ms] [--keys 1000] [--backend heap] [--rates 1000,20000] [--no-peer]

With more keys than come in half a minute, all of them have come once before anything is measured.

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession
from throughput import install_peer

import moorline as mo

#: So many keys come by themselves; more are there from the start.
FEW_KEYS = 30_000


class Due(mo.Source):
    """Records with the time at which each was due, at ``rate`` a second from its subtasks together."""

    def __init__(self, rate: float, keys: int, first: int = 0) -> None:
        self.rate, self.keys, self.first = rate, keys, first

    def open(self, ctx):
        own = range(ctx.subtask, self.first, ctx.parallelism)
        return DueReader(self.rate / ctx.parallelism, self.keys, ctx.subtask, own)


class DueReader(mo.SourceReader):
    def __init__(self, rate: float, keys: int, seed: int, first: range) -> None:
        self.every, self.keys, self.first = 1 / rate, keys, first
        self.due, self.chance = time.time(), random.Random(seed)

    def read(self, limit):
        if self.first:  # as fast as it goes, and due at no time
            some, self.first = self.first[:limit], self.first[limit:]
            self.due = time.time()
            return [(key, 0.0) for key in some]
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
        self.seen += [(now, now - sent) for _, sent in records if sent]

    def results(self):
        return "latencies", self.seen


def moorline_latencies(spark: SparkSession, seconds: float, rate: float, keys: int, **options) -> tuple[list, list]:
    """Latencies in ms of the second half of the run, sorted, and the checkpoints taken."""
    job = mo.Job("latency", parallelism=2)
    (
        job.source(Due(rate, keys, first=keys if keys > FEW_KEYS else 0), uid="stamps")
        .key_by(lambda r: r[0])
        .process(Count(), uid="count")
        .sink(Latencies(), uid="latencies")
    )
    with tempfile.TemporaryDirectory() as folder:
        handle = mo.start(job, spark, checkpoints=mo.Checkpoints(folder, interval="1s"), **options)
        while handle.status is not mo.JobStatus.RUNNING and handle.is_active:
            time.sleep(0.1)
        if keys > FEW_KEYS:
            while handle.is_active and handle.progress["operators"].get("count", {}).get("records_in", 0) < keys:
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


# --- bytewax -------------------------------------------------------------------------------------

#: The same job: records stamped when due, counted by key, snapshots every second. Prints one JSON object.
PEER = """
import json, random, sys, tempfile, time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import run_main

rate, keys, seconds = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
seen = []
class Reader(StatelessSourcePartition):
    def __init__(self):
        self.due, self.chance = time.time(), random.Random(1)
        self.end = self.due + seconds
    def next_batch(self):
        if self.due > self.end:
            raise StopIteration()
        first, count = self.due, int((time.time() - self.due) * rate)
        self.due += count / rate
        return [(int(self.chance.random() * keys), first + n / rate) for n in range(count)]
    def next_awake(self):
        return datetime.now(timezone.utc) + timedelta(milliseconds=1)
class Due(DynamicSource):
    def build(self, step_id, worker_index, worker_count):
        return Reader()
class Writer(StatelessSinkPartition):
    def write_batch(self, items):
        now = time.time()
        seen.extend((now, now - sent) for _, (_, sent) in items)
class Latencies(DynamicSink):
    def build(self, step_id, worker_index, worker_count):
        return Writer()
flow = Dataflow("latency")
keyed = op.key_on("key", op.input("in", flow, Due()), lambda r: str(r[0]))
counted = op.stateful_map("count", keyed, lambda count, value: ((count or 0) + 1, value))
op.output("out", counted, Latencies())
with tempfile.TemporaryDirectory() as folder:
    init_db_dir(Path(folder), 1)
    run_main(flow, epoch_interval=timedelta(seconds=1), recovery_config=RecoveryConfig(folder))
steady = sorted(1000 * latency for _, latency in seen[len(seen) // 2 :])
figures = {f"p{q}_ms": round(steady[int(len(steady) * q / 100)], 2) for q in (50, 90, 99)}
print(json.dumps({"records": len(steady), **figures}))
"""


def with_peer(python: Path, seconds: float, rate: float, keys: int) -> dict[str, float]:
    """The latencies of bytewax, of the second half of the run."""
    command = [python, "-c", PEER, str(rate), str(keys), str(seconds)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds + 120)
    return json.loads(ran.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--flush", default=None)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--backend", default="heap")
    parser.add_argument("--rates", default="1000,20000")
    parser.add_argument("--no-peer", action="store_true")
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
    found: dict[str, dict] = {}
    seconds = 16 if asked.quick else 60
    with tempfile.TemporaryDirectory() as folder:
        peer, why = (None, "not asked for") if asked.no_peer else install_peer(folder)
        for rate in map(int, asked.rates.split(",")):
            latencies, checkpoints = moorline_latencies(spark, seconds, rate, asked.keys, **options)
            figures = {f"p{q}_ms": round(latencies[int(len(latencies) * q / 100)], 2) for q in (50, 90, 99)}
            longest = max((c.duration_ms for c in checkpoints), default=None)
            found[str(rate)] = {"records": len(latencies), **figures}
            found[str(rate)] |= {"checkpoints": len(checkpoints), "longest_checkpoint_ms": longest}
            if peer is not None:
                found[str(rate)]["bytewax"] = with_peer(peer, seconds, rate, asked.keys)
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
                "peer": why or "bytewax",
                **first,
                "by_rate": found,
                "micro_batch_ms": batch,
                "ratio": round(batch / first["p50_ms"], 1),
            }
        )
    )


if __name__ == "__main__":
    main()
