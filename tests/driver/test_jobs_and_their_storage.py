"""A job and its storage: claimed, away, taken over, damaged, and left in order at the end."""

from __future__ import annotations

import logging

import pytest
from driver_worlds import FailingStore, World, small_job
from job_failures import fixed

import moorline as mo
from moorline.api.sinks import is_meant
from moorline.errors import Fenced, OutputCannotBeUndone, SnapshotCorrupt
from moorline.model.ids import SubtaskId
from moorline.model.wire.messages import Confirm, Failed, Running
from moorline.storage.history import History
from moorline.storage.stores.memory import MemoryStore

S = mo.JobStatus
FIRST = SubtaskId(0, 0)


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

        def roll_back(self, job, uid, checkpoint, lineages):
            rolled_back.append((job, uid, checkpoint))

    second = World(store=store, checkpoints=config, restore="latest", job=small_job(Ledger())).start()
    assert second.deployment.restored == 2
    with caplog.at_level(logging.INFO, "moorline"):
        second.report(FIRST, Failed(error="f.parquet is damaged", traceback="", corrupt="f.parquet"))
        second.end_attempt(error="cancelled")
        second.pass_time(0)
    assert second.deployment.restored == 1
    assert rolled_back == [("small", "out", 1)]
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert any("history/0000000003.json CANNOT BE USED: f.parquet is damaged" in e for e in errors), errors
    assert second.supervision.restored_from == [1], "nothing was restored from the damaged one"
    second.report(FIRST, Failed(error="g.parquet is damaged", traceback="", corrupt="g.parquet"))
    second.end_attempt(error="cancelled")
    second.pass_time(0)
    assert second.status is S.FAILED, "never empty in silence over lost state"
    assert isinstance(second.supervision.error, SnapshotCorrupt)
    assert "g.parquet" in str(second.supervision.error)


@pytest.mark.parametrize("restore", [None, "latest"])
def test_only_output_of_the_own_lineage_is_taken_back(restore):
    """Whether the job has begun anew, or found nothing to go on from; also after a restore from its own savepoint."""
    config = mo.Checkpoints("memory://small", interval="1s", retained=3)
    begun = {}
    for place in ("here", "elsewhere"):
        store = MemoryStore()
        first = World(store=store, checkpoints=config, restore=restore).run()
        begun[place] = first.deployment.lineage
        for _ in range(3):
            first.complete()
        first.supervision.cancel(first.now_ms)
        first.end_attempt(error="cancelled")
    path = [b.path for b in store.list("history/") if b'"checkpoint"' in store._files[b.path]][-1]
    store._files[path] = store._files[path][:-30]
    meant = []

    class Ledger(mo.Sink):
        def open(self, ctx):
            return mo.SinkWriter()

        def roll_back(self, job, uid, checkpoint, lineages):
            meant.append(lineages)

    second = World(store=store, checkpoints=config, restore="latest", job=small_job(Ledger())).start()
    assert second.deployment.lineage == begun["elsewhere"]
    assert len(meant) == 1 and meant[0]
    assert is_meant(begun["elsewhere"], meant[0])
    assert not is_meant(begun["here"], meant[0])


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

        def roll_back(self, job, uid, checkpoint, lineages):
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


def test_a_sink_that_keeps_its_output_refuses_to_go_back_past_a_damaged_checkpoint():
    store = MemoryStore()
    config = mo.Checkpoints("memory://small", interval="1s", retained=2)
    first = World(store=store, checkpoints=config).run()
    first.complete()
    first.complete()
    path = [b.path for b in store.list("history/")][-1]
    store._files[path] = store._files[path][:-30]

    class Keeps(mo.Sink):
        on_roll_back = "fail"

        def open(self, ctx):
            return mo.SinkWriter()

    before = {name: data for name, data in store._files.items() if not name.startswith("head/")}
    second = World(store=store, checkpoints=config, restore="latest", restart=fixed(), job=small_job(Keeps())).start()
    assert second.status is S.FAILED
    error = second.supervision.error
    assert isinstance(error, OutputCannotBeUndone)
    assert (error.checkpoint, "written twice" in str(error)) == (1, True)
    kept = {name: data for name, data in store._files.items() if name in before}
    assert kept == before, "nothing was given up or removed"
    Keeps.on_roll_back = "repeat"
    third = World(store=store, checkpoints=config, restore="latest", restart=fixed(), job=small_job(Keeps())).start()
    assert third.deployment.restored == 1


def test_sinks_are_asked_to_undo_only_if_the_job_goes_back():
    """An earlier run of the same name, with checkpoints elsewhere, may have written higher numbers there."""
    store = MemoryStore()
    config = mo.Checkpoints("memory://small", interval="1s", retained=2)
    asked = []

    class Undoes(mo.Sink):
        def open(self, ctx):
            return mo.SinkWriter()

        def roll_back(self, job, uid, checkpoint, lineages):
            asked.append(checkpoint)

    first = World(store=store, checkpoints=config, restart=fixed(), job=small_job(Undoes())).run()
    first.complete()
    first.complete()
    path = [b.path for b in store.list("history/")][-1]
    first.report(FIRST, Failed(error="gone", traceback=""))
    first.end_attempt(error="cancelled")
    first.pass_time(1_000)
    assert (first.deployment.restored, asked) == (2, []), "nothing was lost, so there is nothing to undo"
    store._files[path] = store._files[path][:-30]
    second = World(store=store, checkpoints=config, restore="latest", restart=fixed(), job=small_job(Undoes())).start()
    assert (second.deployment.restored, asked) == (1, [1])
    third = World(store=store, checkpoints=config, restore="latest", restart=fixed(), job=small_job(Undoes())).start()
    assert (third.deployment.restored, asked) == (1, [1, 1]), "the driver before may have died too early"
