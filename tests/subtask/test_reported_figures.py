"""The figures that a subtask reports with its sign of life."""

from __future__ import annotations

from typing import Any

import pytest
from subtask_worlds import World

import moorline as mo
from moorline.api.sources import SourceContext, SourceReader
from moorline.model.ids import Attempt, SubtaskId
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.figures import OperatorFigures
from moorline.model.wire.messages import Noticed, Report
from moorline.protocol.lowering import lower
from moorline.subtask.environment import Environment, at_once
from moorline.subtask.task import Subtask


class Behind(SourceReader[int]):
    split = "p-0"

    def __init__(self, fails: bool) -> None:
        self.left, self._fails = list(range(1, 11)), fails

    def read(self, limit: int) -> list[int] | None:
        taken, self.left = self.left[:3], self.left[3:]
        self.timestamps = [1_000 * n for n in taken]
        return taken

    def records_behind(self) -> dict[int | str, int]:
        return {"p-0": len(self.left) // (0 if self._fails else 1)}

    def positions(self) -> dict[int | str, Any]:
        return {}


class BehindSource(mo.Source[int]):
    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def open(self, ctx: SourceContext) -> Behind:
        return Behind(self.fails)


class Running:
    """One subtask: the source, a map that drops every third record, and a sink."""

    def __init__(self, source: BehindSource) -> None:
        job = mo.Job("figures")
        strategy = mo.WatermarkStrategy.monotonous()
        stream = job.source(source, uid="in", watermarks=strategy).filter(lambda n: n % 3 > 0, uid="some")
        stream.sink(mo.collect("out"), uid="out")
        self.now_ms = 100_000.0
        self.reports: list[Report] = []
        deployment = Deployment(lower(job.graph()), Attempt(1))
        environment = Environment(
            lambda: self.now_ms, self.reports.append, at_once, None, wall_ms=lambda: int(self.now_ms)
        )
        self.subtask = Subtask(deployment, SubtaskId(0, 0), environment)
        self.subtask.start()

    def read(self) -> None:
        self.now_ms += 1_000
        self.subtask.work()
        self.subtask.tick()

    def figures(self) -> dict[str, OperatorFigures]:
        return {figures.uid: figures for figures in self.subtask.progress().operators}


def test_records_and_times_are_of_each_operator_of_a_chain():
    running = Running(BehindSource())
    for _ in range(2):
        running.read()
    figures = running.figures()
    assert [(uid, f.records_in, f.records_out) for uid, f in figures.items()] == [
        ("in", 6, 6),
        ("some", 6, 4),
        ("out", 4, 4),
    ]
    assert figures["in"].event_time == 6_000
    assert {f.watermark for f in figures.values()} == {5_999}
    assert not any(f.has_ended for f in figures.values())


def test_a_source_says_how_far_it_is_behind():
    running = Running(BehindSource())
    running.read()
    assert running.figures()["in"].splits == {"p-0": {"records_behind": 7}}
    running.read()
    assert running.figures()["in"].splits == {"p-0": {"records_behind": 4}}


def test_a_source_that_cannot_say_it_goes_on():
    running = Running(BehindSource(fails=True))
    for _ in range(2):
        running.read()
    assert running.figures()["in"].records_in == 6
    assert running.figures()["in"].splits == {}
    said = [r.text for r in running.reports if isinstance(r, Noticed)]
    assert said and "ZeroDivisionError" in said[0]


class Seen(mo.KeyedProcessFunction):
    seen = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        self.seen.update(self.seen.value() + 1)
        return ()


def by_process(numbers: mo.Stream) -> mo.Stream:
    return numbers.key_by(lambda r: r["user"]).process(Seen(), uid="keyed")


def by_map(numbers: mo.Stream) -> mo.Stream:
    return numbers.key_by(lambda r: r["user"]).map(lambda r: r, uid="keyed")


def by_windows(numbers: mo.Stream) -> mo.Stream:
    windows = numbers.key_by(lambda r: r["user"]).window(mo.TumblingEventTimeWindows("1h"))
    return windows.reduce(lambda a, b: a, uid="keyed")


def by_columns(numbers: mo.Stream) -> mo.Stream:
    rows = numbers.with_schema("user string")
    return rows.key_by("user").aggregate(n=mo.count(), uid="keyed").map(lambda row: row, uid="rows")


@pytest.mark.parametrize("step", [by_process, by_map, by_windows, by_columns])
def test_keys_that_get_most_records_are_reported_by_every_kind_of_keyed_operator(step):
    job = mo.Job("hot")
    step(job.source(mo.from_items([1]), uid="in")).sink(mo.discard(), uid="out")
    world = World(job, "keyed").start()
    (keyed,) = (o for o in world.subtask._operators if o.operator.uid == "keyed")
    records = [{"user": "bob" if n % 4 == 0 else "ada"} for n in range(400)]
    world.subtask.tick()
    for _ in range(6):
        keyed.process(list(records), [1] * len(records))
        world.clock.advance("500ms")
        world.subtask.tick()
    (figures,) = (f for f in world.subtask.progress().operators if f.uid == "keyed")
    assert [hot.key for hot in figures.hot_keys] == [b"sada", b"sbob"]
    assert figures.hot_keys[0].share == pytest.approx(0.75, abs=0.1)
    assert figures.keyed_per_second == 800.0
