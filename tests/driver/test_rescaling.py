"""A rescale of a running job, as the supervision does it."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from driver_worlds import World, small_job

import moorline as mo
from moorline.errors import InvalidArgument
from moorline.model.wire.messages import Failed, Running
from moorline.storage.stores.memory import MemoryStore

S = mo.JobStatus


def rescale(world, parallelism=3):
    answer = Future()
    world.supervision.rescale(small_job().graph(parallelism), answer, world.now_ms)
    return answer


def width(world):
    return {v.parallelism for v in world.deployment.plan.vertices}


def test_a_rescale_is_a_checkpoint_and_one_other_attempt_and_no_failure():
    world = World(store=MemoryStore()).run()
    answer = rescale(world)
    number = world.triggered()
    assert not world.cluster.cancelled
    world.acknowledge(number)
    assert world.cluster.cancelled == 1
    world.end_attempt(error="cancelled")
    world.pass_time(0)
    assert (world.deployment.attempt, world.deployment.restored, width(world)) == (2, number, {3})
    assert not answer.done()
    world.all_report(Running(pid=7))
    assert answer.result(0) == 2
    assert world.status is S.RUNNING
    world.complete()
    assert world.cluster.cancelled == 1, "it gives way once, and the next attempt stays"
    assert world.supervision.history_of_failures == []


def test_an_attempt_that_fails_before_it_gives_way_makes_room_as_well():
    world = World(store=MemoryStore(), restart=mo.FixedDelay(3, "1s")).run()
    answer = rescale(world)
    world.triggered()
    world.report(world.subtasks[0], Failed(error="boom", traceback=""))
    world.end_attempt(error="cancelled")
    world.pass_time(1_000)
    assert width(world) == {3}
    world.all_report(Running(pid=7))
    assert answer.result(0) == 2
    world.complete()
    assert world.status is S.RUNNING
    assert len(world.cluster.launched) == 2


def test_a_rescale_that_is_asked_for_while_the_job_restarts_is_done_by_the_restart():
    world = World(store=MemoryStore(), restart=mo.FixedDelay(3, "1s")).run()
    world.report(world.subtasks[0], Failed(error="boom", traceback=""))
    world.end_attempt(error="cancelled")
    answer = rescale(world)
    world.pass_time(1_000)
    assert width(world) == {3}
    world.all_report(Running(pid=7))
    assert answer.result(0) == 2
    # Nobody takes the checkpoint any more that was to go before it: it would make the sources stop.
    world.pass_time(100)
    assert not any(order.pause for _, order in world.cluster.orders if hasattr(order, "pause"))


def test_a_job_that_ends_before_it_could_be_rescaled_says_so():
    world = World(store=MemoryStore()).run()
    world.end_input()
    number = world.triggered(final=True)
    answer = rescale(world)
    world.acknowledge(number)
    world.end_attempt(results={"out": []})
    assert world.status is S.FINISHED
    with pytest.raises(InvalidArgument, match="finished"):
        answer.result(0)
