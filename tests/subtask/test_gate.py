"""Barriers line up, blocked channels wait, and what waited comes back in order, from memory and from disk."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorline.model.wire.elements import BARRIER, BATCH, HEAD, Barrier, pack_barrier
from moorline.subtask.gate import Gate, InFlight
from moorline.subtask.spill_queue import SpillQueue
from moorline.testing import ManualClock


def batch(channel: int, number: int, size: int = 0) -> bytes:
    """A frame that says where it comes from and which one it is."""
    return HEAD.pack(BATCH, 1, 0, 0, 0, channel) + number.to_bytes(4, "big") + bytes(size)


def number_of(frame: bytes) -> int:
    return int.from_bytes(frame[HEAD.size : HEAD.size + 4], "big")


def barrier(checkpoint: int, final: bool = False) -> bytes:
    return pack_barrier(HEAD.pack(BARRIER, 1, 0, 0, 0, 0), Barrier(checkpoint, 0, final))


class World:
    """A gate, and everything it has done."""

    def __init__(self, channels: int, memory_budget: int = 1 << 20) -> None:
        self.clock = ManualClock()
        self.delivered: list[tuple[int, int]] = []
        self.snapshots: list[tuple[int, int]] = []
        self.given_up: list[int] = []
        #: What had been delivered when each snapshot was taken.
        self.seen: dict[int, list[tuple[int, int]]] = {}
        self.in_flight: dict[int, dict[int, list[int]]] = {}
        self.gate = Gate(
            channels, self._deliver, self._snapshot, self.given_up.append, self.clock.now_ms, memory_budget
        )

    def _deliver(self, channel: int, frame: bytes) -> None:
        self.delivered.append((channel, number_of(frame)))

    def _snapshot(self, found: Barrier, align_ms: int, in_flight: InFlight) -> None:
        self.snapshots.append((found.checkpoint, align_ms))
        #: By checkpoint and channel, in order.
        self.in_flight[found.checkpoint] = {
            channel: [number_of(frame) for frame in copy if frame[0] == BATCH] for channel, copy in in_flight
        }
        self.seen[found.checkpoint] = list(self.delivered)

    def release_all(self) -> None:
        while self.gate.has_released():
            self.gate.pass_released()

    @property
    def in_memory(self) -> int:
        return sum(held.memory_bytes for held in self.gate._held)


def test_a_channel_behind_its_barrier_waits_for_the_others():
    world = World(2)
    world.gate.take(0, batch(0, 1))
    world.gate.take(0, barrier(1))
    world.gate.take(0, batch(0, 2))
    world.gate.take(0, batch(0, 3))
    world.gate.take(1, batch(1, 1))
    assert world.delivered == [(0, 1), (1, 1)]
    assert not world.gate.has_released()
    assert world.gate.held_bytes() == 2 * len(batch(0, 2))

    world.clock.advance("250ms")
    world.gate.take(1, barrier(1))
    assert world.snapshots == [(1, 250)]
    assert world.delivered == [(0, 1), (1, 1)], "held frames come back when they are asked for, not within a frame"
    assert world.gate.has_released()
    world.release_all()
    assert world.delivered == [(0, 1), (1, 1), (0, 2), (0, 3)]
    assert world.gate.held_bytes() == 0


def test_new_frames_queue_up_behind_those_that_are_held():
    world = World(2)
    world.gate.take(0, barrier(1))
    world.gate.take(0, batch(0, 1))
    world.gate.take(1, barrier(1))
    world.gate.take(0, batch(0, 2))
    assert world.delivered == []
    world.gate.pass_released()
    world.gate.take(0, batch(0, 3))
    world.release_all()
    assert world.delivered == [(0, 1), (0, 2), (0, 3)]


def test_a_barrier_among_the_held_frames_blocks_again():
    world = World(2)
    for frame in (barrier(1), batch(0, 1), barrier(2), batch(0, 2)):
        world.gate.take(0, frame)
    world.gate.take(1, barrier(1))
    world.release_all()
    assert world.snapshots == [(1, 0)]
    assert world.delivered == [(0, 1)], "what follows barrier 2 waits for the other channel's barrier 2"
    world.gate.take(1, barrier(2))
    world.release_all()
    assert [n for n, _ in world.snapshots] == [1, 2]
    assert world.delivered == [(0, 1), (0, 2)]


def test_a_newer_barrier_overtakes_and_an_aborted_one_lets_go():
    world = World(3)
    world.gate.take(0, barrier(1))
    world.gate.take(0, batch(0, 1))
    world.gate.take(1, barrier(2))
    assert world.given_up == [1]
    world.release_all()
    assert world.delivered == [(0, 1)]

    world.gate.take(1, batch(1, 1))
    world.gate.abort(2)
    world.release_all()
    assert world.delivered == [(0, 1), (1, 1)]
    # Late barriers of both are let through without a trace.
    world.gate.take(0, barrier(2))
    world.gate.take(2, barrier(1))
    world.gate.take(0, batch(0, 2))
    assert world.delivered[-1] == (0, 2)
    assert world.snapshots == []


def test_one_channel_needs_no_waiting():
    world = World(1)
    world.gate.take(0, batch(0, 1))
    world.gate.take(0, barrier(1, final=True))
    world.gate.take(0, batch(0, 2))
    assert world.snapshots == [(1, 0)]
    assert world.delivered == [(0, 1), (0, 2)]


def test_what_is_beyond_the_budget_waits_on_disk_and_comes_back_in_order():
    frames = [batch(0, n, size=n % 300) for n in range(2_000)]
    world = World(3, memory_budget=10_000)
    world.gate.take(0, barrier(1))
    world.gate.take(1, barrier(1))
    for frame in frames:
        world.gate.take(0, frame)
        world.gate.take(1, frame)
        assert world.in_memory <= 10_000, "all channels share one budget"
    assert world.gate.held_bytes() >= 2 * sum(map(len, frames))
    world.gate.take(2, barrier(1))
    world.release_all()
    for channel in (0, 1):
        assert [n for c, n in world.delivered if c == channel] == list(range(2_000))
    assert world.gate.held_bytes() == 0
    assert all(held._file is None for held in world.gate._held), "the files are gone"


def test_held_frames_of_a_closed_gate_leave_no_file_open():
    world = World(2, memory_budget=0)
    world.gate.take(0, barrier(1))
    world.gate.take(0, batch(0, 1, size=5_000))
    files = [held._file for held in world.gate._held if held._file is not None]
    assert len(files) == 1
    world.gate.close()
    assert files[0].closed


@given(st.lists(st.one_of(st.booleans(), st.none()), max_size=60))
def test_held_frames_are_first_in_first_out_whatever_lies_where(steps: list[bool | None]):
    held, expected, made = SpillQueue(), [], 0
    for to_disk in steps:
        if to_disk is None:
            if expected:
                assert held.popleft() == expected.pop(0)
        else:
            frame = batch(0, made, size=made % 7)
            made += 1
            held.append(frame, to_disk)
            expected.append(frame)
        assert bool(held) == bool(expected)
        assert held.memory_bytes + held.disk_bytes >= sum(map(len, expected))
    while expected:
        assert held.popleft() == expected.pop(0)
    assert not held
    assert (held.memory_bytes, held.disk_bytes) == (0, 0)


CHANNELS, CHECKPOINTS = 3, 4


@given(
    st.lists(st.tuples(st.integers(0, CHANNELS - 1), st.sampled_from("fffb"), st.integers(0, 3)), max_size=120),
    st.sampled_from([0, 60, 10_000]),
)
def test_a_snapshot_holds_what_came_before_its_barriers_and_nothing_else(steps, budget):
    world = World(CHANNELS, memory_budget=budget)
    sent: list[list[str | int]] = [[] for _ in range(CHANNELS)]
    frames, barriers = [0] * CHANNELS, [0] * CHANNELS

    def send_barrier(channel: int) -> None:
        barriers[channel] += 1
        sent[channel].append(f"b{barriers[channel]}")
        world.gate.take(channel, barrier(barriers[channel]))

    for channel, kind, released in steps:
        if kind == "f":
            frames[channel] += 1
            sent[channel].append(frames[channel])
            world.gate.take(channel, batch(channel, frames[channel], size=20))
        elif barriers[channel] < CHECKPOINTS:
            send_barrier(channel)
        assert world.in_memory <= budget
        for _ in range(released):
            world.gate.pass_released()
    for channel in range(CHANNELS):
        while barriers[channel] < CHECKPOINTS:
            send_barrier(channel)
    world.release_all()
    assert [n for n, _ in world.snapshots] == list(range(1, CHECKPOINTS + 1))
    for checkpoint, seen in world.seen.items():
        for channel in range(CHANNELS):
            before = sent[channel][: sent[channel].index(f"b{checkpoint}")]
            assert [n for c, n in seen if c == channel] == [x for x in before if isinstance(x, int)]
    for channel in range(CHANNELS):
        assert [n for c, n in world.delivered if c == channel] == list(range(1, frames[channel] + 1))
