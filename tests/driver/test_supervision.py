"""A job from its first start to its last word: stopped, or cancelled."""

from __future__ import annotations

from driver_worlds import FailingStore, World, small_job
from job_failures import fixed, user_failure

import moorline as mo
from moorline.errors import JobCancelled
from moorline.model.ids import SubtaskId
from moorline.model.wire.messages import Confirm, Running
from moorline.storage.stores.memory import MemoryStore

S = mo.JobStatus
FIRST = SubtaskId(0, 0)


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
