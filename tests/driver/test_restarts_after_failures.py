"""Failures of a job: which of them are tried again, when, and how often."""

from __future__ import annotations

import pytest
from driver_worlds import World
from job_failures import fixed, user_failure

import moorline as mo
from moorline.driver.attempts.progress import progress_of
from moorline.errors import JobFailed
from moorline.model.ids import SubtaskId
from moorline.model.wire.messages import Acknowledged, Failed, Noticed, Progress, Running, Trigger
from moorline.storage.stores.memory import MemoryStore
from moorline.storage.stores.open import open_store

S = mo.JobStatus
FIRST = SubtaskId(0, 0)


def test_without_checkpoints_the_first_failure_is_the_last():
    world = World().run()
    world.report(FIRST, user_failure("ValueError: no"))
    assert world.cluster.cancelled == 1
    world.end_attempt(error="Spark says it was cancelled")
    assert world.status is S.FAILED
    error = world.supervision.error
    assert isinstance(error, JobFailed)
    assert "ValueError: no in operator 'count' (f), subtask 0, record 3 of the attempt: 0" in error.last
    assert "Spark says" not in str(error), "the cause, not its consequence"


def test_the_next_attempt_starts_when_the_old_one_has_ended_and_the_delay_is_over():
    world = World(store=MemoryStore(), restart=fixed(delay="5s")).run()
    world.complete()
    world.supervision.line_lost(1, FIRST)
    world.pass_time(60_000)
    assert len(world.cluster.launched) == 1, "the old one has not ended"
    world.end_attempt(error="lost")
    world.pass_time(4_999)
    assert len(world.cluster.launched) == 1
    world.pass_time(1)
    assert (world.deployment.attempt, world.deployment.restored) == (2, 1)
    assert world.supervision.restored_from == [0, 1]
    world.all_report(Running(pid=1))
    assert world.complete() == 2
    world.finish()
    assert world.status is S.FINISHED


def test_reports_of_an_older_attempt_change_nothing():
    world = World(store=MemoryStore(), restart=fixed()).run()
    world.supervision.line_lost(1, FIRST)
    world.end_attempt(error="lost")
    world.pass_time(1_000)
    for report in (Running(pid=1), user_failure(), Acknowledged(checkpoint=1, operators=[])):
        for subtask in world.subtasks:
            world.report(subtask, report, attempt=1)
    world.supervision.line_lost(1, FIRST)
    world.supervision.attempt_ended(1, {}, None, world.now_ms)
    assert (world.status, world.cluster.cancelled) == (S.STARTING, 1)


def test_while_an_attempt_is_ending_the_loop_has_nothing_to_wake_up_for():
    world = World(store=MemoryStore(), restart=fixed()).run()
    world.report(FIRST, user_failure())
    world.pass_time(10_000)
    assert world.supervision.next_wakeup_ms() is None
    assert world.cluster.take(Trigger) == []


@pytest.mark.parametrize(
    "texts",
    [
        ["ValueError: no"] * 3,
        ["KeyError: <Opaque object at 0x7f6403428150>", "KeyError: <Opaque object at 0x7f64034ab000>"] * 2,
        ["Timeout: call 17 failed at 12:03:04", "Timeout: call 18 failed at 12:03:05"] * 2,
    ],
)
def test_the_same_error_from_the_same_place_is_given_up_on_the_third_time(texts):
    world = World(store=MemoryStore(), restart=fixed()).start()
    for text in texts[:3]:
        assert not world.status.is_terminal
        world.all_report(Running(pid=1))
        world.report(FIRST, user_failure(text))
        world.end_attempt(error="cancelled")
        world.pass_time(1_000)
    assert world.status is S.FAILED
    assert "3 times in a row" in world.supervision.error.reason
    assert len(world.supervision.history_of_failures) == 3


def test_different_errors_are_each_tried_again():
    world = World(store=MemoryStore(), restart=fixed()).start()
    for text in ("ValueError: no", "KeyError: no", "ValueError: no", "KeyError: yes"):
        world.all_report(Running(pid=1))
        world.report(FIRST, user_failure(text))
        world.end_attempt(error="cancelled")
        world.pass_time(1_000)
    assert world.status is S.STARTING


def fail_after_a_checkpoint_each(failures: list[Failed]) -> World:
    world = World(store=MemoryStore(), restart=fixed()).start()
    for failure in failures:
        world.all_report(Running(pid=1))
        world.complete()
        world.report(FIRST, failure)
        world.end_attempt(error="cancelled")
        world.pass_time(1_000)
    return world


def test_a_checkpoint_in_between_is_a_new_chance():
    world = fail_after_a_checkpoint_each([user_failure(record=f"record {n}") for n in range(5)])
    assert world.status is S.STARTING


def test_a_record_that_fails_three_times_is_given_up_whatever_was_completed_in_between():
    world = fail_after_a_checkpoint_each([user_failure(record=f"<Order 17 at 0x7f{n}>") for n in range(3)])
    assert world.status is S.FAILED
    assert "3 times in a row" in world.supervision.error.reason


def test_two_errors_that_take_turns_are_given_up_too():
    world = World(store=MemoryStore(), restart=fixed()).start()
    for text in ["ValueError: no", "KeyError: no"] * 2 + ["ValueError: no"]:
        assert not world.status.is_terminal
        world.all_report(Running(pid=1))
        world.report(FIRST, user_failure(text))
        world.end_attempt(error="cancelled")
        world.pass_time(1_000)
    assert world.status is S.FAILED


