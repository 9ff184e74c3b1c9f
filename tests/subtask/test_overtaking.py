"""Barriers overtake at the gate; what is in flight goes into a snapshot and comes back, at any parallelism."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from subtask_worlds import World, memory
from test_gate import World as GateWorld
from test_gate import barrier, batch

import moorline as mo
from moorline.errors import InFlightNowhere, InFlightPickled, InvalidArgument, SnapshotCorrupt
from moorline.model.config.run import RunConfig
from moorline.model.config.state import StateConfig
from moorline.model.ids import Attempt, CheckpointId, SubtaskId
from moorline.model.key_groups import owner
from moorline.model.keys import key_group
from moorline.model.manifest import InFlightHandle, Manifest, OperatorEntry, OperatorHandles
from moorline.model.wire import elements
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.elements import BARRIER, BATCH
from moorline.model.wire.messages import Acknowledged, Overtake, Trigger
from moorline.protocol.lowering import lower
from moorline.protocol.redistribution import redistribute
from moorline.subtask.snapshot import in_flight
from moorline.subtask.spill_queue import SpillQueue

# --- the gate -----------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [0, 1 << 20])
def test_what_came_before_the_barriers_and_was_not_processed_is_in_flight(budget):
    world = GateWorld(2, memory_budget=budget)
    world.gate.take(0, batch(0, 1))
    world.gate.overtake(1)
    for channel, frame in ((0, batch(0, 2)), (1, batch(1, 1)), (1, barrier(1)), (1, batch(1, 2)), (0, batch(0, 3))):
        world.gate.take(channel, frame)
    assert world.delivered == [(0, 1)], "nothing is processed while it overtakes"
    assert not world.gate.has_released()
    world.clock.advance("30ms")
    world.gate.take(0, barrier(1))
    assert world.snapshots == [(1, 30)]
    assert world.seen[1] == [(0, 1)]
    assert world.in_flight[1] == {0: [2, 3], 1: [1]}
    world.release_all()
    assert sorted(world.delivered) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]


def test_an_alignment_that_takes_too_long_becomes_an_overtaking():
    world = GateWorld(2)
    world.gate.take(0, barrier(1))
    world.gate.take(0, batch(0, 1))  # behind the barrier: not in flight
    world.gate.overtake(1)
    world.gate.take(1, batch(1, 1))
    world.gate.take(1, barrier(1))
    assert world.in_flight[1] == {1: [1]}


def test_a_barrier_that_waits_behind_a_backlog_counts_at_once():
    world = GateWorld(2)
    world.gate.take(0, barrier(1))
    world.gate.take(0, batch(0, 1))
    world.gate.take(0, barrier(2))
    world.gate.take(1, barrier(1))
    world.gate.take(1, barrier(2))
    # Channel 0 has not come to its barrier 2 yet.
    world.gate.overtake(2)
    assert [n for n, _ in world.snapshots] == [1, 2]
    assert world.in_flight == {1: {}, 2: {0: [1]}}


def test_an_aborted_overtaking_lets_everything_go():
    world = GateWorld(2)
    world.gate.overtake(1)
    world.gate.take(0, batch(0, 1))
    world.gate.abort(1)
    world.release_all()
    world.gate.take(1, batch(1, 1))
    assert world.delivered == [(0, 1), (1, 1)]
    assert world.snapshots == []


def test_what_was_restored_passes_first_and_is_in_flight_again_until_then():
    world = GateWorld(1)
    world.gate.restore([batch(9, 1), batch(9, 2)])
    world.gate.take(0, batch(0, 1))
    assert world.delivered == []
    world.gate.pass_released()
    world.gate.overtake(1)
    assert not world.gate.has_released()
    world.gate.take(0, barrier(1))
    assert world.in_flight[1] == {0: [1], 1: [2]}, "channels from the real ones on are what was restored"
    world.release_all()
    assert world.delivered == [(1, 1), (1, 2), (0, 1)]


def test_a_copy_of_frames_on_disk_outlives_the_queue():
    held = SpillQueue()
    for number in range(5):
        held.append(batch(0, number), to_disk=number >= 2)
    held.popleft()
    copy = held.copy(4)
    while held:
        held.popleft()
    assert list(copy) == [batch(0, n) for n in (1, 2, 3)]


# --- a subtask ----------------------------------------------------------------------------------


class Count(mo.KeyedProcessFunction):
    seen = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        self.seen.update(self.seen.value() + 1)
        yield value, self.seen.value()


def counting(parallelism: int = 2, *, upstream: str = "in", keyed: bool = True) -> mo.Job:
    job = mo.Job("job", parallelism=parallelism, max_parallelism=8)
    stream = job.source(mo.from_items([]), uid=upstream, parallelism=2)
    if keyed:
        stream.key_by(lambda r: r[0]).process(Count(), uid="count").sink(mo.discard(), uid="out")
    else:
        stream.map(lambda r: r, uid="count", parallelism=parallelism + 2).sink(mo.discard(), uid="out", parallelism=1)
    return job


def acknowledged(world: World) -> Acknowledged:
    world.upload()
    (found,) = [r for r in world.reports if isinstance(r, Acknowledged)]
    return found


def overtaken(world: World, records: list, behind: list) -> Acknowledged:
    """A checkpoint that finds ``records`` in flight on both channels, and ``behind`` behind its barriers."""
    world.subtask.order(Overtake(checkpoint=1))
    for sender in (0, 1):
        world.send(records[sender::2], sender=sender)
        world.barrier(1, sender=sender)
        if sender == 0:
            world.send(behind, sender=sender)
    return acknowledged(world)


def kinds_of(world: World) -> list[int]:
    return [frame[0] for frame in world.rows()]


def test_the_barrier_goes_out_before_what_is_in_flight_is_processed():
    job = mo.Job("job", max_parallelism=8)
    stream = job.source(mo.from_items([]), uid="in", parallelism=2).key_by(lambda r: r[0])
    stream.process(Count(), uid="count").sink(mo.discard(), uid="out", parallelism=2)
    world = World(job, "count", store=memory()).start()
    world.send([(1, 0)])
    found = overtaken(world, [(1, 1), (2, 1)], [(3, 1)])
    assert found.in_flight_records == 2
    assert world.subtask.progress().records_in == 1
    assert kinds_of(world) == [BATCH, BARRIER, BARRIER]
    while world.subtask.work():
        pass
    assert world.subtask.progress().records_in == 4
    assert set(kinds_of(world)) == {BATCH}


def test_a_slow_frame_is_left_half_done_when_the_driver_wants_something():
    world = World(counting(1), "count", store=memory())
    wanted = iter([False, False, True, False])
    slices = world.subtask._inputs._slices
    slices._records = slices._most = slices._limit = 3
    slices._has_urgent_work = lambda: next(wanted)
    world.start()
    world.send([(n, 0) for n in range(20)])
    assert world.subtask.progress().records_in == 9
    assert world.subtask.is_input_paused
    slices._has_urgent_work = lambda: False
    found = overtaken(world, [(50, 0), (51, 0)], [])
    (handle,) = found.operators[-1].in_flight
    assert handle.records == 11 + 2


def plan_of(found: list[OperatorHandles], job: mo.Job):
    entry = OperatorEntry("count", "count", len(found), 8, found)
    manifest = Manifest("job", 1, 1, 0, [entry])
    return redistribute(manifest, lower(job.graph()), "checkpoint 1")


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_every_record_in_flight_comes_back_once_at_any_parallelism_where_its_key_is(parallelism, keyed):
    store, parts, wanted = memory(), [], Counter()
    old = counting(2, keyed=keyed)
    subtasks = old.graph().by_uid["count"].parallelism
    for index in range(subtasks):
        world = World(old, "count", index=index, store=store).start()
        # Large enough for a file in one of them.
        mine = [key for key in range(40) if not keyed or owner(key_group(key, 8), 2, 8) == index]
        records = [(key, f"{index}-{key}" + "x" * 3000 * index) for key in mine]
        parts.append(next(h for h in overtaken(world, records, [("no", 0)]).operators if h.uid == "count"))
        wanted.update(records)
    assert any(h.file for p in parts for h in p.in_flight) and any(h.inline for p in parts for h in p.in_flight)
    new = counting(parallelism, keyed=keyed)
    deployment = Deployment(
        lower(new.graph()), Attempt(2), CheckpointId(1), plan_of(parts, new), state=StateConfig(unaligned=False)
    )
    back, by_subtask = Counter(), {}
    (vertex,) = (v for v in deployment.plan.vertices if "count" in v.operators)
    for index in range(vertex.parallelism):
        mine = [
            record
            for _, frames in in_flight.restored(deployment, SubtaskId(vertex.id, index), store)
            for frame in frames
            for _, records, _ in elements.unpack_batch(frame)
            for record in records
        ]
        back.update(mine)
        by_subtask[index] = {key for key, _ in mine}
    assert back == wanted
    if keyed:
        owners = Counter(key for keys in by_subtask.values() for key in keys)
        assert set(owners.values()) == {1}, "all records of a key are with one subtask"


def restored_world(found: list[OperatorHandles], store, job: mo.Job, **options) -> World:
    restore = plan_of(found, job)
    world = World(job, "count", store=store, restore=restore[SubtaskId(1, 0)])
    deployment = world.subtask._deployment
    object.__setattr__(deployment, "restored", CheckpointId(1))
    object.__setattr__(deployment, "state", StateConfig(**options))
    return world


def test_what_was_in_flight_is_processed_before_new_records_and_before_any_watermark():
    store, job = memory(), counting(1)
    world = World(job, "count", store=store).start()
    head = world._head(BATCH, None, 0)
    world.subtask.order(Overtake(checkpoint=1))
    stamped = elements.pack_records([(1, "old")], [77])
    world.subtask.frame(
        head + elements.pack_watermark(5) + stamped + elements.pack_watermark(90) + elements.PACKED_IDLE
    )
    for sender in (0, 1):
        world.barrier(1, sender=sender)
    found = [h for h in acknowledged(world).operators if h.uid == "count"]

    after = restored_world(found, store, job).start()
    after.send([(1, "new")], sender=0)
    order = []
    count = after.subtask._operators[0]
    original = count.process
    count.process = lambda records, stamps, side=0: (order.append((records, stamps)), original(records, stamps, side))
    assert after.subtask.is_input_paused
    while after.subtask.work():
        pass
    assert order == [([(1, "old")], [77]), ([(1, "new")], None)]
    assert count.moment.watermark < 0, "watermarks are not state"


def test_an_aligned_checkpoint_of_a_source_waits_for_what_was_in_flight_and_an_unaligned_one_takes_it_along():
    # At the old parallelism a link led from the source to the map; now they are one chain.
    store, parts = memory(), []
    for index in range(4):
        world = World(counting(2, keyed=False), "count", index=index, store=store).start()
        parts.append(
            next(h for h in overtaken(world, [(n, index) for n in range(4)], []).operators if h.uid == "count")
        )
    made = mo.Job("job", parallelism=2, max_parallelism=8)
    made.source(mo.from_items([]), uid="in").map(lambda r: r, uid="count").sink(mo.discard(), uid="out", parallelism=1)
    restores = plan_of(parts, made)

    def fresh() -> World:
        world = World(made, "count", store=store, restore=restores[SubtaskId(0, 0)])
        object.__setattr__(world.subtask._deployment, "restored", CheckpointId(1))
        return world.start()

    trigger = Trigger(checkpoint=2, triggered_ms=0)
    world = fresh()
    world.subtask.order(trigger)
    world.upload()
    assert not any(isinstance(r, Acknowledged) for r in world.reports)
    while world.subtask.work():
        world.upload()
    assert acknowledged(world).in_flight_records == 0

    world = fresh()
    world.subtask.order(trigger)
    world.subtask.order(Overtake(checkpoint=2))
    assert acknowledged(world).in_flight_records == 8, "half of what four subtasks had"


# --- what may be read ---------------------------------------------------------------------------


class Own:
    def __init__(self, key: int) -> None:
        self.key = key

    def __getitem__(self, at: int) -> int:
        return self.key


def test_records_of_own_classes_are_pickled_and_read_only_by_a_job_that_asks_for_it():
    store, job = memory(), counting(1)
    world = World(job, "count", store=store).start()
    found = [h for h in overtaken(world, [Own(1), Own(2)], []).operators if h.uid == "count"]
    (handle,) = found[0].in_flight
    assert handle.pickled
    with pytest.raises(InFlightPickled, match="unaligned=True"):
        restored_world(found, store, job).start()
    world = restored_world(found, store, job, unaligned=True).start()
    while world.subtask.work():
        pass
    assert world.subtask.progress().records_in == 2


def test_damaged_in_flight_records_are_noticed():
    store, job = memory(), counting(1)
    world = World(job, "count", store=store).start()
    (found,) = [h for h in overtaken(world, [(1, 1), (2, 2)], []).operators if h.uid == "count"]
    (handle,) = found.in_flight
    for inline in (
        [],
        [b"\xc1"] * handle.count,
        [b"\x92\x01\x90"] * handle.count,
        [b"\x93\x01\x02\x03"] * handle.count,
    ):
        broken = msgspec.structs.replace(handle, inline=inline)
        with pytest.raises(SnapshotCorrupt):
            restored_world([msgspec.structs.replace(found, in_flight=[broken])], store, job).start()


def test_a_job_that_is_joined_otherwise_cannot_take_up_what_is_in_flight():
    world = World(counting(1), "count", store=memory()).start()
    found = [h for h in overtaken(world, [(1, 1), (2, 2)], []).operators if h.uid == "count"]
    for changed in (counting(1, upstream="other"), counting(1, keyed=False)):
        with pytest.raises(InFlightNowhere) as refused:
            plan_of([msgspec.structs.replace(h, keyed=[]) for h in found], changed)
        assert (refused.value.uid, refused.value.upstream) == ("count", "in")
        assert "stop()" in str(refused.value)


def test_broadcast_records_in_flight_go_where_the_copy_of_the_state_goes():
    handle = InFlightHandle("in", None, 0, "broadcast", 0, 8, records=0, count=1, inline=[b""])
    parts = [OperatorHandles("count", in_flight=[msgspec.structs.replace(handle, records=n)]) for n in (1, 2)]
    job = mo.Job("job", parallelism=5, max_parallelism=8)
    job.source(mo.from_items([]), uid="in").broadcast().map(lambda r: r, uid="count").sink(mo.discard(), uid="out")
    restores = plan_of(parts, job)
    got = [[s.handle.records for s in restores[SubtaskId(1, n)]["count"].in_flight] for n in range(5)]
    assert got == [[1], [2], [1], [2], [1]]


# --- settings -----------------------------------------------------------------------------------


def test_the_modes_and_what_does_not_go_together():
    assert mo.Checkpoints("x").overtake_ms is None
    assert mo.Checkpoints("x", unaligned=True).overtake_ms == 0
    assert mo.Checkpoints("x", aligned_timeout="3s").overtake_ms == 3000
    assert mo.Checkpoints("x", unaligned=True, aligned_timeout=0.5).overtake_ms == 500
    for options in (
        {"mode": "maybe_once"},
        {"unaligned": True, "max_concurrent": 2},
        {"aligned_timeout": "1s", "max_concurrent": 2},
        {"unaligned": True, "mode": "at_least_once"},
        {"aligned_timeout": "never"},
    ):
        with pytest.raises(InvalidArgument):
            mo.Checkpoints("x", **options)
    assert RunConfig(checkpoints=mo.Checkpoints("x", mode="at_least_once")).state.at_least_once
