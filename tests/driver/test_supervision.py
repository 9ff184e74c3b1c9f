"""A job from its first start to its last word, whatever happens to it on the way."""

from __future__ import annotations

import logging

import pytest
from driver_worlds import FailingStore, World, small_job

import moorline as mo
from moorline.driver.attempts.progress import progress_of
from moorline.errors import Fenced, JobCancelled, JobFailed, SnapshotCorrupt
from moorline.model.ids import SubtaskId
from moorline.model.wire.messages import Acknowledged, Confirm, Failed, Noticed, Progress, Running, Trigger
from moorline.storage.history import History
from moorline.storage.stores.memory import MemoryStore
from moorline.storage.stores.open import open_store

S = mo.JobStatus
FIRST = SubtaskId(0, 0)


def user_failure(text: str = "ValueError: no", record: str = "0") -> Failed:
    return Failed(error=text, traceback="...", uid="count", name="f", position=3, record=record)


def fixed(attempts: int = 50, delay: str = "1s") -> mo.FixedDelay:
    return mo.FixedDelay(attempts=attempts, delay=delay)


# --- the straight way ---------------------------------------------------------------------------


def test_a_job_runs_when_all_of_its_subtasks_do():
    world = World()
    assert world.status is S.CREATED
    world.start()
    assert (world.status, world.deployment.attempt, world.deployment.restored) == (S.STARTING, 1, None)
    for subtask in world.subtasks[:-1]:
        world.report(subtask, Running(pid=1))
    assert world.status is S.STARTING
    world.report(world.subtasks[-1], Running(pid=1))
    assert world.status is S.RUNNING
    world.finish()
    assert world.status is S.FINISHED
    assert world.supervision.error is None


def test_stop_takes_a_final_checkpoint_wherever_the_sources_are():
    world = World(store=MemoryStore()).run()
    world.supervision.stop(world.now_ms)
    assert world.status is S.STOPPING
    assert world.triggered(final=True) == 1
    world.acknowledge(1)
    world.end_attempt(results={})
    assert world.status is S.FINISHED


def test_a_stop_while_it_starts_is_kept_in_mind():
    world = World(store=MemoryStore()).start()
    world.supervision.stop(world.now_ms)
    assert world.status is S.STARTING
    assert world.cluster.orders == []
    world.all_report(Running(pid=1))
    assert world.status is S.STOPPING
    assert world.triggered(final=True) == 1


def test_a_stop_survives_a_failure():
    world = World(store=MemoryStore(), restart=fixed()).run()
    world.supervision.stop(world.now_ms)
    world.supervision.line_lost(1, FIRST)
    world.end_attempt(error="cancelled")
    world.pass_time(1_000)
    world.cluster.orders.clear()
    world.all_report(Running(pid=1))
    assert world.status is S.STOPPING
    assert world.triggered(final=True) == 1


def test_a_sink_that_cannot_clean_up_does_not_fail_a_job_that_is_done(caplog):
    class Untidy(mo.Sink):
        def open(self, ctx):
            return mo.SinkWriter()

        def clean_up(self, job, uid):
            raise OSError("the folder is gone")

    world = World(job=small_job(Untidy())).run()
    world.finish()
    assert world.status is S.FINISHED
    assert "'out' could not clean up: the folder is gone" in caplog.text


# --- cancelling ---------------------------------------------------------------------------------


def test_cancel_ends_the_attempt_and_commits_nothing():
    world = World(store=MemoryStore()).run()
    world.supervision.cancel(world.now_ms)
    assert (world.status, world.cluster.cancelled) == (S.CANCELLING, 1)
    world.acknowledge(1)
    assert world.cluster.take(Confirm) == []
    world.end_attempt(error="cancelled")
    assert world.status is S.CANCELLED
    assert isinstance(world.supervision.error, JobCancelled)


def test_cancel_while_it_waits_to_restart_ends_it_there_and_then():
    world = World(store=MemoryStore(), restart=fixed(delay="1min")).run()
    world.supervision.line_lost(1, FIRST)
    world.end_attempt(error="lost")
    assert world.status is S.RESTARTING
    assert world.supervision.next_wakeup_ms() == world.now_ms + 60_000
    world.supervision.cancel(world.now_ms)
    assert world.status is S.CANCELLED
    world.pass_time(120_000)
    assert len(world.cluster.launched) == 1


