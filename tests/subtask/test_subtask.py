"""One subtask from its start to its end: barriers, snapshots, confirmations, and its last words."""

from __future__ import annotations

import pytest
from subtask_worlds import World, memory

import moorline as mo
from moorline.errors import (
    FailureReason,
    KeyedStateWithoutKey,
    SnapshotCorrupt,
    StateIncompatible,
    StateTypeMismatch,
    StorageError,
    UserCodeFailed,
)
from moorline.model.wire import elements, messages
from moorline.model.wire.elements import BARRIER, BATCH, END, RESULT
from moorline.model.wire.messages import Abort, Acknowledged, Confirm, Declined, InputEnded, Running, Trigger
from moorline.storage.stores.memory import MemoryStore
from moorline.subtask.failure_report import describe_failure
from moorline.subtask.operators.read_size import FIRST_RECORDS
from moorline.subtask.snapshot.writer import INLINE_BYTES


class Count(mo.KeyedProcessFunction):
    seen = mo.ValueState(default=0)

    def process_element(self, value, ctx):
        self.seen.update(value if isinstance(value, Opaque) else self.seen.value() + 1)
        yield str(value)


class Opaque:
    """Nothing that could be stored."""


def counting(parallelism: int = 1) -> mo.Job:
    job = mo.Job("count")
    source = job.source(mo.from_items(range(5_000)), uid="numbers", parallelism=parallelism)
    source.key_by(lambda n: 1).process(Count(), uid="count").sink(mo.collect("out"), uid="out")
    return job


class BrokenStore(MemoryStore):
    """Reads, and writes nothing."""

    def put(self, path: str, data: bytes) -> None:
        raise StorageError(path, "create", "the disk is full")


def kinds(rows: list[bytes]) -> list[int]:
    return [frame[0] for frame in rows]


# --- snapshots ----------------------------------------------------------------------------------


def test_the_barrier_goes_on_before_the_snapshot_and_the_acknowledgement_comes_when_all_is_durable():
    job = mo.Job("middle")
    stream = job.source(mo.from_items([])).key_by(lambda n: n).process(Count(), uid="count")
    stream.rebalance().sink(mo.discard())
    store = memory()
    world = World(job, "count", store=store).start()
    world.send([1, 2, 3])
    world.barrier(1)
    assert kinds(world.rows()) == [BATCH, BARRIER]
    assert world.reports == [Running(pid=42)], "nothing is durable yet"
    assert store.list() == []
    world.send([1])  # the stream goes on
    world.upload()
    acknowledged = world.reports[-1]
    assert isinstance(acknowledged, Acknowledged)
    (operator,) = acknowledged.operators
    (handle,) = operator.keyed
    assert (operator.uid, handle.state, handle.rows) == ("count", "seen", 3)
    assert [blob.path for blob in store.list()] == [handle.file.path]


def test_storage_that_fails_declines_the_checkpoint_and_the_subtask_goes_on():
    world = World(counting(), "count", store=BrokenStore("broken")).start()
    world.send([1])
    world.barrier(1)
    world.upload()
    declined = world.reports[-1]
    assert isinstance(declined, Declined)
    assert (declined.checkpoint, declined.reason) == (1, FailureReason.UPLOAD_FAILED.name)
    assert "the disk is full" in declined.detail
    world.send([2])
    world.barrier(2)
    assert len(world.uploads) == 1


def test_a_value_that_cannot_be_stored_ends_the_attempt():
    world = World(counting(), "count", store=memory()).start()
    world.send([1])
    with pytest.raises(StateTypeMismatch, match="Opaque") as failed:
        world.subtask._operators[0].process([Opaque()])
    assert describe_failure(failed.value).can_pass is False, "a restart will not mend it"


def test_a_record_that_a_sink_cannot_keep_ends_the_attempt():
    world = World(counting(), "count", store=memory()).start()
    world.subtask._operators[-1].process([Opaque()])
    with pytest.raises(StateTypeMismatch, match="writer of operator out"):
        world.barrier(1)


