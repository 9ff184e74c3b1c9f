"""A harness restored from the snapshot of another: at any parallelism, with other types, with reductions."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from harness_functions import CountWindowAverage, EveryKind, first

import moorline as mo
from moorline.errors import (
    StateIncompatible,
    StateTypeMismatch,
)
from moorline.model.config.state import ON_THE_HEAP, RocksDb, StateConfig
from moorline.testing.harness import OperatorHarness

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
