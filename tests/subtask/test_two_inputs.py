"""Functions with two inputs in a subtask: broadcast state and who may change it, and time that waits for both."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from subtask_worlds import World, memory

import moorline as mo
from moorline.errors import ReadOnlyState, TimersNeedKey, UnknownState
from moorline.model.wire import elements
from moorline.model.wire.elements import BATCH, END
from moorline.testing import OperatorHarness

RULES = mo.MapStateDescriptor("rules", str, int)
NAMES = mo.MapStateDescriptor("names", int, str)


def key(record):
    return record[0]


def two(build, parallelism=1, snapshot=None):
    return OperatorHarness.of(build, inputs=2, parallelism=parallelism, snapshot=snapshot)


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


def watch(function, parallelism=1, snapshot=None, *descriptors):
    return two(
        lambda a, b: a.connect(b.broadcast(*(descriptors or (RULES,)))).process(function, uid="watch"),
        parallelism,
        snapshot,
    )


def keyed(function, parallelism=1, snapshot=None):
    return two(
        lambda a, b: a.key_by(key).connect(b.broadcast(RULES)).process(function, uid="watch"), parallelism, snapshot
    )


def test_there_may_be_several_broadcast_states():
    class Two(Watch):
        def process_element(self, value, ctx):
            yield ctx.get_broadcast_state(NAMES).get(ctx.get_broadcast_state(RULES).get(value))

        def process_broadcast_element(self, value, ctx):
            ctx.get_broadcast_state(RULES).put(value, len(value))
            ctx.get_broadcast_state(NAMES).put(len(value), value.upper())

    harness = watch(Two(), 2, None, RULES, NAMES)
    harness.process("abc", side=1)
    assert harness.process("abc") + harness.process("abc") == ["ABC", "ABC"]
    restored = watch(Two(), 3, harness.snapshot(), RULES, NAMES)
    assert [v for _ in range(3) for v in restored.process("abc")] == ["ABC"] * 3


def test_a_broadcast_state_that_was_not_declared_is_named():
    class Other(Watch):
        def process_element(self, value, ctx):
            ctx.get_broadcast_state(NAMES)

    with pytest.raises(UnknownState, match=r"no state 'names' of that kind \(it has 'rules'\)"):
        watch(Other()).process(1)


def test_broadcast_state_has_a_dicts_manners():
    class Manners(Watch):
        def process_element(self, value, ctx):
            state = ctx.get_broadcast_state(RULES)
            yield len(state), sorted(state), "a" in state, state.is_empty(), state.get("x", 9), sorted(state.values())

        def process_broadcast_element(self, value, ctx):
            state = ctx.get_broadcast_state(RULES)
            if value == "clear":
                state.clear()
            else:
                state.put_all({"a": 1, "b": 2})
                state["c"] = 3
                del state["b"]
                state.remove("b")

    harness = watch(Manners())
    assert harness.process(1) == [(0, [], False, True, 9, [])]
    harness.process("fill", side=1)
    assert harness.process(1) == [(2, ["a", "c"], True, False, 9, [1, 3])]
    harness.process("clear", side=1)
    assert harness.process(1) == [(0, [], False, True, 9, [])]


@dataclass
class Rule:
    limit: int
    words: list[str]


def test_what_is_in_broadcast_state_is_copied_into_a_snapshot():
    descriptor = mo.MapStateDescriptor("rules", str, Rule)

    class Typed(Watch):
        def process_element(self, value, ctx):
            yield ctx.get_broadcast_state(descriptor)["r"].words

        def process_broadcast_element(self, value, ctx):
            state = ctx.get_broadcast_state(descriptor)
            if "r" in state:
                state["r"].words.append(value)
            else:
                state["r"] = Rule(1, [value])

    before = watch(Typed(), 1, None, descriptor)
    before.process("x", side=1)
    snapshot = before.snapshot()
    before.process("y", side=1)
    assert before.process(0) == [["x", "y"]]
    assert watch(Typed(), 2, snapshot, descriptor).process(0) == [["x"]]


class Visiting(mo.KeyedBroadcastProcessFunction):
    """Keys count; the broadcast side looks at all of them, and removes those it is told to."""

    count = mo.ValueState(int, default=0)
    COUNT = mo.ValueStateDescriptor("count", int)

    def process_element(self, value, ctx):
        self.count.update(self.count.value() + 1)
        yield self.count.value()

    def process_broadcast_element(self, value, ctx):
        seen = {}

        def visit(key, state):
            seen[key] = state.value()
            if key == value:
                state.clear()

        ctx.apply_to_keyed_state(self.COUNT, visit)
        yield dict(sorted(seen.items()))

    def on_timer(self, timestamp, ctx):
        ctx.get_broadcast_state(RULES).put("x", 1)


def test_every_subtask_visits_its_own_keys_and_all_of_them():
    harness = keyed(Visiting(), 3)
    for n in range(20):
        harness.process((n % 10,))
    found = harness.process("nobody", side=1)
    assert len(found) == 3
    assert {k: c for part in found for k, c in part.items()} == dict.fromkeys(range(10), 2)


def test_keys_may_be_removed_while_they_are_visited():
    harness = keyed(Visiting())
    for n in (1, 2, 1):
        harness.process((n,))
    assert harness.process(1, side=1) == [{1: 2, 2: 1}]
    assert harness.process(1, side=1) == [{2: 1}]
    assert harness.process((1,)) == [1]


def test_a_state_that_is_to_be_visited_must_be_there():
    class Other(Visiting):
        def process_broadcast_element(self, value, ctx):
            ctx.apply_to_keyed_state(mo.ValueStateDescriptor("counts", int), print)

    with pytest.raises(UnknownState, match=r"'counts'.*it has 'count'"):
        keyed(Other()).process(1, side=1)

    class Unkeyed(Watch):
        def process_broadcast_element(self, value, ctx):
            ctx.apply_to_keyed_state(Visiting.COUNT, print)

    with pytest.raises(UnknownState, match="it has none"):
        watch(Unkeyed()).process(1, side=1)


def test_the_broadcast_side_has_no_key_and_so_no_timers_and_no_keyed_state():
    class Eager(KeyedWatch):
        count = mo.ValueState(int)

        def process_broadcast_element(self, value, ctx):
            if value == "timer":
                ctx.timer_service().register_event_time_timer(1)
            self.count.value()

    with pytest.raises(TimersNeedKey, match="broadcast side"):
        keyed(Eager()).process("timer", side=1)
    with pytest.raises(mo.MoorlineError, match="no current key"):
        keyed(Eager()).process("state", side=1)


def test_a_timer_may_not_change_broadcast_state_either():
    class Timed(Visiting):
        def process_element(self, value, ctx):
            ctx.timer_service().register_event_time_timer(5)

    harness = keyed(Timed())
    harness.process(("a",))
    with pytest.raises(ReadOnlyState):
        harness.watermark(5)


# --- time -----------------------------------------------------------------------------------------


class Wait(mo.KeyedCoProcessFunction):
    """A record of the first input is passed on when it is 100."""

    waiting = mo.ListState(str)

    def process_element1(self, value, ctx):
        self.waiting.add(value[1])
        ctx.timer_service().register_event_time_timer(100)

    def process_element2(self, value, ctx):
        pass

    def on_timer(self, timestamp, ctx):
        yield from self.waiting.get()
        self.waiting.clear()


def test_time_goes_on_when_both_inputs_have():
    job = mo.Job("two")
    a, b = job.source(mo.from_items([]), uid="a"), job.source(mo.from_items([]), uid="b")
    a.connect(b).key_by(key, key).process(Wait(), uid="wait").sink(Remember(), uid="sink")
    world = World(job, "wait", store=memory()).start()
    first, second = (n.id for n in world.plan.links if n.target == world.id.vertex)

    def watermark(link, time):
        world.subtask.frame(world._head(BATCH, link, 0) + elements.pack_watermark(time))

    sink = world.subtask._operators[-1].function
    world.send([("tea", "o1")], link=first)
    watermark(first, 500)
    assert sink.seen == [], "the other input has said nothing yet"
    watermark(second, 99)
    assert sink.seen == []
    watermark(second, 100)
    assert sink.seen == ["o1"]
    world.send([("milk", "o2")], link=first)
    world.subtask.frame(world._head(END, second, 0))
    assert sink.seen == ["o1", "o2"], "an input that has ended is not waited for: it is 500 now"
    world.subtask.close()


class Remember(mo.SinkFunction):
    def __init__(self):
        self.seen = []

    def invoke(self, value, context):
        self.seen.append(value)
