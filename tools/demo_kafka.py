"""``make demo-kafka``: from Kafka through keyed state to Kafka, exactly once, with a worker killed half-way.

Starts a broker of its own, fills a topic with orders, and runs a job that writes the running total of each customer to
another topic. Half-way it kills one of the job's workers with SIGKILL. In the end it reads what a consumer of committed
messages sees, and compares it with what a plain loop finds.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import moorline as mo

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from kafka_server import KafkaServer

ORDERS, CUSTOMERS, PARTITIONS = 400_000, 5_000, 4


class RunningTotal(mo.KeyedProcessFunction):
    """The total of each customer, after every order."""

    total = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        total = self.total.value() + value["cents"]
        self.total.update(total)
        yield {"customer": value["customer"], "order": value["order"], "total": total}


def fill(server: KafkaServer) -> tuple[str, Counter[tuple[int, int]]]:
    """A topic with orders, those of a customer in one partition, and the totals that a plain loop finds."""
    topic, chance = server.new_topic(PARTITIONS, "orders"), random.Random(7)
    totals: dict[int, int] = {}
    expected: Counter[tuple[int, int]] = Counter()
    orders: list[list[str]] = [[] for _ in range(PARTITIONS)]
    for order in range(ORDERS):
        customer, cents = chance.randrange(CUSTOMERS), chance.randrange(10_000)
        totals[customer] = totals.get(customer, 0) + cents
        expected[order, totals[customer]] += 1
        orders[customer % PARTITIONS].append(json.dumps({"customer": customer, "order": order, "cents": cents}))
    for partition, values in enumerate(orders):
        server.produce(topic, values, partition)
    return topic, expected


def build(brokers: str, topic: str, out: str) -> mo.Job:
    job = mo.Job("running-totals", parallelism=2)
    (
        job.source(mo.read_kafka(brokers, topic, end="latest"), uid="orders")
        .key_by(lambda order: order["customer"])
        .process(RunningTotal(), uid="totals")
        .sink(mo.write_kafka(brokers, out, key=lambda r: str(r["customer"])), uid="topic")
    )
    return job


def kill_half_way(handle: mo.Handle) -> None:
    """Kill the worker that keeps half of the totals, once there is a checkpoint with many of them to go back to."""
    before = None
    while handle.is_active:
        # Each order comes into two operators.
        if before is None and handle.progress["records_in"] > ORDERS // 2:
            before = len(handle.checkpoints)
        if before is not None and len(handle.checkpoints) > before:
            pid = handle.worker_pids["1/0"]
            print(f"  checkpoint {handle.checkpoints[-1].checkpoint} is complete; kill -9 {pid}, a worker of 'totals'")
            os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.005)


def main() -> int:
    if missing := [command for command in ("java", "mvn", "keytool") if shutil.which(command) is None]:
        print(
            f"The broker needs {' and '.join(missing)}. Debian and Ubuntu: apt-get install maven default-jre-headless"
        )
        return 1
    with tempfile.TemporaryDirectory(prefix="moorline-demo-kafka-", ignore_cleanup_errors=True) as folder:
        print("A Kafka broker starts (the first time its jars are fetched) ...")
        server = KafkaServer(Path(folder))
        try:
            return run(server, Path(folder))
        finally:
            server.stop(signal.SIGTERM)


def run(server: KafkaServer, folder: Path) -> int:
    topic, expected = fill(server)
    out = server.new_topic(PARTITIONS, "totals")
    print(f"{ORDERS:,} orders of {CUSTOMERS:,} customers are in topic {topic}. The job starts ...")
    began = time.monotonic()
    handle = mo.start(
        build(server.brokers, topic, out), checkpoints=mo.Checkpoints(folder / "checkpoints", interval="500ms")
    )
    kill_half_way(handle)
    result = handle.wait()
    restored = ", ".join(map(str, result.restored_from))
    print(f"  restored from checkpoint {restored}; {time.monotonic() - began:.0f} s in all")
    rows = [json.loads(value or b"null") for value in server.values(out)]
    found = Counter((row["order"], row["total"]) for row in rows)
    missing, doubled = sum((expected - found).values()), sum((found - expected).values())
    print(f"{len(rows):,} totals are committed in topic {out}: {missing} missing, {doubled} too many.")
    if missing or doubled or not result.restored_from:
        print("Not what a plain loop finds: please report it.")
        return 1
    print("Identical with what a plain loop finds.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
