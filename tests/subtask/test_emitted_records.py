"""A record is the value that it was when it was emitted: by functions, for several readers, on every backend."""

from __future__ import annotations

import threading

import pytest
from batch_worlds import BatchWorld
from emitting_harness import BACKENDS, RECORDS, numbered, processed, store_of

import moorline as mo
from moorline.errors import RecordChanged, RecordNotCopied
from moorline.model.config.run import RunConfig
from moorline.model.config.state import StateConfig
from moorline.testing import OperatorHarness

SIDE = mo.OutputTag("side")


# --- functions ------------------------------------------------------------------------------------


def totals_in(store):
    class Totals(mo.KeyedProcessFunction):
        totals = mo.ValueState(dict[str, int], store=store)

        def process_element(self, value, ctx):
            totals = self.totals.value() or {}
            totals["n"] = totals.get("n", 0) + value[1]
            self.totals.update(totals)
            yield totals
            yield ctx.current_key, totals
            yield [{"deep": totals}]

    return Totals()


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_yielded_does_not_change_with_the_state_it_came_from(backend):
    out = processed(backend, totals_in(store_of(backend)))
    assert out == [
        made
        for key, total in (("a", 1), ("b", 2), ("a", 4), ("a", 8))
        for made in ({"n": total}, (key, {"n": total}), [{"deep": {"n": total}}])
    ]


class Mine:
    """A class like any other: it can be hashed, and it can change."""

    def __init__(self):
        self.seen = []

    def __eq__(self, other):
        return self.seen == other.seen

    __hash__ = object.__hash__


class Attribute(mo.KeyedProcessFunction):
    def __init__(self, mine=None):
        self.mine = Mine() if mine is None else mine

    def process_element(self, value, ctx):
        self.mine.seen.append(value[1])
        ctx.output(SIDE, self.mine)
        return [self.mine]


def test_what_was_emitted_does_not_change_with_an_attribute_of_the_function():
    with OperatorHarness(Attribute(), key=lambda r: r[0]) as world:
        out = world.process_batch(RECORDS)
        assert [made.seen for made in out] == [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]
        assert [made.seen for made in world.side_output(SIDE)] == [made.seen for made in out]


def test_what_was_yielded_does_not_change_when_the_generator_goes_on():
    def counted(value, ctx):
        row = {"n": 0}
        for _ in range(value):
            row["n"] += 1
            yield row
        row["n"] = -1

    with OperatorHarness(counted, kind="process") as world:
        assert world.process_batch([2, 1]) == [{"n": 1}, {"n": 2}, {"n": 1}]
        assert world.process_batch([1], [10]) == [{"n": 1}]


class Reused(mo.MapFunction):
    def open(self, runtime_context):
        self.row = {}

    def map(self, value):
        self.row["n"] = value
        return self.row


class Several(mo.FlatMapFunction):
    def flat_map(self, value):
        row = {"n": value}
        yield row
        row["n"] += 100
        yield row


class Remembering(mo.FilterFunction):
    def open(self, runtime_context):
        self.last = {}

    def filter(self, value):
        self.last["next"] = value["n"]
        self.last = value
        return True


def test_maps_filters_and_flat_maps_emit_the_value_of_that_moment():
    for function, records, expected in (
        (Reused(), [1, 2], [{"n": 1}, {"n": 2}]),
        (Several(), [1, 2], [{"n": 1}, {"n": 101}, {"n": 2}, {"n": 102}]),
        (Remembering(), [{"n": 1}, {"n": 2}], [{"n": 1}, {"n": 2}]),
    ):
        with OperatorHarness(function) as world:
            assert world.process_batch(records) == expected


def test_a_function_that_keeps_a_row_in_its_closure_emits_the_value_of_that_moment():
    row = {}

    def reused(value):
        row["n"] = value
        return row

    with OperatorHarness(reused, kind="map") as world:
        assert world.process_batch([1, 2]) == [{"n": 1}, {"n": 2}]


class Reminding(mo.KeyedProcessFunction):
    seen = mo.ListState(int)

    def open(self, runtime_context):
        self.row = []

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp, ctx):
        self.row.append(timestamp)
        yield self.row

    def finish(self):
        for n in range(2):
            self.row.append(n)
            yield self.row


def test_timers_and_finish_emit_the_value_of_that_moment():
    with OperatorHarness(Reminding(), key=lambda r: r[0]) as world:
        world.process_batch([("a", 1), ("a", 2)])
        assert world.watermark(5) == [[1], [1, 2]]
        assert world.finish() == [[1, 2, 0], [1, 2, 0, 1]]


