"""Timers, watermarks and connected streams through the harness."""

from __future__ import annotations

from enum import Enum

import pytest

import moorline as mo
from moorline.errors import KeyedStateWithoutKey, TimersNeedKey
from moorline.model.times import MAX_TIME, MIN_TIME
from moorline.testing import OperatorHarness


class Alarm(mo.KeyedProcessFunction):
    """Sets the timers it is told to: (key, what, time)."""

    last = mo.ValueState(str)

    def process_element(self, value, ctx):
        _, what, *args = value
        self.last.update(what)
        timers = ctx.timer_service()
        match what:
            case "event":
                timers.register_event_time_timer(args[0])
            case "processing":
                timers.register_processing_time_timer(args[0])
            case "delete event":
                timers.delete_event_time_timer(args[0])
            case "delete processing":
                timers.delete_processing_time_timer(args[0])
            case "list":
                yield timers.event_time_timers(), timers.processing_time_timers()
            case "times":
                yield ctx.timestamp(), timers.current_watermark(), timers.current_processing_time()

    def on_timer(self, timestamp, ctx):
        yield ctx.time_domain, timestamp, ctx.get_current_key(), self.last.value()


def alarm(parallelism=1, snapshot=None, function=None, key_type=None):
    return OperatorHarness.of(
        lambda s: s.key_by(lambda v: v[0], key_type=key_type).process(function or Alarm(), uid="alarm"),
        parallelism=parallelism,
        snapshot=snapshot,
    )


def test_event_time_timers_fire_in_order_when_the_watermark_has_reached_them():
    harness = alarm()
    harness.process_all([("a", "event", 30), ("b", "event", 10), ("a", "event", 20), ("a", "event", 31)])
    assert harness.watermark(9) == []
    assert harness.watermark(30) == [
        ("event", 10, "b", "event"),
        ("event", 20, "a", "event"),
        ("event", 30, "a", "event"),
    ]
    assert harness.watermark(40) == [("event", 31, "a", "event")]


def test_processing_time_timers_fire_with_no_input():
    harness = alarm()
    harness.process(("a", "processing", 50))
    assert harness.advance_clock(49) == []
    assert harness.advance_clock(1) == [("processing", 50, "a", "processing")]
    assert harness.advance_clock(100) == []


def test_one_timer_per_key_and_time():
    harness = alarm()
    harness.process_all([("a", "event", 10)] * 3 + [("b", "event", 10)])
    assert sorted(harness.watermark(10)) == [("event", 10, "a", "event"), ("event", 10, "b", "event")]


def test_timers_can_be_listed_and_deleted():
    harness = alarm()
    harness.process_all([("a", "event", 20), ("a", "event", 10), ("a", "processing", 5), ("b", "event", 7)])
    assert harness.process(("a", "list")) == [([10, 20], [5])]
    harness.process_all([("a", "delete event", 10), ("a", "delete processing", 5), ("a", "delete event", 99)])
    assert harness.process(("a", "list")) == [([20], [])]
    assert harness.watermark(15) == [("event", 7, "b", "event")]
    assert harness.advance_clock(10) == []


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 3), (3, 1)])
def test_timers_survive_a_restore_at_any_parallelism_and_fire_exactly_once(before, after):
    old = alarm(before)
    for n in range(20):
        old.process((n, "event", 100 + n))
        old.process((n, "processing", 200 + n))
    fired = old.watermark(109)
    assert len(fired) == 10
    new = alarm(after, old.snapshot())
    fired += new.watermark(1000)
    assert sorted(k for _, _, k, _ in fired) == list(range(20))
    assert new.watermark(2000) == []
    overdue = new.advance_clock(210)
    assert sorted(k for _, _, k, _ in overdue) == list(range(11)), "overdue ones fire after the restore"


