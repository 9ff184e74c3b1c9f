"""Windows as a user declares them: which ones a record is in, and what cannot be built."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    signed_milliseconds,
    window_of,
)
from moorline.api.windows.evictors import CountEvictor, TimeEvictor
from moorline.api.windows.functions import ProcessWindowFunction
from moorline.api.windows.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerResult,
)
from moorline.errors import InvalidArgument
from moorline.model.times import MAX_TIME, MIN_TIME


def ms(value: int) -> timedelta:
    return timedelta(milliseconds=value)


# --- which windows a record is in -----------------------------------------------------------------


def flinks_start(timestamp: int, offset: int, size: int) -> int:
    """``TimeWindow.getWindowStartWithOffset``, with Java's remainder."""
    remainder = abs(timestamp - offset) % size * (1 if timestamp >= offset else -1)
    return timestamp - (remainder + size if remainder < 0 else remainder)


times = st.integers(-(10**15), 10**15) | st.integers(-50, 50)


@given(times, st.integers(1, 100), st.integers(-99, 99))
def test_tumbling_windows_start_where_flinks_do(time, size, offset):
    offset %= size
    ((start, end),) = TumblingEventTimeWindows(ms(size), offset=ms(offset)).spans("record", time)
    assert start == flinks_start(time, offset, size)
    assert start <= time < end == start + size


@given(times, st.integers(1, 60), st.integers(1, 60), st.integers(0, 59))
def test_sliding_windows_are_all_that_hold_the_time_latest_first(time, size, slide, offset):
    offset %= slide
    found = SlidingEventTimeWindows(ms(size), ms(slide), ms(offset)).spans("record", time)
    latest = flinks_start(time, offset, slide)
    naive = [latest - n * slide for n in range(size + 1) if latest - n * slide > time - size]
    assert list(found) == [(start, start + size) for start in naive]


@given(st.integers(-100, 100), st.integers(1, 20), st.integers(1, 20))
def test_all_times_of_a_pane_are_in_the_same_windows_and_its_neighbours_are_not(time, size, slide):
    assigner = SlidingEventTimeWindows(ms(size), ms(slide))
    first, end, spans = assigner.pane(time)
    assert first <= time < end
    assert all(list(assigner.spans("r", t)) == list(spans) for t in range(first, end))
    assert list(assigner.spans("r", first - 1)) != list(spans) or not spans
    assert list(assigner.spans("r", end)) != list(spans) or not spans


def test_windows_before_1970_are_cut_like_those_after():
    assigner = TumblingEventTimeWindows("5s")
    assert assigner.assign_windows("r", -1) == [TimeWindow(-5000, 0)]
    assert assigner.assign_windows("r", -5000) == [TimeWindow(-5000, 0)]
    assert assigner.assign_windows("r", -5001) == [TimeWindow(-10_000, -5000)]


def test_days_can_follow_the_clock_of_another_place():
    (china,) = TumblingEventTimeWindows("1d", offset="-8h").spans("r", 0)
    assert china == (-8 * 3_600_000, 16 * 3_600_000)


def test_windows_end_with_time_itself():
    assert TumblingEventTimeWindows("5s").spans("r", MAX_TIME)[0][1] == MAX_TIME
    assert TumblingEventTimeWindows("5s").spans("r", MIN_TIME)[0][0] == MIN_TIME


def test_a_session_begins_as_long_as_its_gap():
    assert EventTimeSessionWindows("3s").spans("r", 1000) == ((1000, 4000),)
    assert EventTimeSessionWindows.with_dynamic_gap(lambda r: r["gap"]).spans({"gap": 2}, -500) == ((-500, 1500),)
    with pytest.raises(InvalidArgument, match="gap of a session"):
        EventTimeSessionWindows(lambda r: 0).spans("r", 0)


def test_everything_is_in_the_global_window():
    assert GlobalWindows().assign_windows("r", 5) == [GlobalWindow()]
    assert window_of((MIN_TIME, MAX_TIME)) == GlobalWindow()
    assert GlobalWindow().max_timestamp() == MAX_TIME
    assert window_of((0, 5)) == TimeWindow(0, 5)
    assert TimeWindow(0, 5).max_timestamp() == 4