def test_cancel_while_the_old_attempt_is_ending_ends_it():
    world = World(store=MemoryStore(), restart=fixed()).run()
    world.report(FIRST, user_failure())
    world.supervision.cancel(world.now_ms)
    world.end_attempt(error="cancelled")
    assert world.status is S.CANCELLED
    assert world.supervision.history_of_failures == []


def test_cancel_twice_is_cancel_once_and_after_the_end_it_is_nothing():
    world = World().run()
    world.supervision.cancel(world.now_ms)
    world.supervision.cancel(world.now_ms)
    world.end_attempt(error="cancelled")
    world.supervision.cancel(world.now_ms)
    world.supervision.stop(world.now_ms)
    assert world.status is S.CANCELLED


def test_cancel_before_storage_was_ever_reached_deletes_nothing_and_is_no_crash():
    store = FailingStore()
    theirs = World(store=store).run()
    theirs.complete()
    theirs.finish()
    store.failing = True
    world = World(
        store=store, checkpoints=mo.Checkpoints("memory://small", interval="1s", at_end="delete"), restart=fixed()
    ).start()
    assert world.status is S.RESTARTING
    store.failing = False
    world.supervision.cancel(world.now_ms)
    assert world.status is S.CANCELLED
    assert world.manifests() == [2], "what an earlier run has left is not ours to delete"


# --- failures and restarts ----------------------------------------------------------------------


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


# --- storage ------------------------------------------------------------------------------------


def test_a_fresh_start_stays_fresh_until_its_first_claim_has_succeeded():
    store = FailingStore()
    before = World(store=store).run()
    before.complete()
    before.finish()
    store.failing = True
    world = World(store=store, restart=fixed()).start()
    assert world.status is S.RESTARTING
    assert not world.cluster.launched
    store.failing = False
    world.pass_time(1_000)
    assert world.deployment.restored is None, "what the earlier run left is not this one's to restore"
    world.all_report(Running(pid=1))
    assert world.complete() == 3, "numbers are not used twice"


def test_storage_that_stays_away_ends_the_job_when_the_strategy_says_so():
    store = FailingStore()
    store.failing = True
    world = World(store=store, restart=fixed(attempts=2)).start()
    for _ in range(3):
        world.pass_time(1_000)
    assert world.status is S.FAILED
    assert "the network is down" in str(world.supervision.error)
    assert "restarted 2 times" in world.supervision.error.reason


def test_latest_goes_on_where_an_earlier_run_has_stopped_and_starts_empty_if_there_was_none():
    store = MemoryStore()
    first = World(store=store, restore="latest").run()
    assert first.deployment.restored is None
    first.complete()
    first.supervision.cancel(first.now_ms)
    first.end_attempt(error="cancelled")
    second = World(store=store, restore="latest").run()
    assert (second.deployment.attempt, second.deployment.restored) == (2, 1)


def test_a_second_driver_takes_over_and_the_first_one_stops_and_changes_nothing():
    store = MemoryStore()
    first = World(store=store, restart=fixed()).run()
    first.complete()
    second = World(store=store, restore="latest").run()
    assert second.deployment.restored == 1
    before = sorted(store.list())
    first.pass_time(1_000)
    first.acknowledge(first.triggered())
    assert first.cluster.take(Confirm) == [(s, Confirm(checkpoint=1)) for s in first.subtasks]
    assert first.cluster.cancelled == 1
    first.end_attempt(error="cancelled")
    assert first.status is S.FAILED
    assert isinstance(first.supervision.error, Fenced)
    assert sorted(store.list()) == before
    assert second.complete() == 2
    second.finish()


def test_a_driver_that_was_taken_over_while_it_waited_does_not_come_back():
    store = MemoryStore()
    first = World(store=store, restart=fixed()).run()
    first.supervision.line_lost(1, FIRST)
    first.end_attempt(error="lost")
    World(store=store, restore="latest").run()
    first.pass_time(1_000)
    assert first.status is S.FAILED
    assert isinstance(first.supervision.error, Fenced)
    assert len(first.cluster.launched) == 1


@pytest.mark.parametrize(("at_end", "left"), [("keep", [2]), ("delete", [])])
@pytest.mark.parametrize("how", ["finish", "cancel"])
def test_what_becomes_of_checkpoints_at_the_end(at_end, left, how):
    world = World(store=MemoryStore(), checkpoints=mo.Checkpoints("memory://small", interval="1s", at_end=at_end)).run()
    world.complete()
    if how == "finish":
        world.finish()
    else:
        world.complete()
        world.supervision.cancel(world.now_ms)
        world.end_attempt(error="cancelled")
    assert world.manifests() == left


