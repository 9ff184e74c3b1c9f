"""Metrics that a user's function defines, in the harness and in a subtask's reports."""

from __future__ import annotations

import pytest

import moorline as mo
from moorline.api.metrics import MOST_METRICS, MetricRegistry
from moorline.errors import InvalidArgument
from moorline.model.wire import messages
from moorline.model.wire.figures import OperatorFigures, UserMetric
from moorline.model.wire.messages import Progress
from moorline.testing import OperatorHarness


class Measured(mo.KeyedProcessFunction):
    seen = mo.ValueState(int, default=0)

    def open(self, runtime_context):
        group = runtime_context.get_metrics_group()
        assert group is runtime_context.metrics_group
        self.errors = group.counter("errors")
        self.longest = 0
        group.gauge("longest", lambda: self.longest)
        self.events = group.meter("events", 10)
        self.sizes = group.add_group("texts").distribution("sizes")
        self.latency = group.add_group("region", "eu").histogram("latency", [1.0, 10.0])

    def process_element(self, value, ctx):
        self.events.mark_event()
        self.sizes.update(len(value))
        self.latency.update(len(value) / 2)
        self.longest = max(self.longest, len(value))
        if value == "bad":
            self.errors.inc()
        yield value


def test_metrics_are_summed_up_over_the_subtasks_of_a_harness():
    with OperatorHarness(Measured(), key=lambda v: v, parallelism=3) as harness:
        harness.process_all(["bad", "a", "bad", "a" * 30, "bc"])
        metrics = harness.metrics
    longest = sum(f.longest for f in harness.functions)
    assert (metrics["errors"], metrics["events"], metrics["longest"]) == (2, 5, longest)
    sizes = metrics["texts.sizes"]
    assert (sizes.count, sizes.sum, sizes.min, sizes.max) == (5, 39.0, 1.0, 30.0)
    assert metrics["latency{region=eu}"].buckets == [(1.0, 2), (10.0, 4)]
    assert metrics["latency{region=eu}"].name == "latency"


def test_the_rate_of_a_meter_is_over_its_time_span():
    meter = mo.Meter(time_span_in_seconds=10)
    for second in range(30):
        meter.look(1_000 * second)
        meter.mark_event(5 if second < 20 else 50)
    meter.look(30_000)
    assert meter.get_rate() == pytest.approx(50.0)
    assert meter.get_count() == 600


def test_a_metric_that_is_asked_for_twice_is_the_same_one_and_of_one_kind():
    group = mo.MetricGroup(MetricRegistry("count"))
    assert group.counter("n") is group.counter("n")
    assert group.add_group("a", "1").counter("n") is not group.add_group("a", "2").counter("n")
    with pytest.raises(InvalidArgument, match=r"'n' of operator 'count'.*counter"):
        group.meter("n")


@pytest.mark.parametrize("name", ["", "1st", "a b", "x" * 101, 'a"} 1', "a\nb", None])
def test_a_name_that_is_none_is_refused(name):
    group = mo.MetricGroup(MetricRegistry("count"))
    with pytest.raises(InvalidArgument, match="name of a metric"):
        group.counter(name)
    with pytest.raises(InvalidArgument, match="name of a metric"):
        group.add_group(name)


def test_bounds_ascend_and_a_gauge_is_a_function():
    group = mo.MetricGroup(MetricRegistry("count"))
    for bounds in ([], [1, 1], [2, 1], [float("nan")], [1, float("inf")], "abc", 5):
        with pytest.raises(InvalidArgument, match="ascending"):
            group.histogram("h", bounds)  # type: ignore[arg-type]
    for span in (0, -5, "60", float("nan"), True):
        with pytest.raises(InvalidArgument, match="seconds above 0"):
            group.meter("m", span)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="function without arguments"):
        group.gauge("g", 7)  # type: ignore[arg-type]


def test_more_metrics_than_are_reported_are_said_once_and_work():
    said = []
    registry = MetricRegistry("count", lambda kind, text: said.append((kind, text)))
    group = mo.MetricGroup(registry)
    counters = [group.add_group("user", str(n)).counter("clicks") for n in range(MOST_METRICS + 2)]
    counters[-1].inc()
    assert counters[-1].get_count() == 1
    assert len(registry.report()) == MOST_METRICS
    assert {kind for kind, _ in said} == {"metrics"} and f"more than {MOST_METRICS}" in said[0][1]


def test_a_gauge_that_fails_is_reported_and_fails_nothing_else():
    said = []
    registry = MetricRegistry("count", lambda kind, text: said.append(text))
    group = mo.MetricGroup(registry)
    group.gauge("broken", lambda: 1 / 0)
    group.gauge("right", lambda: 3)
    registry.look(0)
    report = registry.report()
    assert report["right"].value == 3.0
    assert "broken" not in report  # 0 would be a value
    assert said == ["has a gauge 'broken' that cannot be read: ZeroDivisionError: division by zero"]


def test_metrics_survive_the_control_line():
    metric = UserMetric(kind="histogram", name="h", count=2, sum=3.0, buckets=[(1.0, 1)], labels=[("a", "b")])
    operator = OperatorFigures(uid="count", metrics={"h{a=b}": metric}, watermark=-5, states={"sum": 3})
    report = Progress(records_in=0, records_out=0, operators=[operator])
    assert messages.decode_report(messages.encode(report)) == report
