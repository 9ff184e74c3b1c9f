"""Joins as a user writes them: by windows, and by distance in time."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

import moorline as mo
from moorline.api.windows.assigners import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from moorline.api.windows.functions import CoGroupFunction, JoinFunction, ProcessJoinFunction
from moorline.api.windows.triggers import CountTrigger, EndOfStreamTrigger
from moorline.errors import InvalidArgument, TimestampMissing
from moorline.model.durations import Duration
from moorline.model.times import MAX_TIME, MIN_TIME
from moorline.testing.harness import OperatorHarness

LEFT_LATE, RIGHT_LATE, FAR = mo.OutputTag("left"), mo.OutputTag("right"), mo.OutputTag("far")
LEFT, RIGHT = 0, 1


def first(record):
    return record[0]


def joined(build, parallelism=1, snapshot=None):
    return OperatorHarness.of(build, inputs=2, parallelism=parallelism, snapshot=snapshot)


def stamped(harness, out):
    """What came out, with timestamps in seconds."""
    times = [t for s in harness._subtasks for t in s.timestamps]
    for subtask in harness._subtasks:
        subtask.timestamps = []
    return [(value, time / 1000) for value, time in zip(out, times, strict=True)]


def add(harness, side, key, value, at):
    return stamped(harness, harness.process((key, value), round(at * 1000), side=side))


# --- by windows -----------------------------------------------------------------------------------


def pairs(assigner, function=lambda left, right: (left[0], left[1], right[1])):
    return lambda a, b: a.join(b).where(first).equal_to(first).window(assigner).apply(function, uid="join")


def test_records_of_two_streams_meet_in_windows():
    harness = joined(pairs(TumblingEventTimeWindows("2s")))
    for side, key, value, at in (
        (LEFT, "a", 1, 0),
        (LEFT, "a", 2, 1),
        (RIGHT, "a", 3, 1.9),
        (RIGHT, "b", 4, 1),
        (RIGHT, "a", 5, 2),
    ):
        assert add(harness, side, key, value, at) == []
    assert stamped(harness, harness.watermark(1999)) == [(("a", 1, 3), 1.999), (("a", 2, 3), 1.999)]
    assert harness.watermark(MAX_TIME) == []
    assert harness._subtasks[0].operator.backend.entries() == 0  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_what_waits_for_the_other_side_survives_a_restart(parallelism):
    build = pairs(SlidingEventTimeWindows("4s", "2s"))
    harness = joined(build)
    add(harness, LEFT, "a", 1, 1), add(harness, RIGHT, "b", 2, 1)
    harness = joined(build, parallelism, harness.snapshot())
    add(harness, RIGHT, "a", 3, 3), add(harness, LEFT, "b", 4, 0)
    assert sorted(harness.watermark(MAX_TIME)) == [("a", 1, 3), ("b", 4, 2), ("b", 4, 2)]


def test_a_session_is_made_of_the_records_of_both_sides():
    harness = joined(pairs(EventTimeSessionWindows("2s")))
    add(harness, LEFT, "a", 1, 0), add(harness, RIGHT, "a", 2, 3), add(harness, LEFT, "a", 4, 1.5)
    assert stamped(harness, harness.watermark(9000)) == [(("a", 1, 2), 4.999), (("a", 4, 2), 4.999)]


class Both(CoGroupFunction):
    def co_group(self, lefts, rights):
        yield sorted(v for _, v in lefts), sorted(v for _, v in rights)


def test_a_co_group_sees_both_sides_also_if_one_is_empty():
    harness = joined(
        lambda a, b: (
            a.co_group(b)
            .where(first)
            .equal_to(first)
            .window(TumblingEventTimeWindows("2s"))
            .allowed_lateness("1s")
            .apply(Both(), left_type=tuple[str, int], right_type=tuple[str, int], uid="groups")
        )
    )
    add(harness, LEFT, "a", 1, 0), add(harness, LEFT, "a", 2, 1), add(harness, RIGHT, "b", 3, 1)
    assert sorted(harness.watermark(1999)) == [([], [3]), ([1, 2], [])]
    assert add(harness, RIGHT, "a", 4, 1) == [(([1, 2], [4]), 1.999)]
    harness.watermark(3000)
    assert add(harness, RIGHT, "a", 4, 1) == []
    assert harness._subtasks[0].operator.counters == {"late_records": 1}


def test_a_join_can_have_another_trigger_and_a_class_for_its_function():
    class Product(JoinFunction):
        def join(self, left, right):
            return left[1] * right[1]

    harness = joined(
        lambda a, b: (
            a.join(b)
            .where(first)
            .equal_to(first)
            .window(TumblingProcessingTimeWindows("1s"))
            .trigger(CountTrigger(3))
            .apply(Product(), uid="join")
        )
    )
    assert harness.process(("a", 2)) + harness.process(("a", 3)) == []
    assert harness.process(("a", 5), side=1) == [10, 15]


# --- by distance in time --------------------------------------------------------------------------


def near(
    lower: Duration = "-2s",
    upper: Duration = "1s",
    function=lambda left, right, ctx: [(left[1], right[1])],
    late=True,
    **options,
):
    def build(a, b):
        join = a.key_by(first).interval_join(b.key_by(first)).between(lower, upper, **options)
        if late:
            join = join.side_output_left_late_data(LEFT_LATE).side_output_right_late_data(RIGHT_LATE)
        return join.process(function, uid="near")

    return build


def test_records_meet_if_the_right_one_is_within_the_bounds_of_the_left_one():
    harness = joined(near())
    add(harness, LEFT, "a", "left", 10)
    found = [at for at in (7.999, 8, 9, 11, 11.001) if add(harness, RIGHT, "a", "right", at)]
    assert found == [8, 9, 11]


def test_it_does_not_matter_which_side_comes_first():
    harness = joined(near())
    for at in (7.999, 8, 9, 11, 11.001):
        add(harness, RIGHT, "a", at, at)
    assert [right for (_, right), _ in add(harness, LEFT, "a", "left", 10)] == [8, 9, 11]


def test_bounds_can_be_left_out():
    harness = joined(near(lower_exclusive=True, upper_exclusive=True))
    add(harness, LEFT, "a", "left", 10)
    assert [at for at in (8, 8.001, 10.999, 11) if add(harness, RIGHT, "a", "right", at)] == [8.001, 10.999]


def test_a_pair_carries_the_later_timestamp():
    harness = joined(near())
    add(harness, LEFT, "a", 1, 10)
    assert add(harness, RIGHT, "a", 2, 9) == [((1, 2), 10)]
    assert add(harness, RIGHT, "a", 3, 11) == [((1, 3), 11)]


def test_keys_that_differ_never_meet():
    harness = joined(near(), parallelism=2)
    add(harness, LEFT, "a", 1, 10)
    assert add(harness, RIGHT, "b", 2, 10) == []


def test_records_that_are_late_go_their_own_way():
    harness = joined(near())
    harness.watermark(10_000)
    add(harness, LEFT, "a", 1, 9.999), add(harness, RIGHT, "a", 2, 9.9)
    assert harness.side_output(LEFT_LATE) == [("a", 1)] and harness.side_output(RIGHT_LATE) == [("a", 2)]
    add(harness, LEFT, "a", 3, 10)
    assert add(harness, RIGHT, "a", 4, 10) == [((3, 4), 10)]


def test_records_that_are_late_and_have_nowhere_to_go_are_counted():
    harness = joined(near(late=False))
    harness.watermark(10_000)
    add(harness, LEFT, "a", 1, 9.999), add(harness, RIGHT, "a", 2, 9.9)
    assert harness._subtasks[0].operator.counters == {"late_records": 2}


class Told(ProcessJoinFunction):
    """Keeps how many pairs there were, and tells everything it knows."""

    lefts = mo.ListState(int)

    def open(self, runtime_context):
        self.seen = runtime_context.get_state(mo.ValueStateDescriptor("seen", int, default=0))

    def process_element(self, left, right, ctx):
        self.seen.update(self.seen.value() + 1)
        self.lefts.add(left[1])
        if ctx.right_timestamp - ctx.left_timestamp > 500:
            ctx.output(FAR, ctx.current_key)
        yield self.seen.value(), ctx.left_timestamp, ctx.right_timestamp, ctx.timestamp()
        yield FAR, "yielded"


def test_the_function_knows_both_times_and_can_keep_state_and_put_out():
    harness = joined(near(function=Told()))
    add(harness, LEFT, "a", 1, 10)
    assert add(harness, RIGHT, "a", 2, 9) == [((1, 10_000, 9000, 10_000), 10)]
    assert add(harness, RIGHT, "a", 3, 11) == [((2, 10_000, 11_000, 11_000), 11)]
    assert harness.side_output(FAR) == ["yielded", "yielded", "a"]
    assert harness.state("lefts", "a") == [1, 1]
    assert [t for c in harness._subtasks[0].side.get("far") for t in c.timestamps] == [10_000, 11_000, 11_000]


def test_interval_joins_need_timestamps():
    with pytest.raises(TimestampMissing):
        joined(near()).process(("a", 1))


class Naive:
    """All records ever, and all pairs among them."""

    def __init__(self, lower, upper):
        self.lower, self.upper, self.watermark = lower, upper, MIN_TIME
        self.records: tuple[list[Any], list[Any]] = ([], [])

    def add(self, side, key, number, time):
        if self.watermark > MIN_TIME and time < self.watermark:
            return []
        self.records[side].append((key, number, time))
        other = self.records[1 - side]
        found = []
        for other_key, other_number, other_time in other:
            left, right = (time, other_time) if side == LEFT else (other_time, time)
            if other_key == key and left + self.lower <= right <= left + self.upper:
                pair = (number, other_number) if side == LEFT else (other_number, number)
                found.append((pair, max(left, right) / 1000))
        return found


#: Side and time, which is told from where the watermark is. Nothing comes at the very time of a watermark.
records = st.tuples(st.sampled_from([LEFT, RIGHT]), st.integers(-4, 14).filter(bool))
interval_steps = st.lists(
    st.one_of(records, records, records, st.integers(1, 6), st.builds(lambda p: f"restart {p}", st.integers(1, 3))),
    min_size=4,
)


@given(st.integers(-12, 12), st.integers(0, 12), interval_steps)
@settings(max_examples=examples(100), deadline=None)
def test_an_interval_join_finds_what_a_look_at_all_pairs_finds(lower, width, steps):
    upper = lower + width
    build = near(timedelta(milliseconds=lower), timedelta(milliseconds=upper))
    harness, naive, now = joined(build), Naive(lower, upper), 0
    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            side, time = step
            found = add(harness, side, "a", number, (now + time) / 1000)
            assert Counter(found) == Counter(naive.add(side, "a", number, now + time))
        elif isinstance(step, int):
            now = naive.watermark = now + step
            harness.watermark(now)
        else:
            # Without the watermark, some of what was let go could meet again: so time goes on where it was.
            harness = joined(build, int(step.split()[1]), harness.snapshot())
            if naive.watermark > MIN_TIME:
                harness.watermark(naive.watermark)
    harness.watermark(MAX_TIME)
    assert sum(s.operator.backend.entries() for s in harness._subtasks) == 0  # pyright: ignore[reportOptionalMemberAccess]


def test_records_are_kept_as_long_as_one_of_the_other_side_may_come():
    harness = joined(near())
    add(harness, LEFT, "a", 1, 10), add(harness, RIGHT, "a", 2, 20)
    kept = []
    for at in (10_999, 11_000, 21_999, 22_000):
        harness.watermark(at)
        kept.append(harness._subtasks[0].operator.backend.entries())  # pyright: ignore[reportOptionalMemberAccess]
    assert kept == [2, 1, 1, 0]


# --- what cannot be built -------------------------------------------------------------------------


def streams():
    job = mo.Job("joins")
    return job.source(mo.from_items([])), job.source(mo.from_items([]))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a, b: a.join(3),
        lambda a, b: a.join(streams()[0]),
        lambda a, b: a.join(b).window(TumblingEventTimeWindows("1s")),
        lambda a, b: a.join(b).where(first).window(TumblingEventTimeWindows("1s")),
        lambda a, b: a.join(b).where(first).equal_to(first).window("1s"),
        lambda a, b: a.join(b).where(3).equal_to(first).window(TumblingEventTimeWindows("1s")),
        lambda a, b: pairs(TumblingEventTimeWindows("1s"), Both())(a, b),
        lambda a, b: pairs(TumblingEventTimeWindows("1s"), 3)(a, b),
        lambda a, b: (
            a.join(b).where(first).equal_to(first).window(EventTimeSessionWindows("1s")).trigger(EndOfStreamTrigger())
        ),
        lambda a, b: a.key_by(first).interval_join(b),
        lambda a, b: a.key_by(first).interval_join(streams()[0].key_by(first)),
        lambda a, b: a.key_by(first).interval_join(b.key_by(first)).process(lambda left, right, ctx: ()),
        lambda a, b: a.key_by(first).interval_join(b.key_by(first)).between("1s", "-1s"),
        lambda a, b: near(lower="0s", upper="0s", lower_exclusive=True)(a, b),
        lambda a, b: near(function=3)(a, b),
        lambda a, b: near(function=Both())(a, b),
        lambda a, b: a.key_by(first).interval_join(b.key_by(first)).between(0, 0).side_output_left_late_data("late"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(wrong):
    with pytest.raises(InvalidArgument):
        wrong(*streams())


def test_a_joined_step_reads_both_streams_by_their_keys():
    a, b = streams()
    pairs(TumblingEventTimeWindows("1s"))(a, b).sink(mo.discard())
    operator = a._job.graph().by_uid["join"]
    assert [(i.side, i.partitioning.value) for i in operator.inputs] == [(0, "hash"), (1, "hash")]