class Chain(mo.KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(10)

    def on_timer(self, timestamp, ctx):
        assert ctx.timer_service().current_watermark() == 35, "the watermark is set before timers fire"
        ctx.timer_service().register_event_time_timer(timestamp + 10)
        yield timestamp


def test_a_timer_that_is_registered_by_a_timer_fires_in_the_same_sweep_if_it_is_due():
    harness = alarm(function=Chain())
    harness.process(("a",))
    assert harness.watermark(35) == [10, 20, 30]


def test_a_timer_deleted_by_another_timer_does_not_fire():
    class Deleting(mo.KeyedProcessFunction):
        def process_element(self, value, ctx):
            for time in (10, 20):
                ctx.timer_service().register_event_time_timer(time)

        def on_timer(self, timestamp, ctx):
            ctx.timer_service().delete_event_time_timer(20)
            yield timestamp

    harness = alarm(function=Deleting())
    harness.process(("a",))
    assert harness.watermark(35) == [10]


def test_a_record_knows_its_timestamp_and_the_times_of_the_stream():
    harness = alarm()
    assert harness.process(("a", "times"), 7) == [(7, MIN_TIME, 0)]
    harness.watermark(5)
    harness.advance_clock(3)
    assert harness.process(("a", "times")) == [(None, 5, 3)]


def test_what_a_timer_emits_carries_its_time_and_what_an_element_emits_carries_the_elements():
    harness = alarm()
    harness.process(("a", "event", 10), 5)
    harness.process(("a", "list"), 6)
    assert harness._subtasks[0].timestamps == [6]
    harness.watermark(MAX_TIME)
    assert harness._subtasks[0].timestamps == [10]


class Colour(Enum):
    RED = 1


def test_timers_of_keys_of_the_users_own_classes_fire_after_a_restore_if_the_class_is_declared():
    old = alarm(key_type=Colour)
    old.process((Colour.RED, "event", 10))
    assert alarm(snapshot=old.snapshot(), key_type=Colour).watermark(10) == [("event", 10, Colour.RED, "event")]


def test_without_a_key_there_is_a_clock_and_no_timer():
    class Unkeyed(mo.ProcessFunction):
        def process_element(self, value, ctx):
            yield ctx.timer_service().current_watermark()
            ctx.timer_service().register_event_time_timer(1)

    with pytest.raises(TimersNeedKey, match="key_by"):
        OperatorHarness(Unkeyed()).process(1)


# --- connected streams --------------------------------------------------------------------------


class Enrich(mo.KeyedCoProcessFunction):
    price = mo.ValueState(float)
    waiting = mo.ListState(str)

    def process_element1(self, order, ctx):
        if self.price.value() is None:
            self.waiting.add(order[1])
            ctx.timer_service().register_event_time_timer(100)
        else:
            yield order[1], self.price.value()

    def process_element2(self, price, ctx):
        self.price.update(price[1])
        for order in self.waiting.get():
            yield order, price[1]
        self.waiting.clear()

    def on_timer(self, timestamp, ctx):
        for order in self.waiting.get():
            yield order, None
        self.waiting.clear()


def enrich(parallelism=1, snapshot=None):
    def build(orders, prices):
        return orders.connect(prices).key_by(lambda o: o[0], lambda p: p[0]).process(Enrich(), uid="enrich")

    return OperatorHarness.of(build, inputs=2, parallelism=parallelism, snapshot=snapshot)


def test_two_keyed_inputs_share_state_and_timers():
    harness = enrich(2)
    assert harness.process(("tea", "o1")) == []
    assert harness.process(("milk", "o2")) == []
    assert harness.process(("tea", 2.5), side=1) == [("o1", 2.5)]
    harness = enrich(3, harness.snapshot())
    assert harness.process(("tea", "o3")) == [("o3", 2.5)]
    assert harness.watermark(100) == [("o2", None)]


def test_one_keyed_and_one_unkeyed_stream_cannot_be_connected():
    job = mo.Job("x")
    a, b = job.source(mo.from_items([1])), job.source(mo.from_items([1]))
    with pytest.raises(mo.MoorlineError, match="Key both"):
        a.key_by(lambda v: v).connect(b).process(Both())
    with pytest.raises(KeyedStateWithoutKey):
        a.connect(b).process(Enrich())


class Both(mo.CoProcessFunction):
    def process_element1(self, value, ctx):
        yield "left", value

    def process_element2(self, value, ctx):
        yield "right", value


def test_comap_and_coflatmap():
    class Label(mo.CoMapFunction):
        def map1(self, value):
            return value + 1

        def map2(self, value):
            return value.upper()

    class Split(mo.CoFlatMapFunction):
        def flat_map1(self, value):
            return range(value)

        def flat_map2(self, value):
            yield from value.split()

    mapped = OperatorHarness.of(lambda a, b: a.connect(b).map(Label(), uid="m"), inputs=2)
    assert mapped.process(1) + mapped.process("x", side=1) == [2, "X"]
    flat = OperatorHarness.of(lambda a, b: a.connect(b).flat_map(Split(), uid="f"), inputs=2)
    assert flat.process(2) + flat.process("x y", side=1) == [0, 1, "x", "y"]


def test_a_stream_can_be_connected_with_itself_under_another_key():
    job = mo.Job("self")
    stream = job.source(mo.from_items([1]))
    connected = stream.connect(stream).key_by(lambda v: v, lambda v: -v)
    connected.process(Enrich(), uid="both").sink(mo.discard())
    operator = job.graph().by_uid["both"]
    assert [(i.side, i.key(3)) for i in operator.inputs] == [(0, 3), (1, -3)]