def test_an_error_of_our_own_code_counts_as_well():
    world = World(store=MemoryStore(), restart=fixed()).start()
    for _ in range(3):
        assert not world.status.is_terminal
        world.report(FIRST, Failed(error="RuntimeError: could not commit 3", traceback="..."))
        world.end_attempt(error="cancelled")
        world.pass_time(1_000)
    assert world.status is S.FAILED


def test_what_a_worker_raises_before_it_can_report_counts_as_well():
    world = World(store=MemoryStore(), restart=fixed()).start()
    for _ in range(3):
        assert not world.status.is_terminal
        error = "PythonException: ModuleNotFoundError: No module named 'orders'"
        world.supervision.attempt_ended(world.deployment.attempt, None, error, world.now_ms, raised=True)
        world.pass_time(1_000)
    assert world.status is S.FAILED


def test_what_cannot_pass_by_itself_ends_a_job_that_has_no_checkpoint_yet():
    world = World(store=MemoryStore(), restart=fixed()).run()
    world.report(FIRST, Failed(error="StorageError: no such folder", traceback="...", can_pass=False))
    world.end_attempt(error="cancelled")
    assert world.status is S.FAILED
    assert "cannot pass by itself" in world.supervision.error.reason


def test_what_cannot_pass_by_itself_is_tried_again_after_a_checkpoint():
    lasting = Failed(error="StorageError: permission denied", traceback="...", can_pass=False)
    world = fail_after_a_checkpoint_each([lasting])
    assert world.status is S.STARTING
    for _ in range(2):
        world.all_report(Running(pid=1))
        world.report(FIRST, lasting)
        world.end_attempt(error="cancelled")
        world.pass_time(1_000)
    assert world.status is S.FAILED


def test_workers_that_are_lost_for_an_hour_without_a_checkpoint_end_the_job():
    world = World(store=MemoryStore(), restart=mo.ExponentialDelay()).start()
    for _ in range(70):
        if world.status.is_terminal:
            break
        world.all_report(Running(pid=1))
        world.supervision.line_lost(world.deployment.attempt, FIRST)
        world.end_attempt(error="cancelled")
        world.pass_time(60_000)
    assert world.status is S.FAILED
    assert "in 60 minutes" in world.supervision.error.reason


def test_a_damaged_savepoint_ends_the_job_as_there_is_nothing_older_to_go_back_to():
    url = "memory://damaged-savepoint"
    world = World(store=open_store(url), checkpoints=mo.Checkpoints(url, interval="1s", at_end="keep")).run()
    world.complete()
    world.finish()
    world = World(store=MemoryStore(), restart=fixed(), restore=url).start()
    world.report(FIRST, Failed(error="a file is damaged", traceback="...", corrupt="data/x", can_pass=False))
    world.end_attempt(error="cancelled")
    world.pass_time(1_000)
    assert world.status is S.FAILED


def test_a_subtask_that_falls_silent_is_lost():
    world = World(store=MemoryStore(), restart=fixed(), heartbeat_timeout="5s").run()
    for _ in range(4):
        world.pass_time(2_000)
        for subtask in world.subtasks[1:]:
            world.report(subtask, Progress(records_in=1, records_out=1))
    assert world.cluster.cancelled == 1
    world.end_attempt(error="cancelled")
    assert "subtask 0/0 has not been heard of for 6.0 s" in world.supervision.history_of_failures[0]


def test_what_subtasks_notice_is_told_once_for_each_operator_and_kind(caplog):
    world = World(store=MemoryStore(), restart=fixed()).run()
    for subtask in world.subtasks:
        world.report(subtask, Noticed(uid="count", kind="late_records", text=f"drops records, says {subtask}"))
    world.report(FIRST, Noticed(uid="count", kind="something_else", text="is strange"))
    told = [r.message for r in caplog.records if "operator" in r.message]
    assert told == ["job small: operator 'count' drops records, says 0/0", "job small: operator 'count' is strange"]


def test_progress_is_that_of_the_last_attempt_also_between_two_and_after_the_end():
    world = World(store=MemoryStore(), restart=fixed()).run()
    for subtask in world.subtasks:
        counters = {"count": {"late_records": 2}} if subtask.vertex else {}
        world.report(subtask, Progress(records_in=5, records_out=4, keys=3, counters=counters))
    world.supervision.line_lost(1, FIRST)
    world.end_attempt(error="lost")
    assert world.status is S.RESTARTING
    told = progress_of(world.supervision.last_attempt)
    assert (told["records_in"], told["keys"]) == (10, 12)
    assert told["operators"]["count"]["records_out"] == 8
    assert told["counters"] == {"count": {"late_records": 4}}
    world.pass_time(1_000)
    assert progress_of(world.supervision.last_attempt)["records_in"] == 0
    world.all_report(Running(pid=1))
    world.all_report(Progress(records_in=7, records_out=7))
    world.finish()
    assert progress_of(world.supervision.last_attempt)["records_in"] == 14


def test_nobody_is_lost_after_the_final_checkpoint():
    world = World(heartbeat_timeout="5s").run()
    world.end_input()
    world.acknowledge(world.triggered(final=True))
    for subtask in world.subtasks:
        world.supervision.line_lost(1, subtask)
    world.pass_time(60_000)
    assert world.cluster.cancelled == 0
    world.end_attempt(results={"out": []})
    assert world.status is S.FINISHED


def test_an_end_before_the_final_checkpoint_is_a_failure():
    world = World().run()
    world.end_attempt(error="executor lost")
    assert world.status is S.FAILED
    assert "executor lost" in str(world.supervision.error)
