"""Checkpoint modes of simulated jobs, and a job for the mode in which records may count twice but never not."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from moorline.api.functions.base import KeyedProcessFunction
from moorline.api.job import Job
from moorline.api.state.states import MapState
from moorline.testing.simulation.audit.ledger import LedgerSink
from moorline.testing.simulation.jobs.counting import LostOrDoubled, SimRecord, SimulatedJob, SplitSource


def consistency(settings: random.Random) -> dict[str, Any]:
    """Settings of ``Checkpoints`` that are exactly-once: aligned, unaligned, or first the one and then the other."""
    kind = settings.choice(["aligned", "unaligned", "timeout"])
    concurrent = settings.choice([1, 2])
    if kind == "aligned":
        return {"max_concurrent": concurrent}
    return {"unaligned": True} if kind == "unaligned" else {"aligned_timeout": settings.choice([0.005, 0.03, 0.1])}


def at_least_once(settings: random.Random) -> dict[str, Any]:
    return {"mode": "at_least_once", "max_concurrent": settings.choice([1, 2, 3])}


class NoneMissing(KeyedProcessFunction):
    """Records of a key and split come in their order; some may come again, none may be left out."""

    per_split: MapState[str, int] = MapState(str, int)

    def process_element(self, value: SimRecord, ctx: Any) -> Any:
        key, split, number = value
        seen = self.per_split.get(split, 0) or 0
        if number > seen:
            raise LostOrDoubled(f"{key} of split {split}: expected at most number {seen}, got {number}")
        self.per_split.put(split, max(seen, number + 1))
        yield value


def at_least_once_job(
    seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0
) -> SimulatedJob:
    """A job with several channels into every counter, none of which waits for barriers."""
    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    streams, wanted = [], set()
    for source in range(2):
        numbers: Counter[Any] = Counter()
        splits: dict[int, list[SimRecord]] = {}
        for split in range(2):
            for _ in range(chance.randrange(records)):
                key = chance.randrange(7)
                splits.setdefault(split, []).append((key, f"{source}-{split}", numbers[key, split]))
                numbers[key, split] += 1
            splits.setdefault(split, [])
        wanted |= {r for rs in splits.values() for r in rs}
        streams.append(job.source(SplitSource(splits), uid=f"source-{source}", parallelism=min(parallelism, 2)))
    ledger = f"sim-{seed}-seen"
    passed = streams[0].union(streams[1]).key_by(lambda r: r[0]).process(NoneMissing(), uid="pass")
    passed.sink(LedgerSink(ledger), uid="out")

    def audit(output: list[Any]) -> str | None:
        missing, strange = wanted - set(map(tuple, output)), set(map(tuple, output)) - wanted
        return f"missing {missing}, made up {strange}" if missing or strange else None

    return SimulatedJob(job, {}, {ledger: audit})
