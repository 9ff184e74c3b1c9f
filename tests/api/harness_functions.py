"""Functions with state that several tests of the harness run."""

from __future__ import annotations

import moorline as mo


class CountWindowAverage(mo.KeyedProcessFunction):
    """Flink's own example: the average of every two values of a key."""

    sum = mo.ValueState(tuple[int, int], default=(0, 0))

    def process_element(self, value, ctx):
        count, total = self.sum.value()
        count, total = count + 1, total + value[1]
        if count >= 2:
            yield count, total
            self.sum.clear()
        else:
            self.sum.update((count, total))


class EveryKind(mo.KeyedProcessFunction):
    """One state of each kind, some declared and some asked for."""

    last = mo.ValueState(str)
    seen = mo.ListState(str)

    def open(self, runtime_context):
        self.pages = runtime_context.get_map_state(mo.MapStateDescriptor("pages", str, int))
        self.most = runtime_context.get_reducing_state(mo.ReducingStateDescriptor("most", max, str))
        self.mean = runtime_context.get_aggregating_state(
            mo.AggregatingStateDescriptor("mean", Mean(), tuple[int, float])
        )

    def process_element(self, value, ctx):
        _, page = value
        self.last.update(page)
        self.seen.add(page)
        self.pages[page] = self.pages.get(page, 0) + 1
        self.most.add(page)
        self.mean.add(len(page))


class Mean(mo.AggregateFunction):
    def create_accumulator(self):
        return 0, 0.0

    def add(self, value, accumulator):
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator):
        return accumulator[1] / accumulator[0]


def first(record):
    return record[0]
