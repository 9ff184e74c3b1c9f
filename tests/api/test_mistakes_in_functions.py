"""Mistakes in functions that used to pass in silence: each is refused, by operator and record."""

from __future__ import annotations

import pickle
from collections import namedtuple
from datetime import UTC, datetime

import pytest

import moorline as mo
from moorline.api.watermarks import to_ms
from moorline.errors import InvalidArgument, InvalidOutput, MethodMissing, TimersNeedKey, TimerWithoutHandler
from moorline.model.config.state import StateConfig
from moorline.testing.harness import OperatorHarness

late = mo.OutputTag("late")
Pair = namedtuple("Pair", "a b")


class LateTag(mo.OutputTag):
    """A tag with a class of its own."""


# --- one record, returned where several are expected ------------------------------------------


@pytest.mark.parametrize("one", [(1, 2), "hello", b"raw", {"a": 1}, Pair(1, 2), 5, late, (late, 1)])
def test_one_record_returned_from_process_element_is_refused(one):
    harness = OperatorHarness(lambda value, ctx: one, kind="process", uid="once")
    with pytest.raises(InvalidOutput, match=r"process_element of operator 'once' returned .*return \[") as refused:
        harness.process_all(["the record"])
    assert "'the record'" in refused.value.__notes__[0]
    assert "operator 'once'" in refused.value.__notes__[0]


@pytest.mark.parametrize("many", [[1, 2], {1: 1, 2: 2}.keys(), range(1, 3), iter((1, 2))])
def test_any_iterable_but_a_record_may_be_returned(many):
    assert OperatorHarness(lambda value, ctx: many, kind="process").process(0) == [1, 2]


@pytest.mark.parametrize("nothing", [None, [], ()])
def test_nothing_may_be_returned(nothing):
    assert OperatorHarness(lambda value, ctx: nothing, kind="process").process(0) == []


@pytest.mark.parametrize("one", ["hello", "", b"raw", {"a": 1}, Pair(1, 2), 0, 5])
def test_a_text_returned_from_flat_map_does_not_become_its_characters(one):
    harness = OperatorHarness(lambda value: one, kind="flat_map", uid="split")
    with pytest.raises(InvalidOutput, match="flat_map of operator 'split' returned"):
        harness.process("a b")


def test_a_tuple_from_flat_map_is_a_handful_of_records():
    assert OperatorHarness(lambda value: (value, -value), kind="flat_map").process(1) == [1, -1]


def test_one_record_returned_from_on_timer_is_refused():
    class Timed(mo.KeyedProcessFunction):
        def process_element(self, value, ctx):
            ctx.timer_service().register_event_time_timer(value)

        def on_timer(self, timestamp, ctx):
            return "due", timestamp

    harness = OperatorHarness(Timed(), key=abs, uid="timed")
    harness.process(5)
    with pytest.raises(InvalidOutput, match="on_timer of operator 'timed' returned a tuple") as refused:
        harness.watermark(5)
    assert "a timer of key 5" in refused.value.__notes__[0]


def test_one_record_returned_from_a_function_of_a_window_is_refused():
    def counted(key, context, elements):
        return key, len(elements)

    harness = OperatorHarness.of(lambda s: s.key_by(abs).count_window(1).process(counted, uid="counted"))
    with pytest.raises(InvalidOutput, match="process of operator 'counted' returned a tuple"):
        harness.process(1)


def test_one_record_returned_at_the_end_is_refused():
    class Ends(mo.MapFunction):
        def map(self, value):
            return value

        def finish(self):
            return "the end"

    harness = OperatorHarness(Ends(), uid="ends")
    with pytest.raises(InvalidOutput, match="finish of operator 'ends'"):
        harness.finish()


# --- side outputs -----------------------------------------------------------------------------


def test_a_subclass_of_output_tag_names_a_side_output_too():
    def split(value, ctx):
        yield LateTag("late"), value

    harness = OperatorHarness(split, kind="process")
    assert harness.process(1) == []
    assert harness.side_output(late) == [1]


