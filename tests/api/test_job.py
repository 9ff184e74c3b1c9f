"""A job is built, shown and checked without running anything."""

from __future__ import annotations

import pickle
import threading

import pytest
from sample_jobs import LATE, Count, inputs, job, numbers

import moorline as mo
from moorline.errors import (
    DuplicateUid,
    FunctionNotShippable,
    InvalidArgument,
    JobError,
    KeyedStateWithoutKey,
    NothingToRun,
    ParallelismTooHigh,
    UnconnectedStream,
)
from moorline.model.graph import Partitioning


class Double(mo.MapFunction):
    def map(self, value):
        return 2 * value


# --- a job that is well -----------------------------------------------------------------------


def test_a_job_is_shown_with_all_of_its_operators():
    j = job(parallelism=2)
    counted = numbers(j, parallelism=1).map(Double(), uid="double").key_by(abs).process(Count(), uid="count")
    counted.side_output(LATE).sink(mo.discard(), uid="late")
    counted.sink(mo.collect("out"), uid="out", name="the result")
    assert str(j).splitlines() == [
        "job 'test', parallelism 2, 128 key groups",
        "  in      source: Items             x1",
        "  double  map: Double               x2  <- in (forward)",
        "  count   process: Count            x2  <- double (hash)",
        "  late    sink: Discard             x2  <- count#late (forward)",
        "  out     sink: the result          x2  <- count (forward)",
    ]
    assert repr(j) == "<Job 'test' with 5 operators>"


def test_an_empty_job_can_be_shown_too():
    assert str(job()) == "job 'test', parallelism 1, 128 key groups"


def test_a_graph_is_the_job_as_data():
    j = job(parallelism=2)
    numbers(j).key_by(abs).process(Count(), uid="count", parallelism=3).sink(mo.discard(), uid="out")
    graph = j.graph()
    assert [(o.uid, o.kind, o.parallelism, o.is_keyed) for o in graph.operators] == [
        ("in", "source", 2, False),
        ("count", "process", 3, True),
        ("out", "sink", 2, False),
    ]
    assert (graph.job, graph.max_parallelism, graph.max_parallelism_is_set) == ("test", 128, False)
    assert graph.by_uid["count"].inputs[0].key is abs


def test_building_a_job_runs_nothing():
    class Explodes(mo.MapFunction):
        def open(self, runtime_context):
            raise AssertionError("opened")

        def map(self, value):
            raise AssertionError("called")

    j = job()
    numbers(j).map(Explodes(), uid="boom").sink(mo.discard(), uid="out")
    j.graph()


def test_operators_without_a_uid_get_one_that_is_free():
    j = job()
    stream = numbers(j, uid=None).map(str).map(int, uid="map-str-2").map(str)
    stream.sink(mo.discard())
    stream.sink(mo.discard())
    assert list(j.graph().by_uid) == [
        "source-Items",
        "map-str",
        "map-str-2",
        "map-str-3",
        "sink-Discard",
        "sink-Discard-2",
    ]


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (str, "str"),
        (str.upper, "upper"),
        (lambda v: v, "lambda"),
        (Double(), "Double"),
        (threading.get_ident, "get_ident"),
    ],
)
def test_an_operator_is_named_after_its_function(function, name):
    j = job()
    numbers(j).map(function, uid="f").sink(mo.discard())
    assert j.graph().by_uid["f"].name == name


def test_a_reduction_is_named_after_what_it_reduces_with():
    j = job()
    keyed = numbers(j).key_by(abs)
    keyed.reduce(max, uid="f").sink(mo.discard())
    keyed.reduce(max, uid="g", name="the most").sink(mo.discard())
    assert [j.graph().by_uid[uid].name for uid in "fg"] == ["reduce max", "the most"]


# --- parallelism ------------------------------------------------------------------------------


def test_operators_follow_the_jobs_parallelism_unless_they_have_their_own():
    j = job(parallelism=2)
    numbers(j, parallelism=1).map(str, uid="f").sink(mo.discard(), uid="out", parallelism=3)
    assert [o.parallelism for o in j.graph().operators] == [1, 2, 3]
    assert [o.parallelism for o in j.graph(parallelism=5).operators] == [1, 5, 3]
    assert [o.parallelism for o in j.graph().operators] == [1, 2, 3], "the job itself has not changed"


def test_an_operator_that_was_refused_leaves_nothing_behind():
    j = job(parallelism=2)
    stream = numbers(j)
    with pytest.raises(FunctionNotShippable):
        stream.map(threading.Lock().acquire, uid="f", parallelism=3)
    stream.map(str, uid="f").sink(mo.discard(), uid="out")
    assert [o.parallelism for o in j.graph(parallelism=5).operators] == [5, 5, 5]


def test_key_groups_follow_from_the_highest_parallelism_unless_they_are_set():
    j = job(parallelism=2)
    numbers(j).sink(mo.discard(), uid="out", parallelism=100)
    assert j.max_parallelism == j.graph().max_parallelism == 256
    assert j.graph(parallelism=200).max_parallelism == 512
    fixed = job(parallelism=2, max_parallelism=64)
    numbers(fixed).sink(mo.discard(), uid="out")
    assert fixed.max_parallelism == fixed.graph(parallelism=64).max_parallelism == 64
    assert fixed.graph().max_parallelism_is_set


