"""From Kafka through a keyed running count back into Kafka, beside a bare loop of the client with transactions.

    python bench/kafka.py [--quick] [--only latency]

A broker of its own runs on the same machine. First the bare loop: one process that consumes, counts in a dict and
produces, with the offsets in a transaction for each bulk. Then the job: the same count over the same topic, parallelism
2, exactly once, checkpoints every two seconds. Both end when they have written a count for each record of the topic,
which is checked.

A rate says little while a broker and a JVM share two cores with it, so the processors' time per record is compared too:
of the loop's process, and of all processes of the job but the broker's.

Then latency: 1,000 records/s, each stamped with the time at which it was due, through the same count into an at least
once sink, read by a consumer that does not wait for transactions; by default, and with the setting for low latency
(``flush="1ms"``, and no waiting for others in the sink's client). The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, KafkaError, TopicPartition
from pyspark.sql import SparkSession

import moorline as mo

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from kafka_server import KafkaServer

KEYS, PARTITIONS, RATE, BULK = 100_000, 4, 1000, 10_000


class Count(mo.KeyedProcessFunction):
    count = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        count = self.count.value() + 1
        self.count.update(count)
        yield {"customer": value["customer"], "count": count, "due": value["due"]}


def fill(server: KafkaServer, records: int) -> tuple[str, Counter[str]]:
    """A topic with orders of random customers, and how many each has."""
    topic, chance = server.new_topic(PARTITIONS, "orders"), random.Random(7)
    counts: Counter[str] = Counter()
    for partition in range(PARTITIONS):
        customers = [f"customer-{chance.randrange(KEYS)}" for _ in range(records // PARTITIONS)]
        counts.update(customers)
        orders = (json.dumps({"customer": c, "cents": chance.randrange(10_000), "due": 0}) for c in customers)
        server.produce(topic, orders, partition)
    return topic, counts


def bare_loop(server: KafkaServer, topic: str, records: int) -> tuple[float, float, str]:
    """Seconds, seconds of processors, and the topic that it wrote to."""
    out = server.new_topic(PARTITIONS, "bare")
    consumer = Consumer(
        {
            "bootstrap.servers": server.brokers,
            "group.id": out,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    producer = server.producer(transactional_id=out, queue_buffering_max_messages=1_000_000)
    producer.init_transactions(30)
    counts: dict[str, int] = {}
    done, began, before = 0, time.perf_counter(), psutil.Process().cpu_times()
    while done < records:
        messages = [m for m in consumer.consume(BULK, 1.0) if m.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        produced = []
        for message in messages:
            order = json.loads(message.value())
            customer = order["customer"]
            counts[customer] = count = counts.get(customer, 0) + 1
            value = json.dumps({"customer": customer, "count": count, "due": order["due"]})
            produced.append({"value": value, "key": customer})
        producer.produce_batch(out, produced)
        ends = {m.partition(): m.offset() + 1 for m in messages}
        offsets = [TopicPartition(topic, partition, offset) for partition, offset in ends.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
        done += len(messages)
    seconds, after = time.perf_counter() - began, psutil.Process().cpu_times()
    consumer.close()
    return seconds, after.user + after.system - before.user - before.system, out


def with_moorline(spark: SparkSession, server: KafkaServer, topic: str) -> tuple[float, Counter[str], str, int]:
    """Seconds from the first record on, those of processors, the topic, and the number of checkpoints."""
    out = server.new_topic(PARTITIONS, "moorline")
    job = mo.Job(out, parallelism=2)
    (
        job.source(mo.read_kafka(server.brokers, topic, end="latest"), uid="orders")
        .key_by(lambda order: order["customer"])
        .process(Count(), uid="count")
        .sink(mo.write_kafka(server.brokers, out, key=lambda r: r["customer"]), uid="counts")
    )
    with tempfile.TemporaryDirectory() as folder:
        handle = mo.start(job, spark, checkpoints=mo.Checkpoints(folder, interval="2s"))
        while handle.is_active and not handle.progress["records_in"]:
            time.sleep(0.01)
        began, before = time.perf_counter(), processors(server)
        result = handle.wait()
        return time.perf_counter() - began, processors(server) - before, out, len(result.checkpoints)


def processors(server: KafkaServer) -> Counter[str]:
    """Seconds of processors by program that this process and what it has started have had, without the broker."""
    assert server.process is not None
    seconds: Counter[str] = Counter()
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            if process.pid != server.process.pid:
                times = process.cpu_times()
                seconds["java" if process.name() == "java" else "python"] += times.user + times.system
        except psutil.Error:
            continue
    return seconds


def check(server: KafkaServer, topic: str, expected: Counter[str]) -> None:
    """Every count from one up to the number of its orders is there once for each customer."""
    found: Counter[tuple[str, int]] = Counter()
    for value in server.values(topic):
        row = json.loads(value or b"null")
        found[row["customer"], row["count"]] += 1
    assert found == Counter((c, n) for c, total in expected.items() for n in range(1, total + 1)), "not the same counts"


#: Options of the job and of the sink's client for low latency.
QUICK_FLUSH, QUICK_CLIENT = {"flush": "1ms"}, {"linger.ms": 0}


def latencies(
    spark: SparkSession, server: KafkaServer, seconds: float, options: dict[str, str], client: dict[str, int]
) -> dict[str, float]:
    """Milliseconds from the time at which a record was due to the consumer of its count, in the second half."""
    topic, out = server.new_topic(PARTITIONS, "due"), server.new_topic(PARTITIONS, "late")
    job = mo.Job(out, parallelism=2)
    (
        job.source(mo.read_kafka(server.brokers, topic), uid="orders")
        .key_by(lambda order: order["customer"])
        .process(Count(), uid="count")
        .sink(mo.write_kafka(server.brokers, out, guarantee="at-least-once", options=client), uid="counts")
    )
    over = threading.Event()
    seen: list[tuple[float, float]] = []
    threads = [
        threading.Thread(target=produce_due, args=(server, topic, over)),
        threading.Thread(target=note_arrivals, args=(server, out, over, seen)),
    ]
    with tempfile.TemporaryDirectory() as folder:
        handle = mo.start(job, spark, checkpoints=mo.Checkpoints(folder, interval="1s"), **options)
        while handle.is_active and handle.status is not mo.JobStatus.RUNNING:
            time.sleep(0.05)
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        over.set()
        for thread in threads:
            thread.join()
        handle.stop()
    seen.sort()
    late = sorted(1000 * latency for _, latency in seen[len(seen) // 2 :])
    return {f"p{q}_ms": round(late[len(late) * q // 100], 1) for q in (50, 90, 99)}


def produce_due(server: KafkaServer, topic: str, over: threading.Event) -> None:
    producer, chance = server.producer(linger_ms=1), random.Random(7)
    began, sent = time.time(), 0
    while not over.is_set():
        due = began + sent / RATE
        if due > time.time():
            producer.poll(max(0.0, due - time.time()))
            continue
        order = {"customer": f"customer-{chance.randrange(KEYS)}", "cents": 1, "due": due}
        producer.produce(topic, json.dumps(order), partition=sent % PARTITIONS)
        sent += 1
    producer.flush(30)


def note_arrivals(server: KafkaServer, topic: str, over: threading.Event, seen: list[tuple[float, float]]) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": server.brokers,
            "group.id": topic,
            "isolation.level": "read_uncommitted",
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    while not over.is_set():
        message = consumer.poll(0.1)  # not consume(), which waits for more
        if message is None:
            continue
        now = time.time()
        if message.error() is None:
            seen.append((now, now - json.loads(message.value())["due"]))
        elif message.error().code() != KafkaError._PARTITION_EOF:
            print(message.error(), file=sys.stderr)
    consumer.close()


def compared(spark: SparkSession, server: KafkaServer, records: int) -> dict[str, Any]:
    """The job beside the bare loop, over one topic. Raises if either has written anything else."""
    topic, expected = fill(server, records)
    bare_seconds, bare_cpu, bare_topic = bare_loop(server, topic, records)
    check(server, bare_topic, expected)
    print(f"bare loop: {records / bare_seconds:,.0f} records/s, {1e6 * bare_cpu / records:.1f} µs of a processor each")
    seconds, cpu, out, checkpoints = with_moorline(spark, server, topic)
    check(server, out, expected)
    each = {program: round(1e6 * spent / records, 1) for program, spent in cpu.items()}
    print(f"moorline: {records / seconds:,.0f} records/s, µs of a processor each: {each}, {checkpoints} checkpoints")
    return {
        "records": records,
        "bare_records_per_second": round(records / bare_seconds),
        "records_per_second": round(records / seconds),
        "checkpoints": checkpoints,
        "rate_ratio": round(bare_seconds / seconds, 2),
        "microseconds_each": each,
        "processor_ratio": round(bare_cpu / cpu.total(), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["rate", "latency"])
    asked = parser.parse_args()
    found: dict[str, Any] = {"bench": "kafka"}
    with tempfile.TemporaryDirectory(prefix="moorline-bench-kafka-", ignore_cleanup_errors=True) as folder:
        server = KafkaServer(Path(folder))
        spark = (
            SparkSession.builder.master("local[8]")
            .config(map=mo.spark_config())
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "FATAL")
            .getOrCreate()
        )
        if asked.only != "latency":
            found |= compared(spark, server, 200_000 if asked.quick else 2_000_000)
        if asked.only != "rate":
            seconds = 15 if asked.quick else 60
            found["latency"] = latencies(spark, server, seconds, {}, {})
            found["low_latency"] = latencies(spark, server, seconds, QUICK_FLUSH, QUICK_CLIENT)
            print(f"latency at {RATE} records/s: {found['latency']}; set for low latency: {found['low_latency']}")
        spark.stop()
        server.stop(signal.SIGTERM)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