def test_a_tag_with_several_values_is_refused():
    def split(value, ctx):
        yield late, value, value

    with pytest.raises(InvalidOutput, match=r"a tag with 2 values.*yield tag, \(a, b\)"):
        OperatorHarness(split, kind="process").process(1)


@pytest.mark.parametrize("tag", [late, LateTag("late")])
def test_a_tag_with_a_value_from_map_or_flat_map_is_refused_with_the_record_that_it_was_made_of(tag):
    def of_map(value):
        return (tag, value) if value == 3 else (value, value)

    def of_flat_map(value):
        yield value
        if value == 3:
            yield tag, value

    for function, kind in ((of_map, "map"), (of_flat_map, "flat_map")):
        harness = OperatorHarness(function, kind=kind, uid="split")
        with pytest.raises(InvalidOutput, match=f"{kind} of operator 'split' returned .*use process") as refused:
            harness.process_batch([1, 2, 3, 4])
        assert "record 2 of this attempt: 3" in refused.value.__notes__[0]


@pytest.mark.parametrize("object_reuse", [False, True])
def test_a_tag_is_found_in_every_batch_and_beside_records_of_any_kind(object_reuse):
    """Also when its type was met before, and where records are not looked at to be copied."""

    def split(value, ctx):
        yield value
        yield late, value

    values = [1, (), (1, 2), (1, [2]), {"n": 1}, (late,), [late, 1]]
    harness = OperatorHarness.of(
        lambda stream: stream.process(split, uid="split"), state=StateConfig(object_reuse=object_reuse)
    )
    for _ in range(2):
        for value in values:
            if value == (late,):
                with pytest.raises(InvalidOutput, match="a tag with 0 values"):
                    harness.process(value)
            else:
                assert harness.process(value) == [value]
    assert harness.side_output(late) == [value for value in values if value != (late,)] * 2


@pytest.mark.parametrize("object_reuse", [False, True])
def test_a_tag_among_the_defaults_of_a_lambda_is_no_constant(object_reuse):
    for _ in range(2):
        harness = OperatorHarness.of(
            lambda stream: stream.map(lambda value, tag=late: (tag, value), uid="split"),
            state=StateConfig(object_reuse=object_reuse),
        )
        with pytest.raises(InvalidOutput, match="use process"):
            harness.process(1)


def test_a_tag_keeps_its_class_on_the_way_to_a_worker():
    assert type(pickle.loads(pickle.dumps(LateTag("late")))) is LateTag


def test_a_tag_inside_of_a_record_is_as_good_as_anything_else():
    assert OperatorHarness(lambda value: (value, late), kind="map").process(1) == [(1, late)]
    assert OperatorHarness(lambda value: [[late, value]], kind="flat_map").process(1) == [[late, 1]]
    assert OperatorHarness(lambda value: True, kind="filter").process(("a", late)) == [("a", late)]


def test_what_is_yielded_with_a_tag_at_the_end_goes_to_the_side_output():
    class Ends(mo.ProcessFunction):
        def process_element(self, value, ctx):
            yield value

        def finish(self):
            yield late, "rest"

    harness = OperatorHarness(Ends())
    assert (harness.finish(), harness.side_output(late)) == ([], ["rest"])


# --- methods that are missing -----------------------------------------------------------------


class Misspelt(mo.KeyedProcessFunction):
    def proces_element(self, value, ctx):
        yield value


class Half(mo.CoProcessFunction):
    def process_element1(self, value, ctx):
        yield value


class NoReader(mo.Source):
    pass


class Unreduced(mo.ReduceFunction):
    def reduces(self, value1, value2):
        return value1


class Inherits(Misspelt):
    def process_element(self, value, ctx):
        yield value


def numbers(job: mo.Job) -> mo.Stream:
    return job.source(mo.from_items([1]))


