"""Two streams for one function: how they are put together, and what the function sees of each."""

from __future__ import annotations

import pytest

import moorline as mo
from moorline.errors import (
    InvalidArgument,
    KeyedStateWithoutKey,
    UserCodeFailed,
)
from moorline.model.graph import Partitioning
from moorline.testing import OperatorHarness

LEFT, RIGHT = mo.OutputTag("left"), mo.OutputTag("right")
RULES = mo.MapStateDescriptor("rules", str, int)
NAMES = mo.MapStateDescriptor("names", int, str)


def key(record):
    return record[0]


class Both(mo.CoProcessFunction):
    def process_element1(self, value, ctx):
        yield "first", value

    def process_element2(self, value, ctx):
        yield "second", value


class Watch(mo.BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield value, dict(ctx.get_broadcast_state(RULES).items())

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(*value)


class KeyedWatch(mo.KeyedBroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield ctx.get_current_key(), dict(ctx.get_broadcast_state(RULES).items())

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(*value)


def two(build, parallelism=1, snapshot=None):
    return OperatorHarness.of(build, inputs=2, parallelism=parallelism, snapshot=snapshot)


# --- putting them together ------------------------------------------------------------------------


def streams():
    job = mo.Job("two")
    return job, job.source(mo.from_items([1]), uid="a"), job.source(mo.from_items([2]), uid="b")


def test_each_stream_is_an_input_of_its_own():
    job, a, b = streams()
    a.connect(b).process(Both(), uid="both").sink(mo.discard())
    a.key_by(str).connect(b.key_by(abs)).flat_map(Words(), uid="words").sink(mo.discard())
    a.key_by(str).connect(b.broadcast(RULES)).process(KeyedWatch(), uid="watch").sink(mo.discard())
    by_uid = job.graph().by_uid
    assert [(i.upstream, i.side, i.partitioning) for i in by_uid["both"].inputs] == [
        ("a", 0, Partitioning.FORWARD),
        ("b", 1, Partitioning.FORWARD),
    ]
    assert [(i.side, i.partitioning, i.key) for i in by_uid["words"].inputs] == [
        (0, Partitioning.HASH, str),
        (1, Partitioning.HASH, abs),
    ]
    assert [i.partitioning for i in by_uid["watch"].inputs] == [Partitioning.HASH, Partitioning.BROADCAST]


def test_a_union_is_one_input_of_several_streams():
    job, a, b = streams()
    a.union(b).connect(b).process(Both(), uid="both").sink(mo.discard())
    assert [(i.upstream, i.side) for i in job.graph().by_uid["both"].inputs] == [("a", 0), ("b", 0), ("b", 1)]


def test_streams_of_different_jobs_cannot_be_connected():
    _, a, _ = streams()
    _, other, _ = streams()
    with pytest.raises(InvalidArgument, match="different jobs"):
        a.connect(other)
    with pytest.raises(InvalidArgument, match="different jobs"):
        a.connect(other.broadcast(RULES))
    with pytest.raises(InvalidArgument, match="Give another stream"):
        a.connect([1, 2])  # pyright: ignore[reportArgumentType, reportCallIssue]


@pytest.mark.parametrize(
    ("method", "function"),
    [("map", Both()), ("flat_map", Both()), ("process", lambda value, ctx: None), ("process", KeyedWatch())],
)
def test_a_function_of_another_kind_is_refused(method, function):
    _, a, b = streams()
    with pytest.raises(InvalidArgument, match="Give an instance of Co"):
        getattr(a.connect(b), method)(function)


def test_a_keyed_function_wants_both_streams_keyed():
    _, a, b = streams()
    for connected in (a.connect(b), a.key_by(abs).connect(b), a.connect(b.key_by(abs))):
        with pytest.raises(KeyedStateWithoutKey):
            connected.process(Enrich())
    with pytest.raises(InvalidArgument, match="Key both, or neither"):
        a.connect(b.key_by(abs)).process(Both())


def test_beside_a_broadcast_stream_the_function_must_fit_the_other_one():
    _, a, b = streams()
    with pytest.raises(InvalidArgument, match="not keyed: give a BroadcastProcessFunction"):
        a.connect(b.broadcast(RULES)).process(KeyedWatch())
    with pytest.raises(InvalidArgument, match="The stream is keyed: give a KeyedBroadcastProcessFunction"):
        a.key_by(abs).connect(b.broadcast(RULES)).process(Watch())


@pytest.mark.parametrize("wrong", [mo.ValueStateDescriptor("rules", int), "rules", mo.ListStateDescriptor("x", int)])
def test_broadcast_state_is_a_map(wrong):
    _, a, _ = streams()
    with pytest.raises(InvalidArgument, match="broadcast state is a map"):
        a.broadcast(wrong)


def test_an_unknown_option_is_named():
    _, a, b = streams()
    with pytest.raises(TypeError, match=r"Did you mean .parallelism"):
        a.connect(b).process(Both(), uid="both", paralelism=3)  # pyright: ignore[reportCallIssue]


# --- without state --------------------------------------------------------------------------------


class Words(mo.CoFlatMapFunction):
    def flat_map1(self, value):
        return value.split() or None

    def flat_map2(self, value):
        if value:
            yield value


def test_a_flat_map_may_give_nothing():
    harness = two(lambda a, b: a.connect(b).flat_map(Words(), uid="words"))
    assert harness.process("x y") + harness.process("") + harness.process(0, side=1) + harness.process(7, side=1) == [
        "x",
        "y",
        7,
    ]


def test_timestamps_of_both_inputs_are_kept():
    harness = two(lambda a, b: a.connect(b).process(Both(), uid="both"))
    harness.process("x", 5)
    assert harness.timestamps == [5]
    harness.process("y", 6, side=1)
    assert harness.timestamps == [6]


class Sorting(mo.CoProcessFunction):
    def process_element1(self, value, ctx):
        ctx.output(LEFT, value)

    def process_element2(self, value, ctx):
        yield RIGHT, value
        yield value


def test_both_sides_have_side_outputs_in_both_forms():
    harness = two(lambda a, b: a.connect(b).process(Sorting(), uid="sorting"))
    assert harness.process(1) + harness.process(2, side=1) == [2]
    assert (harness.side_output(LEFT), harness.side_output(RIGHT)) == ([1], [2])


def test_an_error_names_the_record_of_its_side():
    class Broken(Both):
        def process_element2(self, value, ctx):
            raise ValueError("no")

    harness = two(lambda a, b: a.connect(b).process(Broken(), uid="both"))
    harness.process(1)
    with pytest.raises(UserCodeFailed, match=r"ValueError: no in operator 'both'.*: 'bad'"):
        harness.process("bad", side=1)


# --- with a key -----------------------------------------------------------------------------------


class Enrich(mo.KeyedCoProcessFunction):
    """Orders wait for their price, but not for ever."""

    price = mo.ValueState(int)
    waiting = mo.ListState(str)

    def process_element1(self, order, ctx):
        if self.price.value() is not None:
            yield order[1], self.price.value()
        else:
            self.waiting.add(order[1])
            ctx.timer_service().register_event_time_timer(100)

    def process_element2(self, price, ctx):
        self.price.update(price[1])
        for order in self.waiting.get():
            yield order, price[1]
        self.waiting.clear()
        ctx.timer_service().delete_event_time_timer(100)

    def on_timer(self, timestamp, ctx):
        for order in self.waiting.get():
            yield order, None
        self.waiting.clear()


def enrich(a, b):
    return a.connect(b).key_by(key, key).process(Enrich(), uid="enrich")


def test_a_timer_of_one_side_can_be_deleted_by_the_other():
    harness = two(enrich, 2)
    harness.process(("tea", "o1"))
    harness.process(("milk", "o2"))
    assert harness.process(("milk", 2), side=1) == [("o2", 2)]
    assert harness.watermark(100) == [("o1", None)]


class Counts(mo.CoMapFunction):
    """A map with a key has state too."""

    seen = mo.ValueState(int, default=0)

    def map1(self, value):
        self.seen.update(self.seen.value() + 1)
        return value[0], self.seen.value()

    def map2(self, value):
        return value[0], -self.seen.value()


def test_a_co_map_on_keyed_streams_shares_state_between_its_sides():
    harness = two(lambda a, b: a.connect(b).key_by(key, key).map(Counts(), uid="counts"), 3)
    assert harness.process(("x",)) + harness.process(("x",)) + harness.process(("x",), side=1) == [
        ("x", 1),
        ("x", 2),
        ("x", -2),
    ]
