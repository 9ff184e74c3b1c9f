"""Windows over columns under faults: each comes out once, and the simulator notices when a rule of them is broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from noticing import notices
from thoroughness import examples

from moorline.model.times import MAX_TIME, MIN_TIME
from moorline.state.columns.removed import RemovedKeys
from moorline.state.columns.table import ColumnTable
from moorline.state.columns.window_table import WindowTimers
from moorline.state.rocksdb.windows import WindowsInColumns
from moorline.testing.simulation import simulator
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.jobs.column_windows import column_windows_job
from moorline.testing.simulation.simulator import Simulation

pytestmark = pytest.mark.slow

ROUGH = Faults(worker_death=0.006, driver_death=0.001, damage=0)


def seed_of(monkeypatch: pytest.MonkeyPatch, incremental: bool = True, rocksdb: float = 0) -> Callable[[int], object]:
    monkeypatch.setattr(simulator, "job_of", lambda seed: column_windows_job)
    monkeypatch.setattr(simulator, "is_incremental", lambda settings: incremental)
    return lambda seed: Simulation(seed, records=200, faults=ROUGH, fault_steps=15_000, rocksdb=rocksdb).run()


@pytest.mark.parametrize(("incremental", "rocksdb"), [(False, 0), (True, 0), (True, 1)])
def test_rough_runs_lose_and_double_nothing(monkeypatch, incremental, rocksdb):
    run = seed_of(monkeypatch, incremental, rocksdb)
    for seed in range(examples(1)):
        run(seed)


def test_it_notices_when_an_increment_does_not_say_what_was_removed(monkeypatch):
    monkeypatch.setattr(RemovedKeys, "since", lambda self, epoch: [])
    assert notices(seed_of(monkeypatch))


def test_it_notices_when_an_increment_forgets_what_has_changed(monkeypatch):
    monkeypatch.setattr(ColumnTable, "touch", lambda self, slots: None)
    assert notices(seed_of(monkeypatch))


def test_it_notices_when_restored_windows_have_lost_their_timers(monkeypatch):
    monkeypatch.setattr(WindowTimers, "take_in", lambda self, keys, times, spans=None: None)
    assert notices(seed_of(monkeypatch))


def test_it_notices_when_windows_behind_the_cache_are_not_looked_for(monkeypatch):
    monkeypatch.setattr(WindowsInColumns, "_first_due", lambda self, start: MAX_TIME)
    assert notices(seed_of(monkeypatch, rocksdb=1))


def test_it_notices_when_a_window_is_not_read_before_more_is_added(monkeypatch):
    monkeypatch.setattr(WindowsInColumns, "_restored_end", lambda self, number: MIN_TIME)
    assert notices(seed_of(monkeypatch, rocksdb=1))