def test_lengths_may_be_negative_where_that_means_something():
    assert [signed_milliseconds(d, "d") for d in ("-5s", " - 5s", timedelta(seconds=-5), -5)] == [-5000] * 4
    assert signed_milliseconds("5s", "d") == 5000


@pytest.mark.parametrize(
    ("make", "pyflinks"),
    [
        (TumblingEventTimeWindows("5s", "1s"), TumblingEventTimeWindows.of("5s", "1s")),
        (TumblingProcessingTimeWindows("5s"), TumblingProcessingTimeWindows.of("5s")),
        (SlidingEventTimeWindows("5s", "1s"), SlidingEventTimeWindows.of("5s", "1s")),
        (SlidingProcessingTimeWindows("5s", "1s"), SlidingProcessingTimeWindows.of("5s", "1s")),
        (EventTimeSessionWindows("5s"), EventTimeSessionWindows.with_gap("5s")),
        (ProcessingTimeSessionWindows("5s"), ProcessingTimeSessionWindows.with_gap("5s")),
        (GlobalWindows(), GlobalWindows.create()),
    ],
)
def test_pyflinks_names_make_the_same(make, pyflinks):
    assert type(make) is type(pyflinks) and vars(make) == vars(pyflinks) and repr(make) == repr(pyflinks)


def test_what_fires_if_nobody_says_anything_else():
    assert type(TumblingEventTimeWindows("5s").default_trigger()) is EventTimeTrigger
    assert type(ProcessingTimeSessionWindows("5s").default_trigger()) is ProcessingTimeTrigger
    assert type(GlobalWindows().default_trigger()) is NeverTrigger
    assert type(GlobalWindows.create_with_end_of_stream_trigger().default_trigger()) is EndOfStreamTrigger


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: TumblingEventTimeWindows(0),
        lambda: TumblingEventTimeWindows("5s", offset="5s"),
        lambda: TumblingEventTimeWindows("5s", offset="-5s"),
        lambda: SlidingEventTimeWindows("5s", 0),
        lambda: SlidingEventTimeWindows("5s", "1s", offset="1s"),
        lambda: EventTimeSessionWindows("0ms"),
        lambda: CountTrigger(0),
        lambda: CountTrigger(True),
        lambda: CountEvictor(0),
        lambda: ContinuousEventTimeTrigger("0s"),
        lambda: PurgingTrigger(3),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(InvalidArgument):
        wrong()


# --- triggers and evictors ------------------------------------------------------------------------


def test_a_result_says_whether_it_fires_and_purges():
    told = {r.name: (r.is_fire(), r.is_purge()) for r in TriggerResult}
    assert told == {
        "CONTINUE": (False, False),
        "FIRE": (True, False),
        "PURGE": (False, True),
        "FIRE_AND_PURGE": (True, True),
    }


def test_a_trigger_can_merge_if_it_says_how():
    class Silent(Trigger):
        pass

    class Knows(Trigger):
        def on_merge(self, window, ctx):
            pass

    assert not Silent().can_merge() and Knows().can_merge()
    assert PurgingTrigger(Knows()).can_merge() and not PurgingTrigger(Silent()).can_merge()
    for ours in (EventTimeTrigger(), ProcessingTimeTrigger(), CountTrigger(1), NeverTrigger()):
        assert ours.can_merge()
    assert ContinuousEventTimeTrigger.of("1s").can_merge() and ContinuousProcessingTimeTrigger.of("1s").can_merge()


def test_the_states_of_a_trigger_are_its_descriptors():
    class Two(Trigger):
        ONE = mo.ValueStateDescriptor("one", int)

        def __init__(self):
            self.two = mo.ListStateDescriptor("two", int)

    assert set(Two().states()) == {"one", "two"}
    assert set(PurgingTrigger(CountTrigger.of(3)).states()) == {"count"}


def test_evictors_keep_the_newest():
    records = [(1000, "a"), (3000, "b"), (2000, "c")]
    assert CountEvictor.of(2).evict_before(records, GlobalWindow()) == records[1:]
    assert CountEvictor.of(2, True).evict_before(records, GlobalWindow()) == records
    assert CountEvictor.of(2, True).evict_after(records, GlobalWindow()) == records[1:]
    assert TimeEvictor.of("2s").evict_before(records, GlobalWindow()) == [(3000, "b"), (2000, "c")]
    assert TimeEvictor.of("2s", True).evict_after(records, GlobalWindow()) == [(3000, "b"), (2000, "c")]
    assert TimeEvictor("2s").evict_before([(MIN_TIME, "no time")], GlobalWindow()) == [(MIN_TIME, "no time")]


