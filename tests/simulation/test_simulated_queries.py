"""Queries sprinkled over whole jobs under faults: nothing that comes out changes, and their answers are true."""

from __future__ import annotations

from collections import Counter

from thoroughness import examples

from moorline.testing.simulation.simulator import Simulation


def test_queries_at_any_step_lose_and_double_nothing():
    outcomes: Counter[str] = Counter()
    for seed in range(examples(20)):
        outcomes += Simulation(seed, queries=0.1).run().queries.outcomes
    # Not vacuous: there were answers of every sort.
    assert outcomes["a value"] > 30
    assert outcomes["nothing"] > 30
    assert outcomes["refused"] > 15
    assert outcomes["an error"] > 15
    assert outcomes["a checkpoint"] > 0


def test_queries_of_rocksdb_lose_and_double_nothing():
    outcomes: Counter[str] = Counter()
    for seed in (1, 3, 5, 7, 9):
        outcomes += Simulation(seed, rocksdb=1.0, queries=0.1).run().queries.outcomes
    assert outcomes["a value"] > 5


def test_with_nobody_asking_a_seed_tells_the_same_story():
    def story(**options: float) -> tuple[object, ...]:
        simulation = Simulation(11, **options).run()
        return simulation.steps, simulation.injected, simulation.tally.checkpoints, simulation.tally.restored

    assert story() == story(queries=0.0)
