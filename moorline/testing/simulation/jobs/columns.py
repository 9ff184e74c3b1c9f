"""A job in columns for the simulator: aggregates of each key, and after them the last ones of each key, at the end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from moorline.api.columns import aggregates
from moorline.api.functions.base import KeyedProcessFunction
from moorline.api.job import Job
from moorline.api.state.states import ValueState
from moorline.testing.simulation.audit.ledger import LedgerSink
from moorline.testing.simulation.jobs.counting import LostOrDoubled, SimulatedJob
from moorline.testing.simulation.jobs.features import AT_THE_END, timed_input, timed_stream


class LastTotals(KeyedProcessFunction):
    """Keeps the totals of a key, which only grow, and tells them when all input has ended."""

    totals = ValueState(tuple[int, int, int], default=(0, 0, 0))

    def process_element(self, value: dict[str, Any], ctx: Any) -> Any:
        totals = value["n"], value["total"], value["most"]
        if totals[0] <= self.totals.value()[0]:
            raise LostOrDoubled(f"{value} comes after {self.totals.value()}")
        if value["latest"] is None:
            raise LostOrDoubled(f"{value} has lost its last number")
        self.totals.update(totals)
        ctx.timer_service().register_event_time_timer(AT_THE_END)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield ctx.get_current_key(), *self.totals.value()


def columns_job(seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0) -> SimulatedJob:
    """Rows become columns, are filtered, and aggregated by a column of texts or of ints."""
    splits = timed_input(chance, records)
    by_number = chance.random() < 0.5
    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    schema = pa.schema([("key", pa.int64() if by_number else pa.string()), ("number", pa.int64())])

    def key_of(record: Any) -> Any:
        return len(record[0]) * 1000 + ord(record[0][-1]) if by_number else record[0]

    stream = timed_stream(job, splits, parallelism)
    rows = stream.map(lambda r: {"key": key_of(r), "number": r[2]}, uid="rows", parallelism=min(parallelism, 2))
    columns = rows.with_schema(schema, uid="columns", parallelism=min(parallelism, 2))
    odd = columns.filter_batches(lambda b: pc.not_equal(b["number"], 3), uid="odd", parallelism=min(parallelism, 2))
    keyed = odd.key_by("key")
    totals = keyed.aggregate(
        n=aggregates.count(),
        total=aggregates.sum("number"),
        most=aggregates.max("number"),
        latest=aggregates.last("number"),
        uid="totals",
    )
    ledger = f"sim-{seed}-columns"
    totals.key_by(lambda row: row["key"]).process(LastTotals(), uid="last").sink(LedgerSink(ledger), uid="out")
    kept: dict[Any, list[int]] = {}
    for record in (r for rs in splits.values() for r in rs if r[2] != 3):
        kept.setdefault(key_of(record), []).append(record[2])
    expected = Counter((key, len(ns), sum(ns), max(ns)) for key, ns in kept.items())
    return SimulatedJob(job, {ledger: expected})
