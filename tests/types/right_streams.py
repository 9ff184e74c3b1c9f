"""Sources of Redis streams and of NATS have the type of what their format decodes."""

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


URL, SERVERS = "redis://a:6379/0", ["nats://a:4222", "nats://b:4222"]
AT = datetime(2026, 1, 1, tzinfo=UTC)
broken = mo.OutputTag[mo.BrokenRecord]("broken")

assert_type(mo.read_redis_stream(URL, "orders"), mo.Source[dict[str, str]])
assert_type(mo.read_redis_stream(URL, ["a", "b"], as_records=True), mo.Source[mo.RedisEntry[dict[str, str]]])
assert_type(mo.read_redis_stream(URL, pattern="o*", format="json", field="order"), mo.Source[Any])
assert_type(mo.read_redis_stream(URL, "orders", format="text", start=AT), mo.Source[str])
assert_type(mo.read_redis_stream(URL, "orders", format="bytes", as_records=True), mo.Source[mo.RedisEntry[bytes]])
assert_type(mo.read_redis_stream(URL, "orders", format=mo.json_format(Order), end="latest"), mo.Source[Order])
assert_type(mo.read_redis_stream(URL, "orders", format=length, as_records=True), mo.Source[mo.RedisEntry[int]])

assert_type(mo.read_nats("a:4222", "ORDERS"), mo.Source[Any])
assert_type(mo.read_nats(SERVERS, "ORDERS", subjects=["a.*", "b"], format="text", start=7), mo.Source[str])
assert_type(mo.read_nats(SERVERS, "ORDERS", format="bytes", start=AT, end="latest"), mo.Source[bytes])
assert_type(mo.read_nats(SERVERS, "ORDERS", format=mo.json_format(Order), on_error=broken), mo.Source[Order])
assert_type(mo.read_nats(SERVERS, "ORDERS", as_records=True), mo.Source[mo.NatsMessage[Any]])
assert_type(mo.read_nats(SERVERS, "ORDERS", format=length, as_records=True), mo.Source[mo.NatsMessage[int]])

job = mo.Job("typed")
orders = job.source(mo.read_nats(SERVERS, "ORDERS", format=mo.json_format(Order)), uid="orders")
orders.map(lambda order: order.cents + 1, uid="cents").sink(
    mo.write_redis_stream(URL, "cents", format="json"), uid="out"
)
orders.sink(mo.write_nats(SERVERS, lambda order: f"orders.{order.customer}", stream="ORDERS"), uid="again")
