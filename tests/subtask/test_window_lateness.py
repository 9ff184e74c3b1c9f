"""Late records: which ones are, what becomes of them, and when windows are cleared."""

from __future__ import annotations

import pytest
from subtask_worlds import World
from window_worlds import LATE, summed

import moorline as mo
from moorline.api.windows.assigners import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from moorline.api.windows.triggers import CountTrigger, PurgingTrigger
from moorline.errors import TimestampMissing
from moorline.model.times import MAX_TIME
from moorline.model.wire.messages import Noticed


def test_a_record_that_is_late_for_its_window_is_counted():
    world = summed(TumblingEventTimeWindows("2s"))
    world.time(1.999)
    assert world.add("a", 1, 1.9) == [] and world.late_records == 1
    assert world.add("a", 1, 2) == [] and world.late_records == 1
    assert world.time(MAX_TIME) == [(("a", 1), 3.999)]


def test_late_records_show_in_progress_and_the_first_is_told_with_how_late_it_is():
    job = mo.Job("late")
    numbers = job.source(mo.from_items([1]), uid="numbers").key_by(lambda n: 0)
    sums = numbers.window(TumblingEventTimeWindows("2s")).allowed_lateness("1s").reduce(max, uid="sums")
    sums.sink(mo.collect("out"), uid="out")
    world = World(job, "sums").start()
    operator = world.subtask._operators[0]
    operator.watermark(10_000)
    for at in (9_000, 8_500, 3_000, 4_000):
        operator.process([1], [at])
    assert world.subtask.progress().counters == {"sums": {"late_records": 2}}
    (told,) = [r for r in world.reports if isinstance(r, Noticed)]
    assert (told.uid, told.kind) == ("sums", "late_records")
    assert told.text.startswith("drops records that come too late, the first by 6 s.")


def test_a_record_behind_the_watermark_is_not_late_if_its_window_is_still_open():
    world = summed(TumblingEventTimeWindows("2s"))
    world.time(1.5)
    world.add("a", 1, 0.1)
    assert world.time(2) == [(("a", 1), 1.999)]


def test_late_records_can_have_an_output_of_their_own_with_their_own_timestamps():
    world = summed(TumblingEventTimeWindows("2s"), tag=LATE)
    world.time(5)
    world.add("a", 1, 1)
    assert world.side_output(LATE) == [("a", 1)] and world.late_records == 0
    assert world._subtasks[0].side.get("late")[0].timestamps == [1000]


def test_within_the_allowed_lateness_each_late_record_fires_its_window_again():
    world = summed(TumblingEventTimeWindows("2s"), lateness="1s", tag=LATE)
    world.add("a", 1, 1)
    assert world.time(1.999) == [(("a", 1), 1.999)]
    assert world.add("a", 2, 1.5) == [(("a", 3), 1.999)]
    assert world.time(2.998) == []
    assert world.add("a", 4, 0) == [(("a", 7), 1.999)]
    assert world.time(2.999) == [] and world.kept() == 0
    assert world.add("a", 8, 0) == [] and world.side_output(LATE) == [("a", 8)]


def test_a_late_record_can_open_a_window_that_was_never_there():
    world = summed(TumblingEventTimeWindows("2s"), lateness="10s")
    world.time(5)
    assert world.add("a", 1, 1) == [(("a", 1), 1.999)]


def test_a_window_that_is_purged_at_each_firing_passes_late_records_on_alone():
    world = summed(
        TumblingEventTimeWindows("2s"), PurgingTrigger(TumblingEventTimeWindows("1s").default_trigger()), "5s"
    )
    world.add("a", 1, 1)
    assert world.time(2) == [(("a", 1), 1.999)]
    assert world.add("a", 2, 1) == [(("a", 2), 1.999)]


def test_a_sliding_record_is_late_only_if_all_its_windows_are():
    world = summed(SlidingEventTimeWindows("3s", "1s"), tag=LATE)
    world.time(1.999)
    world.add("a", 1, 0.5)
    assert world.side_output(LATE) == []
    assert world.time(10) == [(("a", 1), 2.999)]
    world.add("a", 2, 0.5)
    assert world.side_output(LATE) == [("a", 2)]


def test_a_record_between_windows_is_in_none_and_not_late():
    world = summed(SlidingEventTimeWindows("1s", "2s"), tag=LATE)
    world.add("a", 1, 1.5)
    assert world.kept() == 0 and world.side_output(LATE) == []
    world.time(10)
    world.add("a", 2, 1.5)
    assert world.side_output(LATE) == [("a", 2)]


