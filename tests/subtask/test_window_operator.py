"""The window operator, sentence by sentence: what fires when, and what functions see and keep."""

from __future__ import annotations

from enum import Enum

import pytest
from window_worlds import SIDE, World, keyed, listed, summed, total

import moorline as mo
from moorline.api.windows.assigners import (
    EventTimeSessionWindows,
    GlobalWindow,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from moorline.api.windows.evictors import CountEvictor, Evictor, TimeEvictor
from moorline.api.windows.functions import ProcessWindowFunction, WindowFunction
from moorline.api.windows.triggers import (
    CountTrigger,
)
from moorline.errors import UnknownState, UserCodeFailed
from moorline.model.times import MAX_TIME


def test_a_tumbling_window_fires_once_when_the_watermark_reaches_its_last_moment():
    world = summed(TumblingEventTimeWindows("2s"))
    assert [world.add("a", n, at) for n, at in ((1, 0.5), (2, 1.999), (4, 2))] == [[], [], []]
    assert world.time(1.998) == []
    assert world.time(1.999) == [(("a", 3), 1.999)]
    assert world.time(3.998) == []
    assert world.time(3.999) == [(("a", 4), 3.999)]


def test_keys_have_windows_of_their_own():
    world = summed(TumblingEventTimeWindows("2s"), parallelism=3)
    for key, value in (("a", 1), ("b", 2), ("a", 4)):
        world.add(key, value, 1)
    assert sorted(world.time(2)) == [(("a", 5), 1.999), (("b", 2), 1.999)]


def test_a_record_counts_in_every_sliding_window_that_holds_it():
    world = summed(SlidingEventTimeWindows("3s", "1s"))
    world.add("a", 1, 0.5), world.add("a", 2, 2.5)
    fired = [world.time(at) for at in (0.999, 1.999, 2.999, 3.999, 4.999, 5.999)]
    assert fired == [
        [(("a", 1), 0.999)],
        [(("a", 1), 1.999)],
        [(("a", 3), 2.999)],
        [(("a", 2), 3.999)],
        [(("a", 2), 4.999)],
        [],
    ]


def test_a_session_lasts_as_long_as_records_are_near_each_other():
    world = summed(EventTimeSessionWindows("3s"))
    for value, at in ((1, 0), (2, 2.5), (4, 8), (8, 5.499)):
        world.add("a", value, at)
    # 5.499 is within 3s of 2.5, and of 8.
    assert world.time(20) == [(("a", 15), 10.999)]


def test_a_session_ends_where_the_gap_is_exceeded():
    world = summed(EventTimeSessionWindows("3s"))
    world.add("a", 1, 0), world.add("a", 2, 3), world.add("a", 4, 6.001)
    assert world.time(5.998) == []
    assert world.time(5.999) == [(("a", 3), 5.999)]
    assert world.time(20) == [(("a", 4), 9)]


def test_each_record_may_have_a_gap_of_its_own():
    world = summed(EventTimeSessionWindows(lambda r: r[1]))
    world.add("a", 1, 0), world.add("a", 5, 0.5), world.add("a", 2, 5)
    assert world.time(20) == [(("a", 8), 6.999)]


def test_the_end_of_the_input_fires_everything():
    world = summed(TumblingEventTimeWindows("2s"))
    world.add("a", 1, 1), world.add("a", 2, 1000), world.add("a", 3, -7)
    assert world.time(MAX_TIME) == [(("a", 3), -6.001), (("a", 1), 1.999), (("a", 2), 1001.999)]


def test_windows_fire_in_the_order_of_their_ends():
    world = summed(TumblingEventTimeWindows("1s"))
    for at in (5, 3, 9, 1):
        world.add("a", at, at)
    assert [value for (_, value), _ in world.time(100)] == [1, 3, 5, 9]


def test_windows_of_processing_time_follow_the_clock_and_need_no_timestamps():
    world = summed(TumblingProcessingTimeWindows("2s"))
    world.add("a", 1)
    assert world.advance_clock(1000) == []
    world.add("a", 2)
    assert world.advance_clock(998) == []
    assert world._stamped(lambda: world.advance_clock(1)) == [(("a", 3), 1.999)]
    world.add("a", 4)  # at 1.999: after its window has fired, which is over
    assert world.kept() == 1
    assert world.time(MAX_TIME) == []
    assert world.advance_clock(2000) == [("a", 4)]


def test_sliding_windows_of_processing_time():
    world = summed(SlidingProcessingTimeWindows("2s", "1s"))
    world.add("a", 1)
    assert world.advance_clock(1000) == [("a", 1)]
    world.add("a", 2)
    assert world.advance_clock(1000) == [("a", 3)]
    assert world.advance_clock(1000) == [("a", 2)]


def test_sessions_of_processing_time_last_as_long_as_records_keep_coming():
    world = summed(ProcessingTimeSessionWindows("2s"))
    out = []
    for value in (1, 2, 4):
        world.add("a", value)
        out += world.advance_clock(1500)
    assert out == []
    assert world.advance_clock(500) == [("a", 7)]
    assert world.kept() == 0


def test_timers_of_processing_time_that_are_overdue_fire_after_a_restore():
    world = summed(TumblingProcessingTimeWindows("2s"))
    world.add("a", 1)
    snapshot = world.snapshot()
    later = summed(TumblingProcessingTimeWindows("2s"), snapshot=snapshot, parallelism=2)
    assert later.advance_clock(60_000) == [("a", 1)]


# --- functions ------------------------------------------------------------------------------------

FIRED = mo.ValueStateDescriptor("fired", int, default=0)


class Numbered(ProcessWindowFunction):
    """Counts its firings, per window and per key."""

    window_states = (FIRED,)
    global_states = (FIRED,)
    declared = mo.ListState(str)
    cleared = mo.MapState(int, int)

    def process(self, key, context, elements):
        here, overall = context.window_state().get_state(FIRED), context.global_state().get_state(FIRED)
        here.update(here.value() + 1)
        overall.update(overall.value() + 1)
        self.declared.add(key)
        assert context.current_watermark() >= context.window().start and context.current_processing_time() == 0
        yield context.window().start, here.value(), overall.value(), len(list(self.declared.get())), elements
        yield SIDE, "yielded"
        context.output(SIDE, "put out")

    def clear(self, context):
        context.window_state().get_state(FIRED).clear()
        self.cleared.put(context.window().start, context.current_watermark())


@pytest.mark.parametrize("restored", [False, True])
def test_a_process_function_sees_its_window_and_keeps_state_per_window_and_per_key(restored):
    world = listed(TumblingEventTimeWindows("2s"), Numbered(), lateness="5s")
    world.add("a", 1, 1), world.add("a", 2, 3)
    assert world.time(2) == [((0, 1, 1, 1, [("a", 1)]), 1.999)]
    if restored:
        world = listed(TumblingEventTimeWindows("2s"), Numbered(), lateness="5s", snapshot=world.snapshot())
        world.time(2)
    assert world.add("a", 4, 1) == [((0, 2, 2, 2, [("a", 1), ("a", 4)]), 1.999)]
    assert world.time(4) == [((2000, 1, 3, 3, [("a", 2)]), 3.999)]
    assert sorted(world.side_output(SIDE)) == ["put out"] * (3 - restored) + ["yielded"] * (3 - restored)
    assert set(world._subtasks[0].side.get("side")[0].timestamps) == {1999, 3999}
    world.time(8)
    assert world.state("cleared", "a") == {0: 8000}
    assert world.kept() == 2 + 3  # contents and state of one window, and what there is per key
    world.time(9)
    assert world.kept() == 3


def test_a_state_that_is_not_listed_is_refused_with_what_there_is():
    def asks(key, context, elements):
        context.window_state().get_state(FIRED)

    world = listed(TumblingEventTimeWindows("2s"), asks)
    world.add("a", 1, 1)
    with pytest.raises(UnknownState, match="fired"):
        world.time(2)


class Average(mo.AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + 1, accumulator[1] + value[1]

    def get_result(self, accumulator):
        return accumulator[1] / accumulator[0]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


def test_a_window_function_gets_the_one_result_of_an_aggregation():
    class Told(WindowFunction):
        def apply(self, key, window, elements):
            yield key, window, elements

    world = World.of(
        lambda s: keyed(s).window(EventTimeSessionWindows("2s")).aggregate(Average(), Told(), tuple[int, int], uid="m")
    )
    world.add("a", 1, 0), world.add("a", 2, 3), world.add("a", 6, 1.5)
    assert world.time(9) == [(("a", TimeWindow(0, 5000), [3.0]), 4.999)]


def test_an_aggregation_alone_is_its_result():
    world = World.of(
        lambda s: keyed(s).window(TumblingEventTimeWindows("2s")).aggregate(Average(), accumulator_type=tuple[int, int])
    )
    world.add("a", 1, 0), world.add("a", 2, 1)
    assert world.time(9) == [(1.5, 1.999)]


def test_functions_under_a_window_function_are_opened_and_closed_too():
    told = []

    class Sum(mo.ReduceFunction):
        def open(self, runtime_context):
            told.append("open")

        def reduce(self, value1, value2):
            return total(value1, value2)

        def close(self):
            told.append("close")

    build = lambda s: keyed(s).window(TumblingEventTimeWindows("2s")).reduce(Sum(), lambda k, w, e: e)  # noqa: E731
    with World.of(build) as world:
        assert world.add("a", 1, 0) + world.add("a", 2, 0) + world.time(5) == [(("a", 3), 1.999)]
    assert told == ["open", "close"]


def test_windows_over_everything():
    world = World.of(lambda s: s.window_all(TumblingEventTimeWindows("2s")).reduce(total, uid="all"), parallelism=4)
    world.add("a", 1, 0), world.add("b", 2, 1)
    assert world.time(5) == [(("a", 3), 1.999)]


def test_windows_of_ones_own():
    class FromTheFirst(WindowAssigner):
        def assign_windows(self, element, timestamp):
            yield TimeWindow(0, element[1] * 1000)

    world = summed(FromTheFirst())
    world.add("a", 2, 0), world.add("a", 3, 1), world.add("a", 2, 1)
    assert world.time(9) == [(("a", 4), 1.999), (("a", 3), 2.999)]


def test_an_evictor_before_the_function():
    world = summed(TumblingEventTimeWindows("9s"), evictor=TimeEvictor("2s"))
    for at in (1, 4, 3):
        world.add("a", at, at)
    assert world.time(9) == [(("a", 7), 8.999)]


def test_an_evictor_after_the_function():
    world = summed(GlobalWindows(), CountTrigger(2), evictor=CountEvictor(1, after=True))
    assert [v for n in (1, 2, 4, 8) for (_, v), _ in world.add("a", n)] == [3, 14]


def test_an_evictor_over_an_aggregation_and_over_sessions_sees_windows():
    seen = []

    class Seen(Evictor):
        def evict_before(self, elements, window):
            seen.append((elements, window))
            return elements

    world = World.of(
        lambda s: keyed(s).window(EventTimeSessionWindows("2s")).evictor(Seen()).aggregate(Average(), uid="m")
    )
    world.add("a", 1, 0), world.add("a", 2, 3), world.add("a", 6, 1.5)
    assert world.time(9) == [(3.0, 4.999)]
    assert seen == [([(0, ("a", 1)), (3000, ("a", 2)), (1500, ("a", 6))], TimeWindow(0, 5000))]
    world = World.of(
        lambda s: keyed(s).window(GlobalWindows()).evictor(Seen()).trigger(CountTrigger(1)).process(Numbered2())
    )
    world.add("a", 1)
    assert seen[-1][1] == GlobalWindow()


class Numbered2(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield elements


def test_user_code_that_fails_names_the_record():
    def fails(a, b):
        raise ValueError("no such sum")

    world = World.of(lambda s: keyed(s).window(TumblingEventTimeWindows("2s")).reduce(fails, uid="sums"))
    operator = world._subtasks[0].operator
    with pytest.raises(UserCodeFailed) as failed:
        operator.process([("b", 1), ("a", 1), ("a", 2)], [0, 0, 0])
    assert (failed.value.position, failed.value.record) == (2, "('a', 2)")


def test_user_code_that_fails_at_the_end_of_a_window_names_the_window():
    def fails(key, context, elements):
        raise ValueError("no")

    world = listed(TumblingEventTimeWindows("2s"), fails)
    world.add("a", 1, 1)
    with pytest.raises(UserCodeFailed, match="no") as failed:
        world.time(5)
    assert failed.value.record == "window [0,2000) of key 'a'"


class Colour(Enum):
    RED = 1


def test_windows_of_keys_of_the_jobs_own_classes_are_restored():
    def build(stream):
        coloured = stream.key_by(lambda r: r[0], key_type=Colour)
        return coloured.window(EventTimeSessionWindows("2s")).aggregate(Average(), uid="m")

    world = World.of(build)
    world.add(Colour.RED, 1, 1)
    world = World.of(build, snapshot=world.snapshot(), parallelism=2)
    assert world.time(9) == [(1.0, 2.999)]


def test_contents_can_be_stored_by_their_type():
    def build(stream):
        windowed = keyed(stream).window(TumblingEventTimeWindows("2s"))
        return windowed.process(Numbered2(), element_type=tuple[str, int], uid="typed")

    world = World.of(build)
    world.add("a", 1, 1)
    snapshot = world.snapshot()
    (handle,) = [h for o in snapshot.manifest.operators for s in o.subtasks for h in s.keyed if "contents" in h.state]
    assert (handle.kind, str(handle.type)) == ("list", "tuple[str, int]")
    assert World.of(build, snapshot=snapshot).time(9) == [([("a", 1)], 1.999)]


def test_what_many_windows_make_at_once_is_passed_on_in_pieces():
    world = summed(TumblingEventTimeWindows("1s"))
    sizes = []
    operator = world._subtasks[0].operator
    (target,) = operator.targets
    collect = target.process
    target.process = lambda records, *rest: (sizes.append(len(records)), collect(records, *rest))
    operator.process([(key, 1) for key in range(5000)], [0] * 5000)
    assert len(world.time(1)) == 5000
    assert max(sizes) < 3000
