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
