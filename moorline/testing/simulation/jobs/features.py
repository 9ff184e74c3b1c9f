"""Jobs for the simulator, one for each thing that a job can keep: timers, windows, broadcast and operator state, TTL.

As in ``counting.py`` the outcome must be the one that a plain loop has, whatever goes wrong on the way; and where
a rule can be checked on the spot, the function does so itself.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from zoneinfo import ZoneInfo

from moorline.api.functions.base import KeyedProcessFunction, MapFunction
from moorline.api.functions.connected import KeyedBroadcastProcessFunction
from moorline.api.job import Job
from moorline.api.state.descriptors import ListStateDescriptor, MapStateDescriptor
from moorline.api.state.operator_state import CheckpointedFunction, CheckpointListener
from moorline.api.state.states import ValueState
from moorline.api.state.ttl import StateTtlConfig
from moorline.api.watermarks import WatermarkStrategy
from moorline.model.times import MAX_TIME, MIN_TIME
from moorline.testing.simulation.audit.ledger import LedgerSink
from moorline.testing.simulation.jobs.counting import LostOrDoubled, SimulatedJob, SplitSource

#: key, timestamp, number of the record in its split
Timed = tuple[Any, int, int]

#: The last moment before the end of time: what is registered for it fires when all input has ended.
AT_THE_END = MAX_TIME - 1


def timed_input(chance: random.Random, records: int) -> dict[int, list[Timed]]:
    """Splits whose timestamps never go back, and are even."""
    splits: dict[int, list[Timed]] = {}
    keys = chance.choice([list("abcde"), [f"k{n}" for n in range(40)]])
    for split in range(chance.randint(1, 3)):
        at = 2 * chance.randrange(25)
        splits[split] = []
        for number in range(chance.randrange(1, records)):
            splits[split].append((chance.choice(keys), at, number))
            at += chance.choice([0, 0, 2, 6, 30])
    return splits


def timed_stream(job: Job, splits: dict[int, list[Timed]], parallelism: int, uid: str = "source") -> Any:
    strategy = WatermarkStrategy(WatermarkStrategy.monotonous().generator, lambda r: r[1], interval="5ms")
    return job.source(SplitSource(splits), uid=uid, parallelism=min(parallelism, 2), watermarks=strategy)


class FiresOnce(KeyedProcessFunction):
    """A timer ten milliseconds after every record, and one at the end that tells how many there were."""

    seen = ValueState(int, default=0)
    fired = ValueState(int, default=0)

    def process_element(self, value: Timed, ctx: Any) -> Any:
        timers = ctx.timer_service()
        if ctx.timestamp() != value[1]:
            raise LostOrDoubled(f"{value} came with the timestamp {ctx.timestamp()}")
        if value[1] <= timers.current_watermark():
            raise LostOrDoubled(f"{value} is late: the watermark is {timers.current_watermark()}")
        self.seen.update(self.seen.value() + 1)
        timers.register_event_time_timer(value[1] + 10)
        timers.register_event_time_timer(AT_THE_END)
        # Deleted at once, so it must never be heard of.
        timers.register_event_time_timer(1_000_000 + value[1])
        timers.delete_event_time_timer(1_000_000 + value[1])
        timers.register_processing_time_timer(timers.current_processing_time() + 3)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        timers = ctx.timer_service()
        if ctx.time_domain == "processing":
            if timers.current_processing_time() < timestamp:
                raise LostOrDoubled(f"a timer for {timestamp} fired at {timers.current_processing_time()}")
            self.fired.update(self.fired.value() + 1)
            return
        if timers.current_watermark() < timestamp:
            raise LostOrDoubled(f"a timer for {timestamp} fired at watermark {timers.current_watermark()}")
        if timestamp == AT_THE_END:
            if self.fired.value() > self.seen.value():
                raise LostOrDoubled(f"{self.fired.value()} timers fired for {self.seen.value()} records")
            yield "seen", ctx.get_current_key(), self.seen.value()
        else:
            yield "fired", ctx.get_current_key(), timestamp


def timers_job(seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0) -> SimulatedJob:
    splits = timed_input(chance, records)
    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    stream = timed_stream(job, splits, parallelism)
    ledger = f"sim-{seed}-timers"
    stream.key_by(lambda r: r[0]).process(FiresOnce(), uid="timers").sink(LedgerSink(ledger), uid="out")
    flat = [r for rs in splits.values() for r in rs]
    expected: Counter[Any] = Counter({("fired", key, at + 10): 1 for key, at, _ in flat})
    expected.update(("seen", key, n) for key, n in Counter(r[0] for r in flat).items())
    return SimulatedJob(job, {ledger: expected})


RULES = MapStateDescriptor("rules", str, int)


class CountRules(KeyedBroadcastProcessFunction):
    """Counts the records of each rule in broadcast state; at the end every key tells what it sees."""

    seen = ValueState(int, default=0)

    def process_element(self, value: Timed, ctx: Any) -> Any:
        self.seen.update(self.seen.value() + 1)
        ctx.timer_service().register_event_time_timer(AT_THE_END)

    def process_broadcast_element(self, value: Timed, ctx: Any) -> Any:
        rules = ctx.get_broadcast_state(RULES)
        rules.put(value[0], rules.get(value[0], 0) + 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield ctx.get_current_key(), self.seen.value(), sorted(ctx.get_broadcast_state(RULES).items())


def broadcast_job(seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0) -> SimulatedJob:
    data, rules = timed_input(chance, records), timed_input(chance, records // 3 + 2)
    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    stream = timed_stream(job, data, parallelism)
    control = job.source(SplitSource(rules), uid="rules", parallelism=1)
    ledger = f"sim-{seed}-rules"
    connected = stream.key_by(lambda r: r[0]).connect(control.broadcast(RULES))
    connected.process(CountRules(), uid="apply").sink(LedgerSink(ledger), uid="out")
    counts = sorted(Counter(r[0] for rs in rules.values() for r in rs).items())
    totals = Counter(r[0] for rs in data.values() for r in rs)
    broadcast = tuple(tuple(pair) for pair in counts)
    return SimulatedJob(job, {ledger: Counter((key, n, broadcast) for key, n in totals.items())})


class Buffering(MapFunction, CheckpointedFunction, CheckpointListener):
    """Holds records back in even-split state, numbers them in union state, and lets go of them in small bunches."""

    def initialize_state(self, ctx: Any) -> None:
        self._saved = ctx.operator_state.list_state(ListStateDescriptor("held", object))
        self._counts = ctx.operator_state.union_list_state(ListStateDescriptor("counts", int))
        self._held = list(self._saved.get())
        # Of all subtasks together; one of them goes on counting for all.
        self._count = sum(self._counts.get()) if self._is_first(ctx) else 0
        # The numbers of records once more, in bytes of our own. They are dealt out by themselves.
        self._raw = [int(piece.read()) for piece in ctx.raw_state]
        self._mine = ctx.key_groups
        for group, data in ctx.raw_keyed_state:
            if group not in self._mine or int(data.read()) != group:
                raise LostOrDoubled(f"key group {group} came back with something else")
        self._pending: list[int] = []

    @staticmethod
    def _is_first(ctx: Any) -> bool:
        return 0 in ctx.key_groups

    def map(self, value: Any) -> list[Any]:
        self._held.append(value)
        self._raw.append(value[2])
        self._count += 1
        if len(self._held) < 4:
            return []
        return self._let_go()

    def _let_go(self) -> list[Any]:
        out = [*self._held, *(("raw", number) for number in self._raw)]
        self._held, self._raw = [], []
        return out

    def finish(self) -> Iterable[Any]:
        count, self._count = self._count, 0  # a restart may call again
        return [[*self._let_go(), ("count", count)]]

    def snapshot_state(self, ctx: Any) -> None:
        self._saved.update(self._held)
        self._counts.update([self._count])
        for number in self._raw:
            ctx.raw_state.start_partition().write(str(number).encode())
        for group in self._mine:
            ctx.raw_keyed_state.start_key_group(group).write(str(group).encode())
        self._pending.append(ctx.checkpoint)

    def notify_checkpoint_complete(self, checkpoint: int) -> None:
        if checkpoint not in self._pending:
            return  # it comes again
        self._pending = [n for n in self._pending if n > checkpoint]


def operator_state_job(
    seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0
) -> SimulatedJob:
    splits = timed_input(chance, records)
    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    stream = job.source(SplitSource(splits), uid="source", parallelism=min(parallelism, 2))
    ledger = f"sim-{seed}-held"
    held = stream.rebalance().map(Buffering(), uid="hold").flat_map(lambda rs: rs, uid="let go")
    held.sink(LedgerSink(ledger), uid="out")
    flat = [r for rs in splits.values() for r in rs]

    def audit(output: list[Any]) -> str | None:
        counts = [r[1] for r in output if r[0] == "count"]
        expected = Counter([*flat, *(("raw", r[2]) for r in flat)])
        elements = Counter(tuple(r) for r in output if r[0] != "count")
        missing, doubled = expected - elements, elements - expected
        if missing or doubled or sum(counts) != len(flat):
            return f"missing {missing}, too many {doubled}, counted {counts} of {len(flat)}"
        return None

    return SimulatedJob(job, {}, {ledger: audit})


class FollowsTheModel(KeyedProcessFunction):
    """Values with a time to live beside a model of them without: they must agree at every access.

    In event time the model knows the records' timestamps and nothing of watermarks.
    """

    mortal = ValueState(int, ttl=StateTtlConfig("30ms"))
    read_alive = ValueState(int, ttl=StateTtlConfig("20ms", update="on_read_and_write"))
    recent = ValueState(int, default=-1, ttl=StateTtlConfig("10ms", time="event"))
    #: When it was touched, and what was written.
    recent_model = ValueState(tuple[int, int])
    written_ms = ValueState(int)
    touched_ms = ValueState(int)
    seen = ValueState(int, default=0)

    def process_element(self, value: Timed, ctx: Any) -> Any:
        now = ctx.timer_service().current_processing_time()
        count = self.seen.value()
        self._check(self.mortal, self.written_ms.value(), 30, now, count)
        alive = self._check(self.read_alive, self.touched_ms.value(), 20, now, count)
        if alive or value[2] % 2:
            self.touched_ms.update(now)
        if value[2] % 2:
            self.mortal.update(count + 1)
            self.written_ms.update(now)
            self.read_alive.update(count + 1)
        elif alive:
            self.read_alive.update(count + 1)
        else:
            self.touched_ms.clear()
        if not value[2] % 2 and self.mortal.value() is not None:
            self.mortal.update(count + 1)
            self.written_ms.update(now)
        self._check_event_time(value[1], count, writes=not value[2] % 3)
        self.seen.update(count + 1)
        yield value[0], count + 1

    def _check_event_time(self, at: int, count: int, writes: bool) -> None:
        stamp, expected = self.recent_model.value() or (MIN_TIME, -1)
        if stamp + 10 <= at:
            stamp, expected = MIN_TIME, -1
        if (found := self.recent.value()) != expected:
            raise LostOrDoubled(f"touched at {stamp}, a record at {at} found {found}, expected {expected}")
        if writes:
            self.recent.update(count)
            self.recent_model.update((max(at, stamp), count))

    def _check(self, state: Any, stamp: int | None, ttl: int, now: int, count: int) -> bool:
        alive = stamp is not None and stamp + ttl > now
        found = state.value()
        if (found is not None) != alive or (alive and found != count):
            raise LostOrDoubled(f"written at {stamp}, now {now}: found {found}, expected {count if alive else None}")
        return alive


class Suit(Enum):
    """A key that a snapshot can make again only by its declaration."""

    CLUBS = 1


OddKey = datetime | Suit | tuple[str, None, Decimal] | str

#: Keys whose identity is not what Python's equality says: the first two are equal there, and are two moments.
ODD_KEYS: dict[str, OddKey] = {
    "a": datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=0),
    "b": datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    "c": Suit.CLUBS,
    "d": ("d", None, Decimal("0.10")),
}


def odd_key(record: Timed) -> OddKey:
    """The key of a record. Keys of several kinds are declared: the first after a restore may be of a new one."""
    return ODD_KEYS[record[0]] if record[0] in ODD_KEYS else str(record[0])


def ttl_job(seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0) -> SimulatedJob:
    splits = timed_input(chance, records)
    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    stream = timed_stream(job, splits, parallelism)
    ledger = f"sim-{seed}-ttl"
    stream.key_by(odd_key).process(FollowsTheModel(), uid="ttl").sink(LedgerSink(ledger), uid="out")
    totals = Counter(r[0] for rs in splits.values() for r in rs)
    return SimulatedJob(job, {ledger: Counter((k, n) for k, total in totals.items() for n in range(1, total + 1))})


Maker = Callable[[int, random.Random, int, int, int], SimulatedJob]