def test_without_storage_a_barrier_is_acknowledged_at_once():
    world = World(counting(), "count").start()
    world.send([1])
    world.barrier(1, final=True)
    assert not world.uploads
    assert isinstance(world.reports[-1], Acknowledged)
    assert world.reports[-1].operators == []


def test_few_bytes_travel_in_the_acknowledgement_and_many_in_a_file():
    store = memory()
    world = World(counting(), "count", store=store).start()
    sink = world.subtask._operators[-1]
    sink.process(["few"])
    world.barrier(1)
    sink.process(["x" * INLINE_BYTES])
    world.barrier(2)
    world.upload()
    few, many = (next(h for r in a.operators if r.uid == "out" for h in r.elements) for a in world.reports[1:])
    assert (few.count, len(few.inline), few.file) == (1, 1, None)
    assert (many.count, many.inline) == (2, [])
    assert many.file is not None
    assert store.list()[0].path == many.file.path


def test_a_snapshot_is_of_the_moment_of_the_barrier():
    store = memory()
    world = World(counting(), "count", store=store).start()
    world.send([1])
    world.barrier(1)
    world.send([1, 1, 1])
    world.barrier(2)
    world.upload()
    rows = [h.keyed[0].file for a in world.reports[1:] for h in a.operators if h.uid == "count"]
    assert len({file.path for file in rows}) == 2, "no name is used twice"
    again = World(counting(), "count", attempt=2).start()
    assert again.subtask.progress().keys == 0


# --- barriers and orders ------------------------------------------------------------------------


def test_a_source_emits_the_barrier_when_it_is_told_to_and_reads_on():
    world = World(counting(), "numbers", store=memory()).start()
    assert world.subtask.work()
    world.subtask.order(Trigger(checkpoint=1, triggered_ms=5))
    assert world.subtask.work()
    world.upload()
    acknowledged = world.reports[-1]
    (operator,) = acknowledged.operators
    (positions,) = operator.elements
    assert positions.mode == "union"
    frames = world.rows()
    before = [
        r for f in frames[: kinds(frames).index(BARRIER)] for _, part, _ in elements.unpack_batch(f) for r in part
    ]
    assert before == list(range(FIRST_RECORDS))


def test_only_sources_heed_a_trigger():
    world = World(counting(), "count", store=memory()).start()
    world.subtask.order(Trigger(checkpoint=1, triggered_ms=0))
    assert not world.uploads


def test_a_source_that_has_ended_says_so_once_and_still_takes_checkpoints():
    world = World(counting(), "numbers").start()
    while world.subtask.is_reading:
        assert world.subtask.work()
    assert world.reports.count(InputEnded()) == 1
    assert kinds(world.rows())[-1] == END
    assert not world.subtask.work()
    world.subtask.order(Trigger(checkpoint=1, triggered_ms=0, final=True))
    assert isinstance(world.reports[-1], Acknowledged)
    assert kinds(world.rows()) == [BARRIER]


def test_a_source_reads_nothing_after_the_final_barrier():
    world = World(counting(), "numbers").start()
    world.subtask.work()
    world.subtask.order(Trigger(checkpoint=1, triggered_ms=0, final=True))
    world.rows()
    assert not world.subtask.is_reading
    assert not world.subtask.work()
    assert world.rows() == []


def test_the_end_goes_on_when_every_channel_has_ended():
    job = mo.Job("ends")
    source = job.source(mo.from_items([]), parallelism=2)
    source.key_by(lambda n: n).map(lambda n: n, uid="keyed").rebalance().sink(mo.discard())
    world = World(job, "keyed").start()
    world.end(sender=0)
    assert world.rows() == []
    world.end(sender=1)
    assert kinds(world.rows()) == [BATCH, END], "the end of time, and the end"