@pytest.mark.parametrize("wrong", [0, -1, 32769, 1.5, "2", True], ids=repr)
def test_a_parallelism_is_a_whole_number_from_1_to_32768(wrong):
    advice = "It is a whole number from 1 to 32768"
    with pytest.raises(InvalidArgument, match=f"^parallelism: got .*{advice}"):
        job(parallelism=wrong)
    with pytest.raises(InvalidArgument, match=f"^max_parallelism: got .*{advice}"):
        job(max_parallelism=wrong)
    with pytest.raises(InvalidArgument, match=f"^parallelism of 'in': got .*{advice}"):
        numbers(job(), parallelism=wrong)
    with pytest.raises(InvalidArgument, match=advice):
        job().graph(parallelism=wrong)


def test_more_subtasks_than_key_groups_are_refused_at_once_where_the_number_is_known():
    with pytest.raises(ParallelismTooHigh) as caught:
        numbers(job(max_parallelism=4), parallelism=5)
    assert (caught.value.uid, caught.value.parallelism, caught.value.max_parallelism) == ("in", 5, 4)
    assert "operator 'in' has parallelism 5, above the job's max parallelism 4" in str(caught.value)
    j = job(max_parallelism=4)
    numbers(j).sink(mo.discard(), uid="out")
    with pytest.raises(ParallelismTooHigh):
        j.graph(parallelism=5)


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "my-job", "job_1.2", "größe", "7"])
def test_a_job_name_names_a_folder(name):
    assert mo.Job(name).name == name


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "-x", "a/b", "a b", "a\0", "a:b", None, 7, "a\n"], ids=repr)
def test_any_other_job_name_is_refused(name):
    with pytest.raises(InvalidArgument, match="It names a folder"):
        mo.Job(name)


def test_a_uid_is_used_once():
    j = job()
    stream = numbers(j)
    with pytest.raises(DuplicateUid, match="two operators have the uid 'in'"):
        stream.map(str, uid="in")


@pytest.mark.parametrize("uid", ["", "x" * 101, 7, b"x"], ids=repr)
def test_a_uid_is_a_text_of_1_to_100_characters(uid):
    with pytest.raises(InvalidArgument, match="A uid is a text of 1 to 100 characters"):
        numbers(job(), uid=uid)


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match="paralellism"):
        numbers(job()).map(str, paralellism=2)  # type: ignore[call-arg]


# --- the whole --------------------------------------------------------------------------------


def test_a_job_without_a_source_has_nothing_to_run():
    with pytest.raises(NothingToRun, match=r"job 'test' has no source. Start with job.source"):
        job().graph()


def test_a_stream_that_goes_nowhere_is_refused():
    j = job()
    numbers(j).map(str, uid="lost")
    with pytest.raises(UnconnectedStream, match=r"nothing reads the output of operator 'lost'") as caught:
        j.graph()
    assert "mo.discard()" in str(caught.value)


def test_a_stream_read_only_by_its_side_output_goes_somewhere():
    j = job()
    numbers(j).process(lambda value, ctx: None, uid="parse").side_output(LATE).sink(mo.discard(), uid="out")
    assert inputs(j, "out") == [("parse", "late", Partitioning.FORWARD)]


# --- functions --------------------------------------------------------------------------------


def test_a_source_is_a_source_and_a_sink_is_a_sink():
    with pytest.raises(InvalidArgument, match=r"source: got \[1, 2\]. Give a Source"):
        job().source([1, 2])  # type: ignore[call-overload]
    with pytest.raises(InvalidArgument, match=r"sink: got 'out'\. Give a Sink"):
        numbers(job()).sink("out")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["map", "filter", "flat_map", "process"])
@pytest.mark.parametrize("wrong", [None, 7, "text", Double, Count], ids=str)
def test_a_function_is_a_callable_or_an_instance(method, wrong):
    with pytest.raises(InvalidArgument, match="Give a callable or an instance of"):
        getattr(numbers(job()), method)(wrong)


def test_an_instance_of_the_wrong_function_class_is_refused():
    with pytest.raises(InvalidArgument, match="Give a callable or an instance of MapFunction"):
        numbers(job()).map(Count())  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="Give a callable or an instance of ProcessFunction or KeyedProcess"):
        numbers(job()).process(Double())  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="Give a callable or an instance of ReduceFunction"):
        numbers(job()).key_by(abs).reduce(Double())  # type: ignore[arg-type]


def test_a_class_that_is_no_function_is_a_callable_like_any_other():
    j = job()
    numbers(j).map(str, uid="text").flat_map(list, uid="chars").filter(bool, uid="some").sink(mo.discard())
    assert j.graph().by_uid["text"].function is str


def test_a_function_that_cannot_be_shipped_is_found_before_the_start():
    class Locked(mo.MapFunction):
        def __init__(self):
            self.lock = threading.Lock()

        def map(self, value):
            return value

    with pytest.raises(
        FunctionNotShippable, match=r"operator 'locked' cannot be sent to the workers: TypeError"
    ) as caught:
        numbers(job()).map(Locked(), uid="locked")
    assert "in open(), not when the function is made" in str(caught.value)


def test_a_key_selector_that_cannot_be_shipped_is_found_too():
    lock = threading.Lock()
    with pytest.raises(FunctionNotShippable):
        numbers(job()).key_by(lambda r: lock and r).process(Count(), uid="count")


def test_a_lambda_with_a_closure_can_be_shipped():
    factor = 3
    j = job()
    numbers(j).map(lambda v: factor * v, uid="f").sink(mo.discard())
    j.graph()


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        DuplicateUid("a"),
        ParallelismTooHigh("a", 5, 4),
        InvalidArgument("uid", 7, "Do not."),
        KeyedStateWithoutKey("a", ("n",)),
        UnconnectedStream("a"),
        NothingToRun("j"),
        FunctionNotShippable("a", "because"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_every_error_of_a_job_can_travel_and_is_one_of_ours(error):
    assert isinstance(error, JobError)
    assert isinstance(error, mo.MoorlineError)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
