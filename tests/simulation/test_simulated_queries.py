"""Queries sprinkled over whole jobs under faults: nothing that comes out changes, and what they are told is true."""

from __future__ import annotations

from collections import Counter

from moorline.testing.simulation.simulator import Simulation


def test_queries_at_any_step_lose_and_double_nothing():
    told: Counter[str] = Counter()
    for seed in range(60):
        told += Simulation(seed, queries=0.1).run().curiosity.told
    # Not vacuous: there were answers of every sort.
    assert told["a value"] > 100
    assert told["nothing"] > 100
    assert told["refused"] > 50
    assert told["an error"] > 50
    assert told["a checkpoint"] > 10


def test_queries_of_rocksdb_lose_and_double_nothing():
    told: Counter[str] = Counter()
    for seed in (1, 3, 5, 7, 9):
        told += Simulation(seed, rocksdb=1.0, queries=0.1).run().curiosity.told
    assert told["a value"] > 5


def test_with_nobody_asking_a_seed_tells_the_same_story():
    def story(**options: float) -> tuple[object, ...]:
        simulation = Simulation(11, **options).run()
        return simulation.steps, simulation.injected, simulation.checkpoints, simulation.restored

    assert story() == story(queries=0.0)
