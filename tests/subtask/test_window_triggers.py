"""Triggers at work in the window operator."""

from __future__ import annotations

import operator

import pytest
from window_worlds import World, keyed, summed, total

import moorline as mo
from moorline.api.windows.assigners import (
    EventTimeSessionWindows,
    GlobalWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from moorline.api.windows.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerResult,
)
from moorline.errors import UnknownState
from moorline.model.times import MAX_TIME


def test_a_count_trigger_fires_with_every_so_many_records_and_not_at_the_end():
    world = summed(TumblingEventTimeWindows("10s"), CountTrigger(2))
    out = [world.add("a", n, n) for n in range(1, 6)]
    assert out == [[], [(("a", 3), 9.999)], [], [(("a", 10), 9.999)], []]
    assert world.time(MAX_TIME) == []
    assert world.kept() == 0


def test_a_purging_trigger_forgets_what_it_has_passed_on():
    world = summed(TumblingEventTimeWindows("10s"), PurgingTrigger(CountTrigger(2)))
    out = [value for n in range(1, 6) for (_, value), _ in world.add("a", n, n)]
    assert out == [3, 7]


def test_a_purged_window_that_gets_no_more_records_does_not_fire():
    world = summed(TumblingEventTimeWindows("2s"), PurgingTrigger(CountTrigger(1)))
    assert world.add("a", 1, 0) == [(("a", 1), 1.999)]
    assert world.time(10) == []
    assert world.kept() == 0


def test_a_count_goes_on_when_sessions_merge():
    world = summed(EventTimeSessionWindows("3s"), CountTrigger(4))
    assert world.add("a", 1, 0) + world.add("a", 2, 5) + world.add("a", 4, 5) == []
    assert world.add("a", 8, 2.5) == [(("a", 15), 7.999)]
    assert world.add("a", 16, 2.5) == []


def test_a_continuous_trigger_of_event_time_fires_at_every_interval_and_at_the_end():
    world = summed(TumblingEventTimeWindows("10s"), ContinuousEventTimeTrigger("3s"))
    world.add("a", 1, 1)
    assert world.time(2.999) == []
    assert world.time(3) == [(("a", 1), 9.999)]
    world.add("a", 2, 4)
    assert [world.time(at) for at in (5.999, 6)] == [[], [(("a", 3), 9.999)]]
    assert world.time(9) == [(("a", 3), 9.999)]
    assert world.time(9.999) == [(("a", 3), 9.999)]
    assert world.kept() == 0 and world.timers("a") == []


def test_a_continuous_trigger_keeps_its_pace_when_sessions_merge():
    world = summed(EventTimeSessionWindows("4s"), ContinuousEventTimeTrigger("2s"))
    world.add("a", 1, 0), world.add("a", 2, 7), world.add("a", 4, 3.5)
    assert [len(world.time(at)) for at in (1.999, 2, 4, 6, 8, 10, 10.999, 50)] == [0, 1, 1, 1, 1, 1, 1, 0]
    assert world.kept() == 0 and world.timers("a") == []


def test_a_continuous_trigger_of_processing_time_fires_at_every_interval():
    world = summed(GlobalWindows(), ContinuousProcessingTimeTrigger("1s"))
    world.add("a", 1)
    assert world.advance_clock(999) == [] and world.advance_clock(1) == [("a", 1)]
    world.add("a", 2)
    assert world.advance_clock(3000) == [("a", 3), ("a", 3), ("a", 3)]


def test_a_continuous_trigger_of_processing_time_fires_at_the_end_of_its_window():
    world = summed(TumblingProcessingTimeWindows("1500ms"), ContinuousProcessingTimeTrigger("1s"))
    world.add("a", 1)
    assert [world.advance_clock(ms) for ms in (1000, 498, 1, 5000)] == [[("a", 1)], [], [("a", 1)], []]


def test_a_global_window_fires_when_its_trigger_says_so_and_never_else():
    world = summed(GlobalWindows())
    assert world.add("a", 1, 1) + world.time(MAX_TIME) == []
    world = summed(GlobalWindows(fire_at_end=True))
    assert world.add("a", 1) + world.add("a", 2) + world.time(10**9) == []
    assert world.time(MAX_TIME) == [(("a", 3), MAX_TIME)]


def test_a_count_window_is_every_so_many_records():
    world = World.of(lambda s: keyed(s).count_window(3).reduce(total, uid="sums"))
    assert [v for n in range(1, 8) for (_, v), _ in world.add("a", n)] == [6, 15]


