"""A subtask is asked for the content of a key: it answers between two batches, and nothing else happens."""

from __future__ import annotations

import pytest
from subtask_worlds import World, memory

import moorline as mo
from moorline.model import keys
from moorline.model.wire.messages import Acknowledged, Answer, Query
from moorline.state import peeking
from moorline.subtask.control import queries
from moorline.testing import OperatorHarness


class Count(mo.KeyedProcessFunction):
    seen = mo.ValueState(int, default=0)
    latest = mo.ListState(str)
    soon = mo.ValueState(int, ttl=mo.StateTtlConfig("10s", update="on_read_and_write"))

    def process_element(self, value, ctx):
        self.seen.update(self.seen.value() + 1)
        self.latest.add(f"{value} {self.seen.value()}")
        self.soon.update(self.seen.value())
        yield value


def counting() -> World:
    job = mo.Job("count")
    stream = job.source(mo.from_items([]), uid="numbers")
    stream.key_by(lambda n: n).process(Count(), uid="count").sink(mo.discard(), uid="out")
    return World(job, "count", store=memory()).start()


def ask(world: World, state: str, key: object, uid: str = "count") -> Answer:
    world.reports.clear()
    world.subtask.order(Query(id=7, uid=uid, state=state, key=keys.encode(key)))
    (answer,) = world.reports
    assert isinstance(answer, Answer)
    assert answer.id == 7
    return answer


def value(answer: Answer) -> object:
    assert answer.error == ""
    return peeking.value_of(peeking.Peeked(answer.kind, answer.stored_type, peeking.from_bytes(answer.rows)))


def test_an_answer_shows_the_effect_of_whole_batches():
    world = counting()
    assert value(ask(world, "seen", "a")) is None
    world.send(["a", "b", "a"])
    assert value(ask(world, "seen", "a")) == 2
    assert value(ask(world, "latest", "a")) == ["a 1", "a 2"]
    assert value(ask(world, "seen", "c")) is None


def test_a_query_during_a_checkpoint_disturbs_it_not():
    world = counting()
    world.send(["a"])
    world.barrier(1)
    world.send(["a"])
    assert value(ask(world, "seen", "a")) == 2
    world.upload()
    (acknowledged,) = world.reports[1:]
    assert isinstance(acknowledged, Acknowledged)
    (handle,) = (h for o in acknowledged.operators for h in o.keyed if h.state == "seen")
    assert handle.rows == 1


@pytest.mark.parametrize(
    ("uid", "state", "why"),
    [
        ("count", "sean", "has no state 'sean'"),
        ("count", "timers:event", "has no state"),
        ("out", "seen", "no keyed state"),
        ("nobody", "seen", "no keyed state"),
    ],
)
def test_what_cannot_be_answered_is_told_and_the_subtask_goes_on(uid, state, why):
    world = counting()
    world.send(["a"])
    assert why in ask(world, state, "a", uid).error
    world.send(["a"])
    assert value(ask(world, "seen", "a")) == 2


def test_an_encoding_that_is_no_key_is_an_error():
    world = counting()
    world.reports.clear()
    world.subtask.order(Query(id=1, uid="count", state="seen", key=b"?"))
    assert "no key begins with" in world.reports[0].error


def test_what_has_expired_is_not_shown_even_if_no_record_has_come_since():
    query = Query(id=1, uid="function", state="soon", key=keys.encode("a"))
    with OperatorHarness(Count(), key=lambda n: n) as harness:
        harness.process("a")
        operators = [subtask.operator for subtask in harness._subtasks]
        harness.clock.advance(9)
        assert value(queries.answer(operators, query)) == 1
        harness.clock.advance(2)
        # Had the query counted as a read, it would live on.
        assert value(queries.answer(operators, query)) is None


def test_a_list_that_is_too_long_is_refused(monkeypatch):
    world = counting()
    world.send(["a"] * 20)
    monkeypatch.setattr(peeking, "MOST_ELEMENTS", 19)
    assert "at least 20 elements" in ask(world, "latest", "a").error
    assert value(ask(world, "seen", "a")) == 20


def test_an_answer_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(queries, "MOST_BYTES", 100)
    world = counting()
    world.send(["a"])
    assert "the limit" in ask(world, "latest", "a").error
