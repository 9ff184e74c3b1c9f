"""Loops as they are written down: what becomes of them, and which of them cannot be."""

from __future__ import annotations

import pytest

import moorline as mo
from moorline.errors import InvalidLoop
from moorline.model.graph import Partitioning
from moorline.protocol.lowering import lower
from moorline.spark.batch.program import is_batch, plan_of


def numbers(job):
    return job.source(mo.from_items([1, 2, 3]), uid="numbers")


def once(loop):
    stepped = loop.map(lambda n: n - 1, uid="step")
    return stepped.filter(lambda n: n > 0, uid="again"), stepped.filter(lambda n: n <= 0, uid="done")


def looping_job(parallelism=2, **options):
    job = mo.Job("loop", parallelism=parallelism)
    numbers(job).key_by(lambda n: n % 7).iterate(once, **options).sink(mo.collect("out"), uid="out")
    return job


def test_the_first_step_of_a_loop_gets_back_what_is_sent_back_by_its_own_key():
    graph = looping_job().graph()
    regular, feedback = graph.by_uid["step"].inputs
    assert (regular.upstream, feedback.upstream) == ("numbers", "again")
    assert feedback.feedback
    assert feedback.partitioning is Partitioning.HASH
    assert feedback.key is regular.key
    assert graph.loops == {"step": frozenset({"step", "again"})}


def test_the_key_may_be_chosen_inside_the_loop_as_well():
    job = mo.Job("inside")
    numbers(job).iterate(lambda loop: once(loop.key_by(str))).sink(mo.collect("out"))
    assert [i.partitioning for i in job.graph().by_uid["step"].inputs] == [Partitioning.HASH] * 2


def test_without_a_key_everybody_has_a_share_of_what_comes_back():
    job = mo.Job("no-key")
    numbers(job).iterate(once).sink(mo.collect("out"))
    assert job.graph().by_uid["step"].inputs[1].partitioning is Partitioning.REBALANCE


def test_a_loop_takes_no_place_of_its_own_and_its_way_back_no_stage():
    plan = lower(looping_job().graph())
    assert [v.operators for v in plan.vertices] == [("numbers",), ("step", "again", "done", "out")]
    (back,) = [link for link in plan.links if link.feedback]
    assert back.source == back.target == 1
    assert plan.widths == (2, 2)
    assert plan.loop_of == {1: frozenset({1})}


def test_a_loop_may_be_joined_by_other_streams_and_several_may_follow_each_other():
    job = mo.Job("several")
    other = job.source(mo.from_items([4]), uid="other")

    def joined(loop):
        stepped = loop.union(other).map(lambda n: n - 1, uid="joined")
        return stepped.filter(lambda n: n > 5), stepped

    first = numbers(job).iterate(once)
    first.iterate(joined).sink(mo.collect("out"))
    assert sorted(job.graph().loops) == ["joined", "step"]


@pytest.mark.parametrize(
    ("step", "cause"),
    [
        (lambda loop: loop.map(str), "the step has returned"),
        (lambda loop: (loop.map(str), None), "the step has returned None"),
        (lambda loop: (loop, loop), "its stream is read by nobody"),
        (lambda loop: (loop.map(str, uid="a"), loop.map(str, uid="b")), "its stream is read by a and b"),
        (lambda loop: (loop, loop.map(str)), "goes straight back"),
        (lambda loop: (loop.map(str).key_by(len), loop), "its feedback is partitioned"),
        (lambda loop: (loop.broadcast().map(str, uid="a"),) * 2, "more than once"),
        (lambda loop: (loop.side_output(mo.OutputTag("x")).map(str, uid="a"),) * 2, "no side outputs"),
    ],
)
def test_what_cannot_be_a_loop_is_refused_with_a_reason(step, cause):
    with pytest.raises(InvalidLoop) as refused:
        numbers(mo.Job("wrong")).iterate(step)
    assert cause in str(refused.value)
    assert "Please" in str(refused.value)


def test_what_goes_back_must_come_from_the_loop():
    job = mo.Job("strange")
    other = job.source(mo.from_items([4]), uid="other")
    with pytest.raises(InvalidLoop, match="its feedback comes from other, which the loop does not lead to"):
        numbers(job).iterate(lambda loop: (other, loop.map(str)))


def test_loops_cannot_be_nested():
    def outer(loop):
        inner = loop.map(lambda n: n, uid="outer").iterate(once)
        return inner, inner

    with pytest.raises(InvalidLoop, match="loops cannot be nested"):
        numbers(mo.Job("nested")).iterate(outer)


def test_a_batch_cannot_loop_and_auto_lets_a_loop_stream():
    job = looping_job()
    assert not is_batch(job, "auto", {})
    with pytest.raises(InvalidLoop, match="mode='streaming'"):
        plan_of(job.graph())
