"""State in columns under faults: nothing is lost or doubled, and the simulator notices when a rule of it is broken."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from noticing import notices
from thoroughness import examples

from moorline.state.columns.backend import ColumnBackend
from moorline.state.columns.table import ColumnTable
from moorline.state.rocksdb.columns import RowsInColumns
from moorline.testing.simulation import simulator
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.jobs.columns import columns_job
from moorline.testing.simulation.simulator import Simulation

pytestmark = pytest.mark.slow

ROUGH = Faults(worker_death=0.006, driver_death=0.001, damage=0)


def seed_of(monkeypatch: pytest.MonkeyPatch, incremental: bool = True, rocksdb: float = 0) -> Callable[[int], object]:
    monkeypatch.setattr(simulator, "job_of", lambda seed: columns_job)
    monkeypatch.setattr(simulator, "is_incremental", lambda settings: incremental)
    return lambda seed: Simulation(seed, records=200, faults=ROUGH, fault_steps=15_000, rocksdb=rocksdb).run()


@pytest.mark.parametrize(("incremental", "rocksdb"), [(False, 0), (True, 0), (True, 1)])
def test_rough_runs_lose_and_double_nothing(monkeypatch, incremental, rocksdb):
    run = seed_of(monkeypatch, incremental, rocksdb)
    for seed in range(examples(1)):
        run(seed)


def test_it_notices_when_an_increment_forgets_what_has_changed(monkeypatch):
    monkeypatch.setattr(ColumnTable, "touch", lambda self, slots: None)
    assert notices(seed_of(monkeypatch))


def test_it_notices_when_rocksdb_is_not_given_what_has_changed(monkeypatch):
    monkeypatch.setattr(RowsInColumns, "touch", lambda self, slots: None)
    assert notices(seed_of(monkeypatch, rocksdb=1))


def test_it_notices_when_an_increment_holds_only_what_has_changed_since_the_last_snapshot(monkeypatch):
    """Also if that one was given up."""
    original = ColumnTable.changed_since
    monkeypatch.setattr(ColumnTable, "changed_since", lambda self, epoch: original(self, self.epoch - 1))
    assert notices(seed_of(monkeypatch))


def test_it_notices_when_a_snapshot_shares_its_columns_with_the_stream(monkeypatch):
    original = ColumnTable.copied

    def shared(self, slots):
        copied = original(self, slots)
        if slots is not None or not len(copied):
            return copied
        object.__setattr__(
            copied, "columns", [(c.values[: len(self)], c.has[: len(self)]) for c in self.columns.values()]
        )
        return copied

    monkeypatch.setattr(ColumnTable, "copied", shared)
    assert notices(seed_of(monkeypatch, incremental=False))


def test_it_notices_when_a_restore_leaves_keys_out(monkeypatch):
    original = ColumnTable.take_in
    monkeypatch.setattr(
        ColumnTable, "take_in", lambda self, keys, value: original(self, keys[1:], value[1:]) if len(keys) > 1 else None
    )
    assert notices(seed_of(monkeypatch))


def test_the_backend_under_test_is_the_one_of_columns(monkeypatch):
    bound = []
    original = ColumnBackend.bind_columns
    monkeypatch.setattr(ColumnBackend, "bind_columns", lambda self, d: bound.append(1) or original(self, d))
    seed_of(monkeypatch)(0)
    assert np.sum(bound)
