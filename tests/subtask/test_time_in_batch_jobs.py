"""Time in batch jobs: keys are worked off in its order, and it ends with each of them."""

from __future__ import annotations

import pytest
from batch_worlds import BatchWorld, run
from keyed_batch_jobs import BY_TIME, by_key, key, keyed

import moorline as mo
from moorline.model.times import MAX_TIME, MIN_TIME


def test_with_timestamps_a_key_is_worked_off_in_the_order_of_time():
    records = [("a", 5), ("b", 1), ("a", 3), ("a", 4), ("b", 0), ("a", 3)]
    found = run(keyed(lambda r, ctx: [(*r, ctx.timestamp())], records, watermarks=BY_TIME))
    assert by_key(found) == {
        "a": [("a", 3, 3), ("a", 3, 3), ("a", 4, 4), ("a", 5, 5)],
        "b": [("b", 0, 0), ("b", 1, 1)],
    }


class AllTimers(mo.KeyedProcessFunction):
    """Sets timers of both kinds, and tells what it sees when they go off."""

    seen = mo.ListState(int)

    def process_element(self, value, ctx):
        timers = ctx.timer_service()
        assert timers.current_watermark() == MIN_TIME
        self.seen.add(value[1])
        timers.register_event_time_timer(value[1] + 10)
        timers.register_processing_time_timer(timers.current_processing_time() + 3_600_000)

    def on_timer(self, timestamp, ctx):
        assert ctx.timer_service().current_watermark() == MAX_TIME
        at = timestamp if ctx.time_domain == "event" else None
        yield ctx.current_key, ctx.time_domain, at, len(self.seen.get())


def test_timers_fire_when_the_key_has_ended_those_of_event_time_first():
    found = by_key(run(keyed(AllTimers(), [("a", 2), ("b", 7), ("a", 1)], watermarks=BY_TIME)))
    # All of a key's processing-time timers may be of one millisecond: then there is one.
    assert found["a"][:2] == [("a", "event", 11, 2), ("a", "event", 12, 2)]
    assert {r[1:] for r in found["a"][2:]} == {("processing", None, 2)}
    assert found["b"] == [("b", "event", 17, 1), ("b", "processing", None, 1)]


def test_a_clock_that_winds_itself_up_again_does_not_go_on_for_ever():
    class Clock(mo.KeyedProcessFunction):
        def process_element(self, value, ctx):
            ctx.timer_service().register_processing_time_timer(1)

        def on_timer(self, timestamp, ctx):
            ctx.timer_service().register_processing_time_timer(timestamp + 1)
            yield ctx.current_key, timestamp

    assert sorted(run(keyed(Clock(), [("a", 0), ("b", 0)]))) == [("a", 1), ("b", 1)]


def test_event_timers_that_follow_from_others_fire_too():
    class Steps(mo.KeyedProcessFunction):
        def process_element(self, value, ctx):
            ctx.timer_service().register_event_time_timer(value[1])

        def on_timer(self, timestamp, ctx):
            if timestamp < 3:
                ctx.timer_service().register_event_time_timer(timestamp + 1)
            yield ctx.current_key, timestamp

    assert run(keyed(Steps(), [("a", 1)], watermarks=BY_TIME)) == [("a", 1), ("a", 2), ("a", 3)]


def test_watermark_generators_are_not_asked():
    class Never(mo.WatermarkGenerator):
        def on_event(self, value, timestamp):
            raise AssertionError("asked")

        watermark = on_event

    strategy = mo.WatermarkStrategy.of(Never, timestamp=lambda r: r[1])
    assert run(keyed(lambda r, ctx: [ctx.timestamp()], [("a", 5)], watermarks=strategy)) == [5]


def test_nothing_is_late():
    late = mo.OutputTag("late")
    records = [("a", n * 1000) for n in (50, 1, 30, 0)]
    job = mo.Job("late", parallelism=2)
    windows = job.source(mo.from_items(records), watermarks=BY_TIME).key_by(key)
    counts = windows.window(mo.TumblingEventTimeWindows("10s")).side_output_late_data(late)
    counts = counts.apply(lambda k, window, values: [(k, window.start, len(values))], uid="counts")
    counts.sink(mo.collect("out"))
    counts.side_output(late).sink(mo.collect("late"))
    world = BatchWorld(job).run()
    assert world.collected["out"] == [("a", 0, 2), ("a", 30_000, 1), ("a", 50_000, 1)]
    assert world.collected["late"] == []


@pytest.mark.parametrize(
    ("assigner", "expected"),
    [
        (mo.EventTimeSessionWindows.with_gap("3s"), [(0, 4000, 2), (8000, 11000, 1)]),
        (mo.SlidingEventTimeWindows("4s", "2s"), [(-2000, 2000, 2), (0, 4000, 2), (6000, 10000, 1), (8000, 12000, 1)]),
    ],
)
def test_windows_close_at_the_end_of_the_key(assigner, expected):
    job = mo.Job("windows", parallelism=3)
    stream = job.source(mo.from_items([("a", 8000), ("a", 1000), ("b", 0), ("a", 0)]), watermarks=BY_TIME).key_by(key)
    counts = stream.window(assigner).apply(lambda k, w, values: [(k, w.start, w.end, len(values))])
    counts.sink(mo.collect("out"))
    assert [r[1:] for r in by_key(run(job))["a"]] == expected


def test_windows_of_processing_time_close_too():
    job = mo.Job("windows", parallelism=2)
    stream = job.source(mo.from_items([("a", 1), ("b", 2), ("a", 3)])).key_by(key)
    stream.window(mo.TumblingProcessingTimeWindows("1000h")).apply(
        lambda k, window, values: [(k, sorted(v[1] for v in values))]
    ).sink(mo.collect("out"))
    assert sorted(run(job)) == [("a", [1, 3]), ("b", [2])]
