"""Listeners to jobs, and the same events as lines of JSON: in order, on threads of their own, and never in the way."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driver_worlds import World
from waiting import PATIENCE

import moorline as mo
from moorline.driver.observation import delivery
from moorline.driver.observation.delivery import Delivery, Listeners, events_listener
from moorline.errors import InvalidArgument, MethodMissing
from moorline.model.ids import SubtaskId
from moorline.model.wire.figures import OperatorFigures
from moorline.model.wire.messages import Failed, Progress, Running
from moorline.storage.stores.memory import MemoryStore


class Heard(mo.JobListener):
    def __init__(self) -> None:
        self.events: list[mo.JobEvent] = []
        self.threads: set[str] = set()

    def on_started(self, event: mo.JobEvent) -> None:
        self.events.append(event)
        self.threads.add(threading.current_thread().name)

    on_progress = on_checkpoint = on_restart = on_terminated = on_started

    def kinds(self) -> list[str]:
        return [event.event for event in self.events if event.event != "progress"]


@pytest.fixture
def heard() -> Iterator[Heard]:
    listener = Heard()
    mo.add_listener(listener)
    yield listener
    mo.remove_listener(listener)


def run(listeners: Listeners) -> World:
    """A job with a checkpoint, a failure, a restart and an end."""
    world = World(store=MemoryStore(), restart=mo.FixedDelay(attempts=3, delay="1s"))
    world.supervision.observation._publish = listeners.publish
    world.run()
    operators = [OperatorFigures(uid="numbers", records_in=70, records_out=70)]
    world.report(SubtaskId(0, 0), Progress(records_in=70, records_out=70, busy_ms=500, operators=operators))
    world.complete()
    world.report(SubtaskId(1, 0), Failed(error="ValueError: no", traceback="Traceback ...", uid="count", name="map"))
    world.end_attempt(error="cancelled")
    world.pass_time(1_000)
    world.all_report(Running(pid=8))
    world.pass_time(6_000)
    world.acknowledge(world.triggered())
    world.finish()
    return world


def test_a_listener_hears_of_everything_in_order(heard):
    listeners = Listeners([])
    run(listeners)
    listeners.close()
    assert heard.kinds()[:2] == ["started", "checkpoint"]
    assert heard.kinds()[-1] == "terminated" and "restart" in heard.kinds()
    assert all(name.startswith("moorline-listener-") for name in heard.threads)
    started, checkpoint = heard.events[0], next(e for e in heard.events if e.event == "checkpoint")
    assert [o["uid"] for o in started["operators"]] == ["numbers", "count", "out"]
    assert (checkpoint["checkpoint"], checkpoint["status"], checkpoint["job"]) == (1, "completed", "small")
    restart = next(e for e in heard.events if e.event == "restart")
    assert restart["reason"].startswith("ValueError: no") and "Traceback ..." in restart["traceback"]
    assert (restart["attempt"], restart["delay_ms"]) == (1, 1_000)
    assert heard.events[-1]["status"] == "finished"


def test_progress_is_kept_and_is_a_dict_with_json():
    world = run(Listeners([]))
    recent = world.supervision.observation.progress
    assert 2 <= len(recent) <= 100
    assert json.loads(recent[-1].json) == recent[-1] == json.loads(recent[-1].pretty_json)
    assert (recent[-1]["status"], recent[-1].event) == ("finished", "progress")
    assert "vertices" not in recent[-1]
    during = [event["operators"].get("numbers", {}).get("records_in") for event in recent]
    assert 70 in during or during


def test_all_figures_go_to_those_listeners_alone_that_have_the_method(heard):
    class Figures(Heard):
        def on_metrics(self, event: mo.JobEvent) -> None:
            self.events.append(event)

    figures = Figures()
    mo.add_listener(figures)
    try:
        listeners = Listeners([])
        run(listeners)
        listeners.close()
    finally:
        mo.remove_listener(figures)
    assert "metrics" not in heard.kinds()
    made = [event for event in figures.events if event.event == "metrics"]
    assert [(e["status"], e["attempt"]) for e in made if e["status"] in ("restarting", "finished")] == [
        ("restarting", 0),
        ("finished", 0),
    ]
    counts = [v["subtasks"][0]["records_in"] for event in made for v in event["vertices"] if v["id"] == 0]
    assert 70 in counts


def test_a_listener_that_fails_is_logged_once_and_others_are_called(heard, caplog):
    class Broken(mo.JobListener):
        def on_checkpoint(self, event: mo.JobEvent) -> None:
            raise RuntimeError("it is broken")

    broken = Broken()
    mo.add_listener(broken)
    try:
        listeners = Listeners([])
        run(listeners)
        listeners.close()
    finally:
        mo.remove_listener(broken)
    said = [r.getMessage() for r in caplog.records if "listener" in r.getMessage()]
    assert len(said) == 1 and "Broken failed in on_checkpoint" in said[0]
    assert heard.kinds()[-1] == "terminated"


def test_a_listener_that_hangs_holds_up_nobody_and_loses_progress_first(heard, monkeypatch, caplog):
    monkeypatch.setattr(delivery, "MOST_WAITING", 10)
    monkeypatch.setattr(delivery, "END_SECONDS", 0.2)
    go_on, entered = threading.Event(), threading.Event()

    class Hanging(Heard):
        def on_started(self, event: mo.JobEvent) -> None:
            entered.set()
            go_on.wait(PATIENCE)
            super().on_started(event)

        on_progress = on_checkpoint = on_restart = on_terminated = on_started

    hanging = Hanging()
    line = Delivery(hanging)
    line.put(mo.JobEvent(event="started"))
    assert entered.wait(PATIENCE)
    for number in range(8):
        line.put(mo.JobEvent(event="progress", number=number))
    for number in range(10):
        line.put(mo.JobEvent(event="checkpoint", number=number))
    line.put(mo.JobEvent(event="progress", number=99))
    assert not line.flush(0.05)
    go_on.set()
    assert line.flush(10)
    assert hanging.kinds() == ["started", *10 * ["checkpoint"]]
    assert [event for event in hanging.events if event.event == "progress"] == []
    assert sum("too slow" in r.getMessage() for r in caplog.records) == 1
    line.close()


def test_what_one_listener_does_to_an_event_is_not_anothers_business(heard):
    class Changing(mo.JobListener):
        def on_started(self, event: mo.JobEvent) -> None:
            event["operators"].clear()

    changing = Changing()
    mo.add_listener(changing)
    try:
        listeners = Listeners([])
        run(listeners)
        listeners.close()
    finally:
        mo.remove_listener(changing)
    assert len(heard.events[0]["operators"]) == 3


def test_a_listener_is_added_once_and_hears_nothing_after_it_was_removed(heard):
    mo.add_listener(heard)
    listeners = Listeners([])
    listeners.publish(mo.JobEvent(event="started"))
    listeners.close()
    assert heard.kinds() == ["started"]
    mo.remove_listener(heard)
    listeners.publish(mo.JobEvent(event="terminated"))
    listeners.close()
    assert heard.kinds() == ["started"]
    mo.remove_listener(heard)


def test_what_is_no_listener_is_refused():
    not_one: Any = print
    with pytest.raises(InvalidArgument, match=r"mo\.JobListener"):
        mo.add_listener(not_one)


class Misspelt(mo.JobListener):
    def on_progres(self, event): ...


class OfSpark(mo.JobListener):
    def onQueryTerminated(self, event): ...


class WithoutEvent(mo.JobListener):
    def on_restart(self): ...


@pytest.mark.parametrize(
    ("listener", "error", "message"),
    [
        (Misspelt(), MethodMissing, "Is 'on_progres' meant"),
        (OfSpark(), MethodMissing, "without 'on_terminated'"),
        (WithoutEvent(), InvalidArgument, "called with 1 argument"),
    ],
)
def test_a_method_that_would_never_be_called_is_found_when_the_listener_is_added(listener, error, message):
    with pytest.raises(error, match=message):
        mo.add_listener(listener)
    assert all(d.listener is not listener for d in delivery._deliveries)


@pytest.mark.parametrize("as_url", [False, True])
def test_events_are_lines_of_json_in_a_file(tmp_path: Path, as_url: bool):
    path = tmp_path / "my events.jsonl"
    for _ in range(2):
        listeners = Listeners([events_listener(path.as_uri() if as_url else path)])
        run(listeners)
        listeners.close()
    kinds = [json.loads(line)["event"] for line in path.read_text().splitlines()]
    assert kinds.count("started") == kinds.count("terminated") == 2, "what was there stays"
    assert "progress" in kinds and "checkpoint" in kinds and "restart" in kinds


def test_events_are_lines_of_json_in_the_log(caplog):
    caplog.set_level(logging.INFO, "moorline.events")
    listeners = Listeners([events_listener("log")])
    run(listeners)
    listeners.close()
    lines = [json.loads(r.getMessage()) for r in caplog.records if r.name == "moorline.events"]
    assert lines[0]["event"] == "started" and lines[-1]["event"] == "terminated"


@pytest.mark.parametrize("events", ["", "s3://bucket/events", "file://elsewhere/x", "/no/such/folder/events.jsonl"])
def test_a_place_for_events_that_is_none_is_refused(events):
    with pytest.raises(InvalidArgument, match="events"):
        events_listener(events)