def test_a_sliding_count_window_is_the_last_so_many_records():
    world = World.of(lambda s: keyed(s).count_window(3, 2).reduce(total, uid="sums"))
    assert [v for n in range(1, 9) for (_, v), _ in world.add("a", n)] == [3, 2 + 3 + 4, 4 + 5 + 6, 6 + 7 + 8]


class FirstThenEnd(Trigger):
    """Fires with the first record and at the end; keeps a list of what it has seen, and merges it."""

    SEEN = mo.ReducingStateDescriptor("seen", operator.add, int)
    KEYS = mo.ListStateDescriptor("keys", str)

    def on_element(self, element, timestamp, window, ctx):
        seen = ctx.get_partitioned_state(self.SEEN)
        seen.add(1)
        ctx.get_partitioned_state(self.KEYS).add(element[0])
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.FIRE if seen.get() == 1 else TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        if time != window.max_timestamp():
            return TriggerResult.CONTINUE
        assert len(list(ctx.get_partitioned_state(self.KEYS).get())) == ctx.get_partitioned_state(self.SEEN).get()
        return TriggerResult.FIRE_AND_PURGE

    def on_merge(self, window, ctx):
        ctx.merge_partitioned_state(self.SEEN)
        ctx.merge_partitioned_state(self.KEYS)
        ctx.register_event_time_timer(window.max_timestamp())
        # Timers of the windows that end are left behind on purpose.

    def clear(self, window, ctx):
        ctx.get_partitioned_state(self.SEEN).clear()
        ctx.get_partitioned_state(self.KEYS).clear()


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_state_of_a_trigger_is_kept_for_each_window_and_merges_with_them(parallelism):
    world = summed(EventTimeSessionWindows("3s"), FirstThenEnd())
    assert world.add("a", 1, 0) == [(("a", 1), 2.999)]
    assert world.add("a", 2, 5) == [(("a", 2), 7.999)]
    world = summed(EventTimeSessionWindows("3s"), FirstThenEnd(), snapshot=world.snapshot(), parallelism=parallelism)
    assert world.add("a", 4, 2.5) == []
    assert world.time(2.999) == []
    assert world.time(100) == [(("a", 7), 7.999)]
    assert world.kept() == 0


def test_a_trigger_can_ask_only_for_states_that_are_its_attributes():
    class Asks(Trigger):
        def on_element(self, element, timestamp, window, ctx):
            return ctx.get_partitioned_state(mo.ValueStateDescriptor("surprise", int))

    with pytest.raises(UnknownState, match="surprise"):
        summed(GlobalWindows(), Asks()).add("a", 1)


def test_a_trigger_can_delete_its_timers():
    class OnlyIfAlone(Trigger):
        def on_element(self, element, timestamp, window, ctx):
            if element[1] == 1:
                ctx.register_event_time_timer(5000)
                ctx.register_processing_time_timer(5000)
            else:
                ctx.delete_event_time_timer(5000)
                ctx.delete_processing_time_timer(5000)
            assert ctx.get_current_watermark() == ctx.current_watermark() and ctx.get_current_processing_time() == 0
            return TriggerResult.CONTINUE

        def on_event_time(self, time, window, ctx):
            return TriggerResult.FIRE

        on_processing_time = on_event_time

    world = summed(GlobalWindows(), OnlyIfAlone())
    world.add("a", 1), world.add("b", 1), world.add("b", 2)
    assert world.time(10) == [(("a", 1), MAX_TIME)]
    assert world.advance_clock(6000) == [("a", 1)]


def test_sessions_that_merge_take_their_timers_along():
    world = summed(EventTimeSessionWindows("3s"), lateness="1s")
    world.add("a", 1, 0), world.add("a", 2, 5), world.add("a", 4, 2.5)
    assert world.timers("a")[0] == (7999, (0, 8000))
    assert {span for _, span in world.timers("a")} == {(0, 8000)}


@pytest.mark.parametrize("lateness", [0, "1s"])
def test_a_trigger_of_ones_own_has_its_timers_cleared_when_sessions_merge(lateness):
    world = summed(EventTimeSessionWindows("3s"), PurgingTrigger(EventTimeTrigger()), lateness)
    world.add("a", 1, 0), world.add("a", 2, 5), world.add("a", 4, 2.5)
    assert {span for _, span in world.timers("a")} == {(0, 8000)}
    assert world.time(8) == [(("a", 7), 7.999)]
