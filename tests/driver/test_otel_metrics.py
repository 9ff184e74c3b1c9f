"""Metrics of OpenTelemetry, as a reader of its SDK gets them, beside the text that Prometheus reads."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from driver_worlds import World
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from test_prometheus import everything, report, samples, text_of

import moorline as mo
from moorline.driver.observation.delivery import Listeners
from moorline.errors import InvalidArgument
from moorline.model.ids import SubtaskId
from moorline.model.wire.figures import UserMetric
from moorline.storage.stores.memory import MemoryStore


@pytest.fixture
def exported():
    """A world that is listened to, and what a reader gets of it: points and unit by name."""
    reader = InMemoryMetricReader()
    listeners = Listeners([mo.MetricsListener(MeterProvider([reader]))])
    world = World(store=MemoryStore(), restart=mo.FixedDelay(attempts=3, delay="1s"))
    world.supervision.observation._publish = listeners.publish
    world.run()

    def read() -> dict[str, Any]:
        assert listeners._own[0].flush(60)
        data = reader.get_metrics_data()
        metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics] if data else []
        return {metric.name: metric for metric in metrics if metric.data.data_points}

    yield world, read
    listeners.close()


def test_names_values_and_attributes_are_those_that_prometheus_gets(exported):
    world, read = exported
    everything(world)
    metrics = read()
    points = {
        (name.removeprefix("moorline_"), *(v for k, v in sorted(p.attributes.items()) if k != "job")): p.value
        for name, metric in metrics.items()
        for p in metric.data.data_points
    }
    expected = samples(text_of(world))
    assert set(points) == set(expected)
    moves = ("seconds", "state_bytes")  # the text is of a moment later
    for place, value in expected.items():
        assert points[place] == value or place[0].endswith(moves), place
    assert metrics["moorline_subtask_busy_seconds_total"].unit == "s"
    assert metrics["moorline_checkpoint_last_size_bytes"].unit == "By"
    assert {p.attributes["job"] for m in metrics.values() for p in m.data.data_points} == {"small"}


def test_users_metrics_come_as_well_and_all_go_with_the_job(exported):
    world, read = exported
    buckets = UserMetric(kind="histogram", name="sizes", count=3, sum=-4.0, buckets=[(1.0, 1), (2.0, 2)])
    report(world, SubtaskId(1, 1), "count", metrics={"sizes": buckets})
    world.pass_time(5_000)
    world.acknowledge(world.triggered())
    metrics = read()
    (total,) = metrics["moorline_user_sizes_sum"].data.data_points
    assert total.value == -4.0 and not metrics["moorline_user_sizes_sum"].data.is_monotonic
    counts = {p.attributes["le"]: p.value for p in metrics["moorline_user_sizes_bucket"].data.data_points}
    assert counts == {"1.0": 1, "2.0": 2, "+Inf": 3}
    world.finish()
    assert read() == {}


def test_what_is_no_meter_provider_is_refused():
    with pytest.raises(InvalidArgument, match="MeterProvider"):
        mo.MetricsListener("http://collector:4317")


def test_metrics_that_go_nowhere_are_told_once(caplog):
    listeners = Listeners([mo.MetricsListener()])
    world = World(store=MemoryStore())
    world.supervision.observation._publish = listeners.publish
    world.run()
    world.pass_time(5_000)
    world.pass_time(5_000)
    listeners.close()
    (line,) = [r for r in caplog.records if "no meter provider is set" in r.message]
    assert line.levelname == "WARNING"


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    with pytest.raises(InvalidArgument, match=r"moorline\[otel\]"):
        mo.MetricsListener()