@pytest.mark.parametrize(
    ("build", "missing", "similar"),
    [
        (lambda job: numbers(job).key_by(abs).process(Misspelt()), "process_element", "proces_element"),
        (lambda job: numbers(job).connect(numbers(job)).process(Half()), "process_element2", "process_element1"),
        (lambda job: job.source(NoReader()), "open", ""),
        (lambda job: numbers(job).key_by(abs).reduce(Unreduced()), "reduce", "reduces"),
        (lambda job: numbers(job).key_by(abs).count_window(2).reduce(Unreduced()), "reduce", "reduces"),
    ],
    ids=["process", "one of two", "source", "reduce", "window"],
)
def test_a_misspelt_method_is_found_when_the_job_is_built(build, missing, similar):
    with pytest.raises(MethodMissing) as refused:
        build(mo.Job("test"))
    assert (refused.value.method, refused.value.similar) == (missing, similar)
    assert not similar or f"Is {similar!r} meant?" in str(refused.value)


def test_a_method_may_be_inherited_or_set_on_the_function_itself():
    set_later = mo.MapFunction()
    set_later.map = abs  # type: ignore[method-assign]
    assert OperatorHarness(set_later).process(-1) == [1]
    assert OperatorHarness(Inherits(), key=abs).process(-1) == [-1]


# --- timers -----------------------------------------------------------------------------------


class Forgetful(mo.KeyedProcessFunction):
    def process_element(self, value, ctx):
        getattr(ctx.timer_service(), value)(10)

    def on_timers(self, timestamp, ctx):
        yield "never"


@pytest.mark.parametrize("register", ["register_event_time_timer", "register_processing_time_timer"])
def test_a_timer_without_on_timer_is_refused_when_it_is_set(register):
    with pytest.raises(TimerWithoutHandler, match=r"operator 'f' .* Is 'on_timers' meant") as refused:
        OperatorHarness(Forgetful(), key=len, uid="f").process(register)
    assert register in refused.value.__notes__[0]


def test_a_timer_without_on_timer_may_be_deleted_as_one_that_an_older_version_has_set():
    assert OperatorHarness(Forgetful(), key=len).process("delete_event_time_timer") == []


def test_a_timer_of_a_plain_callable_is_refused():
    def timed(value, ctx):
        ctx.timer_service().register_event_time_timer(1)

    with pytest.raises(TimerWithoutHandler):
        OperatorHarness(timed, kind="process", key=abs).process(1)
    with pytest.raises(TimersNeedKey):
        OperatorHarness(timed, kind="process").process(1)


# --- time -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [b"at", 3, ("at",)])
def test_a_timestamp_assigner_that_cannot_be_called_is_refused(wrong):
    with pytest.raises(InvalidArgument, match="Give a function from a record to its time"):
        mo.WatermarkStrategy.monotonous().with_timestamp_assigner(wrong)
    with pytest.raises(InvalidArgument):
        mo.WatermarkStrategy.bounded_out_of_orderness("1s", timestamp=wrong)


def test_a_watermark_strategy_is_checked_when_it_is_made():
    with pytest.raises(InvalidArgument, match="idleness"):
        mo.WatermarkStrategy.monotonous().with_idleness("soon")
    with pytest.raises(InvalidArgument, match="generator"):
        mo.WatermarkStrategy.of("EverySecond")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("moment", "ms"),
    [
        (datetime(1970, 1, 1, 0, 0, 0, 999, tzinfo=UTC), 0),
        (datetime(1970, 1, 1, 0, 0, 59, 999_999, tzinfo=UTC), 59_999),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1),
    ],
)
def test_a_datetime_is_not_moved_into_the_next_millisecond(moment, ms):
    assert to_ms(moment) == ms


def test_the_place_of_an_error_survives_pickling():
    harness = OperatorHarness(lambda value, ctx: "text", kind="process", uid="once")
    with pytest.raises(InvalidOutput) as refused:
        harness.process("the record")
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.__notes__) == (str(refused.value), refused.value.__notes__)
