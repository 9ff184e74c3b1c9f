"""Batch without Spark: what comes out, in which order, and that lost tasks change nothing."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from batch_worlds import BatchWorld, run

import moorline as mo
from moorline.errors import InvalidArgument, InvalidKey, UserCodeFailed
from moorline.model.times import MAX_TIME, MIN_TIME

BY_TIME = mo.WatermarkStrategy.bounded_out_of_orderness("1s", timestamp=lambda r: r[1])


def key(record):
    return record[0]


def keyed(function, records, parallelism=2, watermarks=None, step="process"):
    """A job of one keyed step."""
    job = mo.Job("batch", parallelism=parallelism)
    stream = job.source(mo.from_items(records), uid="in", watermarks=watermarks).key_by(key)
    getattr(stream, step)(function, uid="step").sink(mo.collect("out"), uid="out")
    return job


def by_key(records):
    found = defaultdict(list)
    for record in records:
        found[record[0]].append(record)
    return dict(found)


class Count(mo.KeyedProcessFunction):
    seen = mo.ValueState(int, default=0)

    def process_element(self, value, ctx):
        self.seen.update(self.seen.value() + 1)
        yield ctx.current_key, self.seen.value()


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


# --- time -----------------------------------------------------------------------------------------


def test_with_timestamps_a_key_is_worked_off_in_the_order_of_time():
    records = [("a", 5), ("b", 1), ("a", 3), ("a", 4), ("b", 0), ("a", 3)]
    found = run(keyed(lambda r, ctx: [(*r, ctx.timestamp())], records, watermarks=BY_TIME))
    assert by_key(found) == {
        "a": [("a", 3, 3), ("a", 3, 3), ("a", 4, 4), ("a", 5, 5)],
        "b": [("b", 0, 0), ("b", 1, 1)],
    }


class AllTimers(mo.KeyedProcessFunction):
    """Sets timers of both kinds, and tells what it sees when they go off."""

    seen = mo.ListState(int)

    def process_element(self, value, ctx):
        timers = ctx.timer_service()
        assert timers.current_watermark() == MIN_TIME
        self.seen.add(value[1])
        timers.register_event_time_timer(value[1] + 10)
        timers.register_processing_time_timer(timers.current_processing_time() + 3_600_000)

    def on_timer(self, timestamp, ctx):
        assert ctx.timer_service().current_watermark() == MAX_TIME
        at = timestamp if ctx.time_domain == "event" else None
        yield ctx.current_key, ctx.time_domain, at, len(self.seen.get())


def test_timers_fire_when_the_key_has_ended_those_of_event_time_first():
    found = by_key(run(keyed(AllTimers(), [("a", 2), ("b", 7), ("a", 1)], watermarks=BY_TIME)))
    # All of a key's processing-time timers may be of one millisecond: then there is one.
    assert found["a"][:2] == [("a", "event", 11, 2), ("a", "event", 12, 2)]
    assert {r[1:] for r in found["a"][2:]} == {("processing", None, 2)}
    assert found["b"] == [("b", "event", 17, 1), ("b", "processing", None, 1)]


def test_a_clock_that_winds_itself_up_again_does_not_go_on_for_ever():
    class Clock(mo.KeyedProcessFunction):
        def process_element(self, value, ctx):
            ctx.timer_service().register_processing_time_timer(1)

        def on_timer(self, timestamp, ctx):
            ctx.timer_service().register_processing_time_timer(timestamp + 1)
            yield ctx.current_key, timestamp

    assert sorted(run(keyed(Clock(), [("a", 0), ("b", 0)]))) == [("a", 1), ("b", 1)]


def test_event_timers_that_follow_from_others_fire_too():
    class Steps(mo.KeyedProcessFunction):
        def process_element(self, value, ctx):
            ctx.timer_service().register_event_time_timer(value[1])

        def on_timer(self, timestamp, ctx):
            if timestamp < 3:
                ctx.timer_service().register_event_time_timer(timestamp + 1)
            yield ctx.current_key, timestamp

    assert run(keyed(Steps(), [("a", 1)], watermarks=BY_TIME)) == [("a", 1), ("a", 2), ("a", 3)]


def test_watermark_generators_are_not_asked():
    class Never(mo.WatermarkGenerator):
        def on_event(self, value, timestamp):
            raise AssertionError("asked")

        watermark = on_event

    strategy = mo.WatermarkStrategy.of(Never, timestamp=lambda r: r[1])
    assert run(keyed(lambda r, ctx: [ctx.timestamp()], [("a", 5)], watermarks=strategy)) == [5]


def test_nothing_is_late():
    late = mo.OutputTag("late")
    records = [("a", n * 1000) for n in (50, 1, 30, 0)]
    job = mo.Job("late", parallelism=2)
    windows = job.source(mo.from_items(records), watermarks=BY_TIME).key_by(key)
    counts = windows.window(mo.TumblingEventTimeWindows("10s")).side_output_late_data(late)
    counts = counts.apply(lambda k, window, values: [(k, window.start, len(values))], uid="counts")
    counts.sink(mo.collect("out"))
    counts.side_output(late).sink(mo.collect("late"))
    world = BatchWorld(job).run()
    assert world.collected["out"] == [("a", 0, 2), ("a", 30_000, 1), ("a", 50_000, 1)]
    assert world.collected["late"] == []


@pytest.mark.parametrize(
    ("assigner", "expected"),
    [
        (mo.EventTimeSessionWindows.with_gap("3s"), [(0, 4000, 2), (8000, 11000, 1)]),
        (mo.SlidingEventTimeWindows("4s", "2s"), [(-2000, 2000, 2), (0, 4000, 2), (6000, 10000, 1), (8000, 12000, 1)]),
    ],
)
def test_windows_close_at_the_end_of_the_key(assigner, expected):
    job = mo.Job("windows", parallelism=3)
    stream = job.source(mo.from_items([("a", 8000), ("a", 1000), ("b", 0), ("a", 0)]), watermarks=BY_TIME).key_by(key)
    counts = stream.window(assigner).apply(lambda k, w, values: [(k, w.start, w.end, len(values))])
    counts.sink(mo.collect("out"))
    assert [r[1:] for r in by_key(run(job))["a"]] == expected


def test_windows_of_processing_time_close_too():
    job = mo.Job("windows", parallelism=2)
    stream = job.source(mo.from_items([("a", 1), ("b", 2), ("a", 3)])).key_by(key)
    stream.window(mo.TumblingProcessingTimeWindows("1000h")).apply(
        lambda k, window, values: [(k, sorted(v[1] for v in values))]
    ).sink(mo.collect("out"))
    assert sorted(run(job)) == [("a", [1, 3]), ("b", [2])]


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


# --- lost tasks -----------------------------------------------------------------------------------


def busy_job(seed, folder):
    """Several stages, a broadcast, windows, timers, unions, files."""
    rng = random.Random(seed)
    limit = mo.MapStateDescriptor("limit", str, int)

    class Below(mo.KeyedBroadcastProcessFunction):
        seen = mo.ValueState(int, default=0)

        def process_broadcast_element(self, value, ctx):
            state = ctx.get_broadcast_state(limit)
            state.put("limit", max(value, state.get("limit", 0)))

        def process_element(self, value, ctx):
            self.seen.update(self.seen.value() + 1)
            if self.seen.value() <= ctx.get_broadcast_state(limit).get("limit"):
                yield value

    records = [(rng.randrange(12), rng.randrange(60_000)) for _ in range(300)]
    job = mo.Job("busy", parallelism=rng.choice([1, 2, 3]))
    limits = job.source(mo.from_items([5, 20, 10]), uid="limits")
    events = job.source(mo.from_items(records), uid="events", watermarks=BY_TIME).rebalance().map(tuple, uid="map")
    below = events.key_by(key).connect(limits.broadcast(limit)).process(Below(), uid="below")
    windows = below.key_by(key).window(mo.TumblingEventTimeWindows("10s"))
    counts = windows.apply(lambda k, w, values: [(k, w.start, len(values))], uid="windows")
    counts.sink(mo.collect("out"), uid="out", parallelism=rng.choice([1, 2]))
    counts.union(below.map(lambda r: (r[0], -1, r[1]), uid="raw")).map(list, uid="lists").sink(
        mo.write_files(folder, format="jsonl"), uid="files"
    )
    kept = [r for k in range(12) for r in sorted((r for r in records if r[0] == k), key=lambda r: r[1])[:20]]
    windowed = Counter((k, t // 10_000 * 10_000) for k, t in kept)
    expected = sorted((*ident, n) for ident, n in windowed.items())
    return job, expected, sorted(expected + [(k, -1, t) for k, t in kept])


@pytest.mark.parametrize("seed", range(25))
def test_lost_tasks_change_nothing(seed, tmp_path):
    job, expected, in_files = busy_job(seed, tmp_path)
    world = BatchWorld(job, seed, faults=0.08, rows_per_batch=1 + seed % 9).run()
    assert sorted(world.collected["out"]) == expected
    assert not list(tmp_path.glob("part-*"))
    sink = world.plan.graph.by_uid["files"].function
    for _ in range(2):  # committing twice is harmless
        for _, committables in world.staged:
            sink.commit(committables)
    sink.clean_up("busy", "files")
    lines = [tuple(json.loads(line)) for f in tmp_path.glob("part-*") for line in f.read_text().splitlines()]
    assert sorted(lines) == in_files
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith("part-")] == []


def test_tasks_are_lost_at_all():
    job = keyed(Count(), [(n % 7, n) for n in range(100)])
    clean, faulty = BatchWorld(job).run(), BatchWorld(job, 1, faults=0.2).run()
    assert faulty.attempts > clean.attempts
    assert faulty.collected == clean.collected


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
