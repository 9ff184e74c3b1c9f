"""One attempt's checkpoints: what is triggered, published, confirmed, given up, kept and thrown away."""

from __future__ import annotations

import pytest
from driver_worlds import FailingStore, World

import moorline as mo
from moorline.errors import FailureReason, InvalidArgument
from moorline.model.ids import SubtaskId
from moorline.model.manifest import OperatorHandles, RowsHandle, Segment, SnapshotFile
from moorline.model.type_tree.tree import INT
from moorline.model.wire.messages import Abort, Acknowledged, Confirm, Declined, Trigger
from moorline.storage.stores.memory import MemoryStore


def checkpoints(**options) -> mo.Checkpoints:
    return mo.Checkpoints("memory://small", **{"interval": "1s", "timeout": "10s", **options})


def declined(checkpoint: int) -> Declined:
    return Declined(checkpoint=checkpoint, reason=FailureReason.UPLOAD_FAILED.name, detail="no space")


def test_sources_are_told_at_every_interval_and_all_are_told_when_it_is_complete():
    world = World(store=MemoryStore()).run()
    world.pass_time(999)
    assert world.cluster.orders == []
    world.pass_time(1)
    assert world.triggered() == 1
    world.acknowledge(1)
    assert world.cluster.take(Confirm) == [(s, Confirm(checkpoint=1)) for s in world.subtasks]
    assert world.manifests() == [1]
    assert world.complete() == 2


def test_now_and_then_a_checkpoint_builds_on_nothing():
    """The second of two, and the next one if that one fails."""
    config = checkpoints(full_every=2, retained=3, incremental=True, tolerable_failures=9)
    world, built_on = World(store=MemoryStore(), checkpoints=config).run(), {}
    for number in range(1, 8):
        world.pass_time(1_000)
        (order,) = {order for _, order in world.cluster.take(Trigger)}
        built_on[order.checkpoint] = order.completed
        if number == 4:
            world.report(SubtaskId(1, 1), declined(4))
        else:
            world.acknowledge(number)
    assert built_on == {1: 0, 2: 0, 3: 2, 4: 0, 5: 0, 6: 0, 7: 6}


def test_a_full_checkpoint_each_time_has_another_name():
    for options in (
        {"full_every": 1},
        {"full_every": 0},
        {"full_every": True},
        {"full_every": 3, "incremental": False},
    ):
        with pytest.raises(InvalidArgument, match="incremental=False"):
            checkpoints(**options)


def test_the_manifest_is_there_before_anybody_is_told():
    world = World(store=MemoryStore())
    seen = []
    send = world.cluster.send
    world.cluster.send = lambda s, order: (
        send(s, order),
        isinstance(order, Confirm) and seen.append(world.manifests()),
    )
    world.run()
    world.complete()
    assert seen == [[1]] * 4


def test_nothing_is_due_while_enough_are_in_flight():
    world = World(store=MemoryStore()).run()
    world.pass_time(1_000)
    world.triggered()
    for _ in range(20):
        world.pass_time(100)
        due = world.supervision.next_wakeup_ms()
        assert due is None or due > world.now_ms, "the loop would spin"
    assert world.cluster.take(Trigger) == []
    world.acknowledge(1)
    assert world.triggered() == 2, "the next one is overdue"


def test_a_declined_checkpoint_is_aborted_everywhere_and_its_files_are_deleted():
    store = MemoryStore()
    world = World(store=store, checkpoints=checkpoints(tolerable_failures=1)).run()
    world.pass_time(1_000)
    world.triggered()
    path = "data/chk-1/count/seen-0-1-abc.parquet"
    store.put(path, b"rows")
    file = SnapshotFile(path, 4, [Segment(0, 0, 0, 4, "")])
    handle = OperatorHandles("count", [RowsHandle("seen", "value", INT, 0, 128, 1, file)])
    world.report(SubtaskId(1, 0), Acknowledged(checkpoint=1, operators=[handle]))
    world.report(SubtaskId(1, 1), declined(1))
    assert world.cluster.take(Abort) == [(s, Abort(checkpoint=1)) for s in world.subtasks]
    assert not store.list("data/")
    assert world.status is mo.JobStatus.RUNNING
    # What comes late is thrown away as well.
    store.put(path, b"rows")
    world.report(SubtaskId(1, 1), Acknowledged(checkpoint=1, operators=[handle]))
    assert not store.list("data/")
    assert world.complete() == 2


