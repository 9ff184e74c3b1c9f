"""Mistakes that a type checker finds. Beside each: mypy's code for it, and pyright's rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import moorline as mo
from moorline.api.functions.base import KeyedContext
from moorline.api.functions.source_function import InvokeContext


@dataclass(frozen=True)
class Order:
    user: str
    amount: float


class Alerts(mo.KeyedProcessFunction[str, Order, str]):
    last = mo.ValueState(int)
    total = mo.ValueState(float, default=0.0)
    pages = mo.MapState(str, int)
    names = mo.ListState(str)
    highest = mo.ReducingState(float, max)
    misspelt = mo.ValueState(int, tttl=3)  # error: call-overload | reportCallIssue
    alike = mo.ListState(str, tl="1h")  # error: call-overload | reportCallIssue

    def process_element(self, order: Order, ctx: KeyedContext[str]) -> Iterable[str]:
        self.last.update("not an int")  # error: arg-type | reportArgumentType
        self.pages.put(1, "x")  # error: arg-type | reportArgumentType
        self.pages["/"] = "x"  # error: assignment | reportArgumentType
        self.names.add(3)  # error: arg-type | reportArgumentType
        self.highest.add("x")  # error: arg-type | reportArgumentType
        self.last.value() + 1  # error: operator | reportOptionalOperand
        self.total.value().upper()  # error: attr-defined | reportAttributeAccessIssue
        self.last.updated(3)  # error: attr-defined | reportAttributeAccessIssue
        ctx.current_key.nonsense()  # error: attr-defined | reportAttributeAccessIssue
        yield order.amount  # error: misc | reportReturnType


class OfNumbers(mo.KeyedProcessFunction[str, int, int]):
    def process_element(self, number: int, ctx: KeyedContext[str]) -> Iterable[int]:
        return [number]


class Shown(mo.SinkFunction[Order]):
    def invoke(self, order: Order, context: InvokeContext) -> None:
        context.watermark()  # error: attr-defined | reportAttributeAccessIssue


job = mo.Job("wrong", paralelism=2)  # error: call-arg | reportCallIssue
misspelt = job.source(mo.from_items([Order("ada", 3.0)]), uuid="orders")  # error: call-overload | reportCallIssue
orders = job.source(mo.from_items([Order("ada", 3.0)]), uid="orders")
keyed = orders.key_by(lambda order: order.user)

orders.map(lambda order: order.nonsense)  # error: attr-defined | reportAttributeAccessIssue
orders.key_by(lambda order: order.usr)  # error: attr-defined | reportAttributeAccessIssue
keyed.process(Alerts(), uidd="typo")  # error: call-arg | reportCallIssue
keyed.process(Alerts(), parallelism="four")  # error: arg-type | reportArgumentType
keyed.process(OfNumbers())  # error: arg-type | reportArgumentType
orders.process(Alerts())  # error: arg-type | reportArgumentType
orders.map(lambda order: order.user).map(lambda user: user + 1)  # error: operator | reportOperatorIssue
orders.reduce(max)  # error: attr-defined | reportAttributeAccessIssue
numbers = mo.collect("out", type=int)
orders.sink(numbers)  # error: arg-type | reportArgumentType
orders.sink(mo.collect("out"), prallelism=2)  # error: call-arg | reportCallIssue
both = orders.union(job.source(mo.from_items([1])))
both.map(lambda either: either.user)  # error: union-attr | reportAttributeAccessIssue
mo.run(job, paralelism=2)  # error: call-arg | reportCallIssue
mo.start(job, backend="rocks")  # error: arg-type | reportArgumentType
mo.read_kafka("a:9092", "orders", as_recrods=True)  # error: call-overload | reportCallIssue
