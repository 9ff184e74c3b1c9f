"""What is wrong for good ends a job, whatever else goes wrong beside it."""

from __future__ import annotations

import pytest

from moorline.protocol.supervision.lifecycle import JobStatus
from moorline.testing.simulation import simulator
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.jobs.counting import counting_job, poisoned_job
from moorline.testing.simulation.simulator import Simulation

SEEDS = range(15)


def poisoned(seed: int) -> Simulation:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator, "job_of", lambda seed: poisoned_job)
        return Simulation(seed, records=120, fault_steps=3000, rocksdb=0).run()


def sealed(seed: int, probability: float) -> Simulation:
    faults = Faults(sealed=probability, stop=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator, "job_of", lambda seed: counting_job)
        return Simulation(seed, records=120, faults=faults, fault_steps=20_000, rocksdb=0).run()


def test_a_record_that_nothing_gets_past_ends_the_job():
    ends = [poisoned(seed).driver.supervision for seed in SEEDS]
    failed = [end for end in ends if end.status is JobStatus.FAILED]
    # Some inputs have no third record of any key.
    assert len(failed) > len(SEEDS) / 2
    assert all("3 times in a row" in end.error.reason for end in failed)


def test_storage_that_was_never_writable_ends_the_job_at_once():
    for seed in SEEDS:
        world = sealed(seed, 1.0)
        assert world.driver.supervision.status is JobStatus.FAILED
        assert world.steps < 5000


def test_storage_that_takes_no_more_writes_ends_the_job():
    worlds = [sealed(seed, 0.002) for seed in SEEDS]
    assert sum(world.driver.supervision.status is JobStatus.FAILED for world in worlds) > len(SEEDS) / 3
    assert sum(bool(world.tally.checkpoints) and world.injection.sealed for world in worlds) > len(SEEDS) / 10
