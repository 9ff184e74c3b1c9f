"""A job in columns for the simulator: expressions, a function of whole batches, the first and the best of each key.

What comes in twice or not at all is seen in the totals of a key, in a second "first" row, or in its best numbers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from moorline.api.columns.batch_functions import BatchKeys, KeyedBatchFunction
from moorline.api.columns.expressions.expression import col
from moorline.api.functions.base import KeyedProcessFunction
from moorline.api.job import Job
from moorline.api.state.states import ValueState
from moorline.testing.simulation.audit.ledger import LedgerSink
from moorline.testing.simulation.jobs.counting import LostOrDoubled, SimulatedJob
from moorline.testing.simulation.jobs.features import AT_THE_END, timed_input, timed_stream

#: So many of the best numbers of each key are kept.
BEST = 3


class Totals(KeyedBatchFunction):
    """Counts and sums."""

    n = ValueState(int, default=0)
    total = ValueState(int, default=0)

    def process_batch(self, keys: BatchKeys, batch: pa.RecordBatch, states: Any, /) -> pa.RecordBatch:
        n = states.n.numpy() + keys.counts()
        total = states.total.numpy() + keys.sums(batch["number"])
        states.n.update(n)
        states.total.update(total)
        return pa.record_batch({"key": keys.values, "n": n, "value": total})


class LastValues(KeyedProcessFunction):
    """Keeps the last value of a key, which only grows, and emits it when all input has ended."""

    last = ValueState(tuple[int, int], default=(0, 0))

    def process_element(self, value: dict[str, Any], ctx: Any) -> Any:
        last = value["n"], value["value"]
        if last <= self.last.value():
            raise LostOrDoubled(f"{value} comes after {self.last.value()}")
        self.last.update(last)
        ctx.timer_service().register_event_time_timer(AT_THE_END)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield ctx.get_current_key(), *self.last.value()


def column_steps_job(
    seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0
) -> SimulatedJob:
    """Rows become columns and are filtered; then totals, the first row and the best rows of each key."""
    splits = timed_input(chance, records)
    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    narrow = min(parallelism, 2)
    rows = timed_stream(job, splits, parallelism).map(
        lambda r: {"key": r[0], "number": r[2]}, uid="rows", parallelism=narrow
    )
    columns = rows.with_schema("key string, number bigint", uid="columns", parallelism=narrow)
    odd = columns.where(col("number") != 3, uid="odd", parallelism=narrow)
    keyed = odd.with_columns(twice=col("number") * 2, uid="twice", parallelism=narrow).key_by("key")

    totals = keyed.process_batches(Totals(), schema="key string, n bigint, value bigint", uid="totals")
    ledgers = {name: f"sim-{seed}-{name}" for name in ("totals", "firsts", "best")}
    last = totals.key_by(lambda row: row["key"]).process(LastValues(), uid="last")
    last.sink(LedgerSink(ledgers["totals"]), uid="out")

    firsts = keyed.deduplicate(uid="firsts").map(lambda row: (row["key"],), uid="first-keys")
    firsts.sink(LedgerSink(ledgers["firsts"]), uid="firsts-out")

    best = keyed.top(BEST, by="twice", uid="best")
    ranks = best.map(lambda row: {"key": (row["key"], row["rank"]), "n": 1, "value": row["twice"]}, uid="ranks")
    last_ranks = ranks.key_by(lambda row: row["key"]).process(LastValues(), uid="last-ranks")
    last_ranks.sink(LedgerSink(ledgers["best"]), uid="best-out")

    kept: dict[str, list[int]] = {}
    for record in (r for rs in splits.values() for r in rs if r[2] != 3):
        kept.setdefault(record[0], []).append(record[2])
    expected: dict[str, Counter[Any]] = {
        ledgers["totals"]: Counter((key, len(ns), sum(ns)) for key, ns in kept.items()),
        ledgers["firsts"]: Counter((key,) for key in kept),
        ledgers["best"]: Counter(
            ((key, rank), 1, 2 * n)
            for key, ns in kept.items()
            for rank, n in enumerate(sorted(ns, reverse=True)[:BEST], 1)
        ),
    }
    return SimulatedJob(job, expected)
