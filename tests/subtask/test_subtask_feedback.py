"""What comes back to the head of a loop: held, logged, and spilled when it is much."""

from __future__ import annotations

from moorline.model.ids import CheckpointId
from moorline.model.wire.elements import BARRIER, BATCH, HEAD, Barrier, pack_barrier, pack_records, unpack_part
from moorline.subtask.iteration.feedback import Feedback


def batch(*records) -> bytes:
    return HEAD.pack(BATCH, 1, 0, 0, 0, 0) + pack_records(list(records))


def barrier(checkpoint: int) -> bytes:
    return pack_barrier(HEAD.pack(BARRIER, 1, 0, 0, 0, 0), Barrier(CheckpointId(checkpoint), 0))


def records(frame: bytes) -> list:
    return unpack_part(frame, HEAD.size)[1] if frame[0] == BATCH else []


class World:
    def __init__(self, channels: int, **options) -> None:
        self.processed, self.logs, self.dropped, self.given_up = [], {}, [], []
        self.feedback = Feedback(
            channels, self.deliver, self.closed, self.dropped.append, self.given_up.append, **options
        )

    def deliver(self, channel, frame):
        self.processed += records(frame)

    def closed(self, checkpoint, log):
        self.logs[checkpoint] = [r for _, copy in log for frame in copy for r in records(frame)]

    def pass_all(self):
        while self.feedback.may_pass():
            self.feedback.pass_some()


def test_what_waited_and_what_came_before_the_barrier_is_logged_and_nothing_else():
    world = World(1)
    world.feedback.take(0, batch("before"))
    world.pass_all()
    world.feedback.take(0, batch("waits"))
    world.feedback.snapshot_taken(1)
    world.feedback.take(0, batch("comes"))
    world.pass_all()
    assert world.logs == {}
    world.feedback.take(0, barrier(1))
    world.feedback.take(0, batch("after"))
    world.pass_all()
    assert world.logs == {1: ["waits", "comes"]}
    assert world.processed == ["before", "waits", "comes", "after"]


def test_records_behind_a_barrier_that_is_early_wait_for_our_snapshot():
    world = World(2)
    for frame in (batch("before"), barrier(1), batch("behind")):
        world.feedback.take(0, frame)
    world.pass_all()
    assert world.processed == ["before"]
    world.feedback.snapshot_taken(1)
    world.feedback.take(1, barrier(1))
    world.pass_all()
    assert world.processed == ["before", "behind"]
    assert world.logs == {1: []}


def test_a_barrier_that_is_early_and_still_waits_divides_what_waits():
    world = World(1)
    for frame in (batch("before"), barrier(1), batch("behind")):
        world.feedback.take(0, frame)
    world.feedback.snapshot_taken(1)
    assert world.logs == {1: ["before"]}


def test_two_checkpoints_log_side_by_side():
    world = World(1)
    world.feedback.snapshot_taken(1)
    world.feedback.take(0, batch("a"))
    world.feedback.snapshot_taken(2)
    for frame in (batch("b"), barrier(1), batch("c"), barrier(2)):
        world.feedback.take(0, frame)
    assert world.logs == {1: ["a", "b"], 2: ["a", "b", "c"]}


def test_an_aborted_checkpoint_is_dropped_and_the_stream_goes_on():
    world = World(1)
    world.feedback.snapshot_taken(1)
    world.feedback.take(0, batch("a"))
    world.feedback.abort(1)
    world.feedback.take(0, barrier(1))
    world.pass_all()
    assert (world.dropped, world.logs, world.processed) == ([1], {}, ["a"])


def test_a_frozen_head_processes_nothing_and_keeps_everything():
    world = World(1)
    world.feedback.is_frozen = True
    world.feedback.snapshot_taken(1)
    for frame in (batch("a"), barrier(1), batch("b")):
        world.feedback.take(0, frame)
    world.pass_all()
    world.feedback.snapshot_taken(2)
    world.feedback.take(0, barrier(2))
    assert world.processed == []
    assert world.logs == {1: ["a"], 2: ["a", "b"]}


def test_what_does_not_fit_into_memory_goes_to_disk_and_comes_back_in_order():
    world = World(1, memory_budget=2000)
    world.feedback.snapshot_taken(1)
    for number in range(200):
        world.feedback.take(0, batch(number, "x" * 100))
    assert world.feedback._held[0].disk_bytes > 0
    assert world.feedback._held[0].memory_bytes <= 2000
    world.feedback.take(0, barrier(1))
    world.pass_all()
    assert world.processed[::2] == list(range(200))
    assert world.logs[1][::2] == list(range(200))
    world.feedback.close()
