"""A job for the simulator whose records and state change in place: every record must be what it was when emitted."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from moorline.api.functions.base import KeyedProcessFunction, MapFunction
from moorline.api.job import Job
from moorline.api.state.states import ValueState
from moorline.testing.simulation.audit.ledger import LedgerSink
from moorline.testing.simulation.jobs.counting import SimulatedJob
from moorline.testing.simulation.jobs.features import Timed, timed_input, timed_stream


class KeepsTotals(KeyedProcessFunction):
    """Yields the dict that it keeps, and goes on changing it."""

    totals: ValueState[Any] = ValueState(dict[str, list[int]])

    def process_element(self, value: Timed, ctx: Any) -> Any:
        totals = self.totals.value() or {"n": [0]}
        totals["n"][0] += 1
        self.totals.update(totals)
        yield ctx.current_key, totals


class Negates(MapFunction):
    """Changes the record that it is given."""

    def map(self, value: Any) -> Any:
        value[1]["n"][0] *= -1
        return value


def add_up(total: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    total["n"] += value["n"]
    return total


def values_job(seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0) -> SimulatedJob:
    """Totals with two readers in the same chain, the first of which changes them; and a reduction in place."""
    splits = timed_input(chance, records)
    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    stream = timed_stream(job, splits, parallelism)
    totals = stream.key_by(lambda r: r[0]).process(KeepsTotals(), uid="totals")
    reduced = (
        stream.map(lambda r: {"key": r[0], "n": 1}, uid="ones", parallelism=min(parallelism, 2))
        .key_by(lambda r: r["key"])
        .reduce(add_up, type=dict[str, object], uid="reduced")
    )
    negated, shown, summed = (f"sim-{seed}-{name}" for name in ("negated", "shown", "summed"))
    totals.map(Negates(), uid="negate").map(lambda r: (r[0], r[1]["n"][0]), uid="negated").sink(
        LedgerSink(negated), uid="negated-out"
    )
    totals.map(lambda r: (r[0], r[1]["n"][0]), uid="shown").sink(LedgerSink(shown), uid="shown-out")
    reduced.map(lambda r: (r["key"], r["n"]), uid="summed").sink(LedgerSink(summed), uid="summed-out")
    counts = Counter(r[0] for rs in splits.values() for r in rs)
    each = Counter((key, n) for key, total in counts.items() for n in range(1, total + 1))
    return SimulatedJob(job, {negated: Counter({(key, -n): 1 for key, n in each}), shown: each, summed: each.copy()})
