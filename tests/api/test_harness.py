"""Every kind of function through the harness, as a user would test it."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest
from stable_ids import shown

import moorline as mo
from moorline.errors import (
    FunctionNotShippable,
    InvalidArgument,
    InvalidKey,
    KeyedStateWithoutKey,
    NoCurrentKey,
    ParallelismTooHigh,
    StateIncompatible,
    StateNotBound,
    StateRegisteredLate,
    StateTypeMismatch,
    UserCodeFailed,
)
from moorline.model.config.state import ON_THE_HEAP, RocksDb, StateConfig
from moorline.testing.clock import ManualClock
from moorline.testing.harness import OperatorHarness

late = mo.OutputTag("late")


class CountWindowAverage(mo.KeyedProcessFunction):
    """Flink's own example: the average of every two values of a key."""

    sum = mo.ValueState(tuple[int, int], default=(0, 0))

    def process_element(self, value, ctx):
        count, total = self.sum.value()
        count, total = count + 1, total + value[1]
        if count >= 2:
            yield count, total
            self.sum.clear()
        else:
            self.sum.update((count, total))


class EveryKind(mo.KeyedProcessFunction):
    """One state of each kind, some declared and some asked for."""

    last = mo.ValueState(str)
    seen = mo.ListState(str)

    def open(self, runtime_context):
        self.pages = runtime_context.get_map_state(mo.MapStateDescriptor("pages", str, int))
        self.most = runtime_context.get_reducing_state(mo.ReducingStateDescriptor("most", max, str))
        self.mean = runtime_context.get_aggregating_state(
            mo.AggregatingStateDescriptor("mean", Mean(), tuple[int, float])
        )

    def process_element(self, value, ctx):
        _, page = value
        self.last.update(page)
        self.seen.add(page)
        self.pages[page] = self.pages.get(page, 0) + 1
        self.most.add(page)
        self.mean.add(len(page))


class Mean(mo.AggregateFunction):
    def create_accumulator(self):
        return 0, 0.0

    def add(self, value, accumulator):
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator):
        return accumulator[1] / accumulator[0]


def first(record):
    return record[0]


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


# --- state ------------------------------------------------------------------------------------


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


# --- snapshots --------------------------------------------------------------------------------

VISITS = [(f"user-{n % 7}", f"page-{n % 3}") for n in range(60)]


def everything(harness: OperatorHarness) -> dict[str, list[object]]:
    users = sorted({user for user, _ in VISITS})
    return {u: [harness.state(s, u) for s in ("last", "seen", "pages", "most", "mean")] for u in users}


def test_a_restored_harness_goes_on_where_the_other_stopped():
    harness = OperatorHarness(EveryKind(), key=first)
    harness.process_all(VISITS[:30])
    snapshot = harness.snapshot()
    harness.process_all(VISITS[30:])
    restored = OperatorHarness.restore(snapshot, EveryKind(), key=first)
    assert everything(restored) != everything(harness)
    restored.process_all(VISITS[30:])
    assert everything(restored) == everything(harness)


@pytest.mark.parametrize("widths", [(1, 3, 2), (2, 2, 5), (4, 1, 1)])
def test_a_snapshot_can_be_restored_at_any_parallelism(widths):
    expected = OperatorHarness(EveryKind(), key=first)
    expected.process_all(VISITS)
    harness = OperatorHarness(EveryKind(), key=first, parallelism=widths[0])
    harness.process_all(VISITS[:20])
    for width, more in zip(widths[1:], (VISITS[20:40], VISITS[40:]), strict=True):
        harness = OperatorHarness.restore(harness.snapshot(), EveryKind(), key=first, parallelism=width)
        assert len(harness.functions) == width
        harness.process_all(more)
    assert everything(harness) == everything(expected)


def test_a_restored_function_sees_a_higher_attempt():
    class Attempt(mo.KeyedProcessFunction):
        def open(self, runtime_context):
            self.attempt = runtime_context.attempt

        def process_element(self, value, ctx):
            yield self.attempt

    harness = OperatorHarness(Attempt(), key=abs)
    assert harness.process(1) == [1]
    assert OperatorHarness.restore(harness.snapshot(), Attempt(), key=abs).process(1) == [2]


