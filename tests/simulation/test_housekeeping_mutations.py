"""The simulator notices when files are deleted too early or stay too long: each test breaks one rule."""

from __future__ import annotations

import pytest
from noticing import notices
from thoroughness import examples

from moorline.driver.checkpoints import retention
from moorline.driver.checkpoints.retention import Retention
from moorline.protocol.housekeeping import Housekeeping
from moorline.snapshots import inventory
from moorline.storage import history
from moorline.testing.simulation import simulator
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.jobs.counting import counting_job
from moorline.testing.simulation.simulator import Simulation

pytestmark = pytest.mark.slow

ROUGH = Faults(worker_death=0.006, driver_death=0.001, damage=0, storage_error=0.05, sweep=0.01)


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(simulator, "job_of", lambda seed: counting_job)
    return lambda seed: Simulation(seed, records=40, faults=ROUGH, fault_steps=3_000, rocksdb=0).run()


def test_unbroken_runs_are_tidy(run):
    for seed in range(examples(3)):
        run(seed)


def test_it_notices_when_files_of_a_checkpoint_in_flight_are_deleted(monkeypatch, run):
    def hasty(self, found, in_flight, unsure, now_ms):
        return [f.path for f in found]

    monkeypatch.setattr(Housekeeping, "looked", hasty)
    assert notices(run)


def test_it_notices_when_a_sweep_from_outside_takes_uploads_for_garbage(monkeypatch, run):
    monkeypatch.setattr(inventory, "is_abandoned", lambda file, attempt, completed: True)
    assert notices(run)


def test_it_notices_when_files_are_deleted_that_a_retained_checkpoint_names(monkeypatch, run):
    monkeypatch.setattr(history, "_named", lambda records: set())
    assert notices(run)


def test_it_notices_when_checkpoints_are_deleted_that_are_to_be_retained(monkeypatch, run):
    monkeypatch.setattr(retention, "superfluous", lambda completed, retained, given_up=(): completed[:-1])
    assert notices(run)


def test_it_notices_when_old_checkpoints_stay(monkeypatch, run):
    monkeypatch.setattr(Retention, "delete_superfluous", lambda self, bases: True)
    assert notices(run)


def test_it_notices_when_unnamed_files_stay(monkeypatch, run):
    monkeypatch.setattr(Retention, "tidy_up", lambda self, last_completed: True)
    monkeypatch.setattr(Retention, "delete_unnamed", lambda self, in_flight, now_ms: None)
    assert notices(run)
