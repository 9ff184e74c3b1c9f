"""Small jobs, and what an operator of them reads."""

from __future__ import annotations

import moorline as mo
from moorline.model.graph import Partitioning

LATE = mo.OutputTag("late")


class Count(mo.KeyedProcessFunction):
    seen = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        self.seen.update(self.seen.value() + 1)
        yield ctx.current_key, self.seen.value()


def job(**options) -> mo.Job:
    return mo.Job("test", **options)


def numbers(to: mo.Job, uid: str | None = "in", **options) -> mo.Stream:
    return to.source(mo.from_items([1, 2, 3]), uid=uid, **options)


def inputs(built: mo.Job, uid: str) -> list[tuple[str, str | None, Partitioning]]:
    return [(i.upstream, i.tag, i.partitioning) for i in built.graph().by_uid[uid].inputs]
