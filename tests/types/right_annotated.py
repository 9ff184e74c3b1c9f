"""A program with annotations: the types of records, keys and states are followed from the source to the sink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, assert_type

import moorline as mo
from moorline.api.functions.base import KeyedContext, OnTimerContext


@dataclass(frozen=True)
class Order:
    user: str
    amount: float
    at: int


LATE = mo.OutputTag[Order]("late")
LIMITS = mo.MapStateDescriptor("limits", str, float)


class Totals(mo.KeyedProcessFunction[str, Order, tuple[str, float]]):
    total = mo.ValueState(float, default=0.0)
    last = mo.ValueState(Order)
    orders = mo.ListState(Order, ttl="1h")
    pages = mo.MapState(str, int)
    highest = mo.ReducingState(float, max)
    loose = mo.ValueState(int | None)

    def open(self, runtime_context: mo.RuntimeContext) -> None:
        self.seen = runtime_context.get_state(mo.ValueStateDescriptor("seen", int, default=0))
        self.found = runtime_context.get_state(mo.ValueStateDescriptor("found", int))
        self.list = runtime_context.get_list_state(mo.ListStateDescriptor("list", str))
        self.map = runtime_context.get_map_state(mo.MapStateDescriptor("map", str, list[int]))

    def process_element(
        self, order: Order, ctx: KeyedContext[str]
    ) -> Iterator[tuple[str, float] | tuple[mo.OutputTag[Order], Order]]:
        assert_type(self.total.value(), float)
        assert_type(self.last.value(), Order | None)
        assert_type(self.pages.get("/"), int | None)
        assert_type(self.pages.get("/", 0), int)
        assert_type(self.highest.get(), float | None)
        assert_type(self.seen.value(), int)
        assert_type(self.found.value(), int | None)
        assert_type(ctx.current_key, str)
        for earlier in self.orders:
            assert_type(earlier, Order)
        self.total.update(self.total.value() + order.amount)
        self.last.update(order)
        self.last.update(None)
        self.pages["/"] = self.pages.get("/", 0) + 1
        self.map.put("a", [1, 2])
        ctx.output(LATE, order)
        yield LATE, order
        yield ctx.current_key, self.total.value()

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> Iterable[tuple[str, float]]:
        return [(ctx.current_key, float(timestamp))]


class Judge(mo.KeyedBroadcastProcessFunction[str, Order, tuple[str, float], Order]):
    def process_element(self, order: Order, ctx: Any) -> Iterable[Order]:
        yield order

    def process_broadcast_element(self, rule: tuple[str, float], ctx: Any) -> None:
        ctx.get_broadcast_state(LIMITS).put(*rule)


class Matched(mo.KeyedCoProcessFunction[str, Order, tuple[str, float], float]):
    def process_element1(self, order: Order, ctx: KeyedContext[str]) -> Iterable[float]:
        yield order.amount

    def process_element2(self, total: tuple[str, float], ctx: KeyedContext[str]) -> None: ...


class Mean(mo.AggregateFunction[Order, tuple[int, float], float]):
    def create_accumulator(self) -> tuple[int, float]:
        return 0, 0.0

    def add(self, order: Order, mean: tuple[int, float]) -> tuple[int, float]:
        return mean[0] + 1, mean[1] + order.amount

    def get_result(self, mean: tuple[int, float]) -> float:
        return mean[1] / mean[0]


class Countdown(mo.Source[int]):
    def open(self, ctx: mo.SourceContext) -> CountdownReader:
        return CountdownReader(ctx)


class CountdownReader(mo.SourceReader[int]):
    def __init__(self, ctx: mo.SourceContext) -> None:
        self.left: int = ctx.positions.get(0, 3)

    def read(self, limit: int) -> list[int] | None:
        self.left -= 1
        return [self.left + 1]

    def positions(self) -> dict[int | str, Any]:
        return {0: self.left}


job = mo.Job("types")
orders = job.source(mo.from_items([Order("ada", 3.0, 1)]), uid="orders")
assert_type(orders, mo.Stream[Order])
assert_type(orders.map(lambda order: order.amount), mo.Stream[float])
assert_type(orders.filter(lambda order: order.amount > 1), mo.Stream[Order])
assert_type(orders.flat_map(lambda order: [order.user]), mo.Stream[str])
keyed = orders.key_by(lambda order: order.user)
assert_type(keyed, mo.KeyedStream[Order, str])
totals = keyed.process(Totals(), uid="totals", parallelism=2)
assert_type(totals, mo.Stream[tuple[str, float]])
assert_type(totals.side_output(LATE), mo.Stream[Order])
assert_type(keyed.reduce(lambda a, b: a if a.amount > b.amount else b), mo.Stream[Order])
rules = job.source(mo.from_items([("ada", 3.0)])).broadcast(LIMITS)
assert_type(rules, mo.BroadcastStream[tuple[str, float]])
assert_type(orders.broadcast(), mo.Stream[Order])
judged = keyed.connect(rules).process(Judge(), uid="judged")
assert_type(judged, mo.Stream[Order])
matched = keyed.connect(totals.key_by(lambda total: total[0])).process(Matched())
assert_type(matched, mo.Stream[float])
minutes = keyed.window(mo.TumblingEventTimeWindows("1min"))
assert_type(minutes.aggregate(Mean(), accumulator_type=tuple[int, float]), mo.Stream[float])
assert_type(
    minutes.apply(lambda user, window, orders: [(user, window.start, len(orders))]), mo.Stream[tuple[str, int, int]]
)
assert_type(job.source(Countdown()), mo.Stream[int])
pairs = keyed.interval_join(totals.key_by(lambda total: total[0])).between("0s", "1min")
assert_type(pairs.process(lambda order, total, ctx: [order.amount + total[1]]), mo.Stream[float])
joined = orders.join(totals).where(lambda order: order.user).equal_to(lambda total: total[0])
per_minute = joined.window(mo.TumblingEventTimeWindows("1min"))
assert_type(per_minute.apply(lambda order, total: (order.user, total[1])), mo.Stream[tuple[str, float]])
assert_type(orders.union(totals), mo.Stream[Order | tuple[str, float]])
judged.sink(mo.collect("judged", type=Order), uid="out")
