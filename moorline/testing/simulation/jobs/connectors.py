"""Jobs for the simulator whose ends need the driver: a sink that it commits in one step for all subtasks."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from moorline.api.job import Job
from moorline.testing.simulation.jobs.counting import CountEverything, SimRecord, SimulatedJob, SplitSource
from moorline.testing.simulation.ledger import LedgerSink, LedgerTable


def numbered_input(chance: random.Random, records: int, splits: int) -> dict[int, list[SimRecord]]:
    """Splits whose records are numbered as :class:`CountEverything` expects it."""
    found: dict[int, list[SimRecord]] = {}
    for split in range(splits):
        numbers: Counter[Any] = Counter()
        found[split] = []
        for _ in range(chance.randrange(records)):
            key = chance.choice("abcdefgh")
            found[split].append((key, str(split), numbers[key]))
            numbers[key] += 1
    return found


def running_counts(splits: dict[int, list[SimRecord]]) -> Counter[Any]:
    """The counts that a plain loop yields, one for each record."""
    totals: Counter[Any] = Counter(r[0] for records in splits.values() for r in records)
    return Counter((key, n) for key, total in totals.items() for n in range(1, total + 1))


def table_job(seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0) -> SimulatedJob:
    """A count into two tables, one of them beside a sink whose workers commit."""
    splits = numbered_input(chance, records, chance.randint(1, 3))
    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    counted = (
        job.source(SplitSource(splits), uid="source", parallelism=min(parallelism, 2))
        .key_by(lambda r: r[0])
        .process(CountEverything(), uid="count")
    )
    table, other, ledger = (f"sim-{seed}-{name}" for name in ("table", "other", "ledger"))
    counted.sink(LedgerTable(table), uid="table")
    counted.filter(lambda r: r[1] % 2 == 1, uid="odd").sink(LedgerTable(other), uid="other", parallelism=1)
    counted.sink(LedgerSink(ledger), uid="ledger")
    counts = running_counts(splits)
    odd = Counter({r: n for r, n in counts.items() if r[1] % 2 == 1})
    return SimulatedJob(job, {table: counts, other: odd, ledger: counts})
