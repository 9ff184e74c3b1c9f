"""Jobs for the simulator in which records come back: loops of several shapes, and one loop after another.

Whatever goes wrong, every record must have gone round as often as it was meant to, and every key must have counted all
of its rounds: a record that is lost on its way round, or goes round twice, changes both.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

from moorline.api.functions.base import KeyedProcessFunction, OutputTag
from moorline.api.job import Job
from moorline.api.state.states import MapState, ValueState
from moorline.testing.simulation.audit.ledger import LedgerSink
from moorline.testing.simulation.jobs.counting import LostOrDoubled, SimulatedJob
from moorline.testing.simulation.jobs.features import AT_THE_END, Timed, timed_input, timed_stream

AGAIN = OutputTag("again")
KEYS = 6
#: key that it is at, number of the record, rounds to go, rounds done
Walker = tuple[int, int, int, int]


def step(walker: Walker) -> Walker:
    """A record after one more round: at another key, one round nearer to its end."""
    at, number, left, done = walker
    return (at * 5 + number + done) % KEYS, number, left - 1, done + 1


class Walk(KeyedProcessFunction):
    """Counts the visits of every record at every key, and sends those on that have rounds to go."""

    visits = ValueState(int, default=0)
    #: How often each record was here.
    seen: MapState[int, int] = MapState(int, int)

    def process_element(self, value: Walker, ctx: Any) -> Iterable[Any]:
        _, number, left, done = value
        self.visits.update(self.visits.value() + 1)
        self.seen.put(number, (self.seen.get(number, 0) or 0) + 1)
        if sum(self.seen.values()) != self.visits.value():
            raise LostOrDoubled(f"{value}: {self.visits.value()} visits, seen {dict(self.seen.items())}")
        ctx.timer_service().register_event_time_timer(AT_THE_END)
        if left:
            ctx.output(AGAIN, step(value))
        else:
            yield "done", number, done

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield "visits", ctx.get_current_key(), self.visits.value()


def _walkers(splits: dict[int, list[Timed]], chance: random.Random) -> dict[tuple[int, int], Walker]:
    lengths = chance.choice([[0, 1, 2, 3, 7], [0], [4], [0, 0, 0, 0, 15]])
    numbers = ((split, r[2]) for split, rs in splits.items() for r in rs)
    return {place: (chance.randrange(KEYS), number, chance.choice(lengths), 0) for number, place in enumerate(numbers)}


def loop_job(seed: int, chance: random.Random, parallelism: int, records: int, version: int = 0) -> SimulatedJob:
    """Records walk from key to key, each a number of rounds that is its own."""
    splits = timed_input(chance, records // 3)  # each of them goes round several times
    walkers = _walkers(splits, chance)
    # As keys, of which timestamps know nothing: which record it is.
    tagged = {s: [((s, number), at, number) for _, at, number in rs] for s, rs in splits.items()}
    shape = chance.choice(["at once", "another stage", "chained", "two loops"])
    ledger = f"sim-{seed}-loop"
    job = Job(f"sim-{seed}", parallelism=parallelism, max_parallelism=8)
    stream = timed_stream(job, tagged, parallelism).map(lambda r: walkers[r[0]], uid="enter", parallelism=1)

    def once(loop: Any, uid: str = "walk") -> Any:
        walked = loop.process(Walk(), uid=uid)
        again = walked.side_output(AGAIN)
        if shape == "another stage":
            again = again.rebalance().map(lambda w: w, uid="elsewhere", parallelism=max(1, parallelism - 1))
        elif shape == "chained":
            again = again.filter(lambda w: True, uid="beside")
        return again, walked

    walked = stream.key_by(lambda w: w[0]).iterate(once)
    expected: Counter[Any] = Counter()
    ends = _expected(walkers.values(), expected, "walk")
    if shape == "two loops":
        # Those that are through with the first loop begin in the second one.
        finished = walked.filter(lambda r: r[0] == "done", uid="through").map(
            lambda r: (r[1] % KEYS, r[1], r[2] % 3, 0), uid="once more"
        )
        twice = finished.key_by(lambda w: w[0]).iterate(lambda loop: once(loop, "walk again"))
        twice.map(lambda r: ("walk again", *r), uid="name again").sink(LedgerSink(ledger), uid="out again")
        _expected([(n % KEYS, n, done % 3, 0) for n, done in ends], expected, "walk again")
    walked.map(lambda r: ("walk", *r), uid="name").sink(LedgerSink(ledger), uid="out")
    return SimulatedJob(job, {ledger: expected})


def _expected(walkers: Iterable[Walker], counts: Counter[Any], name: str) -> list[tuple[int, int]]:
    """The output of a plain loop; which of them ended, and after how many rounds."""
    visits: Counter[int] = Counter()
    ends = []
    for walker in walkers:
        visits[walker[0]] += 1
        while walker[2]:
            walker = step(walker)
            visits[walker[0]] += 1
        counts[name, "done", walker[1], walker[3]] += 1
        ends.append((walker[1], walker[3]))
    for key, count in visits.items():
        counts[name, "visits", key, count] += 1
    return ends
