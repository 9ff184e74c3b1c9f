"""Spans of attempts, checkpoints and subtasks, as an exporter of OpenTelemetry gets them."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from driver_worlds import World
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import moorline as mo
from moorline.driver.observation.delivery import Listeners
from moorline.errors import FailureReason, InvalidArgument
from moorline.model.ids import SubtaskId
from moorline.model.wire.messages import Acknowledged, Declined, Failed, Running
from moorline.storage.stores.memory import MemoryStore


def spans_of(run: Any) -> list[Any]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    listeners = Listeners([mo.TracingListener(provider)])
    config = mo.Checkpoints("memory://small", interval="1s", timeout="10s", tolerable_failures=3)
    world = World(store=MemoryStore(), restart=mo.FixedDelay(attempts=3, delay="1s"), checkpoints=config)
    world.supervision.observation._publish = listeners.publish
    run(world.run())
    listeners.close()
    return list(exporter.get_finished_spans())


def test_a_checkpoint_is_a_span_in_its_attempt_with_a_span_for_each_subtask():
    def run(world: World) -> None:
        world.pass_time(1_000)
        number = world.triggered()
        for subtask in world.subtasks:
            world.pass_time(10)
            world.report(subtask, Acknowledged(checkpoint=number, operators=[], align_ms=3, sync_ms=1, async_ms=2))
        world.finish()

    spans = spans_of(run)
    (attempt,) = [span for span in spans if span.name == "attempt"]
    checkpoint, final = [span for span in spans if span.name in ("checkpoint", "final")]
    assert checkpoint.parent.span_id == final.parent.span_id == attempt.context.span_id
    assert checkpoint.attributes["moorline.checkpoint"] == 1 and checkpoint.attributes["moorline.job"] == "small"
    assert (checkpoint.end_time - checkpoint.start_time) / 1e6 == 40
    parts = [span for span in spans if span.parent and span.parent.span_id == checkpoint.context.span_id]
    assert [(p.name, (p.end_time - p.start_time) / 1e6) for p in parts] == [
        ("subtask 0/0", 10),
        ("subtask 0/1", 20),
        ("subtask 1/0", 30),
        ("subtask 1/1", 40),
    ]
    assert {part.attributes["moorline.align_ms"] for part in parts} == {3}
    assert attempt.status.status_code is StatusCode.UNSET


def test_what_failed_has_an_error_with_its_reason():
    def run(world: World) -> None:
        world.pass_time(1_000)
        reason = FailureReason.UPLOAD_FAILED.name
        world.report(SubtaskId(0, 0), Declined(checkpoint=world.triggered(), reason=reason, detail="disk full"))
        world.report(SubtaskId(1, 0), Failed(error="ValueError: no", traceback="...", uid="count", name="map"))
        world.end_attempt(error="cancelled")
        world.pass_time(1_000)
        world.all_report(Running(pid=8))
        world.finish()

    spans = spans_of(run)
    first, second = [span for span in spans if span.name == "attempt"]
    assert first.status.status_code is StatusCode.ERROR and "ValueError: no" in first.status.description
    assert second.status.status_code is StatusCode.UNSET and second.start_time >= first.end_time
    failed = next(span for span in spans if span.name == "checkpoint")
    assert failed.status.status_code is StatusCode.ERROR and "disk full" in failed.status.description


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(InvalidArgument, match=r"moorline\[otel\]"):
        mo.TracingListener()
