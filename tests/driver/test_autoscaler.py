"""The driver's part of the autoscaler: reports become loads, and a decision becomes a rescale."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from driver_worlds import World, small_job

import moorline as mo
from moorline.errors import InvalidArgument
from moorline.model.wire.messages import Failed, InputEnded, Progress, Running
from moorline.storage.stores.memory import MemoryStore

SCALE = mo.Autoscale(window="5s", cool_down="20s", maximum=8)


class Loaded(World):
    """Subtasks that report how busy they are, second by second. Vertex 0 is the source, 1 counts."""

    def __init__(self, **options):
        checkpoints = mo.Checkpoints("memory://small", interval="1h")
        super().__init__(store=MemoryStore(), checkpoints=checkpoints, autoscale=SCALE, **options)
        self.sums = {}

    def seconds(self, number, **busy):
        """So many seconds pass. ``source`` and ``count``: percent of the time they are busy; the rest is idle."""
        for _ in range(number):
            self.pass_time(1000)
            for subtask in self.subtasks:
                share = (busy["source"], busy["count"])[subtask.vertex]
                key = (self.deployment.attempt, subtask)
                work, idle = self.sums.get(key, (0, 0))
                self.sums[key] = work, idle = work + 10 * share, idle + 1000 - 10 * share
                self.report(subtask, Progress(records_in=work, records_out=work, busy_ms=work, idle_ms=idle))

    def give_way(self):
        """Take the checkpoint that goes before the rescale, and start the next attempt."""
        self.acknowledge(self.triggered())
        self.end_attempt(error="cancelled")
        self.pass_time(0)
        self.all_report(Running(pid=7))

    @property
    def widths(self):
        return [v.parallelism for v in self.deployment.plan.vertices]


def test_a_busy_step_is_made_wider_and_later_narrower_and_the_others_stay():
    world = Loaded().run()
    world.seconds(4, source=50, count=95)
    assert not world.cluster.orders
    world.seconds(4, source=50, count=95)
    world.give_way()
    assert world.widths == [2, 4]
    assert world.supervision.history_of_failures == []
    world.seconds(60, source=50, count=55)
    assert len(world.cluster.launched) == 2
    world.seconds(12, source=50, count=10)
    world.give_way()
    assert world.widths == [2, 1]
    assert {o.uid: o.parallelism for o in world.deployment.plan.graph.operators} == {"numbers": 2, "count": 1, "out": 1}


def test_nothing_is_decided_before_every_subtask_has_reported():
    world = Loaded().run()
    for _ in range(30):
        world.pass_time(1000)
        for subtask in world.subtasks[:-1]:
            world.report(subtask, Progress(records_in=0, records_out=0, busy_ms=world.now_ms))
    assert not world.cluster.orders


def test_a_failure_begins_the_window_anew_and_what_was_decided_before_it_stays():
    world = Loaded(restart=mo.FixedDelay(5, "1s")).run()
    world.seconds(8, source=50, count=95)
    world.give_way()
    assert world.widths == [2, 4]
    world.seconds(15, source=50, count=95)
    world.report(world.subtasks[0], Failed(error="boom", traceback=""))
    world.end_attempt(error="cancelled")
    world.pass_time(1000)
    world.all_report(Running(pid=7))
    assert world.widths == [2, 4]
    world.cluster.orders.clear()
    world.seconds(5, source=50, count=95)
    assert not world.cluster.orders


def test_what_there_is_no_room_for_is_not_tried_until_the_cool_down_is_over(caplog):
    world = Loaded().run()
    for _ in range(2):
        world.seconds(8, source=95, count=95)
        world.give_way()
        world.seconds(20, source=50, count=50)
    assert sum(world.widths) <= 12
    before = len(world.cluster.launched)
    world.seconds(100, source=95, count=95)
    assert len(world.cluster.launched) == before
    assert 1 <= caplog.text.count("there is no room") <= 5


def test_operators_with_a_parallelism_of_their_own_are_left_alone():
    job = mo.Job("small", parallelism=2)
    source = job.source(mo.from_items([1]), uid="numbers")
    source.key_by(lambda n: n).map(lambda n: n, uid="count", parallelism=2).sink(mo.collect("out"), uid="out")
    world = Loaded(job=job).run()
    world.seconds(60, source=50, count=95)
    assert not world.cluster.orders


def test_a_job_that_is_ending_or_being_rescaled_is_left_alone():
    ending = Loaded().run()
    for subtask in ending.deployment.plan.source_subtasks():
        ending.report(subtask, InputEnded())
    ending.cluster.orders.clear()
    ending.seconds(30, source=0, count=95)
    assert not ending.cluster.cancelled

    rescaled = Loaded().run()
    answer = Future()
    rescaled.supervision.rescale(small_job().graph(3), answer, rescaled.now_ms)
    rescaled.seconds(30, source=0, count=95)
    rescaled.give_way()
    assert rescaled.widths == [3, 3]
    assert answer.done()


def test_it_needs_checkpoints():
    with pytest.raises(InvalidArgument, match="checkpoints"):
        World(autoscale=SCALE)
