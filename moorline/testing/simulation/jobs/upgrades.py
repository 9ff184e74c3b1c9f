"""Jobs for the simulator that change while they run, that bring their own source, and that join two streams.

When a driver dies, the one that takes over runs the job's next version: other types, other keys. That must happen
once, however often the upgrade itself is interrupted.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from moorline.api.functions.base import KeyedProcessFunction
from moorline.api.functions.source_function import SourceFunction
from moorline.api.job import Job
from moorline.api.state.combining import ReducingState
from moorline.api.state.descriptors import ListStateDescriptor
from moorline.api.state.operator_state import CheckpointedFunction
from moorline.api.state.rekey import Rekey
from moorline.api.state.states import ListState, ValueState
from moorline.testing.simulation.audit.ledger import LedgerSink
from moorline.testing.simulation.jobs.counting import LostOrDoubled, SimulatedJob
from moorline.testing.simulation.jobs.features import AT_THE_END, Timed, timed_input, timed_stream


@dataclass
class Seen:
    """The state of the first version."""

    count: int


class _Tally(KeyedProcessFunction):
    """Counts in several states, which must agree; tells at the end, and forgets.

    It may end in one subtask and be upgraded before it ends in the others: its output by then does not come again.
    """

    version: str
    count: ValueState[Any]
    info: ValueState[Any]
    numbers: ListState[int] = ListState(int)
    summed = ReducingState(int, lambda a, b: a + b)

    def process_element(self, value: Timed, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        self.info.update(self.more(self.info.value()))
        self.numbers.add(value[2])
        self.summed.add(1)
        ctx.timer_service().register_event_time_timer(AT_THE_END)
        counts = {self.count.value(), self.info.value().count, len(list(self.numbers.get())), self.summed.get()}
        if len(counts) != 1:
            raise LostOrDoubled(f"{value[0]}: the states disagree: {counts}")

    def more(self, info: Any) -> Any:
        return Seen(1 if info is None else info.count + 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        count = int(self.count.value())
        for state in (self.count, self.info, self.numbers, self.summed):
            state.clear()
        yield self.version, ctx.get_current_key(), count


class FirstVersion(_Tally):
    version = "first"
    count = ValueState(int)
    info = ValueState(Seen)


def _second_version() -> tuple[type, Any]:
    """The same class by name, with another field; and the function over it."""

    @dataclass
    class Seen:
        count: int
        note: str = "new"

    class SecondVersion(_Tally):
        version = "second"
        count = ValueState(float)
        info = ValueState(Seen)

        def more(self, info: Any) -> Any:
            if info is not None and info.note != "new":
                raise LostOrDoubled(f"a default came back as {info.note!r}")
            return Seen(1 if info is None else info.count + 1)

    return Seen, SecondVersion


def upgrade_job(seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0) -> SimulatedJob:
    """From the second version on keys are in upper case: pairs of old keys become one."""
    splits = timed_input(chance, records)
    mixed = {
        split: [(key.upper() if number % 2 else key, at, number) for key, at, number in rs]
        for split, rs in splits.items()
    }
    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    stream = timed_stream(job, mixed, parallelism)
    ledger = f"sim-{seed}-upgrade"
    if version == 0:
        counted = stream.key_by(lambda r: r[0]).process(FirstVersion(), uid="count")
    else:
        seen, function = _second_version()
        merge = {
            "count": lambda a, b: a + b,
            "info": lambda a, b: seen(a.count + b.count),
        }
        counted = stream.key_by(lambda r: r[0].upper()).process(
            function(), uid="count", rekey=Rekey("upper", str.upper, merge=merge)
        )
    counted.sink(LedgerSink(ledger), uid="out")
    totals = Counter(r[0].upper() for rs in mixed.values() for r in rs)

    def audit(output: list[Any]) -> str | None:
        counts: Counter[Any] = Counter()
        for _, key, count in output:
            counts[key.upper()] += count
        doubled = [key for key, n in Counter((version, key) for version, key, _ in output).items() if n > 1]
        return None if counts == totals and not doubled else f"counted {counts} of {totals}, twice: {doubled}"

    return SimulatedJob(job, {}, {ledger: audit})


class CountingSource(SourceFunction, CheckpointedFunction):
    """The counting source of Flink's documentation, as a generator."""

    def __init__(self, end: int) -> None:
        self._end, self._offset = end, 0

    def initialize_state(self, ctx: Any) -> None:
        self._state = ctx.operator_state.list_state(ListStateDescriptor("offset", int))
        self._offset = max([0, *self._state.get()])

    def snapshot_state(self, ctx: Any) -> None:
        self._state.update([self._offset])

    def run(self, ctx: Any) -> Any:
        while self._offset < self._end:
            self._offset += 1
            yield self._offset


def source_function_job(
    seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0
) -> SimulatedJob:
    end = chance.randrange(records * 20)
    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    ledger = f"sim-{seed}-numbers"
    numbers = job.source(CountingSource(end), uid="counter", parallelism=1)
    numbers.key_by(lambda n: n % 5).map(lambda n: n, uid="same").sink(LedgerSink(ledger), uid="out")
    return SimulatedJob(job, {ledger: Counter(range(1, end + 1))})


def join_job(seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0) -> SimulatedJob:
    """An interval join: every pair of records of a key that are close to each other, once."""
    left, right = timed_input(chance, records), timed_input(chance, records)
    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    ledger = f"sim-{seed}-pairs"
    a = timed_stream(job, left, parallelism, "left").key_by(lambda r: r[0])
    b = timed_stream(job, right, parallelism, "right").key_by(lambda r: r[0])

    def pair(first: Timed, second: Timed, ctx: Any) -> Iterable[Any]:
        yield first, second

    a.interval_join(b).between(-0.008, 0.008).process(pair, uid="join").sink(LedgerSink(ledger), uid="out")
    lefts, rights = ([r for rs in side.values() for r in rs] for side in (left, right))
    pairs = Counter((x, y) for x in lefts for y in rights if x[0] == y[0] and abs(x[1] - y[1]) <= 8)
    return SimulatedJob(job, {ledger: pairs})
