"""What metrics cost: processor time of two subtasks with and without them, by turns in one run.

A source, and behind an exchange a keyed running average over 100,000 keys, as Spark would drive them, in one process.
*With*: state is counted, keys are sampled and a report is made, packed and read twice a second, as in a job. *Without*:
none of it. The additions per batch are left in both: there is one for each figure of each batch. What users' own
metrics cost per record is measured beside it, and what the driver needs for one scrape of a large job.

    python bench/metrics.py [--quick]

The last line is one JSON object. ``cost`` is the share of processor time that metrics add, the median over the turns;
``lowest`` and ``highest`` say how far single turns lie from each other. ``alone`` is what counting and reporting take
of one processor when nothing else is done: on a busy machine the better figure.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from functools import partial
from typing import Any

import moorline as mo
from moorline.api.metrics import MetricRegistry
from moorline.driver.observation.rates import Window
from moorline.driver.observation.series import Series
from moorline.model.ids import Attempt, SubtaskId
from moorline.model.keys.sample import KeySample
from moorline.model.wire import messages
from moorline.model.wire.deployment import Deployment
from moorline.protocol.lowering import lower
from moorline.subtask.environment import Environment, at_once
from moorline.subtask.process import ProcessMeter
from moorline.subtask.progress import Meter
from moorline.subtask.task import Subtask

KEYS = 100_000
REPORT_SECONDS = 0.5


class Average(mo.KeyedProcessFunction):
    sum = mo.ValueState(tuple[int, int], default=(0, 0))

    def process_element(self, value, ctx):
        count, total = self.sum.value()
        count, total = count + 1, total + value[1]
        if count >= 2:
            yield value[0], total / count
            self.sum.clear()
        else:
            self.sum.update((count, total))


class Subtasks:
    """A source and what is behind it, with an exchange that hands frames over."""

    def __init__(self) -> None:
        job = mo.Job("metrics")
        numbers = job.source(mo.generate(lambda i: (i * 0x9E3779B97F4A7C15 >> 20) % KEYS), uid="numbers")
        keyed = numbers.map(lambda key: (key, 7), uid="pairs").key_by(lambda r: r[0])
        keyed.process(Average(), uid="average").sink(mo.discard(), uid="out")
        deployment = Deployment(lower(job.graph()), Attempt(1))
        self.meter = ProcessMeter().watch()
        environment = Environment(
            partial(_now_ms),
            lambda report: None,
            at_once,
            None,
            first_window=1 << 50,
            process_figures=self.meter.figures,
        )
        self.both = [Subtask(deployment, SubtaskId(vertex, 0), environment) for vertex in range(2)]
        for subtask in self.both:
            subtask.start()

    def run(self, seconds: float, with_metrics: bool) -> float:
        """Processor time per million records."""
        source, behind = self.both
        counted, Meter.count_state = Meter.count_state, Meter.count_state if with_metrics else _count_nothing
        seen = KeySample.see
        if not with_metrics:
            KeySample.see = _see_nothing  # type: ignore[method-assign]
        began, before, report_at = time.process_time(), source.progress().records_in, 0.0
        try:
            while time.process_time() - began < seconds:
                if with_metrics and (now := time.monotonic()) >= report_at:
                    report_at = now + REPORT_SECONDS
                    for subtask in self.both:
                        messages.decode_report(messages.encode(subtask.progress()))
                source.work()
                source.tick()
                for _, frame in source.output.take(is_idle=False):
                    if frame:
                        behind.frame(frame)
                behind.work()
                behind.tick()
                behind.output.take(is_idle=True)
            spent = time.process_time() - began
        finally:
            Meter.count_state, KeySample.see = counted, seen  # type: ignore[method-assign]
        return spent / (source.progress().records_in - before) * 1e6

    def reports(self, count: int) -> float:
        """The share of a processor that counting and reporting take, measured alone: two subtasks, twice a second."""
        began = time.process_time()
        for _ in range(count):
            for subtask in self.both:
                subtask._meter._count_at_ms = 0
                subtask._meter.count_state()
                messages.encode(subtask.progress())
        return (time.process_time() - began) / count / REPORT_SECONDS


def _now_ms() -> float:
    return time.monotonic_ns() / 1e6


def _count_nothing(meter: Meter) -> None:
    pass


def _see_nothing(sample: KeySample, keys: Any, places: Any = None) -> None:
    pass


def of_users(count: int) -> dict[str, float]:
    """Nanoseconds of one call of each of users' metrics."""
    group = mo.MetricGroup(MetricRegistry("bench"))
    calls: dict[str, Any] = {
        "counter": group.counter("c").inc,
        "meter": group.meter("m").mark_event,
        "distribution": partial(group.distribution("d").update, 5),
        "histogram": partial(group.histogram("h").update, 0.3),
    }
    spent = {}
    for name, call in calls.items():
        began = time.process_time_ns()
        for _ in range(count):
            call()
        spent[name] = round((time.process_time_ns() - began) / count, 1)
    return spent


def of_driver(subtasks: Subtasks, count: int) -> float:
    """Milliseconds that a point of the series takes for a job of so many subtasks."""
    report = subtasks.both[1].progress()
    job = mo.Job("large", parallelism=count)
    numbers = job.source(mo.generate(lambda i: i), uid="numbers")
    numbers.map(lambda key: (key, 7), uid="pairs").sink(mo.discard(), uid="out")
    plan = lower(job.graph())
    windows = {subtask: Window(report, report, 1_000) for subtask in plan.subtasks()}
    series, began = Series(), time.process_time()
    for number in range(10):
        series.add(plan, windows, 0, number)
    return round((time.process_time() - began) * 100, 2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    subtasks, seconds = Subtasks(), 0.5 if quick else 3.0
    subtasks.run(2 * seconds, with_metrics=True)
    costs, rates = [], []
    for turn in range(4 if quick else 12):
        order = (False, True) if turn % 2 else (True, False)
        spent = {with_metrics: subtasks.run(seconds, with_metrics) for with_metrics in order}
        costs.append(spent[True] / spent[False] - 1)
        rates.append(1 / spent[True])
        print(f"with {spent[True]:.3f} s, without {spent[False]:.3f} s per million records", flush=True)
    result = {
        "cost": round(statistics.median(costs), 4),
        "lowest": round(min(costs), 4),
        "highest": round(max(costs), 4),
        "alone": round(subtasks.reports(50 if quick else 1_000), 5),
        "million_records_per_cpu_second": round(statistics.median(rates), 3),
        "users_ns": of_users(20_000 if quick else 500_000),
        "driver_ms_per_point_500_subtasks": of_driver(subtasks, 500),
    }
    subtasks.meter.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
