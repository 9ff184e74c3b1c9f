"""Streams of a job: keyed, united, and beside their side outputs."""

from __future__ import annotations

import pickle

import pytest
from sample_jobs import LATE, Count, inputs, job, numbers

import moorline as mo
from moorline.errors import (
    InvalidArgument,
    KeyedStateWithoutKey,
)
from moorline.model.graph import Partitioning

# --- keys -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "id", 0], ids=repr)
def test_a_key_is_a_function_of_the_record(key):
    with pytest.raises(InvalidArgument, match="Give a function from a record to its key"):
        numbers(job()).key_by(key)


def test_a_keyed_function_needs_a_key():
    with pytest.raises(
        KeyedStateWithoutKey, match=r"operator 'count' needs a key, .* Put .key_by\(...\) directly before"
    ):
        numbers(job()).process(Count(), uid="count")  # type: ignore[arg-type]


def test_keyed_state_needs_a_key_in_any_function():
    class Numbered(mo.MapFunction):
        n = mo.ValueState(int)
        m = mo.ListState(int)

        def map(self, value):
            return value

    with pytest.raises(KeyedStateWithoutKey, match=r"operator 'f' needs keyed state \(n, m\)"):
        numbers(job()).map(Numbered(), uid="f")
    with pytest.raises(KeyedStateWithoutKey):
        numbers(job()).key_by(abs).map(str).map(Numbered(), uid="f")
    numbers(job()).key_by(abs).map(Numbered(), uid="f")


def test_only_a_keyed_stream_can_be_reduced():
    assert not hasattr(numbers(job()), "reduce")
    assert isinstance(numbers(job()).key_by(abs), mo.KeyedStream)


def test_a_later_key_replaces_an_earlier_one():
    j = job()
    numbers(j).key_by(abs).key_by(str).process(Count(), uid="count").sink(mo.discard())
    (only,) = j.graph().by_uid["count"].inputs
    assert only.key is str


def test_rebalancing_a_keyed_stream_takes_its_key_away():
    with pytest.raises(KeyedStateWithoutKey):
        numbers(job()).key_by(abs).rebalance().process(Count(), uid="count")  # type: ignore[arg-type]


# --- unions -----------------------------------------------------------------------------------


def test_a_union_has_an_input_from_each_stream():
    j = job()
    a, b = numbers(j, "a"), numbers(j, "b")
    a.union(b, b.process(lambda v, ctx: None, uid="p").side_output(LATE)).rebalance().sink(mo.discard(), uid="out")
    assert inputs(j, "out") == [
        ("a", None, Partitioning.REBALANCE),
        ("b", None, Partitioning.REBALANCE),
        ("p", "late", Partitioning.REBALANCE),
    ]


def test_a_union_can_be_keyed():
    j = job()
    numbers(j, "a").union(numbers(j, "b")).key_by(abs).process(Count(), uid="count").sink(mo.discard())
    assert [i.key for i in j.graph().by_uid["count"].inputs] == [abs, abs]


def test_a_stream_united_with_itself_comes_twice_as_in_flink():
    j = job()
    stream = numbers(j)
    stream.union(stream).sink(mo.discard(), uid="out")
    assert inputs(j, "out") == [("in", None, Partitioning.FORWARD)] * 2


def test_streams_of_two_jobs_cannot_be_united():
    with pytest.raises(InvalidArgument, match="Streams of different jobs cannot be joined"):
        numbers(job()).union(numbers(job()))


@pytest.mark.parametrize("change", [lambda s: s.key_by(abs), lambda s: s.rebalance()], ids=["key_by", "rebalance"])
def test_what_is_to_happen_to_all_comes_after_the_union(change):
    j = job()
    a, b = numbers(j, "a"), numbers(j, "b")
    for left, right in ((change(a), b), (a, change(b))):
        with pytest.raises(InvalidArgument, match="Unite the streams first, then key_by or rebalance the union"):
            left.union(right)


def test_only_streams_can_be_united():
    with pytest.raises(InvalidArgument, match="Give streams of the same job"):
        numbers(job()).union([1, 2])  # type: ignore[arg-type]


# --- side outputs -----------------------------------------------------------------------------


def test_a_side_output_is_asked_for_by_its_tag():
    with pytest.raises(InvalidArgument, match="Give the OutputTag that the function uses"):
        numbers(job()).side_output("late")  # type: ignore[arg-type]


def test_flinks_name_for_a_side_output_works_too():
    j = job()
    stream = numbers(j).process(lambda v, ctx: None, uid="p")
    stream.get_side_output(LATE).sink(mo.discard(), uid="out")
    assert inputs(j, "out") == [("p", "late", Partitioning.FORWARD)]


def test_tags_are_equal_by_name_and_can_be_shipped():
    assert mo.OutputTag("late") == LATE
    assert pickle.loads(pickle.dumps(LATE)) == LATE
