"""Functions that cannot be called as they will be are refused when the job is built, before any record."""

from __future__ import annotations

import functools
import operator
from typing import Any

import pytest

import moorline as mo
from moorline.errors import InvalidArgument
from moorline.testing import OperatorHarness

#: Without types: what a checker would say is said at run time, too.
anything: Any = mo


def numbers() -> Any:
    return mo.Job("test").source(mo.from_items([1]))


async def asynchronous(value, *more):
    return False


async def yields_asynchronously(value, *more):
    yield value


def yields(value):
    yield value


class Called:
    def __call__(self, value):
        yield value


class AsyncFilter(mo.FilterFunction):
    async def filter(self, value):  # type: ignore[override]
        return False


class YieldingFilter(mo.FilterFunction):
    def filter(self, value):  # type: ignore[override]
        yield False


class YieldingOpen(mo.MapFunction):
    def open(self, runtime_context):  # type: ignore[override]
        yield

    def map(self, value):
        return value


class NoContext(mo.KeyedProcessFunction):
    def process_element(self, value):  # type: ignore[override]
        yield value


class NoTimestamp(mo.KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value

    def on_timer(self, ctx):  # type: ignore[override]
        yield 1


@pytest.mark.parametrize("step", ["map", "filter", "flat_map", "process", "key_by"])
@pytest.mark.parametrize("function", [asynchronous, yields_asynchronously, functools.partial(asynchronous)])
def test_an_asynchronous_function_is_refused_and_does_not_let_every_record_pass(step, function):
    with pytest.raises(InvalidArgument, match="It is asynchronous, and nothing would await it"):
        getattr(numbers(), step)(function)


@pytest.mark.parametrize("step", ["map", "filter", "key_by"])
@pytest.mark.parametrize("function", [yields, Called(), functools.partial(yields)])
def test_a_generator_where_one_value_is_wanted_is_refused(step, function):
    with pytest.raises(InvalidArgument, match="It yields, and one value is wanted"):
        getattr(numbers(), step)(function)


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda s: s.map(lambda a, b: a), "called with 1 argument: missing a required argument: 'b'"),
        (lambda s: s.key_by(lambda: 1), "called with 1 argument: too many"),
        (lambda s: s.process(lambda value: [value]), "called with 2 arguments: too many"),
        (lambda s: s.key_by(abs).reduce(lambda a: a), "called with 2 arguments: too many"),
        (lambda s: s.key_by(abs).count_window(2).reduce(lambda a: a), "called with 2 arguments"),
        (lambda s: s.key_by(abs).count_window(2).apply(lambda key, window: []), "called with 3 arguments"),
        (lambda s: s.key_by(abs).count_window(2).process(lambda key, window: []), "called with 3 arguments"),
        (lambda s: anything.ReducingState(int, lambda a: a), "function of state '.': .* called with 2 arguments"),
        (lambda s: anything.FoldingState(0, lambda a: a), "fold: .* called with 2 arguments"),
        (lambda s: anything.WatermarkStrategy.monotonous(lambda value, at: at), "called with 1 argument: missing"),
        (lambda s: s.filter(AsyncFilter(), uid="f"), "filter of operator 'f': .* It is asynchronous"),
        (lambda s: s.filter(YieldingFilter(), uid="f"), "filter of operator 'f': .* It yields"),
        (lambda s: s.map(YieldingOpen(), uid="f"), "open of operator 'f': .* It yields"),
        (lambda s: s.key_by(abs).process(NoContext(), uid="f"), "process_element of operator 'f': .* 2 arguments"),
        (lambda s: s.key_by(abs).process(NoTimestamp(), uid="f"), "on_timer of operator 'f': .* 2 arguments"),
    ],
)
def test_a_function_with_other_arguments_than_it_is_called_with_is_refused(build, what):
    with pytest.raises(InvalidArgument, match=what):
        build(numbers())


class Static(mo.MapFunction):
    map = staticmethod(lambda value: -value)  # type: ignore[assignment]


class More(mo.MapFunction):
    def map(self, value, factor=3):
        return factor * value


class Open(mo.MapFunction):
    def map(self, *values):  # type: ignore[override]
        return len(values)


@pytest.mark.parametrize(
    ("function", "made"),
    [
        (abs, 2),
        (str, "2"),
        (operator.neg, -2),
        (operator.methodcaller("bit_length"), 2),
        (functools.partial(max, 5), 5),
        (lambda value, factor=2: factor * value, 4),
        (Static(), -2),
        (More(), 6),
        (Open(), 1),
    ],
)
def test_whatever_can_be_called_with_one_record_is_accepted(function, made):
    assert OperatorHarness(function, kind="map").process(2) == [made]


# --- arguments of what a function is given -------------------------------------------------------


class Times(mo.KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value)

    def on_timer(self, timestamp, ctx):
        yield timestamp


@pytest.mark.parametrize("time", ["5", True, 5.7, float("nan"), None, 1 << 63, -(1 << 63) - 1])
def test_what_is_no_time_is_refused_as_a_timer(time):
    with pytest.raises(InvalidArgument, match="whole number of milliseconds since 1970") as refused:
        OperatorHarness(Times(), key=lambda value: "a", uid="f").process(time)
    assert "operator 'f'" in refused.value.__notes__[0]


def test_a_float_without_a_fraction_is_a_time():
    with OperatorHarness(Times(), key=lambda value: "a") as harness:
        harness.process(5.0)
        assert harness.watermark(5) == [5]


@pytest.mark.parametrize("wrong", [None, "noon", 1.5, 1 << 70])
def test_a_timestamp_that_is_none_is_told_with_operator_and_record(wrong):
    strategy = mo.WatermarkStrategy.monotonous(lambda record: record[1])
    harness = OperatorHarness.of(lambda s: s.assign_timestamps_and_watermarks(strategy, uid="times"))
    with pytest.raises(InvalidArgument, match="timestamp: got") as refused:
        harness.process_batch([("fine", 1), ("wrong", wrong)])
    assert "('wrong'" in refused.value.__notes__[0] and "operator 'times'" in refused.value.__notes__[1]


@pytest.mark.parametrize("tag", ["late", None, ("a", 1)])
def test_a_side_output_without_a_tag_is_refused_with_what_was_given(tag):
    class Aside(mo.ProcessFunction):
        def process_element(self, value, ctx):
            ctx.output(tag, value)

    harness = OperatorHarness(Aside(), uid="aside")
    with pytest.raises(mo.errors.InvalidOutput, match=r"ctx.output of operator 'aside' was given .* no OutputTag"):
        harness.process(1)
