"""State in a harness: declared or asked for, looked at, and refused where there is no key."""

from __future__ import annotations

import pytest
from harness_functions import CountWindowAverage, EveryKind, Mean, first
from stable_ids import shown

import moorline as mo
from moorline.errors import (
    InvalidArgument,
    InvalidKey,
    KeyedStateWithoutKey,
    NoCurrentKey,
    StateNotBound,
    StateRegisteredLate,
)
from moorline.testing.harness import OperatorHarness


def test_every_kind_of_state_can_be_looked_at():
    harness = OperatorHarness(EveryKind(), key=first)
    harness.process_all([("ann", "a"), ("bob", "zz"), ("ann", "b"), ("ann", "a")])
    assert harness.state("last", "ann") == "a"
    assert harness.state("seen", "ann") == ["a", "b", "a"]
    assert harness.state("pages", "ann") == {"a": 2, "b": 1}
    assert harness.state("most", "ann") == "b"
    assert harness.state("mean", "bob") == 2.0
    assert harness.state("last", "nobody") is None
    assert harness.state("seen", "nobody") == []


def test_a_state_that_is_not_there_is_named():
    harness = OperatorHarness(EveryKind(), key=first)
    with pytest.raises(InvalidArgument, match="The function has last, seen, pages, most, mean"):
        harness.state("lats", "ann")
    with pytest.raises(InvalidArgument, match="without a key"):
        OperatorHarness(str, kind="map").state("x", 1)


def test_declaring_and_asking_give_the_same_state():
    class Both(mo.KeyedProcessFunction):
        n = mo.ValueState(int)

        def open(self, runtime_context):
            self.same = runtime_context.get_state(mo.ValueStateDescriptor("n", int))

        def process_element(self, value, ctx):
            self.n.update(value)
            yield self.same.value()

    assert OperatorHarness(Both(), key=abs).process(5) == [5]


def test_a_state_can_have_another_name_than_its_attribute():
    class Named(mo.KeyedProcessFunction):
        n = mo.ValueState(int, name="number")

        def process_element(self, value, ctx):
            self.n.update(value)

    harness = OperatorHarness(Named(), key=abs)
    harness.process(5)
    assert harness.state("number", 5) == 5


def test_a_subclass_can_add_states_and_take_them_away():
    class Base(mo.KeyedProcessFunction):
        a = mo.ValueState(int)
        b = mo.ValueState(int)

        def process_element(self, value, ctx):
            self.a.update(value)

    class Derived(Base):
        b = None  # type: ignore[assignment]
        c = mo.ValueState(int)

    harness = OperatorHarness(Derived(), key=abs)
    harness.process(1)
    assert harness.state("a", 1) == 1
    with pytest.raises(InvalidArgument, match="The function has a, c"):
        harness.state("b", 1)


def test_state_in_open_has_no_key_yet():
    class Early(mo.KeyedProcessFunction):
        n = mo.ValueState(int)

        def open(self, runtime_context):
            self.n.update(1)

        def process_element(self, value, ctx):
            pass

    with pytest.raises(NoCurrentKey):
        OperatorHarness(Early(), key=abs)


def test_between_records_there_is_no_current_key():
    harness = OperatorHarness(EveryKind(), key=first)
    harness.process(("ann", "a"))
    harness.state("last", "ann")
    with pytest.raises(NoCurrentKey):
        harness.functions[0].last.value()


def test_a_state_asked_for_after_open_is_too_late():
    class Late(mo.KeyedProcessFunction):
        def open(self, runtime_context):
            self.context = runtime_context

        def process_element(self, value, ctx):
            self.context.get_state(mo.ValueStateDescriptor("n", int))

    with pytest.raises(StateRegisteredLate, match="Ask for every state in open"):
        OperatorHarness(Late(), key=abs).process(1)


def test_keyed_state_asked_for_without_a_key_is_refused():
    class Asks(mo.ProcessFunction):
        def open(self, runtime_context):
            runtime_context.get_state(mo.ValueStateDescriptor("n", int))

        def process_element(self, value, ctx):
            yield value

    with pytest.raises(KeyedStateWithoutKey, match=r"keyed state \(n\)"):
        OperatorHarness(Asks())
    with pytest.raises(KeyedStateWithoutKey):
        OperatorHarness(CountWindowAverage())


def test_a_declared_state_outside_of_an_operator_says_so():
    function = CountWindowAverage()
    with pytest.raises(StateNotBound, match="OperatorHarness"):
        function.sum.value()
    with pytest.raises(StateNotBound):
        list(function.process_element((1, 2), None))


@pytest.mark.parametrize(
    "touch",
    [
        lambda: mo.ValueState(int).update(1),
        lambda: mo.ValueState(int).clear(),
        lambda: list(mo.ListState(int)),
        lambda: mo.ListState(int).add(1),
        lambda: mo.ListState(int).add_all([1]),
        lambda: mo.ListState(int).update([1]),
        lambda: mo.MapState(str, int)["a"],
        lambda: mo.MapState(str, int).__setitem__("a", 1),
        lambda: mo.MapState(str, int).__delitem__("a"),
        lambda: "a" in mo.MapState(str, int),
        lambda: len(mo.MapState(str, int)),
        lambda: list(mo.MapState(str, int)),
        lambda: mo.MapState(str, int).put_all({}),
        lambda: mo.MapState(str, int).is_empty(),
        lambda: mo.MapState(str, int).items(),
        lambda: mo.MapState(str, int).values(),
        lambda: mo.ReducingState(int, max).get(),
        lambda: mo.ReducingState(int, max).add(1),
        lambda: mo.AggregatingState(int, Mean()).get(),
        lambda: mo.AggregatingState(int, Mean()).add(1),
    ],
)
def test_no_declared_state_can_be_used_unbound(touch):
    with pytest.raises(StateNotBound):
        touch()


@pytest.mark.parametrize("key", [None, [1], float("nan"), object()], ids=shown)
def test_a_record_without_a_usable_key_is_refused(key):
    harness = OperatorHarness(EveryKind(), key=lambda record: key, uid="pages")
    with pytest.raises(InvalidKey, match="operator 'pages' was given the key"):
        harness.process(("ann", "a"))