def test_after_a_failure_checkpoints_are_kept_whatever_was_asked_for():
    config = mo.Checkpoints("memory://small", interval="1s", at_end="delete")
    world = World(store=MemoryStore(), checkpoints=config, restart=mo.NoRestart()).run()
    world.complete()
    world.supervision.line_lost(1, FIRST)
    world.end_attempt(error="lost")
    assert world.status is S.FAILED
    assert world.manifests() == [1]


def test_a_damaged_checkpoint_is_refused_aloud_and_the_older_one_is_used_at_once(caplog):
    store = MemoryStore()
    config = mo.Checkpoints("memory://small", interval="1s", retained=2)
    first = World(store=store, checkpoints=config).run()
    first.complete()
    first.complete()
    first.supervision.cancel(first.now_ms)
    first.end_attempt(error="cancelled")
    rolled_back = []

    class Ledger(mo.Sink):
        def open(self, ctx):
            return mo.SinkWriter()

        def roll_back(self, job, uid, checkpoint):
            rolled_back.append((job, uid, checkpoint))

    second = World(store=store, checkpoints=config, restore="latest", job=small_job(Ledger())).start()
    assert second.deployment.restored == 2
    with caplog.at_level(logging.INFO, "moorline"):
        second.report(FIRST, Failed(error="f.parquet is damaged", traceback="", corrupt="f.parquet"))
        second.end_attempt(error="cancelled")
        second.pass_time(0)
    assert second.deployment.restored == 1
    assert rolled_back == [("small", "out", 2), ("small", "out", 1)]
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert any("history/0000000003.json CANNOT BE USED: f.parquet is damaged" in e for e in errors), errors
    assert second.supervision.restored_from == [1], "nothing was restored from the damaged one"
    second.report(FIRST, Failed(error="g.parquet is damaged", traceback="", corrupt="g.parquet"))
    second.end_attempt(error="cancelled")
    second.pass_time(0)
    assert second.status is S.FAILED, "never empty in silence over lost state"
    assert isinstance(second.supervision.error, SnapshotCorrupt)
    assert "g.parquet" in str(second.supervision.error)


def test_a_sink_that_cannot_roll_back_is_asked_again():
    store = MemoryStore()
    config = mo.Checkpoints("memory://small", interval="1s", retained=2)
    first = World(store=store, checkpoints=config).run()
    first.complete()
    first.complete()
    path = [b.path for b in store.list("history/")][-1]
    store._files[path] = store._files[path][:-30]
    asked = []

    class Busy(mo.Sink):
        def open(self, ctx):
            return mo.SinkWriter()

        def roll_back(self, job, uid, checkpoint):
            asked.append(checkpoint)
            if len(asked) == 1:
                raise ConnectionError("busy")

    second = World(store=store, checkpoints=config, restore="latest", restart=fixed(), job=small_job(Busy())).start()
    assert second.status is S.RESTARTING
    second.pass_time(1_000)
    assert asked == [1, 1]
    assert second.deployment.restored == 1


def test_more_subtasks_than_key_groups_make_more_key_groups(caplog):
    store = MemoryStore()
    job = mo.Job("small", parallelism=2, max_parallelism=4)
    job.source(mo.from_items([1]), uid="numbers").key_by(lambda n: n).map(lambda n: n, uid="count").sink(
        mo.collect("out"), uid="out"
    )
    first = World(store=store, job=job).run()
    first.complete()
    first.supervision.cancel(first.now_ms)
    first.end_attempt(error="cancelled")

    wide = mo.Job("small", parallelism=5)
    wide.source(mo.from_items([1]), uid="numbers").key_by(lambda n: n).map(lambda n: n, uid="count").sink(
        mo.collect("out"), uid="out"
    )
    adopting = World(store=store, restore="latest").start()
    assert adopting.deployment.plan.graph.max_parallelism == 4, "the snapshot's number of key groups is adopted"
    assert "dealt out anew" not in caplog.text
    second = World(store=store, job=wide, restore="latest").start()
    assert second.deployment.plan.graph.max_parallelism == 128
    assert "the snapshot has 4 key groups and the job 128: all keyed state is dealt out anew" in caplog.text


def test_history_of_another_job_is_never_touched():
    store = MemoryStore()
    World(store=store).run().complete()
    other = History(store, "other")
    assert all(r.damage and "belongs to job 'small'" in r.damage for r in other.read())
