"""Steps on columns with state under faults: nothing is lost or doubled, and the simulator notices a broken rule."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from noticing import notices
from thoroughness import examples

from moorline.subtask.columns.batch_process import LiveBatchState
from moorline.testing.simulation import simulator
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.jobs.column_steps import column_steps_job
from moorline.testing.simulation.simulator import Simulation

pytestmark = pytest.mark.slow

ROUGH = Faults(worker_death=0.006, driver_death=0.001, damage=0)


def seed_of(monkeypatch: pytest.MonkeyPatch, incremental: bool = True, rocksdb: float = 0) -> Callable[[int], object]:
    monkeypatch.setattr(simulator, "job_of", lambda seed: column_steps_job)
    monkeypatch.setattr(simulator, "is_incremental", lambda settings: incremental)
    return lambda seed: Simulation(seed, records=100, faults=ROUGH, fault_steps=10_000, rocksdb=rocksdb).run()


@pytest.mark.parametrize(("incremental", "rocksdb"), [(False, 0), (True, 0), (True, 1)])
def test_rough_runs_lose_and_double_nothing(monkeypatch, incremental, rocksdb):
    run = seed_of(monkeypatch, incremental, rocksdb)
    for seed in range(examples(1)):
        run(seed)


def test_it_notices_when_values_are_put_past_the_increments(monkeypatch):
    original = LiveBatchState._put

    def untracked(self, keys, values):
        if self._table is None:
            original(self, keys, values)
        else:
            self._table.entries.update(zip(keys, values))

    monkeypatch.setattr(LiveBatchState, "_put", untracked)
    assert notices(seed_of(monkeypatch))