def test_a_state_of_another_type_cannot_be_restored():
    class Changed(mo.KeyedProcessFunction):
        sum = mo.ValueState(float)

        def process_element(self, value, ctx):
            pass

    harness = OperatorHarness(CountWindowAverage(), key=first)
    harness.process((1, 3))
    with pytest.raises(StateIncompatible, match=r"was stored as tuple\[int, int\]"):
        OperatorHarness.restore(harness.snapshot(), Changed(), key=first)


def test_a_state_that_is_gone_cannot_be_restored_in_silence():
    class Empty(mo.KeyedProcessFunction):
        def process_element(self, value, ctx):
            pass

    harness = OperatorHarness(CountWindowAverage(), key=first)
    harness.process((1, 3))
    with pytest.raises(StateIncompatible, match="no such state"):
        OperatorHarness.restore(harness.snapshot(), Empty(), key=first)


def test_the_number_of_key_groups_comes_from_the_snapshot():
    harness = OperatorHarness(CountWindowAverage(), key=first, max_parallelism=4)
    harness.process((1, 3))
    snapshot = harness.snapshot()
    assert OperatorHarness.restore(snapshot, CountWindowAverage(), key=first, parallelism=4).state("sum", 1) == (1, 3)
    assert OperatorHarness.restore(snapshot, CountWindowAverage(), key=first, parallelism=5).state("sum", 1) == (1, 3)
    more = OperatorHarness.restore(snapshot, CountWindowAverage(), key=first, parallelism=3, max_parallelism=8)
    assert more.state("sum", 1) == (1, 3)


def test_a_value_of_the_wrong_type_is_found_when_it_is_put():
    class Wrong(mo.KeyedProcessFunction):
        n = mo.ValueState(int)

        def process_element(self, value, ctx):
            self.n.update("text")  # type: ignore[arg-type]

    harness = OperatorHarness(Wrong(), key=abs)
    with pytest.raises(StateTypeMismatch, match="'n' does not fit its declared type int"):
        harness.process(1)


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


# --- reductions -----------------------------------------------------------------------------------


@dataclass
class Order:
    customer: str
    cents: int


def by_annotation(a: Order, b: Order) -> Order:
    return Order(a.customer, a.cents + b.cents)


class ByMethod(mo.ReduceFunction):
    def reduce(self, a: Order, b: Order) -> Order:
        return by_annotation(a, b)


@pytest.mark.parametrize(
    "options",
    [
        {"function": by_annotation},
        {"function": ByMethod()},
        {"function": lambda a, b: by_annotation(a, b), "type": Order},  # type: ignore[arg-type]
    ],
    ids=["annotated", "annotated method", "type="],
)
@pytest.mark.parametrize("backend", [ON_THE_HEAP, StateConfig(RocksDb(memory="16MB"))], ids=["heap", "rocksdb"])
def test_a_reduction_of_dataclasses_survives_a_snapshot(options, backend):
    def build(stream):
        return stream.key_by(lambda order: order.customer).reduce(**options, uid="spent")

    with OperatorHarness.of(build, state=backend) as before:
        assert before.process_all([Order("ada", 1), Order("ada", 2)]) == [Order("ada", 1), Order("ada", 3)]
        snapshot = before.snapshot()
    with OperatorHarness.of(build, state=backend, snapshot=snapshot) as after:
        assert after.process(Order("ada", 4)) == [Order("ada", 7)]


def test_a_reduction_that_was_stored_without_a_type_is_read_with_one():
    def largest(a: int, b: int) -> int:
        return max(a, b)

    with OperatorHarness(lambda a, b: max(a, b), key=abs, kind="reduce") as before:
        before.process_all([3, -3])
        snapshot = before.snapshot()
    with OperatorHarness.restore(snapshot, largest, key=abs, kind="reduce") as after:
        assert after.process(-3) == [3]
        assert after.state("reduced", key=3) == 3
