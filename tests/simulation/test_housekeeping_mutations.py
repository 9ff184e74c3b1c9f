"""The simulator notices when files are deleted too early or stay too long: each test breaks one rule."""

from __future__ import annotations

import pytest

from moorline.driver import checkpoints as driver_checkpoints
from moorline.driver.checkpoints import AttemptCheckpoints
from moorline.errors import MoorlineError
from moorline.protocol.housekeeping import Housekeeping
from moorline.storage import checkpoints as history
from moorline.storage import fsck
from moorline.testing import simulator
from moorline.testing.faults import Faults
from moorline.testing.simulated_jobs import LostOrDoubled, counting_job
from moorline.testing.simulator import Simulation

ROUGH = Faults(worker_death=0.006, driver_death=0.001, damage=0, storage_error=0.05, sweep=0.01)


def broken_seeds(monkeypatch: pytest.MonkeyPatch, seeds: int = 8) -> int:
    monkeypatch.setattr(simulator, "job_of", lambda seed: counting_job)
    broken = 0
    for seed in range(seeds):
        try:
            Simulation(seed, records=40, faults=ROUGH, fault_steps=3_000, rocksdb=0).run()
        except (LostOrDoubled, AssertionError, MoorlineError):
            broken += 1
    return broken


def test_unbroken_runs_are_tidy(monkeypatch):
    assert broken_seeds(monkeypatch) == 0


def test_it_notices_when_files_of_a_checkpoint_in_flight_are_deleted(monkeypatch):
    def hasty(self, found, in_flight, unsure, now_ms):
        return [f.path for f in found]

    monkeypatch.setattr(Housekeeping, "looked", hasty)
    assert broken_seeds(monkeypatch, 5) > 2


def test_it_notices_when_a_sweep_from_outside_takes_uploads_for_garbage(monkeypatch):
    monkeypatch.setattr(fsck, "is_abandoned", lambda file, attempt, completed: True)
    assert broken_seeds(monkeypatch, 10) > 1


def test_it_notices_when_files_are_deleted_that_a_retained_checkpoint_names(monkeypatch):
    monkeypatch.setattr(history, "_named", lambda records: set())
    assert broken_seeds(monkeypatch, 4) > 2


def test_it_notices_when_checkpoints_are_deleted_that_are_to_be_retained(monkeypatch):
    monkeypatch.setattr(driver_checkpoints, "superfluous", lambda completed, retained, given_up=(): completed[:-1])
    assert broken_seeds(monkeypatch, 10) > 1


def test_it_notices_when_old_checkpoints_stay(monkeypatch):
    monkeypatch.setattr(AttemptCheckpoints, "_retain", lambda self: True)
    assert broken_seeds(monkeypatch) > 2


def test_it_notices_when_unnamed_files_stay(monkeypatch):
    monkeypatch.setattr(AttemptCheckpoints, "tidy_up", lambda self: True)
    monkeypatch.setattr(AttemptCheckpoints, "_delete_unnamed", lambda self, history, now_ms: None)
    assert broken_seeds(monkeypatch, 12) > 1
