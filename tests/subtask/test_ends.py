"""The two ends of a job: positions that come back, and commits that cover whatever is confirmed."""

from __future__ import annotations

from typing import Any

import pytest
from subtask_worlds import World, memory

import moorline as mo
from moorline.errors import StorageError, UserCodeFailed
from moorline.model.manifest import ElementsHandle
from moorline.model.wire import elements
from moorline.model.wire.deployment import ElementsSlice, OperatorRestore
from moorline.model.wire.messages import Acknowledged, Confirm, Noticed, Trigger
from moorline.state.types import plain
from moorline.subtask.failure_report import describe_failure
from moorline.subtask.operators.read_size import FIRST_RECORDS
from moorline.subtask.operators.sink import SinkOperator


class Books(mo.Sink):
    """Stages numbers and books them, and notes every commit as it was asked for."""

    def __init__(self) -> None:
        self.commits: list[list[Any]] = []
        self.broken = False

    def open(self, ctx):
        self.restored = ctx.restored
        return Writer()

    def commit(self, committables):
        if self.broken:
            raise ConnectionError("the ledger is closed")
        self.commits.append(committables)


class Writer(mo.SinkWriter):
    def __init__(self) -> None:
        self.records: list[Any] = []
        self.total = 0

    def write(self, records):
        if "bad" in records:
            raise ValueError("cannot write that")
        self.records += records

    def prepare(self, checkpoint):
        staged, self.records = self.records, []
        self.total += len(staged)
        return [{"checkpoint": checkpoint, "records": staged}] if staged else []

    def snapshot(self):
        return [self.total]


def booking() -> tuple[mo.Job, Books]:
    sink = Books()
    job = mo.Job("books")
    job.source(mo.from_items([])).rebalance().sink(sink, uid="books")
    return job, sink


def staged(checkpoint: int, *records: Any) -> dict[str, Any]:
    return {"checkpoint": checkpoint, "records": list(records)}


def restored_from(acknowledged: Acknowledged, uid: str) -> dict[str, OperatorRestore]:
    (handles,) = (h for h in acknowledged.operators if h.uid == uid)
    return {uid: OperatorRestore(elements={e.state: (ElementsSlice(e, 0, e.count),) for e in handles.elements})}


def test_nothing_is_committed_before_it_is_confirmed():
    job, sink = booking()
    world = World(job, "books", store=memory()).start()
    world.send([1, 2])
    world.barrier(1)
    world.upload()
    assert sink.commits == []
    world.send([3])
    world.subtask.order(Confirm(checkpoint=1))
    assert sink.commits == [[staged(1, 1, 2)]]


def test_a_confirmation_covers_those_that_got_lost_and_repeating_one_commits_nothing():
    job, sink = booking()
    world = World(job, "books", store=memory()).start()
    for checkpoint in (1, 2, 3):
        world.send([checkpoint])
        world.barrier(checkpoint)
    world.subtask.order(Confirm(checkpoint=2))
    assert sink.commits == [[staged(1, 1), staged(2, 2)]]
    world.subtask.order(Confirm(checkpoint=2))
    world.subtask.order(Confirm(checkpoint=1))
    assert len(sink.commits) == 1
    world.subtask.order(Confirm(checkpoint=3))
    assert sink.commits[1:] == [[staged(3, 3)]]


def test_a_checkpoint_holds_what_is_staged_and_not_known_to_be_committed():
    job, _ = booking()
    world = World(job, "books", store=memory()).start()
    world.send([1])
    world.barrier(1)
    world.send([2])
    world.barrier(2)
    world.subtask.order(Confirm(checkpoint=1))
    world.barrier(3)
    world.upload()
    committables = [
        [plain.decode(e) for e in h.inline]
        for a in world.reports[1:]
        for o in a.operators
        for h in o.elements
        if h.state == "committables"
    ]
    assert committables == [[[1, staged(1, 1)]], [[1, staged(1, 1)], [2, staged(2, 2)]], [[2, staged(2, 2)]]]


def test_what_the_restored_checkpoint_staged_is_committed_again_before_anything_is_written():
    job, _ = booking()
    world = World(job, "books", store=memory()).start()
    world.send([1, 2])
    world.barrier(1)
    world.upload()

    again, sink = booking()
    successor = World(again, "books", attempt=2, restore=restored_from(world.reports[-1], "books")).start()
    assert sink.commits == [[staged(1, 1, 2)]]
    assert sink.restored == (2,)
    successor.barrier(2)
    successor.subtask.order(Confirm(checkpoint=2))
    assert len(sink.commits) == 1


