"""A sink that commits in the background: the stream and checkpoints go on, and nothing is forgotten meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from subtask_worlds import World, memory

import moorline as mo
from moorline.errors import SnapshotCorrupt, StorageError
from moorline.model.connector_states import COMMITTABLES, ORDERED_COMMITTABLES
from moorline.model.manifest import ElementsHandle
from moorline.model.wire.deployment import ElementsSlice, OperatorRestore
from moorline.model.wire.messages import Acknowledged, Confirm
from moorline.state.types import plain


class Server:
    """What has come to a server, and whether it is there."""

    def __init__(self) -> None:
        self.commits: list[list[Any]] = []
        self.is_away = False


SERVER = Server()


class ToServer(mo.Sink):
    commits_in_background = True

    def open(self, ctx):
        return Staging()

    def open_subtask_committer(self, ctx):
        return Committing(ctx)


class Staging(mo.SinkWriter):
    def __init__(self) -> None:
        self.records: list[Any] = []

    def write(self, records):
        self.records += records

    def prepare(self, checkpoint):
        records, self.records = self.records, []
        return [[checkpoint, records]]


class Committing(mo.SinkCommitter):
    def __init__(self, ctx) -> None:
        self.ctx = ctx

    def commit(self, committables):
        if SERVER.is_away:
            self.ctx.outage("the server is away")
            raise StorageError("server", "commit to", "it is away", can_pass=True)
        self.ctx.outage(None)
        SERVER.commits.append(committables)


@pytest.fixture(autouse=True)
def server():
    SERVER.commits, SERVER.is_away = [], False
    return SERVER


def world(**options: Any) -> World:
    job = mo.Job("to-server")
    job.source(mo.from_items([]), uid="numbers").rebalance().sink(ToServer(), uid="out")
    return World(job, "out", store=memory(), **options)


def staged_in(acknowledged: object) -> list[Any]:
    """What a snapshot holds of the sink's committables."""
    assert isinstance(acknowledged, Acknowledged)
    (operator,) = acknowledged.operators
    handles = [handle for handle in operator.elements if handle.state == ORDERED_COMMITTABLES]
    return [plain.decode(element) for handle in handles for element in handle.inline]


def restored(handle: ElementsHandle) -> dict[str, OperatorRestore]:
    return {"out": OperatorRestore(elements={handle.state: (ElementsSlice(handle, 0, handle.count),)})}


def test_a_commit_that_waits_holds_up_neither_records_nor_checkpoints_and_stays_in_them(server):
    running = world().start()
    running.send([1, 2])
    running.barrier(1)
    running.upload()
    running.subtask.order(Confirm(checkpoint=1))
    assert len(running.commits) == 1 and server.commits == []
    running.send([3])
    running.barrier(2)
    running.upload()
    assert staged_in(running.reports[-1]) == [[[1, [1, [1, 2]]], [2, [2, [3]]]]]
    running.subtask.order(Confirm(checkpoint=2))
    assert len(running.commits) == 1, "one at a time"
    running.commit()
    running.commit()
    assert server.commits == [[[1, [1, 2]]], [[2, [3]]]]
    running.barrier(3)
    running.upload()
    assert staged_in(running.reports[-1]) == [[[3, [3, []]]]], "what is committed is no longer in snapshots"


def test_the_end_waits_for_the_last_commit(server):
    running = world().start()
    running.send([1])
    running.end()
    running.barrier(1, final=True)
    running.upload()
    running.subtask.order(Confirm(checkpoint=1, final=True))
    assert not running.subtask.is_done
    running.commit()
    assert running.subtask.is_done
    assert server.commits == [[[1, [1]]]]


def test_a_commit_that_fails_ends_the_attempt_in_the_words_of_the_server_which_are_shown_meanwhile(server):
    running = world().start()
    running.send([1])
    running.barrier(1)
    running.upload()
    server.is_away = True
    running.subtask.order(Confirm(checkpoint=1))
    with pytest.raises(StorageError, match="it is away"):
        running.commit()
    assert running.subtask.progress().outages == {"out": "the server is away"}


def test_what_was_restored_is_committed_before_the_subtask_runs(server):
    element = plain.encode([[3, [3, [7]]], [4, [4, [8]]]])
    handle = ElementsHandle(ORDERED_COMMITTABLES, "split", 1, inline=[element])
    world(restore=restored(handle)).start()
    assert server.commits == [[[3, [7]], [4, [8]]]]


@pytest.mark.parametrize("strange", [7, [7], [[3, 1], "x"], [[None, 1]]])
def test_committables_that_are_not_ours_are_refused(strange):
    handle = ElementsHandle(ORDERED_COMMITTABLES, "split", 1, inline=[plain.encode(strange)])
    with pytest.raises(SnapshotCorrupt):
        world(restore=restored(handle)).start()


def test_committables_of_a_version_that_committed_at_once_are_taken_over(server):
    handle = ElementsHandle(COMMITTABLES, "split", 1, inline=[plain.encode([3, [3, [7]]])])
    world(restore=restored(handle)).start()
    assert server.commits == [[[3, [7]]]]
