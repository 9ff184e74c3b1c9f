"""Every kind of function through the harness, as a user would test it."""

from __future__ import annotations

import threading

import pytest
from harness_functions import CountWindowAverage, first

import moorline as mo
from moorline.errors import (
    FunctionNotShippable,
    InvalidArgument,
    ParallelismTooHigh,
    UserCodeFailed,
)
from moorline.testing.clock import ManualClock
from moorline.testing.harness import OperatorHarness

late = mo.OutputTag("late")


# --- every kind of function -------------------------------------------------------------------


def test_flinks_average_comes_out_as_flink_says():
    with OperatorHarness(CountWindowAverage(), key=first) as harness:
        assert harness.process_all([(1, 3), (1, 5), (1, 7), (1, 4), (1, 2)]) == [(2, 8), (2, 11)]
        assert harness.process((1, 1)) == [(2, 3)]


def test_a_map_function():
    class Double(mo.MapFunction):
        def map(self, value):
            return 2 * value

    assert OperatorHarness(Double()).process_all([1, 2]) == [2, 4]


def test_a_filter_function():
    class Odd(mo.FilterFunction):
        def filter(self, value):
            return value % 2

    assert OperatorHarness(Odd()).process_all([1, 2, 3]) == [1, 3]


def test_a_flat_map_function_that_yields_or_returns_or_says_nothing():
    class Words(mo.FlatMapFunction):
        def flat_map(self, value):
            return value.split() if value else None

    assert OperatorHarness(Words()).process_all(["a b", "", "c"]) == ["a", "b", "c"]


def test_a_process_function_with_side_outputs_in_both_ways():
    class Parse(mo.ProcessFunction):
        def process_element(self, value, ctx):
            if value.isdigit():
                yield int(value)
            elif value:
                yield late, value
            else:
                ctx.output(late, "nothing")

    harness = OperatorHarness(Parse())
    assert harness.process_all(["1", "x", "", "2"]) == [1, 2]
    assert harness.side_output(late) == ["x", "nothing"]
    assert harness.side_output(mo.OutputTag("other")) == []


def test_a_tuple_is_no_side_output():
    harness = OperatorHarness(lambda value, ctx: [(value, 1), ("late", value)], kind="process")
    assert harness.process("x") == [("x", 1), ("late", "x")]


def test_a_reduction():
    assert OperatorHarness(max, kind="reduce", key=len).process_all(["b", "a", "c", "aa"]) == ["b", "b", "c", "aa"]


def test_a_reduce_function_is_opened_and_closed():
    class Longest(mo.ReduceFunction):
        def open(self, runtime_context):
            self.is_open = True

        def reduce(self, value1, value2):
            assert self.is_open
            return max(value1, value2, key=len)

        def close(self):
            self.is_open = False

    with OperatorHarness(Longest(), key=lambda _: 0) as harness:
        assert harness.process_all(["a", "bbb", "cc"]) == ["a", "bbb", "bbb"]
    assert not harness.functions[0]._function.is_open


@pytest.mark.parametrize(
    ("kind", "function", "expected"),
    [
        ("map", str, ["3"]),
        ("map", lambda v: -v, [-3]),
        ("filter", bool, [3]),
        ("flat_map", range, [0, 1, 2]),
        ("process", lambda v, ctx: [v, v], [3, 3]),
    ],
)
def test_a_plain_callable_of_a_kind(kind, function, expected):
    assert OperatorHarness(function, kind=kind).process(3) == expected


def test_a_plain_callable_without_a_kind_is_refused():
    with pytest.raises(InvalidArgument, match="Say what it is: kind= one of 'map', 'filter'"):
        OperatorHarness(str)
    with pytest.raises(InvalidArgument, match="kind: got 'sink'"):
        OperatorHarness(str, kind="sink")


def test_state_in_a_map_on_a_keyed_stream():
    class Number(mo.MapFunction):
        n = mo.ValueState(int, default=0)

        def map(self, value):
            self.n.update(self.n.value() + 1)
            return value, self.n.value()

    assert OperatorHarness(Number(), key=str.lower).process_all(["a", "b", "A"]) == [("a", 1), ("b", 1), ("A", 2)]


# --- open and close ---------------------------------------------------------------------------


def test_a_function_is_opened_before_its_first_record_and_closed_once():
    class Diary(mo.MapFunction):
        def __init__(self):
            self.lines = []

        def open(self, runtime_context):
            self.lines.append("open")

        def map(self, value):
            self.lines.append(value)

        def close(self):
            self.lines.append("close")

    mine = Diary()
    with OperatorHarness(mine) as harness:
        harness.process("record")
        harness.close()
    assert harness.functions[0].lines == ["open", "record", "close"]
    assert mine.lines == [], "a job ships a copy, and so does the harness"


def test_the_runtime_context_tells_where_the_function_runs():
    class Where(mo.MapFunction):
        def open(self, runtime_context):
            c = runtime_context
            self.where = (c.operator_uid, c.subtask, c.parallelism, c.max_parallelism, c.attempt)
            assert c.get_index_of_this_subtask() == c.subtask
            assert c.get_number_of_parallel_subtasks() == c.parallelism

        def map(self, value):
            return self.where

    harness = OperatorHarness(Where(), parallelism=2, uid="here")
    assert harness.process_all("ab") == [("here", 0, 2, 128, 1), ("here", 1, 2, 128, 1)]


def test_a_failure_tells_the_record_and_keeps_the_users_traceback():
    class Divide(mo.MapFunction):
        def map(self, value):
            return 1 / value

    harness = OperatorHarness(Divide(), uid="divide")
    with pytest.raises(UserCodeFailed, match="ZeroDivisionError") as caught:
        harness.process_all([1, 2, 0])
    assert (caught.value.uid, caught.value.record, caught.value.position) == ("divide", "0", 2)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "return 1 / value" in caught.value.traceback


def test_a_failure_in_open_is_told_too():
    class Broken(mo.MapFunction):
        def open(self, runtime_context):
            raise OSError("no such host")

        def map(self, value):
            return value

    with pytest.raises(UserCodeFailed, match="OSError: no such host in operator 'function'"):
        OperatorHarness(Broken())


# --- the checks of a real job -----------------------------------------------------------------


def test_a_function_that_cannot_be_shipped_is_refused_here_too():
    class Locked(mo.MapFunction):
        def __init__(self):
            self.lock = threading.Lock()

        def map(self, value):
            return value

    with pytest.raises(FunctionNotShippable):
        OperatorHarness(Locked())


def test_more_subtasks_than_key_groups_are_refused():
    with pytest.raises(ParallelismTooHigh):
        OperatorHarness(CountWindowAverage(), key=first, parallelism=5, max_parallelism=4)


# --- the clock --------------------------------------------------------------------------------


def test_a_manual_clock_stands_still_until_it_is_told_otherwise():
    clock = ManualClock()
    assert clock.now_ms() == clock.now_ms() == 0
    assert clock.advance("10s") == 10_000
    assert clock.advance(0.5) == 10_500
    assert clock.now_ms() == 10_500
    assert ManualClock(77).now_ms() == 77


def test_a_manual_clock_never_goes_back():
    with pytest.raises(InvalidArgument):
        ManualClock().advance(-1)
