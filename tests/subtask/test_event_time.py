"""Where event time begins: timestamps, watermarks that follow from them, and what late records look like."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

import moorline as mo
from moorline.api.watermarks import to_ms
from moorline.errors import InvalidArgument, UserCodeFailed
from moorline.model.times import MAX_TIME
from moorline.testing import OperatorHarness

MONOTONOUS = mo.WatermarkStrategy.monotonous(timestamp=lambda r: r)


def stamped(strategy, parallelism=1):
    """The strategy in the middle of a stream."""
    return OperatorHarness.of(
        lambda s: s.assign_timestamps_and_watermarks(strategy, uid="times"), parallelism=parallelism
    )


def announced(harness):
    """What is announced when it is time to announce something."""
    before = len(harness.watermarks)
    harness.advance_clock(50)
    return harness.watermarks[before:]


# --- strategies -----------------------------------------------------------------------------------


def test_monotonous_timestamps_are_followed_closely():
    harness = stamped(MONOTONOUS)
    harness.process(10)
    assert harness.timestamps == [10]
    assert announced(harness) == [9], "another record with the latest timestamp may follow"
    harness.process(12)
    assert announced(harness) == [11]


def test_a_bound_on_the_disorder_holds_the_watermark_back():
    harness = stamped(mo.WatermarkStrategy.bounded_out_of_orderness("1s", timestamp=lambda r: r))
    harness.process_all([5000, 4500, 5200, 4900])
    assert announced(harness) == [4199]


def test_without_watermarks_time_stands_still_until_the_end():
    harness = stamped(mo.WatermarkStrategy.none(timestamp=lambda r: r))
    harness.process(10)
    assert harness.timestamps == [10]
    assert announced(harness) == []
    harness.watermark(MAX_TIME)
    assert harness.watermarks == [MAX_TIME]


def test_a_watermark_is_announced_at_most_every_interval_and_only_if_it_is_new():
    harness = stamped(MONOTONOUS)
    for n in range(100):
        harness.process(n)
        harness.advance_clock(1)
    assert harness.watermarks == [48, 98]
    assert announced(harness) == []


def test_a_late_record_does_not_take_the_watermark_back():
    harness = stamped(MONOTONOUS)
    harness.process(100)
    assert announced(harness) == [99]
    harness.process(50)
    assert harness.timestamps == [50], "it passes, with its timestamp"
    assert announced(harness) == []


class Marked(mo.WatermarkGenerator):
    """Time goes on when a record says so."""

    def __init__(self):
        self.reached = None

    def on_event(self, value, timestamp):
        if value[1] == "mark":
            self.reached = timestamp

    def watermark(self):
        return self.reached


def test_a_generator_of_ones_own():
    harness = stamped(mo.WatermarkStrategy.of(Marked, timestamp=lambda r: r[0]))
    harness.process((10, "data"))
    assert announced(harness) == []
    harness.process_all([(20, "mark"), (30, "data")])
    assert announced(harness) == [20]
    harness.process((15, "mark"))
    assert announced(harness) == [], "what it takes back was announced already"


@pytest.mark.parametrize("answer", ["soon", 1.5, True])
def test_a_generator_that_gives_no_time_is_named(answer):
    class Odd(mo.WatermarkGenerator):
        def on_event(self, value, timestamp):
            pass

        def watermark(self):
            return answer

    harness = stamped(mo.WatermarkStrategy.of(Odd, timestamp=lambda r: r))
    harness.process(1)
    with pytest.raises(InvalidArgument, match=r"Odd object.*milliseconds since 1970"):
        harness.advance_clock(50)


def test_an_error_of_a_generator_is_told():
    class Broken(Marked):
        def watermark(self):
            raise OSError("no clock")

    harness = stamped(mo.WatermarkStrategy.of(Broken, timestamp=lambda r: r))
    with pytest.raises(UserCodeFailed, match="TypeError"):  # on_event, with an int for a pair
        harness.process(1)
    harness = stamped(mo.WatermarkStrategy.of(Broken, timestamp=lambda r: r[0]))
    harness.process((1, "data"))
    with pytest.raises(InvalidArgument, match="OSError: no clock"):
        harness.advance_clock(50)


def test_a_strategy_is_a_value_that_is_changed_by_making_another():
    first = mo.WatermarkStrategy.for_bounded_out_of_orderness("5s")
    second = first.with_timestamp_assigner(len).with_idleness("1min")
    assert (first.timestamp, first.idle_ms) == (None, None)
    assert (second.timestamp, second.idle_ms, second.interval_ms) == (len, 60_000, 50)
    assert first == mo.WatermarkStrategy.bounded_out_of_orderness("5s")
    assert mo.WatermarkStrategy.for_monotonous_timestamps() == mo.WatermarkStrategy.monotonous()
    assert mo.WatermarkStrategy.no_watermarks() == mo.WatermarkStrategy.none()


@pytest.mark.parametrize("wrong", [{"delay": -1}, {"delay": "soon"}])
def test_a_strategy_with_no_length_is_refused(wrong):
    with pytest.raises(InvalidArgument):
        mo.WatermarkStrategy.bounded_out_of_orderness(**wrong)


# --- timestamps -----------------------------------------------------------------------------------


def test_a_datetime_will_do_as_a_timestamp():
    harness = stamped(mo.WatermarkStrategy.monotonous(timestamp=lambda r: r))
    harness.process(datetime(1970, 1, 1, 0, 0, 2, 500_000))
    assert harness.timestamps == [2500], "without a zone it is taken as UTC"
    harness.process(datetime(1970, 1, 1, 1, 0, 3, tzinfo=timezone(timedelta(hours=1))))
    assert harness.timestamps == [3000]
    harness._subtasks[0].operator.process([4000, datetime(1970, 1, 1, 0, 0, 5)])
    assert harness._subtasks[0]._out.timestamps == [4000, 5000], "both in one batch"


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.timezones()))
def test_a_datetime_belongs_to_the_millisecond_that_it_lies_in(moment):
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    assert timedelta(milliseconds=to_ms(moment)) <= since < timedelta(milliseconds=to_ms(moment) + 1)


@pytest.mark.parametrize("wrong", [1.5, "2026-01-01", None, True])
def test_what_is_no_timestamp_is_refused(wrong):
    harness = stamped(mo.WatermarkStrategy.monotonous(timestamp=lambda r: r))
    with pytest.raises(InvalidArgument, match="milliseconds since 1970"):
        harness.process(wrong)


def test_an_assigner_that_raises_is_the_users_error():
    harness = stamped(mo.WatermarkStrategy.monotonous(timestamp=lambda r: r["at"]))
    with pytest.raises(UserCodeFailed, match="KeyError: 'at' in operator 'times'"):
        harness.process({})


def test_records_keep_the_timestamps_they_have_if_there_is_no_assigner():
    harness = stamped(mo.WatermarkStrategy.monotonous())
    harness.process("a", 7)
    assert harness.timestamps == [7]
    assert announced(harness) == [6]


def test_records_without_any_timestamp_get_the_wall_clocks():
    harness = stamped(mo.WatermarkStrategy.monotonous())
    harness.advance_clock(1234)
    harness.process("a")
    assert harness.timestamps == [1234]


def test_timestamps_go_through_map_filter_and_flat_map():
    mapped = OperatorHarness(str, kind="map")
    mapped.process(1, 7)
    assert mapped.timestamps == [7]
    flat = OperatorHarness(range, kind="flat_map")
    flat.process(3, 8)
    assert flat.timestamps == [8, 8, 8]
    filtered = OperatorHarness(bool, kind="filter")
    operator = filtered._subtasks[0].operator
    operator.process([0, 1, 0, 2], [10, 11, 12, 13])
    assert filtered._subtasks[0]._out.timestamps == [11, 13]


# --- what becomes of it ---------------------------------------------------------------------------


def test_in_the_middle_of_a_stream_what_was_known_before_is_forgotten():
    harness = stamped(MONOTONOUS)
    harness.process(10)
    harness.watermark(5000)
    assert harness.watermarks == []
    assert announced(harness) == [9]


def test_after_the_end_nothing_is_announced():
    harness = stamped(MONOTONOUS)
    harness.process(10)
    harness.watermark(MAX_TIME)
    assert announced(harness) == []
    assert harness.watermarks == [MAX_TIME]


class Late(mo.ProcessFunction):
    """Tells late records from the others."""

    LATE = mo.OutputTag("late")

    def process_element(self, value, ctx):
        if ctx.timestamp() <= ctx.timer_service().current_watermark():
            ctx.output(self.LATE, value)
        else:
            yield value


def test_a_process_function_sees_that_a_record_is_late():
    harness = OperatorHarness(Late())
    assert harness.process("early", 10) == ["early"]
    harness.watermark(10)
    assert harness.process("late", 10) == []
    assert harness.process("later", 3) == []
    assert harness.process("in time", 11) == ["in time"]
    assert harness.side_output(Late.LATE) == ["late", "later"]


def test_watermarks_are_not_state():
    harness = OperatorHarness(Late())
    harness.watermark(10)
    after = OperatorHarness.restore(harness.snapshot(), Late())
    assert after.process("again", 5) == ["again"]


@pytest.mark.parametrize("wrong", [None, "5s", lambda r: r])
def test_only_a_strategy_is_one(wrong):
    job = mo.Job("x")
    with pytest.raises(InvalidArgument, match="WatermarkStrategy"):
        job.source(mo.from_items([1])).assign_timestamps_and_watermarks(wrong)
    if wrong is not None:
        with pytest.raises(InvalidArgument, match="WatermarkStrategy"):
            job.source(mo.from_items([1]), watermarks=wrong)


def test_in_the_middle_of_a_stream_idleness_is_judged_anew():
    harness = stamped(MONOTONOUS.with_idleness("1s"))
    harness.process(10)
    assert announced(harness) == [9]
    harness._subtasks[0].operator.idle()
    assert harness.watermarks == [9], "that of the source is forgotten"
    harness.advance_clock(2000)
    assert harness.watermarks == [9, None]
    harness.process(20)
    assert announced(harness) == [19]
    assert harness.watermarks == [9, None, 9, 19]