def test_an_error_of_a_sink_is_told_with_its_operator():
    job, _ = booking()
    world = World(job, "books").start()
    with pytest.raises(UserCodeFailed, match="cannot write that") as failed:
        world.send(["bad"])
    assert failed.value.uid == "books"


def test_a_commit_that_fails_ends_the_attempt_but_may_be_tried_again():
    job, sink = booking()
    world = World(job, "books", store=memory()).start()
    world.send([1])
    world.barrier(1)
    sink.broken = True
    with pytest.raises(RuntimeError, match="books: could not commit 1: the ledger is closed") as failed:
        world.subtask.order(Confirm(checkpoint=1))
    assert describe_failure(failed.value).can_pass is None
    sink.broken = False
    world.subtask.order(Confirm(checkpoint=1))
    assert sink.commits == [[staged(1, 1)]], "it was not forgotten"


def test_a_source_goes_on_where_its_checkpoint_stands():
    def job() -> mo.Job:
        made = mo.Job("numbers")
        made.source(mo.from_items(range(3_000)), uid="numbers").rebalance().sink(mo.discard())
        return made

    world = World(job(), "numbers", store=memory()).start()
    world.subtask.work()
    world.subtask.order(Trigger(checkpoint=1, triggered_ms=0))
    world.subtask.work()
    world.upload()
    successor = World(job(), "numbers", attempt=2, restore=restored_from(world.reports[-1], "numbers")).start()
    successor.subtask.work()
    successor.subtask.work()
    frames = successor.rows()
    read = [r for f in frames for _, part, _ in elements.unpack_batch(f) for r in part]
    assert read == list(range(FIRST_RECORDS, FIRST_RECORDS + len(read))) and len(read) == 3 * FIRST_RECORDS


def test_an_error_of_a_source_is_told_with_its_operator_and_ours_as_it_is():
    class Broken(mo.Source):
        def __init__(self, error):
            self.error = error

        def open(self, ctx):
            return BrokenReader(self.error)

    class BrokenReader(mo.SourceReader):
        def __init__(self, error):
            self.error = error

        def read(self, limit):
            raise self.error

        def positions(self):
            return {}

    def world(error: Exception) -> World:
        job = mo.Job("broken")
        job.source(Broken(error), uid="broken").sink(mo.discard())
        return World(job, "broken").start()

    with pytest.raises(UserCodeFailed, match="no route to host") as failed:
        world(ConnectionError("no route to host")).subtask.work()
    assert failed.value.uid == "broken"
    with pytest.raises(StorageError):
        world(StorageError("x", "read", "gone")).subtask.work()


def test_an_elements_handle_may_be_cut_for_another_parallelism():
    job, sink = booking()
    pairs = [plain.encode([1, staged(1, n)]) for n in range(4)]
    handle = ElementsHandle("committables", "split", 4, inline=pairs)
    restore = {"books": OperatorRestore(elements={"committables": (ElementsSlice(handle, 1, 3),)})}
    World(job, "books", restore=restore).start()
    assert sink.commits == [[staged(1, 1), staged(1, 2)]]


def test_what_a_source_cannot_decode_is_sent_aside_counted_and_told(tmp_path):
    (tmp_path / "a.jsonl").write_text("1\n{\n2\n[\n")
    broken = mo.OutputTag("broken")
    job = mo.Job("aside")
    numbers = job.source(mo.read_files(tmp_path, on_error=broken), uid="in")
    numbers.sink(mo.collect("good"), uid="good")
    numbers.side_output(broken).map(lambda b: (b.file, b.position, b.content), uid="where").sink(mo.collect("bad"))
    world = World(job, "in").start()
    while world.subtask.is_reading:
        world.subtask.work()
    results = dict(o.results() for o in world.subtask._operators if isinstance(o, SinkOperator))
    file = str(tmp_path / "a.jsonl")
    assert results == {"good": [1, 2], "bad": [(file, 2, b"{\n"), (file, 6, b"[\n")]}
    assert world.subtask.progress().counters == {"in": {"broken_records": 2}}
    [noticed] = [report for report in world.reports if isinstance(report, Noticed)]
    assert (noticed.uid, noticed.kind) == ("in", "broken_records")
    assert f"the first in {file}: the line at byte 2 is not JSON" in noticed.text