def test_a_late_record_joins_a_session_that_has_fired_and_is_still_kept():
    world = summed(EventTimeSessionWindows("3s"), lateness="10s")
    world.add("a", 1, 0)
    assert world.time(5) == [(("a", 1), 2.999)]
    assert world.add("a", 2, 1) == [(("a", 3), 3.999)]
    # It reaches into the future: the whole session waits for its new end.
    assert world.add("a", 4, 3.5) == []
    assert world.time(6.499) == [(("a", 7), 6.499)]


def test_a_late_record_that_touches_no_session_fires_one_of_its_own_or_is_dropped():
    world = summed(EventTimeSessionWindows("3s"), lateness="10s", tag=LATE)
    world.time(12)
    assert world.add("a", 1, 0) == [(("a", 1), 2.999)]
    world.time(13)
    assert world.kept() == 0
    assert world.add("a", 2, 0) == [] and world.side_output(LATE) == [("a", 2)]


def test_a_record_that_would_be_late_alone_counts_in_a_session_that_is_not():
    world = summed(EventTimeSessionWindows("3s"), tag=LATE)
    world.add("a", 1, 5), world.time(6)
    world.add("a", 2, 2.5)
    assert world.time(10) == [(("a", 3), 7.999)]
    assert world.side_output(LATE) == []


def test_lateness_without_end_keeps_windows_for_ever():
    world = summed(TumblingEventTimeWindows("2s"), lateness=2.0**53 / 1000 - 1)
    world.add("a", 1, 1)
    assert world.time(10**12 - 1) == [(("a", 1), 1.999)]
    assert world.add("a", 2, 1) == [(("a", 3), 1.999)]


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows("2s"), EventTimeSessionWindows("2s")])
@pytest.mark.parametrize(("before", "after"), [("10s", 0), (0, "10s"), ("10s", "1s")])
def test_a_job_may_be_restored_with_another_lateness_and_no_window_is_kept_for_ever(assigner, before, after):
    world = summed(assigner, lateness=before)
    world.add("a", 1, 0)
    world = summed(assigner, lateness=after, snapshot=world.snapshot())
    assert world.time(1.999) == [(("a", 1), 1.999)]
    assert world.add("a", 2, 0) == ([(("a", 3), 1.999)] if after else [])
    assert world.time(100) == []
    assert world.kept() == 0 and world.timers("a") == []


@pytest.mark.parametrize("trigger", [None, CountTrigger(5)])
@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows("2s"), EventTimeSessionWindows("2s")])
@pytest.mark.parametrize(("before", "after"), [("10s", 0), (0, "10s"), ("10s", "1s")])
def test_so_it_is_with_windows_that_get_no_more_records(assigner, trigger, before, after):
    world = summed(assigner, trigger, lateness=before)
    world.add("a", 1, 0)
    world = summed(assigner, trigger, lateness=after, snapshot=world.snapshot())
    world.time(1.999), world.time(2.5)
    world.time(100)
    assert world.kept() == 0 and world.timers("a") == []


def test_a_late_record_finds_what_came_just_before_it_in_the_same_batch():
    world = summed(SlidingEventTimeWindows("4s", "2s"), lateness="10s")
    world.time(3.999)
    operator = world._subtasks[0].operator
    # The first is in [2,6) and [4,8). The second is in [0,4), which has fired, and in [2,6).
    operator.process([("a", 1), ("a", 2)], [4500, 3000])
    assert world.time(3.999) == [(("a", 2), 3.999)]
    assert world.time(20) == [(("a", 3), 5.999), (("a", 1), 7.999)]


def test_a_record_that_would_merge_into_a_session_that_is_late_is_dropped_and_changes_nothing():
    world = summed(EventTimeSessionWindows("3s"), lateness="60s")
    world.add("a", 1, 0)
    world = summed(EventTimeSessionWindows("3s"), lateness="1s", tag=LATE, snapshot=world.snapshot())
    # The old clean-up timer is what keeps the session, which is late by the new measure.
    assert world.time(2) == []
    world._subtasks[0].operator.moment.watermark = 10_000
    assert world.add("a", 2, 1) == [] and world.side_output(LATE) == [("a", 2)]
    assert world.time(100) == [(("a", 1), 2.999)]


def test_records_need_timestamps_under_event_time():
    with pytest.raises(TimestampMissing, match="assign_timestamps_and_watermarks") as failed:
        summed(TumblingEventTimeWindows("2s")).add("a", 1)
    assert failed.value.uid == "sums" and "('a', 1)" in failed.value.record
    with pytest.raises(TimestampMissing):
        summed(EventTimeSessionWindows("2s")).add("a", 1)
