"""The log of a job: one line for each event, with job and attempt; a traceback once, and not if it is raised anyway."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest
from driver_worlds import World

import moorline as mo
from moorline.driver.attempts.progress import progress_of
from moorline.model.ids import SubtaskId
from moorline.model.wire.messages import Connected, Failed, Progress, Running
from moorline.storage.stores.memory import MemoryStore

FIRST = SubtaskId(0, 0)
FAILURE = Failed(error="ValueError: no", traceback='  File "job.py", line 3, in f\nValueError: no', uid="count")


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "moorline")
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_good_life_is_a_line_for_each_event(lines):
    world = World(store=MemoryStore()).start()
    world.now_ms += 500
    world.all_report(Running(pid=1))
    world.complete()
    world.finish()
    assert lines() == [
        "job small, attempt 1: starts 4 subtasks, empty",
        "job small, attempt 1: runs after 0.5 s, with 0 B read from storage",
        "job small, attempt 1: checkpoint 1 is complete: 0 B, 0 B of it new, in 0.0 s",
        "job small, attempt 1: final checkpoint 2 is complete: 0 B, 0 B of it new, in 0.0 s",
        "job small: finished after 1 attempt",
    ]


def test_a_lost_subtask_is_named_with_its_operators_and_its_place(lines):
    world = World(store=MemoryStore(), restart=mo.FixedDelay(5, "1s")).start()
    world.report(FIRST, Connected(pid=17, host="node-3", executor="2"))
    world.supervision.line_lost(1, FIRST)
    assert lines()[1:] == [
        "job small, attempt 1: fails: subtask 0/0 was lost ('numbers': process 17 of executor 2 on node-3)"
    ]


def test_a_machine_that_loses_more_than_all_others_is_named(lines):
    world = World(store=MemoryStore(), restart=mo.FixedDelay(9, "1s")).start()
    for attempt, loser in enumerate([0, 1, 0, 0], 1):
        for n, subtask in enumerate(world.subtasks):
            world.report(subtask, Connected(pid=17, host=f"node-{n % 2}"))
        world.supervision.line_lost(attempt, world.subtasks[loser])
        world.supervision.line_lost(attempt, world.subtasks[1 - loser])  # goes because of the first
        world.end_attempt(error="lost")
        world.pass_time(1_000)
    named = [line for line in lines() if "losses" in line]
    assert named == [
        "job small: 3 of 4 losses of subtasks were on node-0. If it goes on, take that machine out: stop its worker "
        "daemon, or cordon the node."
    ]
    assert world.supervision.observation.attempts.losses == {"node-0": 3, "node-1": 1}
    assert [a["host"] for a in world.supervision.observation.attempts.records()[1:]] == [
        "node-0",
        "node-0",
        "node-1",
        "node-0",
    ]


def test_what_a_cancelled_job_loses_is_not_counted():
    world = World(store=MemoryStore(), restart=mo.FixedDelay(9, "1s")).run()
    for n, subtask in enumerate(world.subtasks):
        world.report(subtask, Connected(pid=17, host=f"node-{n % 2}"))
    world.supervision.cancel(world.now_ms)
    for subtask in world.subtasks:
        world.supervision.line_lost(1, subtask)
    assert world.supervision.observation.attempts.losses == {}


def test_one_machine_alone_is_never_named(lines):
    world = World(store=MemoryStore(), restart=mo.FixedDelay(9, "1s")).start()
    for attempt in range(1, 6):
        for subtask in world.subtasks:
            world.report(subtask, Connected(pid=17, host="node-0"))
        world.supervision.line_lost(attempt, FIRST)
        world.end_attempt(error="lost")
        world.pass_time(1_000)
    assert not any("losses" in line for line in lines())


def test_a_planned_rescale_is_no_failure_whatever_its_subtasks_lose_on_the_way(lines):
    world = World(store=MemoryStore()).run()
    world.supervision.rescale(world.deployment.plan.graph, Future(), world.now_ms)
    world.acknowledge(world.triggered())
    world.supervision.line_lost(1, FIRST)
    world.end_attempt(error="cancelled")
    world.pass_time(0)
    assert lines()[3:] == [
        "job small, attempt 1: ends, to go on with another parallelism",
        "job small, attempt 2: starts 4 subtasks, from checkpoint 1",
    ]
    assert world.supervision.history_of_failures == []


def test_a_traceback_is_logged_once_and_not_if_the_job_gives_up(lines):
    world = World(store=MemoryStore(), restart=mo.FixedDelay(2, "1s")).run()
    for _ in range(2):
        world.report(FIRST, FAILURE)
        world.end_attempt(error="cancelled")
        world.pass_time(1_000)
        world.all_report(Running(pid=1))
    world.report(FIRST, FAILURE)
    world.end_attempt(error="cancelled")
    assert world.status is mo.JobStatus.FAILED
    assert sum("job.py" in line for line in lines()) == 1
    assert "job.py" in str(world.supervision.error)


SCRIPT = """
import logging, sys
from moorline.spark.session.quiet import show_log
if "before" in sys.argv:
    logging.basicConfig(format="theirs: %(message)s", level=logging.WARNING)
show_log()
show_log()
logging.getLogger("moorline").info("one")
if "after" in sys.argv:
    logging.basicConfig(format="theirs: %(message)s", level=logging.WARNING)
logging.getLogger("moorline").warning("two")
"""


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("never", ["INFO moorline: one", "WARNING moorline: two"]),
        ("before", ["theirs: two"]),
        ("after", ["INFO moorline: one", "theirs: two"]),
    ],
)
def test_the_log_is_seen_unless_the_application_has_set_up_its_own(when, expected):
    environment = {**os.environ, "PYTHONPATH": str(Path(mo.__file__).parents[1])}
    command = [sys.executable, "-c", SCRIPT, when]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=True)
    lines = done.stderr.splitlines()
    assert len(lines) == len(expected)
    for line, end in zip(lines, expected):
        assert line.endswith(end)


def test_an_outside_system_that_is_away_is_one_line_and_its_return_another(lines):
    world = World(store=MemoryStore()).run()
    second = SubtaskId(0, 1)
    away = Progress(records_in=0, records_out=0, outages={"numbers": "KafkaException: all brokers are down"})
    before = len(lines())
    for subtask in (FIRST, second, FIRST):
        world.report(subtask, away)
    assert world.supervision.last_attempt is not None
    assert progress_of(world.supervision.last_attempt)["outages"] == {"numbers": "KafkaException: all brokers are down"}
    world.report(FIRST, Progress(records_in=0, records_out=0))
    assert len(lines()) == before + 1, "one subtask still waits"
    world.report(second, Progress(records_in=0, records_out=0))
    assert lines()[before:] == [
        "job small: operator 'numbers' waits for its outside system: KafkaException: all brokers are down",
        "job small: operator 'numbers' waits no longer: its outside system answers",
    ]
    assert progress_of(world.supervision.last_attempt)["outages"] == {}
