"""Batch jobs of one keyed step, and what comes out of them by key."""

from __future__ import annotations

from collections import defaultdict

import moorline as mo

BY_TIME = mo.WatermarkStrategy.bounded_out_of_orderness("1s", timestamp=lambda r: r[1])


def key(record):
    return record[0]


def keyed(function, records, parallelism=2, watermarks=None, step="process"):
    """A job of one keyed step."""
    job = mo.Job("batch", parallelism=parallelism)
    stream = job.source(mo.from_items(records), uid="in", watermarks=watermarks).key_by(key)
    getattr(stream, step)(function, uid="step").sink(mo.collect("out"), uid="out")
    return job


def by_key(records):
    found = defaultdict(list)
    for record in records:
        found[record[0]].append(record)
    return dict(found)


class Count(mo.KeyedProcessFunction):
    seen = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        self.seen.update(self.seen.value() + 1)
        yield ctx.current_key, self.seen.value()