def test_one_failure_too_many_in_a_row_fails_the_attempt():
    world = World(store=MemoryStore(), checkpoints=checkpoints(tolerable_failures=1)).run()
    for number in (1, 2):
        world.pass_time(1_000)
        assert world.triggered() == number
        world.report(SubtaskId(0, 0), declined(number))
    assert world.cluster.cancelled == 1
    world.end_attempt(error="cancelled")
    assert world.status is mo.JobStatus.RESTARTING
    assert "2 checkpoints in a row failed" in world.supervision.history_of_failures[0]
    assert "(subtask 0/0: no space)" in world.supervision.history_of_failures[0]


def test_a_success_in_between_starts_the_count_anew():
    world = World(store=MemoryStore(), checkpoints=checkpoints(tolerable_failures=1)).run()
    for number in (1, 3):
        world.pass_time(1_000)
        assert world.triggered() == number
        world.report(SubtaskId(0, 0), declined(number))
        world.complete()
    assert world.cluster.cancelled == 0


def test_a_checkpoint_that_takes_too_long_is_given_up():
    world = World(store=MemoryStore(), checkpoints=checkpoints(tolerable_failures=1), heartbeat_timeout="1h").run()
    world.pass_time(1_000)
    world.triggered()
    world.report(SubtaskId(0, 0), Acknowledged(checkpoint=1, operators=[]))
    assert world.supervision.next_wakeup_ms() == world.now_ms + 10_000
    world.pass_time(10_000)
    assert [o for _, o in world.cluster.take(Abort)] == [Abort(checkpoint=1)] * 4
    # Its own late acknowledgements change nothing; the next one has a number of its own.
    world.acknowledge(1)
    assert world.manifests() == []
    assert world.triggered() == 2


def test_a_checkpoint_that_cannot_be_published_is_aborted_and_its_files_are_left_alone():
    store = FailingStore()
    world = World(store=store, checkpoints=checkpoints(tolerable_failures=1)).run()
    path = "data/chk-1/count/seen-0-1-abc.parquet"
    store.put(path, b"rows")
    file = SnapshotFile(path, 4, [Segment(0, 0, 0, 4, "")])
    handle = OperatorHandles("count", [RowsHandle("seen", "value", INT, 0, 128, 1, file)])
    world.pass_time(1_000)
    world.triggered()
    store.failing = True
    for subtask in world.subtasks:
        world.report(subtask, Acknowledged(checkpoint=1, operators=[handle] if subtask.vertex else []))
    assert {o for _, o in world.cluster.take(Abort)} == {Abort(checkpoint=1)}
    assert world.cluster.take(Confirm) == []
    store.failing = False
    assert store.get(path) == b"rows", "nobody knows whether the manifest is there after all"
    world.complete()
    assert world.manifests() == [2]


@pytest.mark.parametrize("retained", [1, 3])
def test_as_many_are_kept_as_were_asked_for(retained):
    world = World(store=MemoryStore(), checkpoints=checkpoints(retained=retained)).run()
    for _ in range(6):
        world.complete()
    assert world.manifests() == [1, 2, 3, 4, 5, 6][-retained:]


def test_one_that_may_not_have_been_published_is_not_counted_among_those_that_are_kept():
    store = FailingStore()
    world = World(store=store, checkpoints=checkpoints(retained=2, tolerable_failures=3)).run()
    world.complete()
    store.failing = True
    world.complete()
    store.failing = False
    world.complete()
    assert world.manifests() == [1, 3]
    world.complete()
    assert world.manifests() == [3, 4]


def test_the_final_checkpoint_goes_before_interval_and_pause_and_ends_it_all():
    world = World(store=MemoryStore(), checkpoints=checkpoints(min_pause="1h")).run()
    world.complete()
    world.finish()
    assert world.status is mo.JobStatus.FINISHED
    assert world.supervision.results == {"out": [1, 2, 3]}
    assert [(s.checkpoint, s.final) for s in world.supervision.checkpoints] == [(1, False), (2, True)]


def test_a_final_checkpoint_that_fails_is_started_again():
    world = World(store=MemoryStore(), checkpoints=checkpoints(tolerable_failures=3)).run()
    world.end_input()
    assert world.triggered(final=True) == 1
    world.report(SubtaskId(0, 1), declined(1))
    assert world.triggered(final=True) == 2
    world.acknowledge(2)
    assert {o for _, o in world.cluster.take(Confirm)} == {Confirm(checkpoint=2, final=True)}


def test_without_storage_there_is_only_the_final_one():
    world = World().run()
    world.pass_time(3_600_000)
    assert world.cluster.take(Trigger) == []


def test_a_source_that_ends_alone_ends_nothing():
    world = World().run()
    world.report(SubtaskId(0, 0), Declined(checkpoint=9, reason="EXPIRED"))  # of no checkpoint we know
    assert world.cluster.orders == []
    sources = list(world.deployment.plan.source_subtasks())
    assert len(sources) == 2
