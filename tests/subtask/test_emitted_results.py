"""The result of a reduction, an aggregation or a window is the value that it was when it was emitted."""

from __future__ import annotations

import pytest
from emitting_harness import BACKENDS, harness, numbered, processed, store_of

import moorline as mo

# --- reductions and aggregations ------------------------------------------------------------------


def add_up(total, value):
    """Changes its first argument."""
    total["n"] += value["n"]
    return total


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_reduction_in_place_emits_every_intermediate_result(backend):
    with harness(backend, lambda s: s.key_by(lambda r: r["key"]).reduce(add_up, uid="sum")) as world:
        assert [r["n"] for r in world.process_batch(numbered(1, 2, 3))] == [1, 3, 6]


class Listing(mo.AggregateFunction):
    """Its accumulator is its result, and all accumulators begin as one object."""

    nothing: list[int] = []

    def create_accumulator(self):
        return self.nothing

    def add(self, value, accumulator):
        accumulator.append(value["n"] if isinstance(value, dict) else value[1])
        return accumulator

    def get_result(self, accumulator):
        return accumulator

    def merge(self, first, second):
        first.extend(second)
        return first


def aggregating_in(store, ttl=None):
    class Aggregating(mo.KeyedProcessFunction):
        listed = mo.AggregatingState(list[int], Listing(), store=store, ttl=ttl)
        summed = mo.ReducingState(dict[str, int], add_up, store=store, ttl=ttl)

        def process_element(self, value, ctx):
            before = self.listed.get(), self.summed.get()
            self.listed.add(value)
            self.summed.add({"n": value[1]})
            yield before
            yield self.listed.get(), self.summed.get()

    return Aggregating()


@pytest.mark.parametrize("ttl", [None, "1h"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_reduced_or_aggregated_does_not_change_when_more_is_added(backend, ttl):
    out = processed(backend, aggregating_in(store_of(backend), ttl), [("a", 1), ("a", 2), ("b", 5)])
    assert out == [
        (None, None),
        ([1], {"n": 1}),
        ([1], {"n": 1}),
        ([1, 2], {"n": 3}),
        (None, None),
        ([5], {"n": 5}),
    ]


# --- windows --------------------------------------------------------------------------------------


def windowed(backend, windows, make, records, times, until=10_000):
    def build(stream):
        return make(windows(stream.key_by(lambda r: r["key"])))

    with harness(backend, build) as world:
        return world.process_batch(records, times) + world.watermark(until)


def sliding(stream):
    return stream.window(mo.SlidingEventTimeWindows("2s", "1s"))


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize("trigger", [None, mo.EventTimeTrigger, lambda: mo.CountTrigger(1)])
def test_a_record_in_several_windows_is_reduced_in_place_in_each_of_them(backend, trigger):
    def make(stream):
        return (stream if trigger is None else stream.trigger(trigger())).reduce(add_up, uid="sum")

    out = windowed(backend, sliding, make, numbered(1, 2), [1_000, 1_500])
    assert sorted(r["n"] for r in out) == ([1, 1, 3, 3] if trigger not in (None, mo.EventTimeTrigger) else [3, 3])


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_window_that_fires_often_emits_the_aggregate_of_each_moment(backend):
    def make(stream):
        return stream.trigger(mo.CountTrigger(1)).aggregate(Listing(), accumulator_type=list[int], uid="list")

    def tumbling(stream):
        return stream.window(mo.TumblingEventTimeWindows("5s"))

    assert windowed(backend, tumbling, make, numbered(1, 2, 3), [1, 2, 3]) == [[1], [1, 2], [1, 2, 3]]


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_window_function_may_change_its_elements_though_the_window_fires_again(backend):
    def doubled(key, window, elements):
        for element in elements:
            element["n"] *= 2
            yield element

    def tumbling(stream):
        return stream.window(mo.TumblingEventTimeWindows("5s")).trigger(mo.CountTrigger(1))

    out = windowed(backend, tumbling, lambda s: s.apply(doubled, uid="f"), numbered(1, 2), [1, 2])
    assert [r["n"] for r in out] == [2, 2, 4]


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_count_window_that_slides_reduces_in_place_and_keeps_its_records(backend):
    def build(stream):
        return stream.key_by(lambda r: r["key"]).count_window(2, 1).reduce(add_up, uid="sum")

    with harness(backend, build) as world:
        assert [r["n"] for r in world.process_batch(numbered(1, 2, 3))] == [1, 3, 5]


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_join_may_change_what_it_is_given(backend):
    def pair(left, right, ctx):
        left["n"] += right["n"]
        yield left

    def build(left, right):
        first, second = (stream.key_by(lambda r: r["key"]) for stream in (left, right))
        return first.interval_join(second).between("-5s", "5s").process(pair, uid="pairs")

    with harness(backend, build, inputs=2) as world:
        world.process_batch(numbered(1), [1_000])
        assert [r["n"] for r in world.process_batch(numbered(10, 20), [1_000, 2_000], side=1)] == [11, 21]


def test_a_window_join_emits_each_pair_as_it_is_made():
    def pair(left, right):
        left["n"] = right["n"]
        return left

    def build(left, right):
        joined = left.join(right).where(lambda r: r["key"]).equal_to(lambda r: r["key"])
        return joined.window(mo.TumblingEventTimeWindows("5s")).apply(pair, uid="pairs")

    with harness("heap", build, inputs=2) as world:
        world.process_batch(numbered(1), [1_000])
        world.process_batch(numbered(10, 20), [1_000, 2_000], side=1)
        assert [r["n"] for r in world.watermark(10_000)] == [10, 20]
