"""Jobs for the simulator whose ends need the driver: it finds splits of a source, and commits for a sink."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from moorline.api.job import Job
from moorline.api.sources import EnumeratorContext, Positions, Source, SourceContext, SourceReader, SplitEnumerator
from moorline.connectors.hybrid.parts import SourceEnd
from moorline.connectors.hybrid.source import hybrid
from moorline.testing.simulation.audit.ledger import LedgerServer, LedgerSink, LedgerTable
from moorline.testing.simulation.jobs.counting import (
    CountEverything,
    LostOrDoubled,
    SimRecord,
    SimulatedJob,
    SplitSource,
)


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


class GrowingSource(Source):
    """Splits that come to light one after the other. Now and then a look fails."""

    enumerates = True

    def __init__(self, splits: dict[int, list[Any]], seed: int) -> None:
        self._splits, self._seed = splits, seed

    def open(self, ctx: SourceContext) -> SourceReader:
        return _GrowingReader(self._splits)

    def open_enumerator(self, ctx: EnumeratorContext) -> SplitEnumerator:
        return _Growing(self._splits, random.Random(f"{self._seed}-{ctx.attempt}"), ctx)


class _Growing(SplitEnumerator):
    interval_ms = 4

    def __init__(self, splits: dict[int, list[Any]], chance: random.Random, ctx: EnumeratorContext) -> None:
        self._splits, self._chance = splits, chance
        self._found: int = ctx.restored or 0
        if any(int(split) >= self._found for split in ctx.positions):
            raise LostOrDoubled(f"{self._found} splits were found, and subtasks have {sorted(ctx.positions)}")
        # The first attempts only: an error that comes back for ever ends a job.
        self._may_fail = ctx.attempt <= 2

    def discover(self) -> dict[int, Any] | None:
        if self._may_fail and self._chance.random() < 0.1:
            raise ConnectionError("the directory of splits cannot be reached")
        if self._found == len(self._splits):
            return None
        first, self._found = self._found, min(self._found + self._chance.randrange(3), len(self._splits))
        return dict.fromkeys(range(first, self._found), 0)

    def snapshot(self) -> int:
        return self._found


class _GrowingReader(SourceReader):
    """Forgets a split when it has read all of it: that it is not read again is the enumerator's business."""

    def __init__(self, splits: dict[int, list[Any]]) -> None:
        self._splits = splits
        self._at: dict[Any, int] = {}
        self._is_last = False

    def add_splits(self, splits: Positions) -> None:
        if self._at.keys() & splits.keys():
            raise LostOrDoubled(f"{sorted(splits)} were added to {sorted(self._at)}")
        self._at.update(splits)

    def no_more_splits(self) -> None:
        self._is_last = True

    def read(self, limit: int) -> list[Any] | None:
        self.split = split = next(iter(self._at), None)
        if split is None:
            return None if self._is_last else []
        at, records = self._at[split], self._splits[split]
        end = min(at + min(3, limit), len(records))
        if end == len(records):
            del self._at[split]
        else:
            self._at[split] = end
        return records[at:end]

    def splits(self) -> list[int | str]:
        return list(self._at)

    def positions(self) -> dict[int | str, Any]:
        return dict(self._at)


def growing_job(seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0) -> SimulatedJob:
    """A count over splits that the driver finds while the job runs."""
    splits = numbered_input(chance, max(2, records // 2), chance.randint(1, 8))
    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    counted = (
        job.source(GrowingSource(splits, seed), uid="source", parallelism=min(parallelism, 3))
        .key_by(lambda r: r[0])
        .process(CountEverything(), uid="count")
    )
    ledger = f"sim-{seed}-ledger"
    counted.sink(LedgerSink(ledger), uid="ledger")
    return SimulatedJob(job, {ledger: running_counts(splits)})


class _WhenAllIsRead:
    """The last part of a hybrid source. It has a record too many if the part before was not read to its end."""

    def __init__(self, before: dict[int, list[SimRecord]], splits: dict[int, list[SimRecord]], seed: int) -> None:
        self._before, self._splits, self._seed = before, splits, seed

    def __call__(self, end: SourceEnd) -> Source:
        lengths = {split: len(records) for split, records in self._before.items()}
        early = {} if end.positions == lengths else {len(self._splits): [("early", "early", 0)]}
        return GrowingSource({**self._splits, **early}, self._seed)


def hybrid_job(seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0) -> SimulatedJob:
    """A count over three sources, one after the other: found by the driver, by readers, and made at the switch."""
    parts = []
    for part in range(3):
        found = numbered_input(chance, max(2, records // 3), chance.randint(1, 4))
        parts.append({s: [(key, f"{part}-{split}", n) for key, split, n in rs] for s, rs in found.items()})
    first, second, third = parts
    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    sources = GrowingSource(first, seed), SplitSource(second), _WhenAllIsRead(second, third, seed)
    counted = (
        job.source(hybrid(*sources), uid="source", parallelism=min(parallelism, 3))
        .key_by(lambda r: r[0])
        .process(CountEverything(), uid="count")
    )
    ledger = f"sim-{seed}-ledger"
    counted.sink(LedgerSink(ledger), uid="ledger")
    everything = dict(enumerate(records for part in parts for records in part.values()))
    return SimulatedJob(job, {ledger: running_counts(everything)})


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


def server_job(seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0) -> SimulatedJob:
    """A count into a server that subtasks commit to in the background, beside a sink that they commit to at once."""
    splits = numbered_input(chance, records, chance.randint(1, 3))
    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    counted = (
        job.source(SplitSource(splits), uid="source", parallelism=min(parallelism, 2))
        .key_by(lambda r: r[0])
        .process(CountEverything(), uid="count")
    )
    server, ledger = (f"sim-{seed}-{name}" for name in ("server", "ledger"))
    counted.sink(LedgerServer(server), uid="server")
    counted.sink(LedgerSink(ledger), uid="ledger")
    counts = running_counts(splits)
    return SimulatedJob(job, {server: counts, ledger: counts})
