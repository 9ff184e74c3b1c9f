"""A source of Kafka has the type of what its format decodes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, assert_type

import msgspec

import moorline as mo


class Order(msgspec.Struct, frozen=True):
    customer: str
    cents: int


def length(data: bytes) -> int:
    return len(data)


BROKERS = ["a:9092", "b:9092"]
broken = mo.OutputTag[mo.BrokenRecord]("broken")

assert_type(mo.read_kafka("a:9092", "orders"), mo.Source[Any])
assert_type(mo.read_kafka(BROKERS, ["orders"], format="text", start="latest"), mo.Source[str])
assert_type(mo.read_kafka(BROKERS, pattern="o.*", format="bytes", interval="1s"), mo.Source[bytes])
assert_type(mo.read_kafka(BROKERS, "orders", format=mo.json_format(Order), end="latest"), mo.Source[Order])
assert_type(mo.read_kafka(BROKERS, "orders", format=length, on_error=broken), mo.Source[int])
assert_type(
    mo.read_kafka(BROKERS, "orders", as_records=True, start=datetime(2026, 1, 1, tzinfo=UTC)),
    mo.Source[mo.KafkaRecord[Any]],
)
assert_type(
    mo.read_kafka(BROKERS, "orders", as_records=True, format=mo.json_format(Order), end={("orders", 0): 7}),
    mo.Source[mo.KafkaRecord[Order]],
)

job = mo.Job("typed")
orders = job.source(mo.read_kafka(BROKERS, "orders", format=mo.json_format(Order)), uid="orders")
orders.map(lambda order: order.cents + 1, uid="cents").sink(mo.collect("out", type=int), uid="out")
