"""The names that a job and its stages have in Spark's own pages."""

from __future__ import annotations

import inspect

import cloudpickle

import moorline as mo
from moorline.protocol.lowering import lower
from moorline.spark.descriptions import LONGEST, description, named, stage_names
from moorline.spark.entry import run_task


def job() -> mo.Job:
    made = mo.Job("payments", parallelism=2)
    left = made.source(mo.from_items([1]), uid="left").map(abs, uid="positive")
    right = made.source(mo.from_items([2]), uid="right", parallelism=1)
    left.union(right).key_by(abs).reduce(max, uid="count").sink(mo.discard(), uid="out")
    return made


def test_stages_are_named_after_their_operators():
    plan = lower(job().graph())
    assert stage_names(plan) == ["left > positive + right", "count > out"]
    assert description("payments", 3, plan) == (
        "job payments, attempt 3: left > positive + right (3 subtasks) | count > out (2 subtasks)"
    )


def test_the_address_of_the_jobs_own_page_stands_in_front():
    text = description("payments", 3, lower(job().graph()), "http://127.0.0.1:8090")
    assert text.startswith("job payments, attempt 3, page http://127.0.0.1:8090: left > positive")


def test_a_description_is_bounded():
    long = mo.Job("payments")
    stream = long.source(mo.from_items([1]), uid="numbers")
    for number in range(20):
        stream = stream.map(abs, uid=f"{number:0100}")
    stream.sink(mo.discard(), uid="out")
    text = description("payments", 3, lower(long.graph()))
    assert len(text) == LONGEST and text.endswith("...")


def test_a_stage_of_the_plan_is_named():
    function = named(max, "payments: count", 3)
    shipped = cloudpickle.loads(cloudpickle.dumps(function))
    assert (shipped.__name__, shipped(1), shipped(7)) == ("payments: count", 3, 7)
    stage = named(run_task, "payments: count", None, 1)
    assert inspect.getfullargspec(stage).args == list(inspect.signature(stage).parameters) == ["batches"]
