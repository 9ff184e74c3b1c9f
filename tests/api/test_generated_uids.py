"""The id of an operator that was given none stays what it is while the job is changed elsewhere."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

import moorline as mo
from moorline.api.generated_uids import advice_on_uids


class Watched(mo.KeyedProcessFunction):
    """The operator whose id is looked at. No other one is called so."""

    seen = mo.ValueState(int)

    def process_element(self, value, ctx):
        yield value


def made(build):
    """The uid of the watched operator in a job that ``build`` puts together."""
    job = mo.Job("watched")
    build(job)
    (operator,) = [o for o in job.graph().operators if o.name == "Watched"]
    return operator.uid


class Version:
    """A job around the watched operator, as somebody may have left it after some changes elsewhere."""

    def __init__(self, chance, named_source):
        self.chance, self.named_source = chance, named_source

    def __call__(self, job):
        self.job = job
        job.parallelism = self.chance.randint(1, 5)
        self.others()
        watched = self.steps(job.source(self.source(), uid=self.named_source, name=self.name()))
        watched = watched.key_by(self.selector()).process(Watched(), parallelism=self.chance.choice([None, 2, 3]))
        self.others()
        self.steps(watched).sink(mo.discard(), uid=self.uid())
        self.others()

    def source(self):
        return self.chance.choice([mo.from_items([1, 2]), mo.generate(lambda n: n, count=3)])

    def selector(self):
        return self.chance.choice([str, lambda n: n, lambda n: n % 2])

    def name(self):
        return self.chance.choice([None, "one", "another"])

    def uid(self):
        return self.chance.choice([None, f"u{self.chance.randrange(1 << 40)}"])

    def steps(self, stream):
        for _ in range(self.chance.randrange(3)):
            step = self.chance.choice([stream.map, stream.filter, stream.flat_map, stream.process])
            stream = step(
                self.chance.choice([lambda n, ctx=None: n, lambda n, ctx=None: [n]]), uid=self.uid(), name=self.name()
            )  # type: ignore[misc]
        return stream

    def others(self):
        """Operators that have nothing to do with it."""
        for _ in range(self.chance.randrange(3)):
            stream = self.steps(self.job.source(self.source(), uid=self.uid(), name=self.name()))
            if self.chance.random() < 0.5:
                stream = stream.key_by(str).reduce(max, uid=self.uid())
            stream.sink(mo.discard(), uid=self.uid())


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 1 << 32), st.integers(0, 1 << 32), st.sampled_from([None, "words"]))
def test_what_is_changed_elsewhere_leaves_an_id_as_it_is(one, other, named_source):
    first = made(Version(random.Random(one), named_source))
    assert first == made(Version(random.Random(other), named_source))
    assert first == ("process-Watched" if named_source is None else "process-Watched-after-words")


def ids(build):
    job = mo.Job("ids")
    build(job)
    return {o.uid for o in job.graph().operators if o.kind == "process"}


def count(stream, **options):
    stream.key_by(str).process(Watched(), **options).sink(mo.discard())


def test_operators_that_are_alike_are_told_apart_by_their_named_sources():
    def build(job):
        count(job.source(mo.from_items([1]), uid="left"))
        count(job.source(mo.from_items([1]), uid="right").map(str))

    def other_way_round(job):
        count(job.source(mo.from_items([1]), uid="right").map(str))
        count(job.source(mo.from_items([1]), uid="left"))

    assert ids(build) == {"process-Watched-after-left", "process-Watched-after-right"} == ids(other_way_round)


def test_side_outputs_tell_operators_apart():
    def build(job):
        split = job.source(mo.from_items([1]), uid="in").process(lambda n, ctx: [n], uid="split")
        count(split.side_output(mo.OutputTag("late")))
        count(split)

    assert ids(build) == {"split", "process-Watched-after-in#late", "process-Watched-after-in"}


def test_those_that_are_alike_in_everything_are_numbered_and_giving_one_a_uid_leaves_the_others():
    def build(job, **options):
        source = job.source(mo.from_items([1]))
        count(source)
        count(source, **options)
        count(source)

    assert ids(build) == {"process-Watched", "process-Watched-2", "process-Watched-3"}
    assert ids(lambda job: build(job, uid="mine")) == {"process-Watched", "mine", "process-Watched-3"}


def test_giving_a_source_the_uid_it_had_anyway_changes_nothing():
    def build(job, **options):
        count(job.source(mo.from_items([1]), **options))

    assert ids(build) == ids(lambda job: build(job, uid="source-Items")) == {"process-Watched"}


@pytest.mark.parametrize("name", ["a b", "ä", "x" * 90, "../up"])
def test_any_name_makes_a_uid_that_is_short_and_plain(name):
    uid = made_with_name(name)
    assert len(uid) <= 100
    assert uid.isascii()
    assert uid != made_with_name(name + "!")


def made_with_name(name):
    job = mo.Job("names")
    job.source(mo.from_items([1]), name=name, uid=None).sink(mo.discard())
    return next(iter(job.graph().by_uid))


def test_an_operator_that_could_not_be_added_is_not_counted():
    job = mo.Job("mistakes")
    source = job.source(mo.from_items([1]))
    with pytest.raises(TypeError, match="no option 'colour'"):
        source.map(str, colour="red")  # type: ignore[call-arg]
    source.map(str).sink(mo.discard())
    assert "map-str" in job.graph().by_uid


def test_the_advice_names_every_operator_with_state_and_no_other():
    job = mo.Job("advice")
    job.source(mo.from_items([1])).map(str).key_by(str).process(Watched()).sink(mo.discard(), uid="out")
    advice = advice_on_uids(job.graph())
    assert advice is not None
    assert "uid='process-Watched' for the process Watched" in advice
    assert "uid='source-Items'" in advice
    assert "map" not in advice and "out" not in advice.replace("without", "")

    named = mo.Job("named")
    named.source(mo.from_items([1]), uid="in").map(str).sink(mo.discard(), uid="out")
    assert advice_on_uids(named.graph()) is None
