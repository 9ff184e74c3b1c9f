"""Mistakes in the declaration and the use of states: found where they are written, or when the job is built."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import moorline as mo
from moorline.errors import (
    InvalidArgument,
    InvalidOutput,
    MethodMissing,
    RecordNotCopied,
    StateMisused,
    StateTypeMismatch,
)
from moorline.testing import SimulationFailed, simulate
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
        lambda state: int(state),
        lambda state: f"count: {state}",
        lambda state: str(state),
        lambda state: {"count": state},
    ],
)
def test_a_state_is_not_taken_for_what_is_in_it(use):
    class Uses(mo.KeyedProcessFunction):
        count = mo.ValueState(int, default=0)

        def process_element(self, value, ctx):
            yield use(self.count)

    with pytest.raises(
        (StateMisused, RecordNotCopied), match=r"state 'count' was used as if it were its content.*value\(\)"
    ):
        OperatorHarness(Uses(), key=abs).process(1)


def test_a_map_is_true_if_there_is_something_in_it():
    class Uses(mo.KeyedProcessFunction):
        seen = mo.MapState(int, int)

        def process_element(self, value, ctx):
            yield bool(self.seen)
            self.seen[value] = 1

    assert OperatorHarness(Uses(), key=abs).process_all([1, 1]) == [False, True]


# --- what only shows while records come -------------------------------------------------------


def overwrite(function, value):
    function.count = value


class Helped(mo.KeyedProcessFunction):
    count = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        overwrite(self, value)
        yield value


def test_a_state_that_a_helper_overwrites_is_told_at_the_end_of_the_input():
    harness = OperatorHarness(Helped(), key=abs, uid="f")
    harness.process(5)
    with pytest.raises(StateMisused, match=r"operator 'f': state 'count' was overwritten: self.count is now 5"):
        harness.finish()


def test_a_state_that_a_helper_overwrites_is_told_before_a_checkpoint_is_taken_without_it():
    with pytest.raises(SimulationFailed, match="state 'count' was overwritten"):
        simulate(helped_job, seeds=[1])


def helped_job() -> mo.Job:
    job = mo.Job("helped")
    numbers = job.source(mo.from_items(list(range(30))), uid="numbers")
    numbers.key_by(abs).process(Helped(), uid="f").sink(mo.collect("out"), uid="out")
    return job


def test_two_declarations_with_one_name_are_refused():
    class Twice(mo.KeyedProcessFunction):
        first = mo.ValueState(int, name="n")
        second = mo.ValueState(int, name="n")

        def process_element(self, value, ctx):
            yield value

    with pytest.raises(StateMisused, match="'f': state 'second' and 'first' have the same name, 'n'"):
        OperatorHarness(Twice(), key=abs, uid="f")


def test_one_declaration_may_have_two_attributes():
    class Same(mo.KeyedProcessFunction):
        first = second = mo.ValueState(int, default=0)

        def process_element(self, value, ctx):
            self.first.update(value)
            yield self.second.value()

    assert OperatorHarness(Same(), key=abs).process(3) == [3]


@pytest.mark.parametrize(("kind", "default"), [(int, "0"), (tuple[int, int], (0, "a")), (dict[str, int], {"a": "b"})])
def test_a_default_of_another_type_is_refused_before_the_first_record(kind, default):
    class Defaults(mo.KeyedProcessFunction):
        n = mo.ValueState(kind, default=default)

        def process_element(self, value, ctx):
            yield self.n.value()

    with pytest.raises(StateTypeMismatch, match="operator 'f': a value in state 'n' does not fit"):
        OperatorHarness(Defaults(), key=abs, uid="f")


@pytest.mark.parametrize("write", ["update", "add_all"])
@pytest.mark.parametrize("one", ["hello", b"raw", {"a": 1}, 5, None])
def test_one_value_in_the_place_of_the_elements_of_a_list_is_refused(write, one):
    class Lists(mo.KeyedProcessFunction):
        seen = mo.ListState(object)

        def process_element(self, value, ctx):
            getattr(self.seen, write)(one)

    with pytest.raises(InvalidArgument, match="elements of a list state"):
        OperatorHarness(Lists(), key=abs).process(1)


class Gather(mo.AggregateFunction):
    """As it is often written: without a return."""

    def create_accumulator(self):
        return []

    def add(self, value, accumulator):
        accumulator.append(value)

    def get_result(self, accumulator):
        return accumulator


class Reduces(mo.KeyedProcessFunction):
    total = mo.ReducingState(dict, lambda a, b: a.update(b))  # type: ignore[func-returns-value]

    def process_element(self, value, ctx):
        self.total.add(value)


class Aggregates(mo.KeyedProcessFunction):
    all = mo.AggregatingState(object, Gather())

    def process_element(self, value, ctx):
        self.all.add(value)


@pytest.mark.parametrize(
    ("build", "method"),
    [
        (lambda s: s.reduce(lambda a, b: a.update(b), uid="f"), "reduce"),
        (lambda s: s.count_window(3).reduce(lambda a, b: a.update(b), uid="f"), "reduce"),
        (lambda s: s.count_window(3).aggregate(Gather(), uid="f"), "add"),
        (lambda s: s.process(Reduces(), uid="f"), "reduce"),
        (lambda s: s.process(Aggregates(), uid="f"), "add"),
    ],
)
def test_a_function_that_changes_its_argument_and_returns_nothing_is_refused(build, method):
    """The next value would begin anew, without a word."""
    harness = OperatorHarness.of(lambda s: build(s.key_by(lambda r: 1)))
    with harness, pytest.raises(InvalidOutput, match=f"{method} of operator 'f' returned None. Return what"):
        harness.process_batch([{"a": 1}, {"b": 2}, {"c": 3}])


@dataclass
class Order:
    user: str
    cents: int


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.reduce(lambda a, b: Order(a.user, a.cents + b.cents), uid="f"),
        lambda s: s.count_window(3).reduce(lambda a, b: Order(a.user, a.cents + b.cents), uid="f"),
    ],
)
def test_a_class_without_a_declared_type_is_refused_with_where_to_declare_it(build):
    harness = OperatorHarness.of(lambda s: build(s.key_by(lambda order: order.user)))
    with harness, pytest.raises(StateTypeMismatch, match=r"type=Order to reduce\(\); element_type= or"):
        harness.process_batch([Order("ada", 1), Order("ada", 2)])
        harness.snapshot()
