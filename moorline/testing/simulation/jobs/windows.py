"""Jobs for the simulator with windows, joins and state in an outside store."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

from moorline.api.functions.base import KeyedProcessFunction
from moorline.api.job import Job
from moorline.api.state.states import MapState, ValueState
from moorline.api.windows.assigners import EventTimeSessionWindows, TumblingEventTimeWindows
from moorline.api.windows.functions import ProcessWindowFunction
from moorline.connectors.memory_state import memory_state
from moorline.testing.simulation.audit.ledger import LedgerSink
from moorline.testing.simulation.jobs.counting import LostOrDoubled, SimulatedJob, SplitSource
from moorline.testing.simulation.jobs.features import Timed, timed_input, timed_stream

#: Timestamps are even and the gap is odd, so no two sessions just touch: then chance would decide whether they are one.
GAP, SIZE = 13, 20


class TellWindow(ProcessWindowFunction):
    """The bounds of a window, and the records in it."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
        window = context.window()
        if context.current_watermark() < window.max_timestamp():
            raise LostOrDoubled(f"{window} fired at watermark {context.current_watermark()}")
        yield key, window.start, window.end, sorted(elements)


def windows_job(seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0) -> SimulatedJob:
    """Tumbling windows and sessions over the same records; each window must come out once, with all of its records."""
    splits = timed_input(chance, records)
    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    keyed = timed_stream(job, splits, parallelism).key_by(lambda r: r[0])
    tumbling, sessions = f"sim-{seed}-tumbling", f"sim-{seed}-sessions"
    windows = keyed.window(TumblingEventTimeWindows(SIZE / 1000)).process(TellWindow(), uid="tumbling")
    windows.sink(LedgerSink(tumbling), uid="tumbling-out")
    windows = keyed.window(EventTimeSessionWindows(GAP / 1000)).process(TellWindow(), uid="sessions")
    windows.sink(LedgerSink(sessions), uid="sessions-out")
    flat = [r for rs in splits.values() for r in rs]
    return SimulatedJob(job, {tumbling: _tumbling(flat), sessions: _sessions(flat)})


def _tumbling(flat: list[Timed]) -> Counter[Any]:
    windows: dict[tuple[Any, int], list[Timed]] = {}
    for r in flat:
        windows.setdefault((r[0], r[1] // SIZE * SIZE), []).append(r)
    return Counter((key, start, start + SIZE, tuple(sorted(rs))) for (key, start), rs in windows.items())


def _sessions(flat: list[Timed]) -> Counter[Any]:
    sessions: Counter[Any] = Counter()
    for key in {r[0] for r in flat}:
        own = sorted((r for r in flat if r[0] == key), key=lambda r: r[1])
        session = [own[0]]
        for r in own[1:]:
            if r[1] > session[-1][1] + GAP:
                sessions[key, session[0][1], session[-1][1] + GAP, tuple(sorted(session))] += 1
                session = []
            session.append(r)
        sessions[key, session[0][1], session[-1][1] + GAP, tuple(sorted(session))] += 1
    return sessions


def outside_job(seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0) -> SimulatedJob:
    """Counts in an outside store, beside a count in the worker: they must agree at every record."""
    splits = timed_input(chance, records)
    store = memory_state(f"sim-{seed}", on_fresh_start="clear")

    class Counts(KeyedProcessFunction):
        here = ValueState(int, default=0)
        there = ValueState(int, default=0, store=store)
        entries = MapState(int, int, store=store)
        fleeting = ValueState(int, store=store)

        def process_element(self, value: Timed, ctx: Any) -> Any:
            count = self.here.value()
            outside = self.there.value(), sum(self.entries.values()), (self.fleeting.value() is not None) * 1
            if outside != (count, count, count % 2):
                raise LostOrDoubled(f"{value[0]}: {count} in the worker, {outside} outside")
            self.here.update(count + 1)
            self.there.update(count + 1)
            self.entries.put(value[2] % 3, (self.entries.get(value[2] % 3) or 0) + 1)
            if count % 2:
                self.fleeting.clear()
            else:
                self.fleeting.update(count)
            yield value[0], count + 1

    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    stream = job.source(SplitSource(splits), uid="source", parallelism=min(parallelism, 2))
    ledger = f"sim-{seed}-outside"
    stream.key_by(lambda r: r[0]).process(Counts(), uid="counts").sink(LedgerSink(ledger), uid="out")
    totals = Counter(r[0] for rs in splits.values() for r in rs)
    return SimulatedJob(job, {ledger: Counter((k, n) for k, total in totals.items() for n in range(1, total + 1))})