# --- what cannot be built -------------------------------------------------------------------------


def stream(name="windows") -> mo.Stream:
    return mo.Job(name).source(mo.from_items([]))


def keyed():
    return stream().key_by(lambda r: r)


class NeedsWindowState(ProcessWindowFunction):
    window_states = (mo.ValueStateDescriptor("seen", int),)


class Mean(mo.AggregateFunction):
    def create_accumulator(self):
        return []


class Stateful(mo.ReduceFunction):
    seen = mo.ValueState(int)

    def reduce(self, value1, value2):
        return value1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: keyed().window("5s"),  # pyright: ignore[reportArgumentType]
        lambda: stream().window_all("5s"),  # type: ignore[arg-type]
        lambda: keyed().window(GlobalWindows()).trigger("every"),  # pyright: ignore[reportArgumentType]
        lambda: keyed().window(GlobalWindows()).evictor(3),  # pyright: ignore[reportArgumentType]
        lambda: keyed().window(GlobalWindows()).side_output_late_data("late"),  # pyright: ignore[reportArgumentType]
        lambda: keyed().window(GlobalWindows()).allowed_lateness("-1s"),
        lambda: keyed().window(GlobalWindows()).reduce(3),  # pyright: ignore[reportArgumentType]
        lambda: keyed().window(GlobalWindows()).reduce(mo.ReduceFunction),  # pyright: ignore[reportArgumentType]
        lambda: keyed().window(GlobalWindows()).reduce(Stateful()),
        lambda: keyed().window(GlobalWindows()).aggregate(max),  # pyright: ignore[reportArgumentType]
        lambda: keyed().window(GlobalWindows()).process(3),  # pyright: ignore[reportArgumentType]
        lambda: keyed().window(GlobalWindows()).apply(3),  # pyright: ignore[reportArgumentType]
        lambda: keyed().window(GlobalWindows()).reduce(max, 3),  # pyright: ignore[reportArgumentType, reportCallIssue]
        lambda: keyed().window(EventTimeSessionWindows("1s")).trigger(EndOfStreamTrigger()),
        lambda: keyed().window(EventTimeSessionWindows("1s")).process(NeedsWindowState()),
        lambda: keyed().window(EventTimeSessionWindows("1s")).aggregate(Mean()),
        lambda: keyed().count_window(0),
        lambda: keyed().count_window(5, 0),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(wrong):
    with pytest.raises(InvalidArgument):
        wrong()


def test_each_setting_makes_a_new_stream():
    first = keyed().window(TumblingEventTimeWindows("5s"))
    first.trigger(CountTrigger(3)).allowed_lateness("1s")
    assert type(first._spec.trigger) is EventTimeTrigger and first._spec.lateness_ms == 0


def test_a_window_is_a_step_like_any_other():
    job = mo.Job("steps", parallelism=2)
    windowed = job.source(mo.from_items([]), uid="in").key_by(lambda r: r).window(TumblingEventTimeWindows("5s"))
    windowed.reduce(max, uid="highest", name="the highest", parallelism=3).sink(mo.discard())
    operator = job.graph().by_uid["highest"]
    assert (operator.kind, operator.name, operator.parallelism) == ("window", "the highest", 3)
    assert operator.is_keyed and operator.options["window"].contents == "reduce"


def test_windows_over_everything_run_in_one_subtask():
    job = mo.Job("all", parallelism=4)
    every = job.source(mo.from_items([])).window_all(TumblingEventTimeWindows("5s"))
    every.reduce(max, uid="highest").sink(mo.discard())
    assert job.graph().by_uid["highest"].parallelism == 1


def test_names_are_those_of_the_users_functions():
    job = mo.Job("names")
    windowed = job.source(mo.from_items([])).key_by(lambda r: r).window(TumblingEventTimeWindows("5s"))

    def spread(key, window, elements):
        return ()

    windowed.apply(spread, uid="applied").sink(mo.discard())
    windowed.reduce(max, spread, uid="reduced").sink(mo.discard())
    assert {o.name for o in job.graph().operators if o.kind == "window"} == {"spread"}