class Rows(mo.SourceFunction):
    def run(self, ctx):
        row = {}
        for n in range(3):
            row["n"] = n
            ctx.collect(row)

    def cancel(self):
        pass


class YieldedRows(Rows):
    def run(self, ctx):
        row = {}
        for n in range(3):
            row["n"] = n
            yield row


@pytest.mark.parametrize("source", [Rows, YieldedRows])
def test_a_source_that_uses_one_row_again_emits_the_value_of_each_moment(source):
    with OperatorHarness.of(lambda job: job.source(source(), uid="rows"), inputs=0) as world:
        assert world.read(3) == [{"n": 0}, {"n": 1}, {"n": 2}]


# --- readers --------------------------------------------------------------------------------------


def change(record):
    record["n"] += 100
    return record


def test_each_of_several_readers_gets_what_was_emitted():
    job = mo.Job("readers")
    rows = job.source(mo.from_items(numbered(1, 2)), uid="rows").map(dict, uid="same")
    rows.map(change, uid="first").sink(mo.collect("first"), uid="first-out")
    rows.sink(mo.collect("second"), uid="second-out")
    rows.key_by(lambda r: r["key"]).map(dict, uid="keyed").sink(mo.collect("third"), uid="third-out")
    rows.map(change, uid="fourth").sink(mo.collect("fourth"), uid="fourth-out")
    collected = BatchWorld(job).run().collected
    assert {name: [r["n"] for r in found] for name, found in collected.items()} == {
        "first": [101, 102],
        "second": [1, 2],
        "third": [1, 2],
        "fourth": [101, 102],
    }


def aside(value, ctx):
    yield SIDE, value
    yield value


def test_each_reader_of_a_side_output_gets_what_was_emitted():
    job = mo.Job("readers")
    rows = job.source(mo.from_items(numbered(1, 2)), uid="rows").process(aside, uid="aside")
    for name, stream in (("main", rows), ("one", rows.side_output(SIDE)), ("two", rows.side_output(SIDE))):
        stream.map(change, uid=name).sink(mo.collect(name), uid=f"{name}-out")
    collected = BatchWorld(job).run().collected
    assert [[r["n"] for r in collected[name]] for name in ("main", "one", "two")] == [[101, 102]] * 3


def test_a_list_that_a_job_reads_stays_as_it_was():
    items = numbered(1, 2)
    with OperatorHarness.of(lambda job: job.source(mo.from_items(items), uid="items"), inputs=0) as world:
        for record in world.read(2):
            change(record)
        (function,) = world.functions
        assert function.items == numbered(1, 2)


# --- object reuse ---------------------------------------------------------------------------------


def test_with_object_reuse_records_are_passed_on_by_reference():
    build = lambda s: s.key_by(lambda r: r[0]).process(Attribute(), uid="f")  # noqa: E731
    with OperatorHarness.of(build, state=StateConfig(object_reuse=True)) as world:
        one, other, *_ = world.process_batch(RECORDS)
        assert one is other


def test_the_option_of_a_run_reaches_the_subtasks():
    assert RunConfig(object_reuse=True).state.object_reuse
    assert not RunConfig().state.object_reuse


@pytest.mark.parametrize("one_by_one", [True, False])
def test_a_harness_finds_what_object_reuse_would_change(one_by_one):
    world = OperatorHarness(totals_in(None), key=lambda r: r[0], uid="totals", check_object_reuse=True)
    with pytest.raises(
        RecordChanged, match=r"operator 'totals' has emitted \{'n': 1\} and changed it .* \{'n': [48]\}"
    ):
        world.process_all(RECORDS) if one_by_one else world.process_batch(RECORDS)


def test_a_harness_has_nothing_to_say_about_records_that_stay_as_they_are():
    class Careful(mo.KeyedProcessFunction):
        totals = mo.ValueState(dict[str, int])

        def process_element(self, value, ctx):
            totals = {**(self.totals.value() or {}), str(value[1]): 1}
            self.totals.update(totals)
            yield totals

    with OperatorHarness(Careful(), key=lambda r: r[0], check_object_reuse=True) as world:
        assert world.process_batch(RECORDS)[-1] == {"1": 1, "3": 1, "4": 1}


def test_a_record_that_cannot_be_copied_is_refused_with_what_to_do():
    class Locked(mo.MapFunction):
        def open(self, runtime_context):
            self.lock = threading.Lock()

        def map(self, value):
            return {"lock": self.lock}

    with OperatorHarness(Locked()) as world, pytest.raises(RecordNotCopied) as caught:
        world.process(1)
    assert caught.value.type == "_thread.lock" and "object_reuse=True" in str(caught.value)
