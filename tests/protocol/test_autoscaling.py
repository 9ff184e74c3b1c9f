"""The autoscaler's decisions: against a model of a chain of steps that hold each other back."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from moorline.errors import InvalidArgument
from moorline.model.config.run import Autoscale
from moorline.protocol.supervision.autoscaling import Autoscaling, Began, Measured, RescaleRefused, SubtaskLoad

CONFIG = Autoscale(maximum=64, window="10s", cool_down="30s")


class Chain:
    """Steps one after another, each with a cost per record. What the first is offered may be more than it can do."""

    def __init__(self, costs, config=CONFIG, maximum=1 << 15):
        self.costs, self.maximum = costs, maximum
        self.parallelism = [1] * len(costs)
        self.machine = Autoscaling(config)
        self.now_ms = 0
        self.rescales = []
        self.machine.handle(Began(0, False))

    def loads(self, offered):
        capacity = [p / c for p, c in zip(self.parallelism, self.costs)]
        through = min([offered, *capacity])
        narrowest = capacity.index(min(capacity)) if through < offered else -1
        loads = {}
        for n, (parallelism, cost) in enumerate(zip(self.parallelism, self.costs)):
            busy = min(1.0, through * cost / parallelism)
            upstream = (str(n - 1),) if n else ()
            held_back = 1 - busy if n < narrowest else 0.0
            loads[str(n)] = SubtaskLoad(parallelism, busy, held_back, through, upstream, self.maximum)
        return loads

    def run(self, seconds, offered):
        for _ in range(seconds):
            self.now_ms += 1000
            for action in self.machine.handle(Measured(self.now_ms, self.loads(offered(self.now_ms / 1000)))):
                for step, number in action.parallelism.items():
                    self.rescales.append((self.now_ms, step, self.parallelism[int(step)], number))
                    self.parallelism[int(step)] = number
                self.machine.handle(Began(self.now_ms, True))
        return self


costs = st.lists(st.floats(0.001, 1.0), min_size=1, max_size=4)
configs = st.builds(
    lambda target, share, window: Autoscale(
        target=target, tolerance=min(target, 1 - target) * share, window=f"{window}s", cool_down="20s"
    ),
    st.floats(0.2, 0.8),
    st.floats(0.1, 0.9),
    st.integers(2, 20),
)


def works(chain, offered):
    return [offered * cost / p for cost, p in zip(chain.costs, chain.parallelism)]


@pytest.mark.slow
@settings(max_examples=examples(5))  # each is hours of a job
@given(costs, st.floats(0.01, 30.0), configs)
def test_under_a_steady_load_it_gets_what_it_needs_and_then_nothing_changes_any_more(costs, offered, config):
    chain = Chain(costs, config).run(1500, lambda now: offered)
    assert all(work <= config.target + config.tolerance + 1e-6 for work in works(chain, offered))
    before = len(chain.rescales)
    chain.run(1000, lambda now: offered)
    assert len(chain.rescales) == before
    for step in map(str, range(len(costs))):
        changes = [new > old for _, number, old, new in chain.rescales if number == step]
        assert changes == sorted(changes, reverse=True), "never up after down, as long as the load is the same"
        assert sum(not up for up in changes) <= 1


@pytest.mark.slow
@settings(max_examples=examples(5))  # each is hours of a job
@given(costs, st.lists(st.floats(0.01, 30.0), min_size=2, max_size=5), configs)
def test_it_follows_a_load_that_goes_up_and_down_and_never_before_the_cool_down_is_over(costs, loads, config):
    chain = Chain(costs, config)
    for offered in loads:
        chain.run(1500, lambda now, offered=offered: offered)
        for work, number in zip(works(chain, offered), chain.parallelism):
            assert work <= config.target + config.tolerance + 1e-6
            # Fewer would not do, or it is busy enough.
            needed = max(1, math.ceil(number * work / config.target - 1e-9))
            assert number == needed or work >= config.target - config.tolerance - 1e-6
    times = sorted({now for now, *_ in chain.rescales})
    assert all(b - a >= config.cool_down_ms for a, b in itertools.pairwise(times))


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=200), st.integers(1, 9))
def test_limits_hold_whatever_is_measured(shares, parallelism):
    config = Autoscale(minimum=2, maximum=6, window="1s", cool_down="1s")
    machine = Autoscaling(config)
    for n, (busy, held_back) in enumerate(shares):
        load = SubtaskLoad(parallelism, busy, held_back * (1 - busy), 1.0, maximum=5)
        other = SubtaskLoad(4, busy, 0.0, 1.0, ("a",), maximum=4, minimum=4)
        for action in machine.handle(Measured(n * 500, {"a": load, "b": other})):
            assert set(action.parallelism) == {"a"}, "a step whose number is fixed is left alone"
            parallelism = action.parallelism["a"]
            assert 2 <= parallelism <= 5
            machine.handle(Began(n * 500, True))


def overrun(now_ms, parallelism=1, rate=100.0):
    return Measured(now_ms, {"count": SubtaskLoad(parallelism, 1.0, 0.0, rate)})


def test_a_busy_moment_is_nothing():
    machine = Autoscaling(CONFIG)
    for now in range(0, 60_000, 1000):
        busy = 1.0 if now % 10_000 == 0 else 0.5
        assert machine.handle(Measured(now, {"count": SubtaskLoad(1, busy, 0.0, 100.0)})) == []


def test_a_restart_starts_the_window_anew_and_a_refusal_the_cool_down():
    machine = Autoscaling(CONFIG)
    for now in range(0, 9_000, 1000):
        assert not machine.handle(overrun(now))
    machine.handle(Began(9_000, False))
    for now in range(9_000, 19_000, 1000):
        assert not machine.handle(overrun(now))
    (action,) = machine.handle(overrun(19_000))
    assert action.parallelism == {"count": 2}
    machine.handle(RescaleRefused(19_000))
    told = [now for now in range(20_000, 70_000, 1000) if machine.handle(overrun(now))]
    assert told == [49_000]


def test_more_subtasks_that_do_not_help_are_not_followed_by_more():
    machine, parallelism, rescales = Autoscaling(CONFIG), 1, 0
    for now in range(0, 600_000, 1000):
        for action in machine.handle(overrun(now, parallelism)):  # the rate stays what it is
            parallelism, rescales = action.parallelism["count"], rescales + 1
            machine.handle(Began(now, True))
    assert (parallelism, rescales) == (2, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"minimum": 0},
        {"minimum": 4, "maximum": 3},
        {"target": 0.9, "tolerance": 0.1},
        {"target": 0.3, "tolerance": 0.3},
        {"tolerance": 0},
        {"window": "soon"},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InvalidArgument):
        Autoscale(**wrong)