def test_an_abort_lets_blocked_channels_go_on():
    world = World(counting(parallelism=2), "count", store=memory()).start()
    world.barrier(1, sender=0)
    world.send([1, 2], sender=0)
    assert world.subtask.progress().blocked_bytes > 0
    assert not world.subtask.work()
    world.subtask.order(Abort(checkpoint=1))
    assert world.subtask.is_input_paused
    assert world.subtask.work()
    assert world.subtask.progress().records_in == 2
    assert not world.uploads


def test_what_a_sink_at_the_end_of_the_chain_has_written_is_out():
    job = mo.Job("chain")
    numbers = job.source(mo.from_items([1, 2, 3]), uid="numbers").key_by(lambda n: n)
    kept = numbers.filter(lambda n: n > 1, uid="kept")
    kept.sink(mo.collect("a"), uid="a")
    kept.sink(mo.collect("b"), uid="b")
    world = World(job, "kept").start()
    world.send([1, 2, 3])
    assert (world.subtask.progress().records_in, world.subtask.progress().records_out) == (3, 4)


def test_an_overtaken_checkpoint_is_declined():
    world = World(counting(parallelism=2), "count", store=memory()).start()
    world.barrier(1, sender=0)
    world.barrier(2, sender=1)
    assert isinstance(world.reports[-1], Declined)
    assert world.reports[-1].checkpoint == 1


def test_a_frame_of_another_attempt_is_not_read():
    world = World(counting(), "count", attempt=3).start()
    world.attempt = 2
    world.send([1])
    assert world.subtask.progress().records_in == 0


def test_at_the_final_confirmation_results_go_out_and_the_subtask_is_done():
    world = World(counting(), "count", store=memory()).start()
    world.send([1, 2])
    world.barrier(1, final=True)
    world.upload()
    world.subtask.order(Confirm(checkpoint=1, final=True))
    assert world.subtask.is_done
    (frame,) = world.rows()
    assert frame[0] == RESULT
    assert elements.unpack_results([frame]) == {"out": ["1", "2"]}


# --- last words ---------------------------------------------------------------------------------


def test_an_error_of_user_code_is_the_users_with_the_place_it_happened_at():
    job = mo.Job("fails")
    job.source(mo.from_items([])).rebalance().map(lambda n: 1 // n, uid="divide").sink(mo.discard())
    world = World(job, "divide").start()
    world.send([3, 2])
    with pytest.raises(UserCodeFailed) as failed:
        world.send([1, 0, 5])
    told = describe_failure(failed.value)
    assert (told.can_pass, told.uid, told.position, told.record) == (None, "divide", 3, "0")
    assert told.error.startswith("ZeroDivisionError")


@pytest.mark.parametrize(
    "error",
    [
        KeyedStateWithoutKey("map", ("seen",)),
        StateIncompatible("map", "seen", "value of int", "value of str"),
        StateTypeMismatch("seen", "int", "it is a str"),
    ],
)
def test_what_the_author_has_to_mend_is_not_tried_for_ever(error):
    assert describe_failure(error).can_pass is False


@pytest.mark.parametrize("error", [StorageError("x", "read", "gone"), OSError("gone"), ConnectionResetError(104, "x")])
def test_what_may_mend_itself_is_tried_again(error):
    assert describe_failure(error).can_pass is True


@pytest.mark.parametrize("text", ["half a \ud83d smile", "x" * 40_000_000], ids=["surrogate", "40 MB"])
def test_last_words_of_any_kind_get_through_the_line(text):
    user = UserCodeFailed("count", "Count", 0, 1, text[:500], f"ValueError: {text}", f"Traceback\n{text}")
    for error in (user, RuntimeError(text), SnapshotCorrupt("x", text)):
        sent = messages.encode(describe_failure(error))
        assert len(sent) < 1 << 20
        assert messages.decode_report(sent) == describe_failure(error)
