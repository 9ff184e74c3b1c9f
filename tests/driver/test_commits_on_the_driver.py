"""Sinks that the driver commits: when it does, what is confirmed then, and what the next attempt commits again."""

from __future__ import annotations

from typing import Any

import pytest
from driver_worlds import World, small_job

import moorline as mo
from moorline.driver.attempts.progress import progress_of
from moorline.model.connector_states import COMMITTABLES, GLOBAL_COMMITTABLES
from moorline.model.manifest import ElementsHandle, OperatorHandles
from moorline.model.wire.messages import Acknowledged, Confirm
from moorline.state.types import plain
from moorline.storage.stores.memory import MemoryStore


class Table(mo.Sink):
    """A table that remembers what was committed, and can be told to refuse."""

    commits_on_driver = True

    def __init__(self) -> None:
        self.commits: list[tuple[int, list[Any]]] = []
        self.lineages: list[str] = []
        self.contexts: list[mo.CommitterContext] = []
        self.refusals: list[Exception] = []
        self.closed = 0

    def open(self, ctx):
        return mo.SinkWriter()

    def open_committer(self, ctx):
        self.contexts.append(ctx)
        return Committer(self)


class Committer(mo.GlobalCommitter):
    def __init__(self, table: Table) -> None:
        self.table = table

    def commit(self, lineage, checkpoint, committables):
        if self.table.refusals:
            raise self.table.refusals.pop(0)
        self.table.commits.append((checkpoint, committables))
        self.table.lineages.append(lineage)

    def close(self):
        self.table.closed += 1


@pytest.fixture
def table() -> Table:
    return Table()


def world(table: Table, store: MemoryStore, **options: Any) -> World:
    return World(store=store, job=small_job(table), **options)


def staged(world: World, checkpoint: int, *batches: tuple[int, str]) -> None:
    """Acknowledge a checkpoint whose sink has staged these."""
    lineage = world.deployment.lineage
    inline = [plain.encode([number, [lineage, what]]) for number, what in batches]
    elements = [ElementsHandle(GLOBAL_COMMITTABLES, "split", len(inline), inline=inline)]
    uids = {v.id: v.operators for v in world.deployment.plan.vertices}
    is_first = True
    for subtask in world.subtasks:
        handles = []
        for uid in uids[subtask.vertex]:
            has_staged = uid == "out" and is_first
            is_first = is_first and uid != "out"
            handles.append(OperatorHandles(uid, elements=elements if has_staged else []))
        world.report(subtask, Acknowledged(checkpoint=checkpoint, operators=handles))


def due(world: World) -> int:
    world.pass_time(1_000)
    return world.triggered()


def test_a_checkpoint_is_confirmed_when_its_commit_is_done(table):
    w = world(table, MemoryStore()).run()
    staged(w, due(w), (1, "x"))
    assert w.manifests() == [1]
    assert (table.commits, w.cluster.take(Confirm)) == ([], [])
    assert progress_of(w.supervision.running)["uncommitted"] == {"out": [1]}
    w.cluster.do_work()
    assert table.commits == [(1, ["x"])]
    assert table.lineages == [w.deployment.lineage]
    assert [order.checkpoint for _, order in w.cluster.take(Confirm)] == [1] * len(w.subtasks)


def test_checkpoints_go_on_while_a_commit_takes_its_time(table):
    w = world(table, MemoryStore()).run()
    staged(w, due(w), (1, "x"))
    staged(w, due(w), (1, "x"), (2, "y"))
    assert w.manifests() == [2]
    w.cluster.do_work()
    w.cluster.do_work()
    assert table.commits == [(1, ["x"]), (2, ["y"])]
    assert {order.checkpoint for _, order in w.cluster.take(Confirm)} == {1, 2}


def test_a_commit_that_takes_long_is_told(table, caplog):
    w = world(table, MemoryStore(), checkpoints=mo.Checkpoints("memory://small", interval="1s", timeout="1h")).run()
    staged(w, due(w), (1, "x"))
    for _ in range(3):
        w.pass_time(10_000)
    assert "checkpoint 1 of sink 'out' has been waiting to be committed for 10 s" in caplog.text
    assert caplog.text.count("waiting to be committed") == 3


def test_a_commit_that_fails_fails_the_attempt_and_the_next_one_commits_again(table, caplog):
    table.refusals.append(ConnectionError("no route"))
    w = world(table, MemoryStore(), restart=mo.FixedDelay(attempts=3, delay=0.001)).run()
    lineage = w.deployment.lineage
    staged(w, due(w), (1, "x"))
    w.cluster.do_work()
    w.pass_time(1)
    assert w.cluster.cancelled == 1
    assert not w.cluster.take(Confirm)
    w.end_attempt(error="cancelled")
    assert "could not be committed: ConnectionError: no route" in caplog.text
    w.pass_time(10)
    assert w.deployment.attempt == 2
    while w.cluster.work:
        w.cluster.do_work()
    assert (table.commits, table.lineages) == ([(1, ["x"])], [lineage])
    assert w.deployment.lineage == lineage
    assert table.closed == 1


def test_another_driver_commits_what_the_first_had_published(table):
    store = MemoryStore()
    first = world(table, store).run()
    staged(first, due(first), (1, "x"))
    second = world(table, store, restore="latest", take_over=True).run()
    second.cluster.do_work()
    assert (table.commits, table.lineages) == ([(1, ["x"])], [first.deployment.lineage])
    assert [ctx.attempt for ctx in table.contexts] == [2]


def test_a_job_that_begins_anew_has_another_lineage(table):
    store = MemoryStore()
    lineages = {world(table, store, take_over=True).run().deployment.lineage for _ in range(3)}
    assert len(lineages) == 3
    assert "" not in lineages


def test_what_workers_would_have_committed_is_committed_by_the_driver(table):
    """The sink's workers committed in the version of the job that took the checkpoint."""
    store = MemoryStore()
    w = World(store=store, job=small_job(None)).run()
    number = due(w)
    inline = [plain.encode([number, "x"])]
    uids = {v.id: v.operators for v in w.deployment.plan.vertices}
    for subtask in w.subtasks:
        elements = [ElementsHandle(COMMITTABLES, "split", 1, inline=inline)] if subtask.index == 0 else []
        handles = [OperatorHandles(uid, elements=elements if uid == "out" else []) for uid in uids[subtask.vertex]]
        w.report(subtask, Acknowledged(checkpoint=number, operators=handles))
    second = world(table, store, restore="latest", take_over=True).run()
    second.cluster.do_work()
    assert (table.commits, table.lineages) == ([(1, ["x"])], [""])


def test_the_job_ends_when_the_last_commit_is_done(table):
    w = world(table, MemoryStore()).run()
    w.end_input()
    staged(w, w.triggered(final=True), (1, "x"))
    assert not w.cluster.take(Confirm)
    w.cluster.do_work()
    assert all(order.final for _, order in w.cluster.take(Confirm))
    w.end_attempt(results={})
    assert w.status is mo.JobStatus.FINISHED


def test_without_storage_the_last_commit_is_made_as_well(table):
    w = World(job=small_job(table)).run()
    w.end_input()
    staged(w, w.triggered(final=True), (1, "x"))
    w.cluster.do_work()
    assert table.commits == [(1, ["x"])]
    assert w.cluster.take(Confirm)
