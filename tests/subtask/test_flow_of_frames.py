"""A subtask tells its senders how far it has come, and makes no more than its receivers can do with."""

from __future__ import annotations

import pytest
from subtask_worlds import World, memory

import moorline as mo
from moorline.model.wire.elements import BARRIER, BATCH
from moorline.model.wire.messages import InputTaken, Overtake, SendAhead, Trigger
from moorline.protocol.flow import FIRST_WINDOW, PATIENCE_MS


def job(parallelism: int = 1) -> mo.Job:
    made = mo.Job("flow", parallelism=parallelism)
    source = made.source(mo.generate(lambda n: n, splits=parallelism), uid="numbers")
    middle = source.key_by(lambda n: n).map(lambda n: n, uid="middle")
    middle.key_by(lambda n: -n).map(lambda n: n, uid="last").sink(mo.discard())
    return made


def work_on(world: World, turns: int = 1_000) -> int:
    """Have it work as long as it likes; how many bytes of batches that made."""
    for _ in range(turns):
        if not world.subtask.work():
            break
    return sum(len(frame) for frame in world.rows() if frame[0] == BATCH)


def test_a_source_stops_when_its_window_is_full_and_goes_on_when_it_hears_of_it():
    world = World(job(), "numbers", first_window=FIRST_WINDOW).start()
    made = work_on(world)
    assert FIRST_WINDOW <= made < 2 * FIRST_WINDOW
    assert world.subtask.is_held_back
    assert world.subtask.progress().in_flight_bytes == made
    (link,) = (n.id for n in world.plan.links if n.source == world.id.vertex)
    world.subtask.order(SendAhead(channels=[(link, 0, made, 50_000)]))
    assert world.subtask.progress().in_flight_bytes == 0
    assert 50_000 <= work_on(world) < 100_000


def test_frames_are_small_where_the_receiver_is_slow():
    world = World(job(), "numbers", first_window=400).start()
    while world.subtask.work():
        pass
    frames = [frame for frame in world.rows() if frame[0] == BATCH]
    assert len(frames) > 1
    assert max(map(len, frames)) < 400


def test_a_source_that_is_held_back_still_sends_its_barrier_at_once():
    world = World(job(), "numbers", store=memory(), first_window=400).start()
    work_on(world)
    assert world.subtask.is_held_back
    world.subtask.order(Trigger(checkpoint=1, triggered_ms=0))
    assert [frame[0] for frame in world.rows()][-1] == BARRIER
    assert world.uploads


def test_a_source_that_hears_nothing_goes_on_a_little_after_a_while():
    world = World(job(), "numbers", first_window=4_000).start()
    work_on(world)
    assert not work_on(world)
    world.clock.advance(f"{PATIENCE_MS}ms")
    assert 0 < work_on(world) <= 4_000
    world.clock.advance(f"{PATIENCE_MS}ms")
    assert not work_on(world), "the next time it waits for longer"


def test_a_subtask_that_is_held_back_takes_no_input_and_says_so():
    world = World(job(), "middle", first_window=400).start()
    assert not world.subtask.is_input_paused
    world.send(list(range(500)))
    assert world.subtask.is_held_back and world.subtask.is_input_paused
    assert not world.subtask.work()
    assert world.subtask.progress().in_flight_bytes > 400


def test_input_is_taken_all_the_same_while_a_checkpoint_overtakes():
    world = World(job(parallelism=2), "middle", store=memory(), first_window=400).start()
    world.send(list(range(500)))
    assert world.subtask.is_input_paused
    world.subtask.order(Overtake(checkpoint=1))
    assert not world.subtask.is_input_paused
    world.send([1, 2, 3], sender=1)
    world.barrier(1, sender=0)
    world.barrier(1, sender=1)
    assert BARRIER in [frame[0] for frame in world.rows()]
    assert world.subtask.is_input_paused


def told(world: World) -> list[InputTaken]:
    return [report for report in world.reports if isinstance(report, InputTaken)]


def test_what_was_taken_is_told_with_a_window_that_follows_the_speed():
    class Slow(mo.MapFunction):
        def map(self, value):
            world.clock.advance("1ms")
            return value

    made = mo.Job("slow")
    source = made.source(mo.from_items([]), uid="in")
    source.key_by(lambda n: n).map(Slow(), uid="slow").sink(mo.discard())
    world = World(made, "slow", first_window=FIRST_WINDOW).start()
    sent = 0
    for _ in range(20):
        world.send(list(range(100)))
        sent += world.subtask._inputs._flow._inflows[0].taken - sent
    (channel,) = told(world)[-1].channels
    _, sender, taken, window = channel
    assert sender == 0
    assert taken <= sent
    each = sent / 2_000  # bytes of a record, which takes a millisecond
    assert window == pytest.approx(250 * each, rel=0.3)


def test_frames_that_wait_for_a_barrier_are_taken():
    world = World(job(parallelism=2), "middle", store=memory(), first_window=2_000).start()
    world.barrier(1, sender=0)
    before = len(told(world))
    for _ in range(20):
        world.send(list(range(100)), sender=0)
    assert world.subtask.progress().blocked_bytes > 2_000
    assert len(told(world)) > before
    assert world.subtask.progress().records_in == 0


def test_a_relay_is_never_held_back():
    made = mo.Job("relay")
    far = made.source(mo.generate(lambda n: n, splits=1), uid="far")
    near = far.key_by(lambda n: n).map(lambda n: n, uid="near")
    far.map(lambda n: n, uid="side").union(near).key_by(lambda n: n).map(lambda n: n, uid="join").sink(mo.discard())
    world = World(made, "near", first_window=400).start()
    world.send(list(range(5_000)))
    assert world.subtask.output.is_held()
    assert not world.subtask.is_held_back
