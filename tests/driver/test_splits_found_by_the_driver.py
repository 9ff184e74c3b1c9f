"""Sources whose splits the driver finds: who is sent what, and what a checkpoint has of it."""

from __future__ import annotations

from typing import Any

import pytest
from driver_worlds import World

import moorline as mo
from moorline.model.connector_states import ENUMERATOR, POSITIONS
from moorline.model.manifest import ElementsHandle, OperatorHandles
from moorline.model.wire.messages import Acknowledged, AddSplits, Trigger
from moorline.state.types import plain
from moorline.storage.history import History
from moorline.storage.stores.memory import MemoryStore


class Topic(mo.Source):
    """A source whose partitions are found as the test says."""

    enumerates = True

    def __init__(self) -> None:
        self.looks: list[Any] = []
        self.contexts: list[mo.EnumeratorContext] = []
        self.closed = 0

    def open(self, ctx):
        return mo.SourceReader()

    def open_enumerator(self, ctx):
        self.contexts.append(ctx)
        return Partitions(self, ctx)


class Partitions(mo.SplitEnumerator):
    interval_ms = 500

    def __init__(self, topic: Topic, ctx: mo.EnumeratorContext) -> None:
        self.topic, self.found = topic, list(ctx.restored or [])

    def discover(self):
        look = self.topic.looks.pop(0) if self.topic.looks else {}
        if isinstance(look, Exception):
            raise look
        self.found += look or []
        return look

    def snapshot(self):
        return self.found

    def close(self):
        self.topic.closed += 1


@pytest.fixture
def topic() -> Topic:
    return Topic()


def world(topic: Topic, store: MemoryStore | None = None, **options: Any) -> World:
    job = mo.Job("small", parallelism=2)
    job.source(topic, uid="topic").key_by(lambda n: n).map(lambda n: n, uid="count").sink(mo.discard(), uid="out")
    return World(store=store, job=job, **options)


def sent(world: World) -> list[tuple[int, list[Any], bool]]:
    """Subtask, splits and whether there will be no more, of the orders since the last look."""
    orders = world.cluster.take(AddSplits)
    return [(s.index, [plain.decode(split) for split in order.splits], order.no_more) for s, order in orders]


def look(world: World, ms: int = 0) -> list[tuple[int, list[Any], bool]]:
    world.pass_time(ms)
    world.cluster.do_work()
    return sent(world)


def enumerated(store: MemoryStore) -> Any:
    """The enumerator's state in the newest checkpoint."""
    entry = History(store, "small").read()[-1].entry
    handles = [e for o in entry.operators for s in o.subtasks for e in s.elements if e.state == ENUMERATOR]
    return [plain.decode(data) for handle in handles for data in handle.inline]


def test_each_split_is_sent_to_its_owner(topic):
    topic.looks = [{0: "a", 1: "b", 2: "c"}, {3: "d"}, None]
    w = world(topic).run()
    assert look(w) == [(0, [[0, "a"], [2, "c"]], False), (1, [[1, "b"]], False)]
    assert look(w, 500) == [(1, [[3, "d"]], False)]
    assert look(w, 500) == [(0, [], True), (1, [], True)]
    w.pass_time(5_000)
    assert not w.cluster.work


def test_nothing_is_looked_for_before_all_subtasks_run(topic):
    w = world(topic).start()
    w.pass_time(100)
    assert not w.cluster.work


def test_a_checkpoint_has_what_was_known_when_it_was_triggered(topic):
    store = MemoryStore()
    topic.looks = [{0: 0}, {1: 0}, {2: 0}]
    w = world(topic, store).run()
    look(w)
    look(w, 500)
    w.pass_time(500)
    ((number,),) = {(order.checkpoint,) for _, order in w.cluster.take(Trigger)}
    w.cluster.do_work()  # the third look ends after the trigger
    assert sent(w)[0][1] == [[2, 0]]
    w.acknowledge(number)
    assert enumerated(store) == [[0, 1]]


def test_the_next_driver_goes_on_from_there(topic):
    store = MemoryStore()
    topic.looks = [{0: 0, 1: 0}, {2: 0}]
    first = world(topic, store).run()
    look(first)
    first.pass_time(1_000)
    first.cluster.work.clear()
    ((number,),) = {(order.checkpoint,) for _, order in first.cluster.take(Trigger)}
    uids = {v.id: v.operators for v in first.deployment.plan.vertices}
    for subtask in first.subtasks:
        position = ElementsHandle(POSITIONS, "union", 1, inline=[plain.encode([subtask.index, 10])])
        handles = [OperatorHandles(uid, elements=[position] if uid == "topic" else []) for uid in uids[subtask.vertex]]
        first.report(subtask, Acknowledged(checkpoint=number, operators=handles))
    second = world(topic, store, restore="latest", take_over=True).run()
    assert look(second) == [(0, [[2, 0]], False), (1, [], False)]
    assert [(ctx.restored, ctx.positions) for ctx in topic.contexts] == [(None, {}), ([0, 1], {0: 10, 1: 10})]


def test_a_look_that_fails_fails_the_attempt(topic, caplog):
    topic.looks = [ConnectionError("no route"), {0: 0}]
    w = world(topic, MemoryStore(), restart=mo.FixedDelay(attempts=3, delay=0.001)).run()
    w.pass_time(0)
    w.cluster.do_work()
    w.pass_time(1)
    assert w.cluster.cancelled == 1
    assert "splits of source 'topic' could not be found: ConnectionError: no route" in caplog.text
    w.end_attempt(error="cancelled")
    w.cluster.do_work()
    assert topic.closed == 1


def test_splits_that_are_no_plain_data_are_refused(topic, caplog):
    topic.looks = [{0: object()}]
    w = world(topic, MemoryStore()).run()
    w.pass_time(0)
    w.cluster.do_work()
    w.pass_time(1)
    assert "splits of source 'topic'" in caplog.text


def test_an_attempt_that_only_ends_looks_for_nothing_and_keeps_what_was_known(topic):
    store = MemoryStore()
    topic.looks = [{0: 0}]
    w = world(topic, store).run()
    look(w)
    w.complete()
    assert enumerated(store) == [[0]]
