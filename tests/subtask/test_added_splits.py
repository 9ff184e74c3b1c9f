"""Splits that the driver sends to a source while it runs."""

from __future__ import annotations

from typing import Any

import pytest
from subtask_worlds import World

import moorline as mo
from moorline.api.watermarks import WatermarkStrategy
from moorline.errors import UserCodeFailed
from moorline.model.connector_states import POSITIONS
from moorline.model.manifest import ElementsHandle
from moorline.model.wire.deployment import ElementsSlice, OperatorRestore
from moorline.model.wire.messages import AddSplits, InputEnded
from moorline.state.types import plain
from moorline.subtask.operators.timestamps import EventTime


class Topic(mo.Source):
    enumerates = True

    def open(self, ctx):
        self.reader = Reader()
        return self.reader

    def open_enumerator(self, ctx):
        return mo.SplitEnumerator()


class Reader(mo.SourceReader):
    def __init__(self) -> None:
        self.added: list[dict[Any, Any]] = []
        self.has_all = False

    def add_splits(self, splits):
        if "bad" in splits:
            raise LookupError("there is no such partition")
        self.added.append(dict(splits))

    def no_more_splits(self):
        self.has_all = True

    def read(self, limit):
        return None if self.has_all else []

    def positions(self):
        return {split: position for splits in self.added for split, position in splits.items()}


def world(parallelism: int = 1, index: int = 0, **restored: Any) -> tuple[World, Reader]:
    topic = Topic()
    job = mo.Job("topics", parallelism=parallelism)
    job.source(topic, uid="topic").rebalance().sink(mo.discard(), uid="out")
    inline = [plain.encode([int(split[1:]), position]) for split, position in restored.items()]
    handle = ElementsHandle(POSITIONS, "union", len(inline), inline=inline)
    restore = {"topic": OperatorRestore(elements={POSITIONS: (ElementsSlice(handle, 0, len(inline)),)})}
    started = World(job, "topic", index=index, restore=restore if restored else None).start()
    return started, topic.reader


def added(*splits: Any, no_more: bool = False) -> AddSplits:
    return AddSplits(splits=[plain.encode([split, 0]) for split in splits], no_more=no_more)


def test_what_is_restored_and_its_own_comes_first():
    _, reader = world(2, 1, p0=10, p1=11, p2=12, p3=13)
    assert reader.added == [{1: 11, 3: 13}]


def test_what_the_driver_sends_is_added_once():
    w, reader = world()
    for _ in range(2):
        w.subtask.order(added(4, 5))
    w.subtask.order(added(5, 6))
    assert reader.added == [{4: 0, 5: 0}, {6: 0}]


def test_what_was_restored_is_not_added_again():
    w, reader = world(p4=40)
    w.subtask.order(added(4))
    assert reader.added == [{4: 40}]


def test_the_input_ends_after_the_word_that_there_are_no_more():
    w, _ = world()
    w.subtask.work()
    assert not any(isinstance(report, InputEnded) for report in w.reports)
    w.subtask.order(added(no_more=True))
    w.subtask.work()
    assert any(isinstance(report, InputEnded) for report in w.reports)


def test_a_reader_that_cannot_take_a_split_says_which_operator_it_is():
    w, _ = world()
    with pytest.raises(UserCodeFailed, match="there is no such partition"):
        w.subtask.order(added("bad"))


class Time:
    """Event time at a source, by a clock that is told what time it is."""

    def __init__(self) -> None:
        self.now, self.said, self.splits = 1_000, list[int | str](), list[int]()
        strategy = WatermarkStrategy(WatermarkStrategy.monotonous().generator, lambda r: r, interval="10ms")
        self.time = EventTime(strategy, lambda: self.now, self.said.append, lambda: self.said.append("idle"))
        self.time.open_splits = lambda: list(self.splits)

    def tick(self) -> list[int | str]:
        self.now += 10
        self.said.clear()
        self.time.tick(self.now)
        return list(self.said)


def test_a_reader_without_splits_holds_time_up_until_the_driver_has_looked():
    source = Time()
    assert source.tick() == []
    source.time.splits_are_known()
    assert source.tick() == ["idle"]
    assert source.tick() == []


def test_a_split_that_is_found_is_waited_for():
    source = Time()
    source.time.splits_are_known()
    source.tick()
    source.splits = [3]
    (announced,) = source.tick()
    assert announced != "idle", "others wait for it again"
    assert source.tick() == []
    source.time.stamp([500], None, 3)
    assert source.tick() == [499]


def test_a_reader_is_idle_when_its_splits_are_read():
    source = Time()
    source.time.splits_are_known()
    source.splits = [3]
    source.tick()
    source.time.stamp([500], None, 3)
    assert source.tick() == [499]
    source.splits = []
    assert source.tick() == ["idle"]
