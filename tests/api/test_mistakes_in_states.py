"""Mistakes in the declaration and the use of states: found where they are written, or when the job is built."""

from __future__ import annotations

import pytest

import moorline as mo
from moorline.errors import InvalidArgument, MethodMissing, StateMisused
from moorline.testing.harness import OperatorHarness


class Sum(mo.ReduceFunction):
    def reduces(self, value1, value2):
        return value1 + value2


class Mean(mo.AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value

    def get_result(self, accumulator):
        return accumulator


# --- declarations -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declare", "advice"),
    [
        (lambda: mo.ValueState("int"), "the type itself and not its name: int"),
        (lambda: mo.MapState(str, "int"), "the type itself and not its name: int"),
        (lambda: mo.MapState("str", int), "the type itself and not its name: str"),
        (lambda: mo.ValueStateDescriptor("n", "int"), "state 'n'.*the type itself and not its name: int"),
        (lambda: mo.ValueState(0), "That is a value. Give its type: int"),
        (lambda: mo.ListState([]), "That is a value. Give its type: list"),
        (lambda: mo.ReducingState(max, int), "Are type and function exchanged"),
        (lambda: mo.ReducingState(Sum, int), "a function of two values"),
        (lambda: mo.ReducingState(int, 3), "a function of two values"),  # type: ignore[call-overload]
        (lambda: mo.ReducingStateDescriptor("n", int, max), "state 'n'.*Are type and function exchanged"),
        (lambda: mo.AggregatingState(Mean(), int), "Are type and function exchanged"),  # type: ignore[arg-type]
        (lambda: mo.AggregatingState(int, Mean), "an AggregateFunction()"),  # type: ignore[arg-type]
        (lambda: mo.ValueStateDescriptor(int, "n"), "name of a state"),  # type: ignore[call-overload]
        (lambda: mo.ValueState(int, ttl="soon"), "time to live"),
    ],
)
def test_a_state_that_cannot_be_is_refused_where_it_is_written(declare, advice):
    with pytest.raises(InvalidArgument, match=advice):
        declare()


def test_a_reduce_function_without_reduce_is_refused_where_it_is_written():
    with pytest.raises(MethodMissing, match="Is 'reduces' meant"):
        mo.ReducingState(int, Sum())


def test_a_state_made_in_init_is_refused_when_the_job_is_built():
    class Counts(mo.KeyedProcessFunction):
        def __init__(self):
            self.count = mo.ValueState(int)

        def process_element(self, value, ctx):
            self.count.update(1)

    with pytest.raises(StateMisused, match=r"'f': state 'count' was made in __init__.*count = mo.ValueState\(...\)"):
        OperatorHarness(Counts(), key=abs, uid="f")


# --- use --------------------------------------------------------------------------------------


class Assigns(mo.KeyedProcessFunction):
    count = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        self.count = value


class Adds(mo.KeyedProcessFunction):
    count = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        self.count += 1
        yield value


class InheritsAssignment(Assigns):
    pass


@pytest.mark.parametrize("function", [Assigns(), Adds(), InheritsAssignment()])
def test_an_assignment_to_a_state_is_found_when_the_job_is_built(function):
    with pytest.raises(StateMisused, match=r"'count' is overwritten .*process_element\. Change .* self\.count\.update"):
        OperatorHarness(function, key=abs, uid="f")


def test_assignments_to_other_attributes_are_no_concern():
    class Fine(mo.KeyedProcessFunction):
        count = mo.ValueState(int, default=0)

        def open(self, runtime_context):
            self.seen = 0

        def process_element(self, value, ctx):
            value.count = 1  # of the record, not of the function
            self.seen += 1
            self.count.update(self.seen)
            yield self.count.value()

    class Record:
        pass

    assert OperatorHarness(Fine(), key=lambda r: 1).process(Record()) == [1]


@pytest.mark.parametrize(
    "use",
    [
        lambda state: state + 1,
        lambda state: 1 + state,
        lambda state: state - 1,
        lambda state: state > 3,
        lambda state: state == 3,
        lambda state: state != 3,
        lambda state: not state,
    ],
)
def test_a_state_is_not_taken_for_what_is_in_it(use):
    class Uses(mo.KeyedProcessFunction):
        count = mo.ValueState(int, default=0)

        def process_element(self, value, ctx):
            yield use(self.count)

    with pytest.raises(StateMisused, match=r"state 'count' was used as if it were its content.*value\(\)"):
        OperatorHarness(Uses(), key=abs).process(1)


def test_a_map_is_true_if_there_is_something_in_it():
    class Uses(mo.KeyedProcessFunction):
        seen = mo.MapState(int, int)

        def process_element(self, value, ctx):
            yield bool(self.seen)
            self.seen[value] = 1

    assert OperatorHarness(Uses(), key=abs).process_all([1, 1]) == [False, True]
