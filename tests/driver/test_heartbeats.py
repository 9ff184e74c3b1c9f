"""A subtask that has stopped answering is noticed in every phase of an attempt; one that takes its time is not."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from driver_worlds import World

import moorline as mo
from moorline.errors import InvalidArgument
from moorline.model.config.run import RunConfig
from moorline.model.ids import SubtaskId
from moorline.model.wire.messages import Progress, Report, Running
from moorline.storage.stores.memory import MemoryStore

S = mo.JobStatus
ALIVE = Progress(records_in=0, records_out=0)


def starting(**config) -> World:
    config = {"heartbeat_timeout": "5s", "start_timeout": "1min", "restart": mo.FixedDelay(9, "1s"), **config}
    return World(store=MemoryStore(), **config).start()


def live(world: World, seconds: int, report: Callable[[SubtaskId], Report | None]) -> None:
    """Second by second, with what each subtask has to say."""
    for _ in range(seconds):
        world.pass_time(1_000)
        for subtask in world.subtasks:
            if (said := report(subtask)) is not None:
                world.report(subtask, said)


def except_last(world: World, report: Report = ALIVE) -> Callable[[SubtaskId], Report | None]:
    return lambda subtask: report if subtask != world.subtasks[-1] else None


def test_one_that_stops_answering_while_it_starts_is_lost():
    world = starting()
    world.all_report(ALIVE)
    live(world, 6, except_last(world))
    assert (world.status, world.cluster.cancelled) == (S.STARTING, 1)
    world.end_attempt(error="cancelled")
    assert "subtask 1/1 has not been heard of for 5.0 s" in world.supervision.history_of_failures[0]
    world.pass_time(1_000)
    assert len(world.cluster.launched) == 2


def test_one_that_never_calls_in_is_lost_at_the_start_timeout():
    world = starting()
    live(world, 59, except_last(world, Running(pid=7)))
    assert (world.status, world.cluster.cancelled) == (S.STARTING, 0)
    live(world, 2, except_last(world))
    assert world.cluster.cancelled == 1
    world.end_attempt(error="cancelled")
    assert "subtask 1/1 has not called in within 60.0 s of its launch" in world.supervision.history_of_failures[0]


def test_a_start_may_take_as_long_as_it_likes_if_it_gives_signs_of_life():
    world = starting()
    live(world, 4_000, lambda subtask: ALIVE)
    world.all_report(Running(pid=7))
    assert (world.status, world.cluster.cancelled) == (S.RUNNING, 0)


def test_a_read_that_never_returns_fails_the_attempt_and_a_long_open_does_not():
    for reading, cancelled in (("data/chk-1/total-0.parquet", 1), ("", 0)):
        world = starting()
        for seconds in range(120):
            stalled = Progress(records_in=0, records_out=0, stalled_ms=1_000 * seconds, reading=reading)
            live(world, 1, lambda subtask, said=stalled: said)
        assert (world.status, world.cluster.cancelled) == (S.STARTING, cancelled)
    world = starting()
    for seconds in range(120):
        stalled = Progress(records_in=0, records_out=0, stalled_ms=1_000 * (seconds % 50), reading="x")
        live(world, 1, lambda subtask, said=stalled: said)
    assert world.cluster.cancelled == 0, "each of the reads came back in time"


def test_one_that_answers_and_does_not_move_on_is_named_now_and_then(caplog):
    world = starting()
    with caplog.at_level(logging.WARNING, "moorline"):
        for seconds in range(500):
            stalled = Progress(
                records_in=0, records_out=0, stalled_ms=1_000 * seconds, stalled_at="job.py:12 open, called from x"
            )
            live(world, 1, lambda subtask, said=stalled: said if subtask == SubtaskId(0, 0) else ALIVE)
    told = [r.message for r in caplog.records if "moved on" in r.message]
    assert told[0] == "subtask 0/0 answers, but has not moved on for 60.0 s: it is at job.py:12 open, called from x"
    assert len(told) == 4, "after 60, 120, 240 and 480 seconds"


def test_one_that_stops_answering_after_the_final_checkpoint_is_lost_too():
    world = starting()
    world.all_report(Running(pid=7))
    world.end_input()
    world.acknowledge(world.triggered(final=True))
    for subtask in world.subtasks[:-1]:
        world.supervision.line_lost(1, subtask)
    live(world, 6, lambda subtask: None)
    assert world.cluster.cancelled == 1
    world.end_attempt(error="cancelled")
    assert "subtask 1/1 has not been heard of" in world.supervision.history_of_failures[0]


def test_an_attempt_that_spark_does_not_end_is_ended():
    world = starting()
    world.all_report(Running(pid=7))
    world.end_input()
    world.acknowledge(world.triggered(final=True))
    for subtask in world.subtasks:
        world.supervision.line_lost(1, subtask)
    live(world, 60, lambda subtask: None)
    assert world.cluster.cancelled == 0
    live(world, 2, lambda subtask: None)
    assert world.cluster.cancelled == 1


def test_a_driver_that_was_away_itself_listens_before_it_judges():
    world = starting()
    world.all_report(Running(pid=7))
    world.now_ms += 60_000  # it was stopped, or storage took so long
    for subtask in world.subtasks:
        world.report(subtask, ALIVE)
    assert (world.status, world.cluster.cancelled) == (S.RUNNING, 0)
    live(world, 6, except_last(world))
    assert world.cluster.cancelled == 1


@pytest.mark.parametrize("option", ["heartbeat_timeout", "start_timeout"])
def test_timeouts_that_nobody_could_keep_are_refused(option):
    with pytest.raises(InvalidArgument, match=option):
        RunConfig(**{option: "400ms"})
