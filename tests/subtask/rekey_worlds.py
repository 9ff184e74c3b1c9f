"""A function with every kind of state, in a harness whose keys may change between one run and the next."""

from __future__ import annotations

import moorline as mo
from moorline.model.config.state import StateConfig
from moorline.testing import OperatorHarness


class Mean(mo.AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator):
        return accumulator[1] / accumulator[0]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


class EveryKind(mo.KeyedProcessFunction):
    """Records are (user, page, number)."""

    visits = mo.ValueState(int, default=0)
    pages = mo.ListState(str)
    per_page = mo.MapState(str, int)
    most = mo.ReducingState(int, max)
    mean = mo.AggregatingState(tuple[int, int], Mean())

    def process_element(self, value, ctx):
        _, page, number = value
        self.visits.update(self.visits.value() + 1)
        self.pages.add(page)
        self.per_page[page] = self.per_page.get(page, 0) + 1
        self.most.add(number)
        self.mean.add(number)
        ctx.timer_service().register_event_time_timer(number)
        ctx.timer_service().register_processing_time_timer(1000 + number)

    def on_timer(self, timestamp, ctx):
        yield ctx.time_domain, timestamp, ctx.get_current_key()


def plus(a, b):
    return a + b


LOWER = mo.Rekey("lower", str.lower, merge={"visits": plus, "per_page": plus})
VISITS = [("Ann", "a", 1), ("bob", "b", 2), ("ANN", "a", 3), ("ann", "c", 4), ("Bob", "b", 2), ("Cleo", "x", 5)]


def every(parallelism=1, snapshot=None, rekey=None, state=None, key=lambda r: r[0], function=None, **options):
    return OperatorHarness.of(
        lambda s: s.key_by(key, key_type=options.pop("key_type", None)).process(
            function or EveryKind(), uid="every", rekey=rekey, **options
        ),
        parallelism=parallelism,
        snapshot=snapshot,
        state=state or StateConfig(),
    )


def shown(harness, key):
    return [harness.state(name, key) for name in ("visits", "pages", "per_page", "most", "mean")]


def lower_key(record):
    return record[0].lower()
