"""A value that does not fit the declared type of its state is refused when it is put there, on every backend."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import moorline as mo
from moorline.errors import StateTypeMismatch
from moorline.model.config.state import RocksDb, StateConfig
from moorline.testing.harness import OperatorHarness

BACKENDS = {
    "heap": StateConfig(),
    "increments on the heap": StateConfig(incremental=True),
    "rocksdb": StateConfig(rocksdb=RocksDb(memory="8MB")),
}


@dataclass
class Basket:
    total: int


class Mean(mo.AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return (accumulator[0] + 1, accumulator[1] + value) if value != 13 else "unlucky"

    def get_result(self, accumulator):
        return accumulator


class Writes(mo.KeyedProcessFunction):
    """Does with its states what the record says."""

    number = mo.ValueState(int)
    text = mo.ValueState(str, ttl="1h")
    maybe = mo.ValueState(int | None)
    pair = mo.ValueState(tuple[int, int])
    basket = mo.ValueState(Basket)
    numbers = mo.ListState(int)
    counts = mo.MapState(str, int)
    expiring = mo.MapState(str, int, ttl="1h")
    most = mo.ReducingState(int, lambda a, b: max(a, b) if b != 13 else "unlucky")
    mean = mo.AggregatingState(tuple[int, int], Mean())
    anything = mo.ListState()
    optional = mo.MapState(str, int | None)

    def process_element(self, record, ctx):
        record(self)


def harness(backend: str, **options) -> OperatorHarness:
    return OperatorHarness.of(
        lambda s: s.key_by(lambda r: "ada").process(Writes(), uid="writes"), state=BACKENDS[backend]
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("state", "type_", "write"),
    [
        ("number", "int", lambda f: f.number.update("5")),
        ("number", "int", lambda f: f.number.update(True)),
        ("number", "int", lambda f: f.number.update(1 << 70)),
        ("text", "str", lambda f: f.text.update(5)),
        ("maybe", "int | None", lambda f: f.maybe.update("5")),
        ("pair", "tuple[int, int]", lambda f: f.pair.update([1, 2])),
        ("pair", "tuple[int, int]", lambda f: f.pair.update((1, "2"))),
        ("pair", "tuple[int, int]", lambda f: f.pair.update((1, 2, 3))),
        ("basket", "Basket(total: int)", lambda f: f.basket.update({"total": 1})),
        ("basket", "Basket(total: int)", lambda f: f.basket.update(Basket("1"))),
        ("numbers", "int", lambda f: f.numbers.add("5")),
        ("numbers", "int", lambda f: f.numbers.add(None)),
        ("numbers", "int", lambda f: f.numbers.add_all([1, "5"])),
        ("numbers", "int", lambda f: f.numbers.update([1, "5"])),
        ("counts", "int", lambda f: f.counts.put("a", None)),
        ("counts", "int", lambda f: f.counts.put("a", "5")),
        ("counts", "int", lambda f: f.counts.__setitem__("a", "5")),
        ("counts", "int", lambda f: f.counts.put_all({"a": 1, "b": "5"})),
        ("counts", "str", lambda f: f.counts.put(1, 1)),
        ("counts", "str", lambda f: f.counts.put(None, 1)),
        ("expiring", "int", lambda f: f.expiring.put("a", None)),
        ("most", "int", lambda f: f.most.add("5")),
        ("most", "int", lambda f: f.most.add(None)),
        ("most", "int", lambda f: (f.most.add(1), f.most.add(13))),
        ("mean", "tuple[int, int]", lambda f: f.mean.add(13)),
    ],
)
def test_a_value_of_another_type_is_refused_when_it_is_put(backend, state, type_, write):
    with harness(backend) as running, pytest.raises(StateTypeMismatch) as refused:
        running.process(write)
    error = refused.value
    assert (error.state, error.type, error.uid, error.key) == (state, type_, "writes", "'ada'")
    assert str(error).startswith("operator 'writes', key 'ada': a ")
    assert "record 0 of this attempt" in error.__notes__[0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_fits_is_taken(backend):
    def write(f):
        f.number.update(5)
        f.number.update(np.int64(6))
        f.text.update("five", ttl="1min")
        f.maybe.update(5)
        f.pair.update((1, 2))
        f.basket.update(Basket(1))
        f.numbers.add_all(range(3))
        f.numbers.update([4])
        f.counts.put_all([("a", 1)])
        f.counts["b"] = 2
        f.expiring.put("a", 1, ttl="1min")
        f.most.add(3)
        f.mean.add(3)
        f.anything.add(None)
        f.optional.put("a", None)

    with harness(backend) as running:
        running.process(write)
        assert running.state("pair", "ada") == (1, 2)
        assert running.state("numbers", "ada") == [4]
        assert running.state("counts", "ada") == {"a": 1, "b": 2}
        assert running.state("optional", "ada") == {"a": None}
        assert running.state("mean", "ada") == (1, 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_none_clears_a_value_as_in_flink(backend):
    with harness(backend) as running:
        running.process(lambda f: f.number.update(5))
        running.process(lambda f: f.number.update(None))
        assert running.state("number", "ada") is None


def test_parts_of_values_are_looked_at_now_and_then():
    with harness("heap") as running:
        for _ in range(150):
            running.process(lambda f: f.pair.update((1, 2)))
        with pytest.raises(StateTypeMismatch):
            for _ in range(100):
                running.process(lambda f: f.pair.update((1, "2")))


# --- states without a key -------------------------------------------------------------------------


class Lists(mo.MapFunction, mo.CheckpointedFunction):
    """Does with its operator states what the record says."""

    def initialize_state(self, ctx):
        self.numbers = ctx.operator_state.list_state(mo.ListStateDescriptor("numbers", int))
        self.baskets = ctx.operator_state.union_list_state(mo.ListStateDescriptor("baskets", Basket))
        self.anything = ctx.operator_state.list_state(mo.ListStateDescriptor("anything"))

    def snapshot_state(self, ctx):
        pass

    def map(self, record):
        record(self)
        return 1


@pytest.mark.parametrize(
    ("state", "write"),
    [
        ("numbers", lambda f: f.numbers.add("5")),
        ("numbers", lambda f: f.numbers.add(None)),
        ("numbers", lambda f: f.numbers.add_all([1, "5"])),
        ("numbers", lambda f: f.numbers.update(iter([1, True]))),
        ("baskets", lambda f: f.baskets.add({"total": 1})),
        ("baskets", lambda f: f.baskets.update([Basket("1")])),
        ("anything", lambda f: f.anything.add(object())),
    ],
)
def test_an_element_of_another_type_is_refused_when_it_is_put_into_an_operator_state(state, write):
    used = []
    with OperatorHarness(Lists(), uid="lists") as running:
        running.process(used.append)
        with pytest.raises(StateTypeMismatch) as refused:
            running.process(write)
    (function,) = used
    assert (refused.value.state, refused.value.uid, refused.value.key) == (state, "lists", "")
    assert str(refused.value).startswith("operator 'lists': a value in state ")
    assert not [*function.numbers.get(), *function.baskets.get(), *function.anything.get()], "nothing was put"


def test_elements_that_fit_are_taken_by_operator_states():
    def write(f):
        f.numbers.add_all(n for n in range(3))
        f.numbers.add(np.int64(3))
        f.baskets.update([Basket(1)])
        f.anything.add(("a", None, {"b": 1.5}))

    used = []
    with OperatorHarness(Lists()) as running:
        running.process(write)
        running.process(used.append)
        (function,) = used
        assert function.numbers.get() == [0, 1, 2, 3]
        assert function.baskets.get() == [Basket(1)]
        running.snapshot()


RULES = mo.MapStateDescriptor("rules", str, int)


class Rules(mo.BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield ctx.get_broadcast_state(RULES).get("a")

    def process_broadcast_element(self, write, ctx):
        write(ctx.get_broadcast_state(RULES))
        return []


def rules() -> OperatorHarness:
    return OperatorHarness.of(lambda a, b: a.connect(b.broadcast(RULES)).process(Rules(), uid="rules"), inputs=2)


@pytest.mark.parametrize(
    ("what", "write"),
    [
        ("value", lambda rules: rules.put("a", "5")),
        ("value", lambda rules: rules.put("a", None)),
        ("value", lambda rules: rules.__setitem__("a", 1.5)),
        ("value", lambda rules: rules.put_all([("b", 1), ("a", "5")])),
        ("key of the map", lambda rules: rules.put(1, 1)),
        ("key of the map", lambda rules: rules.put_all({1: 1})),
    ],
)
def test_an_entry_of_another_type_is_refused_when_it_is_put_into_broadcast_state(what, write):
    with rules() as running:
        with pytest.raises(StateTypeMismatch, match=f"operator 'rules': a {what} in state 'rules'"):
            running.process(write, side=1)
        running.process(lambda rules: rules.put_all({"a": 1}), side=1)
        assert running.process(0) == [1]


# --- windows --------------------------------------------------------------------------------------


def windowed(stream):
    return stream.key_by(lambda r: r[0]).window(mo.TumblingEventTimeWindows("10s"))


class Total(mo.AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return (accumulator[0] + 1, accumulator[1] + value[1]) if value[1] != 13 else "unlucky"

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return "unlucky" if "unlucky" in (a, b) else (a[0] + b[0], a[1] + b[1])


class Told(mo.ProcessWindowFunction):
    window_states = (mo.ValueStateDescriptor("fired", int),)

    def process(self, key, context, elements):
        fired = context.window_state().get_state(self.window_states[0])
        fired.update("once")
        yield key


def contents(name):
    return {
        "aggregate": lambda s: windowed(s).aggregate(Total(), accumulator_type=tuple[int, int], uid="windows"),
        "sessions": lambda s: (
            s.key_by(lambda r: r[0])
            .window(mo.EventTimeSessionWindows("10s"))
            .aggregate(Total(), accumulator_type=tuple[int, int], uid="windows")
        ),
        "reduce": lambda s: windowed(s).reduce(
            lambda a, b: (a[0], a[1] + b[1]) if b[1] != 13 else "unlucky", element_type=tuple[str, int], uid="windows"
        ),
        "list": lambda s: windowed(s).process(Told(), element_type=tuple[str, int], uid="windows"),
    }[name]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("aggregate", [("ada", 1), ("ada", 13)]),
        ("sessions", [("ada", 1), ("ada", 13)]),
        ("reduce", [("ada", 1), ("ada", 13)]),
        ("list", [("ada", 1), ("ada", "thirteen")]),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_what_a_window_keeps_of_another_type_than_declared_is_refused(backend, name, records, at_once):
    with OperatorHarness.of(contents(name), state=BACKENDS[backend]) as running:
        with pytest.raises(StateTypeMismatch, match=r"operator 'windows', key \('ada', \(\d, ") as refused:
            if at_once:
                running.process_batch(records, [1, 2])
            else:
                for record in records:
                    running.process(record, 1)
        assert refused.value.state == "window-contents"


def test_a_state_of_a_window_function_is_looked_at_too():
    with OperatorHarness.of(contents("list")) as running:
        running.process(("ada", 1), 1)
        with pytest.raises(StateTypeMismatch, match="state 'fired'"):
            running.watermark(20_000)


@pytest.mark.parametrize("name", ["aggregate", "sessions", "reduce"])
def test_what_fits_is_kept_by_windows(name):
    with OperatorHarness.of(contents(name)) as running:
        running.process_batch([("ada", 1), ("ada", 2)], [1, 2])
        running.process(("ada", 3), 3)
        assert running.watermark(60_000) == [("ada", 6) if name == "reduce" else (3, 6)]
