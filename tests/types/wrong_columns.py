"""Mistakes in steps on columns, in expressions and in functions of whole batches: mypy's code, pyright's rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

import moorline as mo
from moorline.api.functions.base import KeyedContext
from moorline.api.windows.functions import WindowContext


@dataclass(frozen=True)
class Order:
    user: str
    cents: int


class OfRecords(mo.KeyedProcessFunction[str, Order, int]):
    def process_element(self, order: Order, ctx: KeyedContext[str]) -> Iterable[int]:
        return [order.cents]


class WindowOfRecords(mo.ProcessWindowFunction[Order, int, str, mo.TimeWindow]):
    def process(self, key: str, context: WindowContext[mo.TimeWindow], orders: Iterable[Order]) -> Iterable[int]:
        return [order.cents for order in orders]


class Mean(mo.AggregateFunction[Order, int, float]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Order, accumulator: int) -> int:
        return accumulator + value.cents

    def get_result(self, accumulator: int) -> float:
        return float(accumulator)


job = mo.Job("wrong")
rows = job.source(mo.from_items([{"user": "ada", "cents": 3}]), uid="orders").with_schema("user string, cents bigint")
keyed = rows.key_by("user")
windows = keyed.window(mo.TumblingEventTimeWindows("5s"))
cents = mo.col("cents")
of_orders = mo.collect("out", type=Order)

mo.col(3)  # error: arg-type | reportArgumentType
mo.lit(3, typ="int")  # error: call-arg | reportCallIssue
mo.sum(3)  # error: arg-type | reportArgumentType
mo.count(cents)  # error: arg-type | reportArgumentType
mo.least(cents, 3).nonsense()  # error: attr-defined | reportAttributeAccessIssue
cents.isnull()  # error: attr-defined | reportAttributeAccessIssue
cents.round("two")  # error: arg-type | reportArgumentType
cents.alias(3)  # error: arg-type | reportArgumentType
cents.str.uper()  # error: attr-defined | reportAttributeAccessIssue
cents.str.contains(3)  # error: arg-type | reportArgumentType
cents.dt.truncat("1h")  # error: attr-defined | reportAttributeAccessIssue
mo.when(cents > 3).than("large")  # error: attr-defined | reportAttributeAccessIssue
mo.when(cents > 3).then("large").otherwize("small")  # error: attr-defined | reportAttributeAccessIssue

rows.select(3)  # error: arg-type | reportArgumentType
rows.select("user").nonsense()  # error: attr-defined | reportAttributeAccessIssue
rows.where("cents > 3")  # error: arg-type | reportArgumentType
rows.where(lambda row: row["cents"] > 3)  # error: arg-type | reportArgumentType
rows.where(cents > 3, uidd="typo")  # error: call-arg | reportCallIssue
rows.with_columns("cents")  # error: arg-type | reportArgumentType
rows.drop(cents)  # error: arg-type | reportArgumentType
rows.rename("user")  # error: arg-type | reportArgumentType
rows.map_batches(lambda batch: batch, frames="spark")  # error: arg-type | reportArgumentType
rows.map_batches(lambda row: {"euros": row["cents"] / 100})  # error: arg-type+return-value | reportArgumentType
rows.map_batches(mo.MapFunction())  # error: arg-type | reportArgumentType
rows.map_batches(lambda batch, more: batch)  # error: arg-type+misc | reportArgumentType
rows.map_batches(lambda batch: batch, schem="cents bigint")  # error: call-arg | reportCallIssue
rows.filter_batches(3)  # error: arg-type | reportArgumentType
rows.filter_batches(lambda row: True)  # error: arg-type+return-value | reportArgumentType
rows.filter_batches(cents > 3)  # error: arg-type | reportArgumentType
rows.map(lambda row: row.user)  # error: attr-defined | reportAttributeAccessIssue
rows.sink(of_orders)  # error: arg-type | reportArgumentType
rows.with_watermark("at", delay=[5])  # error: arg-type | reportArgumentType
rows.key_by("user", 3)  # error: call-overload | reportArgumentType
rows.key_by(lambda row: str(row["user"])).map(lambda row: row.user)  # error: attr-defined | reportAttributeAccessIssue
rows.key_by("user").aggregates(n=mo.count())  # error: attr-defined | reportAttributeAccessIssue
keyed.aggregate(total="cents")  # error: arg-type | reportArgumentType
keyed.aggregate(emit="chagnes", total=mo.sum("cents"))  # error: arg-type | reportArgumentType
keyed.aggregate(ttl=[1], total=mo.sum("cents"))  # error: arg-type | reportArgumentType
keyed.deduplicate(keep="frist")  # error: arg-type | reportArgumentType
keyed.deduplicate(ttll="1h")  # error: call-arg | reportCallIssue
keyed.top("three", by="cents")  # error: arg-type | reportArgumentType
keyed.top(3, by="cents", decending=True)  # error: call-arg | reportCallIssue
keyed.process_batches(mo.MapFunction())  # error: arg-type | reportArgumentType
keyed.process(OfRecords())  # error: arg-type | reportArgumentType
keyed.process_batches(OfRecords())  # error: arg-type | reportArgumentType
keyed.reduce(lambda a, b: a.cents)  # error: attr-defined | reportAttributeAccessIssue
keyed.window("5s")  # error: arg-type | reportArgumentType
windows.aggregate(total="cents")  # error: call-overload | reportArgumentType
windows.aggregate(total=mo.sum("cents")).nonsense()  # error: attr-defined | reportAttributeAccessIssue
windows.aggregate(mo.MapFunction())  # error: call-overload | reportArgumentType+reportCallIssue
windows.aggregate(Mean())  # error: arg-type | reportArgumentType+reportCallIssue
windows.process(WindowOfRecords())  # error: arg-type | reportArgumentType
windows.reduce(lambda a, b: a.cents)  # error: attr-defined | reportAttributeAccessIssue
windows.top(3, by="cents")  # error: attr-defined | reportAttributeAccessIssue
mo.generate_batches(3)  # error: arg-type | reportArgumentType
mo.generate_batches(lambda numbers: pa.record_batch({"n": numbers}), rat=3.0)  # error: call-arg | reportCallIssue


class Seen(mo.KeyedBatchFunction):
    seen = mo.ValueState(bool, default=False)

    def process_batch(self, keys: mo.BatchKeys, batch: pa.RecordBatch, states: mo.BatchStates) -> pa.RecordBatch:
        states.seen.updated([True])  # error: attr-defined | reportAttributeAccessIssue
        return batch.take(keys.frist_rows)  # error: attr-defined | reportAttributeAccessIssue
