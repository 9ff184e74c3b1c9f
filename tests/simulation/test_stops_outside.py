"""Stops with a savepoint of a job whose state is outside: it goes on from the savepoint or the final checkpoint."""

from __future__ import annotations

from collections import Counter

import pytest
from noticing import notices

from moorline.state.external.backend import ExternalBackend
from moorline.testing.simulation import simulator
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.jobs.windows import outside_job
from moorline.testing.simulation.simulator import Simulation

STOPPED = Faults(stop=0.004, driver_death=0.003, damage=0.8, autoscale=0)


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(simulator, "job_of", lambda seed: outside_job)
    return lambda seed: Simulation(seed, faults=STOPPED, rocksdb=0).run()


def test_whichever_snapshot_of_a_stop_is_gone_on_from_nothing_is_lost_or_doubled(run):
    injected: Counter[str] = Counter()
    for seed in range(16):
        injected.update(run(seed).injected)
    assert injected["stop with savepoint"] > 16
    assert injected["final checkpoint of a stop"] >= 2


def test_it_notices_when_the_store_is_marked_with_the_final_checkpoint(monkeypatch, run):
    def newest_barrier(backend, checkpoint):
        layers = (number for table in backend._states.parts.values() for number, _ in table.layers)
        return max((number for number in layers if number <= checkpoint), default=0)

    monkeypatch.setattr(ExternalBackend, "_changed", newest_barrier)
    assert notices(run, times=2, seeds=40)
