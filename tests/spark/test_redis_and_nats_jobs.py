"""Streams of Redis and NATS through keyed state and back, on real Spark: a worker and the server are killed with -9."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import redis
from connectors.services import redis_server  # noqa: F401
from waiting import eventually

import moorline as mo

pytestmark = pytest.mark.spark

KEYS, RECORDS = 17, 4_000


def counting(source: mo.Source[Any], sink: mo.Sink[Any]) -> mo.Job:
    """The number of records of a key so far, with each record."""

    class Count(mo.KeyedProcessFunction):
        count = mo.ValueState(int, default=0)

        def process_element(self, value, ctx):
            self.count.update(self.count.value() + 1)
            yield {"n": str(value["n"]), "key": str(ctx.current_key), "count": str(self.count.value())}

    keys, job = KEYS, mo.Job("counting", parallelism=2)
    numbers = job.source(source, uid="numbers")
    numbers.key_by(lambda value: int(value["n"]) % keys).process(Count(), uid="count").sink(sink, uid="counts")
    return job


def run_with_kills(
    spark: Any,
    job: mo.Job,
    folder: Path,
    server: Any,
    feed: Callable[[Iterable[int]], None],
    written: Callable[[], list[dict[str, str]]],
) -> None:
    """Feed and kill in turn, until all that was fed has come out."""
    checkpoints = mo.Checkpoints(str(folder / "chk"), interval="200ms", timeout="60s")
    handle = mo.start(job, spark, checkpoints=checkpoints, restart=mo.FixedDelay(attempts=3, delay="10ms"))
    half, later = RECORDS // 2, RECORDS * 3 // 4

    def until(condition: Callable[[], Any], what: str) -> None:
        eventually(lambda: condition() or not handle.is_active, what)
        assert handle.is_active, handle.failures

    feed(range(half))
    until(lambda: len(written()) > 100 and handle.worker_pids, "something was committed")
    os.kill(handle.worker_pids["1/1"], signal.SIGKILL)
    feed(range(half, later))
    until(lambda: len(handle.restored_from) == 2 and len(written()) > half, "a second attempt has gone on")
    server.stop(signal.SIGKILL)
    server.start()
    feed(range(later, RECORDS))
    until(lambda: len(written()) >= RECORDS, "all has come out")
    result = handle.stop()
    assert len(result.failures) == 1
    assert result.restored_from[0] == 0 < result.restored_from[1]


def assert_like_a_plain_loop(rows: list[dict[str, str]]) -> None:
    """Each record came out once, with a count of its own; and the records of a key in the order of their counts."""
    assert Counter(int(row["n"]) for row in rows) == Counter(range(RECORDS))
    by_key = defaultdict(list)
    for row in rows:
        assert int(row["n"]) % KEYS == int(row["key"])
        by_key[row["key"]].append(int(row["count"]))
    expected = Counter(str(n % KEYS) for n in range(RECORDS))
    assert {key: len(counts) for key, counts in by_key.items()} == dict(expected)
    for key, counts in by_key.items():
        assert counts == list(range(1, expected[key] + 1)), f"key {key}"


def test_redis_streams_are_counted_into_a_redis_stream(spark, tmp_path, redis_server):  # noqa: F811
    def feed(numbers: Iterable[int]) -> None:
        with redis.Redis.from_url(redis_server.url) as client:
            pipeline = client.pipeline(transaction=False)
            for n in numbers:
                pipeline.xadd(f"numbers:{n % 4}", {"n": n})
            pipeline.execute()

    def written() -> list[dict[str, str]]:
        with redis.Redis.from_url(redis_server.url) as client:
            return [{k.decode(): v.decode() for k, v in fields.items()} for _, fields in client.xrange("counts")]

    source = mo.read_redis_stream(redis_server.url, pattern="numbers:*", interval="100ms")
    job = counting(source, mo.write_redis_stream(redis_server.url, "counts"))
    run_with_kills(spark, job, tmp_path, redis_server, feed, written)
    assert_like_a_plain_loop(written())


def test_a_jetstream_stream_is_counted_into_another(spark, tmp_path, nats_server):
    incoming, outgoing = nats_server.new_stream(), nats_server.new_stream()

    def feed(numbers: Iterable[int]) -> None:
        async def publish(client: Any) -> None:
            for n in numbers:
                await client.publish(f"{incoming}.{n % 4}", json.dumps({"n": n}).encode())
            await client.flush()

        nats_server.run(publish)

    source = mo.read_nats(nats_server.url, incoming, subjects=[f"{incoming}.{n}" for n in range(4)])
    job = counting(source, mo.write_nats(nats_server.url, lambda row: f"{outgoing}.{row['key']}", stream=outgoing))
    run_with_kills(spark, job, tmp_path, nats_server, feed, lambda: nats_server.payloads(outgoing))
    assert_like_a_plain_loop(nats_server.payloads(outgoing))
