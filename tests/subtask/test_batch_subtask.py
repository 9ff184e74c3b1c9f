"""Batch without Spark: what comes out, and in which order."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from batch_worlds import BatchWorld, run
from keyed_batch_jobs import BY_TIME, Count, by_key, key, keyed

import moorline as mo
from moorline.errors import InvalidArgument, InvalidKey, UserCodeFailed

# --- keys -----------------------------------------------------------------------------------------


def test_the_records_of_a_key_come_one_after_the_other_and_in_their_order():
    records = [(n % 7, n) for n in range(500)]
    found = run(keyed(lambda r, ctx: [r], records))
    assert by_key(found) == by_key(records)
    changes = [a[0] for a, b in pairwise(found) if a[0] != b[0]]
    assert len(changes) == 6


def test_only_the_key_that_is_worked_on_has_state():
    class Watch(mo.KeyedProcessFunction):
        seen = mo.ValueState(int, default=0)

        def open(self, runtime_context):
            self.backend = runtime_context._backend

        def process_element(self, value, ctx):
            self.seen.update(self.seen.value() + 1)
            yield ctx.current_key, self.backend.entries()

    found = run(keyed(Watch(), [(n % 50, n) for n in range(1000)]))
    assert {entries for _, entries in found} == {1}


def test_equal_keys_of_different_types_are_one_key():
    records = [(1, 0), (1.0, 1), (True, 2), ("1", 3)]
    assert sorted(count for _, count in run(keyed(Count(), records))) == [1, 1, 2, 3]


def test_a_key_that_cannot_be_one_is_told_with_its_record():
    with pytest.raises(InvalidKey, match="list is mutable"):
        run(keyed(Count(), [([1], 2)]))
    with pytest.raises(InvalidKey, match="None is not a key"):
        run(keyed(Count(), [(None, 2)]))


def test_an_error_of_user_code_is_told_with_its_record():
    with pytest.raises(UserCodeFailed) as failed:
        run(keyed(lambda r: 1 // r[1], [("a", 1), ("b", 0)], step="map"))
    assert failed.value.record == "('b', 0)"


def test_state_in_an_outside_store_is_refused():
    class Outside(mo.KeyedProcessFunction):
        total = mo.ValueState(int, store=mo.memory_state("outside-batch"))

        def process_element(self, value, ctx):
            return ()

    with pytest.raises(InvalidArgument, match="a batch job has none"):
        run(keyed(Outside(), [(1, 1)]))


# --- shapes ---------------------------------------------------------------------------------------


def test_two_keyed_inputs_meet_in_the_order_of_time():
    class Price(mo.KeyedCoProcessFunction):
        price = mo.ValueState(int)

        def process_element1(self, value, ctx):
            self.price.update(value[2])

        def process_element2(self, value, ctx):
            yield (*value, self.price.value())

    job = mo.Job("prices", parallelism=2)
    prices = job.source(mo.from_items([("tea", 10, 5), ("tea", 0, 3)]), watermarks=BY_TIME)
    orders = job.source(mo.from_items([("tea", 12), ("tea", 7), ("tea", 10)]), watermarks=BY_TIME)
    prices.connect(orders).key_by(key, key).process(Price()).sink(mo.collect("out"))
    assert run(job) == [("tea", 7, 3), ("tea", 10, 5), ("tea", 12, 5)]


@pytest.mark.parametrize("is_keyed", [True, False])
def test_every_broadcast_record_comes_before_every_other(is_keyed):
    rules = mo.MapStateDescriptor("rules", int, int)
    base = mo.KeyedBroadcastProcessFunction if is_keyed else mo.BroadcastProcessFunction

    class Apply(base):
        def process_broadcast_element(self, value, ctx):
            ctx.get_broadcast_state(rules).put(value, value)

        def process_element(self, value, ctx):
            yield value, len(ctx.get_broadcast_state(rules).keys())

    job = mo.Job("rules", parallelism=3)
    told = job.source(mo.from_items(range(40)), uid="rules")
    stream = job.source(mo.from_items(range(20)), uid="in").rebalance().map(lambda n: n, uid="map")
    stream = stream.key_by(lambda n: n) if is_keyed else stream
    stream.connect(told.broadcast(rules)).process(Apply(), uid="apply").sink(mo.collect("out"))
    assert sorted(run(job)) == [(n, 40) for n in range(20)]


def test_unions_side_outputs_and_ways_past_a_stage():
    odd = mo.OutputTag("odd")
    job = mo.Job("shapes", parallelism=2)
    numbers = job.source(mo.generate(lambda n: n, count=100, splits=4), uid="numbers")
    split = numbers.process(lambda n, ctx: ctx.output(odd, n) if n % 2 else [n], uid="split")
    counted = split.key_by(lambda n: n % 10).process(Count(), uid="count").key_by(key).process(Count(), uid="again")
    # The one goes through two stages, the other straight to the last.
    united = counted.map(lambda r: r[0], uid="first").union(split.side_output(odd))
    united.key_by(lambda n: n % 10).process(Count(), uid="last").sink(mo.collect("out"), uid="out")
    split.side_output(odd).sink(mo.collect("odd"), uid="odd-out")
    world = BatchWorld(job).run()
    assert Counter(world.collected["out"]) == Counter((d, n) for d in range(10) for n in range(1, 11))
    assert sorted(world.collected["odd"]) == list(range(1, 100, 2))


def test_finish_is_called_once_in_each_subtask_and_what_it_emits_goes_on():
    class Total(mo.MapFunction):
        total = 0

        def map(self, value):
            self.total += value
            return ("part", value)

        def finish(self):
            yield "total", self.total

    job = mo.Job("totals", parallelism=2)
    totals = job.source(mo.generate(lambda n: n, count=50, splits=2), uid="in").map(Total(), uid="total")
    totals.filter(lambda r: r[0] == "total", uid="only").key_by(key).process(Count(), uid="c").sink(mo.collect("out"))
    assert run(job) == [("total", 1), ("total", 2)]


def test_functions_with_operator_state_begin_empty():
    class Buffer(mo.MapFunction, mo.CheckpointedFunction):
        def initialize_state(self, ctx):
            self.state = ctx.operator_state.list_state(mo.ListStateDescriptor("buffer", int))
            self.told = (ctx.is_restored, self.state.get())

        def snapshot_state(self, ctx):
            raise AssertionError("a batch job has no snapshots")

        def map(self, value):
            return self.told

    job = mo.Job("buffer")
    job.source(mo.from_items([1])).map(Buffer()).sink(mo.collect("out"))
    assert run(job) == [(False, [])]


def test_a_source_without_an_end_is_refused():
    job = mo.Job("endless")
    job.source(mo.generate(lambda n: n), uid="numbers").sink(mo.discard())
    with pytest.raises(InvalidArgument, match="'numbers'"):
        BatchWorld(job)


# --- reductions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stamped", [True, False])
def test_a_reduction_comes_once_for_each_key_with_the_time_of_its_last_record(is_stamped):
    job = mo.Job("last", parallelism=2)
    records = [(f"k{n % 3}", n) for n in range(20)]
    watermarks = mo.WatermarkStrategy.monotonous(timestamp=lambda r: r[1]) if is_stamped else None
    summed = (
        job.source(mo.from_items(records), uid="numbers", watermarks=watermarks)
        .key_by(lambda r: r[0])
        .reduce(lambda a, b: (a[0], a[1] + b[1]), uid="sums")
    )
    summed.process(lambda r, ctx: [(*r, ctx.timestamp())], uid="stamped").sink(mo.collect("out"), uid="out")
    summed.map(lambda r: r[1], uid="seconds").sink(mo.collect("seconds"), uid="seconds-out")
    expected = [(f"k{k}", sum(range(k, 20, 3)), max(range(k, 20, 3)) if is_stamped else None) for k in range(3)]
    world = BatchWorld(job).run()
    assert sorted(world.collected["out"]) == expected
    assert sorted(world.collected["seconds"]) == sorted(total for _, total, _ in expected)


def test_a_reduction_of_a_reduction_and_of_many_rows_comes_once():
    job = mo.Job("twice", parallelism=3)
    (
        job.source(mo.generate(lambda n: (n % 5, 1), count=10_000), uid="numbers")
        .key_by(lambda r: r[0])
        .reduce(lambda a, b: (a[0], a[1] + b[1]), uid="by-key")
        .key_by(lambda r: "all")
        .reduce(lambda a, b: (0, a[1] + b[1]), uid="all")
        .sink(mo.collect("out"), uid="out")
    )
    assert run(job, faults=0.1) == [(0, 10_000)]
