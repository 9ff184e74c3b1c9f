"""Jobs that read Kafka, on real Spark: as a batch, and as a stream that is rescaled, with the same result."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from kafka_server import KafkaServer
from waiting import eventually

import moorline as mo

pytestmark = pytest.mark.spark

COUNT, PARTITIONS, KEYS = 6_000, 4, 7


def counting(source: mo.Source, sink: mo.Sink, parallelism: int) -> mo.Job:
    class Count(mo.KeyedProcessFunction):
        seen = mo.ValueState(int, default=0)

        def process_element(self, value, ctx):
            self.seen.update(self.seen.value() + 1)
            yield {"key": ctx.current_key, "n": value["n"], "seen": self.seen.value()}

    job = mo.Job("kafka-counting", parallelism=parallelism, max_parallelism=16)
    counted = job.source(source, uid="kafka").key_by(lambda record: record["n"] % KEYS).process(Count(), uid="count")
    counted.sink(sink, uid="out")
    return job


def result(rows: list[dict]) -> tuple[list[int], Counter]:
    """Each number once, and the counts of each key without a gap: the same whatever the order of partitions."""
    return sorted(row["n"] for row in rows), Counter((row["key"], row["seen"]) for row in rows)


def published(folder: Path) -> list[dict]:
    return [json.loads(line) for path in folder.glob("part-*.jsonl") for line in path.read_text().splitlines()]


def produce(kafka_server: KafkaServer, topic: str, first: int, end: int) -> None:
    for partition in range(PARTITIONS):
        own = [json.dumps({"n": n}) for n in range(first, end) if n % PARTITIONS == partition]
        kafka_server.produce(topic, own, partition)


def test_a_batch_and_a_stream_that_is_rescaled_give_the_same(spark, kafka_server: KafkaServer, tmp_path):
    topic = kafka_server.new_topic(PARTITIONS)
    produce(kafka_server, topic, 0, COUNT // 2)
    out, checkpoints = tmp_path / "out", mo.Checkpoints(str(tmp_path / "chk"), interval="200ms")
    stream = mo.read_kafka(kafka_server.brokers, topic, interval="200ms", group=f"group-{topic}")

    handle = mo.start(counting(stream, mo.write_files(out, format="jsonl"), 2), spark, checkpoints=checkpoints)
    eventually(lambda: len(published(out)) >= COUNT // 4, "some results")
    assert handle.stop(savepoint=str(tmp_path / "sp")) is not None
    produce(kafka_server, topic, COUNT // 2, COUNT)
    handle = mo.start(
        counting(stream, mo.write_files(out, format="jsonl"), 3),
        spark,
        checkpoints=checkpoints,
        restore=str(tmp_path / "sp"),
    )
    eventually(lambda: len(published(out)) >= COUNT, "all results")
    shown = dict.fromkeys(range(PARTITIONS), COUNT // PARTITIONS)
    eventually(lambda: kafka_server.group_offsets(f"group-{topic}", topic) == shown, "the offsets in the group")
    handle.stop()

    whole = mo.read_kafka(kafka_server.brokers, topic, end="latest")
    batch = mo.run(counting(whole, mo.collect("out"), 2), spark, mode="batch").collected("out")
    assert result(published(out)) == result(batch)
    assert result(batch)[0] == list(range(COUNT))
