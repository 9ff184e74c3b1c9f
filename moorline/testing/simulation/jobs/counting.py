"""Jobs for the simulator, and what a plain loop makes of the same input.

Each record says where it comes from and which one it is, and the counting function checks both, so a record that is
lost, doubled or out of order is noticed where it happens, not only in the sums.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from moorline.api.functions.base import AggregateFunction, KeyedProcessFunction, OutputTag
from moorline.api.job import Job
from moorline.api.sources import Source, SourceContext, SourceReader
from moorline.api.state.combining import AggregatingState, ReducingState
from moorline.api.state.states import ListState, MapState, ValueState
from moorline.model.graph import Graph
from moorline.testing.simulation.audit.ledger import LedgerSink

#: key, split, number of the record among those of its key and split
SimRecord = tuple[Any, str, int]

ODD = OutputTag("odd")


class SplitSource(Source):
    """Several lists of records, each a split."""

    def __init__(self, splits: dict[int, list[Any]]) -> None:
        self._splits = splits

    def open(self, ctx: SourceContext) -> SourceReader:
        return _SplitReader({s: r for s, r in self._splits.items() if ctx.owns(s)}, ctx)


class _SplitReader(SourceReader):
    def __init__(self, splits: dict[int, list[Any]], ctx: SourceContext) -> None:
        self._splits = splits
        self._at = {s: ctx.positions.get(s, 0) for s in splits}
        self._turn = 0

    def read(self, limit: int) -> list[Any] | None:
        self.split = None
        left = [s for s, records in self._splits.items() if self._at[s] < len(records)]
        if not left:
            return None
        self._turn += 1
        self.split = split = left[self._turn % len(left)]
        at = self._at[split]
        self._at[split] = min(at + min(1 + self._turn % 3, limit), len(self._splits[split]))
        return list(self._splits[split][at : self._at[split]])

    def splits(self) -> list[int | str]:
        return [s for s, records in self._splits.items() if self._at[s] < len(records)]

    def positions(self) -> dict[int | str, Any]:
        return {split: at for split, at in self._at.items()}  # noqa: C416 (a wider type of key)


class _Ones(AggregateFunction[int, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator


class LostOrDoubled(AssertionError):
    """Exactly-once is broken."""


class CountEverything(KeyedProcessFunction):
    """Counts the records of a key in every kind of state, and checks that none is missing, doubled or early."""

    value = ValueState(int, default=0)
    elements = ListState(int)
    per_split = MapState(str, int)
    reduced = ReducingState(int, lambda a, b: a + b)
    aggregated = AggregatingState(int, _Ones())
    loose: ValueState[Any] = ValueState()
    odd = ValueState(int)

    def process_element(self, value: SimRecord, ctx: Any) -> Any:
        key, split, number = value
        seen = self.per_split.get(split, 0) or 0
        if number != seen:
            raise LostOrDoubled(f"{key} of split {split}: expected number {seen}, got {number}")
        self.per_split.put(split, seen + 1)
        count = self.value.value() + 1
        self.value.update(count)
        self.elements.add(count)
        self.reduced.add(1)
        self.aggregated.add(1)
        # It is there after every other record, and gone in between.
        if (self.odd.value() is not None) != (count % 2 == 0):
            raise LostOrDoubled(f"{key}: record {count} finds {self.odd.value()}")
        if count % 2:
            self.odd.update(count)
        else:
            self.odd.clear()
        loose = self.loose.value() or {"n": 0}
        loose["n"] += 1
        self.loose.update(loose)
        kept = (len(list(self.elements.get())), self.reduced.get(), self.aggregated.get(), loose["n"])
        if kept != (count,) * 4:
            raise LostOrDoubled(f"{key}: the states disagree: {count} and {kept}")
        if count > 6:
            self.elements.update(list(range(count)))
        yield key, count
        if count % 2:
            ctx.output(ODD, (key, count))


@dataclass(frozen=True)
class SimulatedJob:
    """A job, its ledgers, and what must be in each of them at the end."""

    job: Job
    expected: dict[str, Counter[Any]]
    #: Where a comparison will not do: from what is in a ledger to what is wrong with it.
    audits: dict[str, Callable[[list[Any]], str | None]] = field(default_factory=dict)
    #: It has records that no attempt gets past.
    is_poisoned: bool = False

    def graph(self) -> Graph:
        """The job as it is run."""
        return self.job.graph()


class CountUntilPoison(CountEverything):
    """From the third on, records of a key in a split can never be processed."""

    def process_element(self, value: SimRecord, ctx: Any) -> Any:
        if value[2] >= 2:
            raise ValueError("a simulated poison record")
        return super().process_element(value, ctx)


def poisoned_job(seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0) -> SimulatedJob:
    """As :func:`counting_job`, with records that raise whenever they come round."""
    counting = counting_job(seed, chance, parallelism, records, version, CountUntilPoison)
    return replace(counting, is_poisoned=True)


def counting_job(
    seed: int,
    chance: random.Random,
    parallelism: int,
    records: int,
    version: int = 0,
    counter: type[CountEverything] = CountEverything,
) -> SimulatedJob:
    """One of several shapes of job, settled by the seed alone; the same at every parallelism."""
    keys: list[Any] = chance.choice([list(range(7)), list("abcdefg"), [(i, str(i)) for i in range(5)], list(range(60))])
    sources = chance.randint(1, 2)
    inputs: list[dict[int, list[SimRecord]]] = []
    for source in range(sources):
        splits: dict[int, list[SimRecord]] = {}
        for split in range(chance.randint(1, 3)):
            numbers: Counter[Any] = Counter()
            for _ in range(chance.randrange(records)):
                key = chance.choice(keys)
                splits.setdefault(split, []).append((key, f"{source}-{split}", numbers[key]))
                numbers[key] += 1
            splits.setdefault(split, [])
        inputs.append(splits)
    shape = chance.choice(["direct", "chained", "two stages"])
    flat = [r for splits in inputs for records_of in splits.values() for r in records_of]

    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    streams = []
    for number, splits in enumerate(inputs):
        stream = job.source(SplitSource(splits), uid=f"source-{number}", parallelism=min(parallelism, 2))
        if shape == "chained":
            stream = stream.map(lambda r: r, uid=f"copy-{number}", parallelism=min(parallelism, 2))
        streams.append(stream)
    united = streams[0].union(*streams[1:])
    counted = united.key_by(lambda r: r[0]).process(counter(), uid="count")
    totals: Counter[Any] = Counter(r[0] for r in flat)
    running = Counter((k, n) for k, total in totals.items() for n in range(1, total + 1))
    odd = Counter({(k, n): c for (k, n), c in running.items() if n % 2})
    main, side = f"sim-{seed}-main", f"sim-{seed}-odd"
    counted.side_output(ODD).sink(LedgerSink(side), uid="odd", parallelism=1)
    expected: dict[str, Counter[Any]] = {main: running, side: odd}
    if shape == "two stages":
        again = counted.key_by(lambda r: r[1] % 3).reduce(lambda a, b: (a[0], a[1] + b[1]), uid="again")
        # The values depend on the order in which records meet; how many there are does not.
        counted_again = again.map(lambda r: "again", uid="tag")
        counted_again.sink(LedgerSink(main), uid="main")
        expected[main] = Counter({"again": sum(running.values())})
    else:
        counted.sink(LedgerSink(main), uid="main")
    return SimulatedJob(job, expected)
