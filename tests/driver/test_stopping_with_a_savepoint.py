"""A stop with a savepoint, and what becomes of it if something fails on the way; taking over from a savepoint."""

from __future__ import annotations

import itertools

from driver_worlds import World, small_job

import moorline as mo
from moorline.driver.requests import SnapshotRequest
from moorline.model.manifest import Manifest
from moorline.model.wire.messages import Failed, Running, Trigger
from moorline.snapshots.folders import write_savepoint
from moorline.storage.log import read_history
from moorline.storage.stores.memory import MemoryStore
from moorline.storage.stores.open import open_store

S = mo.JobStatus
NUMBERS = itertools.count()


def stop(world):
    request = SnapshotRequest(savepoint=f"memory://stopping-{next(NUMBERS)}")
    world.supervision.stop_with_savepoint(request, world.now_ms)
    return request


def fail(world):
    world.report(world.subtasks[0], Failed(error="boom", traceback=""))
    world.end_attempt(error="cancelled")
    world.cluster.orders.clear()
    world.pass_time(60_000)


def stopped(**options):
    """A world whose savepoint is complete and whose final checkpoint is not."""
    world = World(restart=mo.FixedDelay(9, "1s"), **options).run()
    if options.get("store") is not None:
        world.complete()
    request = stop(world)
    ((_, trigger), *_) = world.cluster.take(Trigger)
    assert trigger.pause
    world.acknowledge(trigger.checkpoint)
    assert request.answer.result(0) == trigger.checkpoint
    return world, request.savepoint, trigger.checkpoint


def test_after_a_failure_the_stop_goes_on_from_its_savepoint_and_nothing_is_read():
    for store in (MemoryStore(), None):
        world, savepoint, number = stopped(store=store)
        fail(world)
        deployment = world.deployment
        assert (deployment.restored, deployment.restore_location) == (number, savepoint)
        assert deployment.is_paused
        world.all_report(Running(pid=7))
        assert world.status is S.STOPPING
        world.acknowledge(world.triggered(final=True))
        world.end_attempt(results={"out": []})
        assert world.status is S.FINISHED


def test_a_final_checkpoint_that_was_complete_is_newer_than_the_savepoint():
    store = MemoryStore()
    world, _, _ = stopped(store=store)
    final = world.triggered(final=True)
    world.acknowledge(final)
    world.end_attempt(error="lost")
    world.pass_time(60_000)
    assert (world.deployment.restored, world.deployment.restore_location) == (final, None)
    assert world.deployment.is_paused


def test_a_savepoint_that_was_taken_by_a_stop_is_never_taken_over_by_the_job_itself():
    world, savepoint, _ = stopped(store=MemoryStore(), restore_mode="claim")
    fail(world)
    world.all_report(Running(pid=7))
    world.acknowledge(world.triggered(final=True))
    world.end_attempt(results={"out": []})
    assert mo.plan(small_job(), restore=savepoint).checkpoint > 0, "it is there"


def test_a_driver_that_takes_over_before_the_first_checkpoint_starts_from_the_savepoint():
    _, savepoint, number = stopped(store=MemoryStore())
    store = MemoryStore()
    World(store=store, restore=savepoint).run()
    second = World(store=store, restore="latest").start()
    assert (second.deployment.restored, second.deployment.restore_location) == (number, savepoint)
    second.all_report(Running(pid=7))
    mine = second.complete()
    third = World(store=store, restore="latest").start()
    assert (third.deployment.restored, third.deployment.restore_location) == (mine, None)
    fresh = World(store=store).start()
    assert fresh.deployment.restored is None
    after = World(store=store, restore="latest").start()
    assert after.deployment.restored is None, "the savepoint belongs to an earlier life of the job"


def test_a_driver_that_takes_over_from_a_stop_goes_on_where_its_savepoint_is():
    store = MemoryStore()
    world, savepoint, number = stopped(store=store)
    fail(world)  # the attempt after this one commits what the savepoint covers
    second = World(store=store, restore="latest").start()
    assert (second.deployment.restored, second.deployment.restore_location) == (number, savepoint)
    assert not second.deployment.is_paused, "the wish to stop has died with the driver"
    second.all_report(Running(pid=7))
    mine = second.complete()
    assert mine > number
    third = World(store=store, restore="latest").start()
    assert (third.deployment.restored, third.deployment.restore_location) == (mine, None)


def test_a_damaged_first_checkpoint_after_a_stop_is_gone_back_from_to_its_savepoint(caplog):
    rolled_back = []

    class Ledger(mo.Sink):
        def open(self, ctx):
            return mo.SinkWriter()

        def roll_back(self, job, uid, checkpoint, lineages):
            rolled_back.append(checkpoint)

    store = MemoryStore()
    world, savepoint, number = stopped(store=store)
    fail(world)
    second = World(store=store, restore="latest").run()
    mine = second.complete()
    newest = store.list("history/")[-1].path
    store.delete([newest])
    third = World(store=store, restore="latest", job=small_job(Ledger())).start()
    assert (third.deployment.restored, third.deployment.restore_location) == (number, savepoint)
    assert rolled_back == [number], "what the lost checkpoint has published is taken back"
    assert f"{newest} CANNOT BE USED" in caplog.text and f"going back to {savepoint}" in caplog.text
    third.all_report(Running(pid=7))
    assert third.complete() > mine, "no number is used twice"


def ended_with_a_damaged_final_checkpoint(store):
    """A job that was stopped with a savepoint and has ended well; then its final checkpoint is lost."""
    two = mo.Checkpoints("memory://small", interval="1s", timeout="10s", retained=2)
    world, savepoint, number = stopped(store=store, checkpoints=two)
    final = world.triggered(final=True)
    world.acknowledge(final)
    world.end_attempt(results={"out": []})
    assert world.status is S.FINISHED
    (path,) = [r.path for r in read_history(store) if isinstance(r.entry, Manifest) and r.entry.checkpoint == final]
    store.delete([path])
    return savepoint, number, final


def test_a_lost_final_checkpoint_leaves_the_savepoint_of_the_stop(caplog):
    store = MemoryStore()
    savepoint, number, final = ended_with_a_damaged_final_checkpoint(store)
    second = World(store=store, restore="latest").start()
    assert (second.deployment.restored, second.deployment.restore_location) == (number, savepoint)
    assert not second.deployment.is_paused
    assert "CANNOT BE USED" in caplog.text and f"going back to {savepoint}" in caplog.text
    third = World(store=store, restore="latest").start()
    assert third.deployment.restore_location == savepoint, "whoever takes over goes there too"
    third.all_report(Running(pid=7))
    assert third.complete() > final, "no number is used twice"


def test_a_lost_final_checkpoint_and_a_lost_savepoint_leave_the_older_checkpoint(caplog):
    store = MemoryStore()
    savepoint, number, _ = ended_with_a_damaged_final_checkpoint(store)
    left = open_store(savepoint)
    left.delete([blob.path for blob in left.list()])
    second = World(store=store, restore="latest").start()
    assert second.deployment.restored is not None
    assert (second.deployment.restored < number, second.deployment.restore_location) == (True, None)
    assert f"{savepoint} CANNOT BE USED" in caplog.text


def test_another_snapshot_in_the_place_of_the_savepoint_is_not_taken_for_it():
    store = MemoryStore()
    savepoint, number, _ = ended_with_a_damaged_final_checkpoint(store)
    left = open_store(savepoint)
    left.delete([blob.path for blob in left.list()])
    write_savepoint(left, Manifest("job", 1, number + 7, 0, []))
    assert World(store=store, restore="latest").start().deployment.restore_location is None
