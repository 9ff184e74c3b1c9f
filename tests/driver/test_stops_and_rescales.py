"""Stops with a savepoint, rescales and takeovers: what a failure in the middle of one must not do."""

from __future__ import annotations

import uuid
from concurrent.futures import Future

import pytest
from driver_worlds import World, small_job

import moorline as mo
from moorline.driver.requests import SnapshotRequest
from moorline.errors import InvalidArgument, SnapshotCorrupt
from moorline.model.ids import SubtaskId
from moorline.model.manifest import InFlightHandle, Manifest, OperatorEntry, OperatorHandles
from moorline.model.wire.messages import Overtake, Running, Trigger
from moorline.snapshots.folders import MANIFEST, open_snapshot, write_savepoint
from moorline.snapshots.planning import plan_restore
from moorline.storage import entries
from moorline.storage.stores.memory import MemoryStore
from moorline.storage.stores.open import open_store

FIRST = SubtaskId(0, 0)
RESTART = mo.FixedDelay(attempts=9, delay="1s")


def folder() -> str:
    return f"memory://{uuid.uuid4().hex}"


def fail(world: World) -> None:
    world.supervision.line_lost(world.deployment.attempt, FIRST)
    world.end_attempt(error="cancelled")
    world.pass_time(1_000)


def test_after_a_failure_a_stopped_job_ends_at_its_savepoint_and_reads_nothing_more():
    world = World(store=MemoryStore(), restart=RESTART).run()
    world.pass_time(1_000)
    world.acknowledge(1)
    request = SnapshotRequest(savepoint=folder())
    world.supervision.stop_with_savepoint(request, world.now_ms)
    world.acknowledge(2)
    assert request.answer.result(0) == 2
    fail(world)
    assert (world.deployment.restored, world.deployment.restore_location) == (2, request.savepoint)
    assert world.deployment.is_paused
    world.cluster.orders.clear()
    world.all_report(Running(pid=1))
    world.acknowledge(world.triggered(final=True))
    world.end_attempt(results={})
    assert world.status is mo.JobStatus.FINISHED


def test_a_savepoint_that_was_not_complete_stops_nothing():
    world = World(store=MemoryStore(), restart=RESTART).run()
    request = SnapshotRequest(savepoint=folder())
    world.supervision.stop_with_savepoint(request, world.now_ms)
    fail(world)
    assert request.answer.exception() is not None
    assert not world.deployment.is_paused


def test_a_rescale_gives_way_once():
    world = World(store=MemoryStore(), restart=RESTART).run()
    answer: Future[int] = Future()
    world.supervision.rescale(small_job().graph(3), answer, world.now_ms)
    world.acknowledge(1)
    world.end_attempt(error="cancelled")
    world.pass_time(1)
    cancelled = world.cluster.cancelled
    world.all_report(Running(pid=1))
    assert world.cluster.cancelled == cancelled
    assert answer.result(0) == world.deployment.attempt
    assert len(world.subtasks) == 6


def test_a_rescale_to_what_it_is_goes_on_too():
    world = World(store=MemoryStore(), restart=RESTART).start()
    answer: Future[int] = Future()
    world.supervision.rescale(small_job().graph(2), answer, world.now_ms)
    world.all_report(Running(pid=1))
    assert not answer.done(), "its sources are about to stop reading: only another attempt goes on"
    world.acknowledge(1)
    world.end_attempt(error="cancelled")
    world.pass_time(1)
    world.all_report(Running(pid=1))
    assert answer.result(0) == world.deployment.attempt


def test_whoever_takes_over_before_the_first_checkpoint_goes_on_from_the_savepoint():
    store, path = MemoryStore(), folder()
    entry = OperatorEntry("count", "f", 1, 128, [OperatorHandles("count")])
    write_savepoint(open_store(path), Manifest("small", 1, 7, 0, [entry]))
    assert World(store=store, restore=path).start().deployment.restored == 7
    second = World(store=store, restore="latest").run()
    assert (second.deployment.restored, second.deployment.restore_location) == (7, path)
    second.pass_time(1_000)
    second.acknowledge(8)
    third = World(store=store, restore="latest").start()
    assert (third.deployment.restored, third.deployment.restore_location) == (8, None)
    assert World(store=store).start().deployment.restored is None


# --- unaligned jobs -----------------------------------------------------------------------------


def test_a_savepoint_is_aligned_also_in_a_job_of_unaligned_checkpoints():
    checkpoints = mo.Checkpoints("memory://small", interval="1s", unaligned=True)
    world = World(store=MemoryStore(), checkpoints=checkpoints).run()
    world.supervision.request(SnapshotRequest(savepoint=folder()), world.now_ms)
    assert len(world.cluster.take(Trigger)) == 2
    world.pass_time(500)
    assert world.cluster.take(Overtake) == []
    world.acknowledge(1)
    world.pass_time(1_000)
    assert len(world.cluster.take(Overtake)) == 4, "and the next checkpoint overtakes again"


def unaligned(upstream: str = "numbers", partitioning: str = "hash") -> Manifest:
    handle = InFlightHandle(upstream, None, 0, partitioning, 0, 128, 3, 1, inline=[b"?"])
    entry = OperatorEntry("count", "f", 1, 128, [OperatorHandles("count", in_flight=[handle])])
    return Manifest("small", 1, 7, 0, [entry])


def test_a_savepoint_with_records_in_flight_is_neither_written_nor_believed():
    store = open_store(folder())
    with pytest.raises(ValueError, match="in flight"):
        write_savepoint(store, unaligned())
    store.put_if_absent(MANIFEST, entries.encode(unaligned(), "w", ""))
    with pytest.raises(SnapshotCorrupt, match="never has"):
        open_snapshot(store.url)


def test_an_unaligned_checkpoint_is_not_edited_as_a_table():
    store = open_store(folder())
    store.put_if_absent("history/0000000001.json", entries.encode(unaligned(), "w", ""))
    with pytest.raises(InvalidArgument, match="3 records in flight"):
        mo.SnapshotWriter(folder()).from_snapshot(store.url)


def test_a_plan_says_that_records_in_flight_would_go_nowhere():
    graph = small_job().graph()
    assert not plan_restore(unaligned(), graph, "here").problems
    for changed in (unaligned(upstream="others"), unaligned(partitioning="rebalance")):
        plan = plan_restore(changed, graph, "here")
        assert not plan.is_safe
        assert "on their way" in plan.problems[0]
