"""Splits that the driver finds, under faults: each test but the first breaks a rule, and it is noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from noticing import notices
from thoroughness import examples

from moorline.driver.checkpoints.coordinator import AttemptCheckpoints
from moorline.driver.connectors.enumerating import AttemptEnumerators
from moorline.subtask.operators.source import SourceOperator
from moorline.testing.simulation import simulator
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.jobs.connectors import growing_job
from moorline.testing.simulation.simulator import Simulation

pytestmark = pytest.mark.slow

ROUGH = Faults(worker_death=0.004, driver_death=0.0015, damage=0.3)


@pytest.fixture
def run(monkeypatch) -> Callable[[int], Simulation]:
    monkeypatch.setattr(simulator, "job_of", lambda seed: growing_job)
    return lambda seed: Simulation(seed, records=60, faults=ROUGH, rocksdb=0).run()


def test_nothing_is_lost_or_doubled(run):
    injected: Counter[str] = Counter()
    restored = 0
    for seed in range(examples(10)):
        simulation = run(seed)
        injected.update(simulation.injected)
        restored += sum(n > 0 for n in simulation.tally.restored)
    # Not vacuous.
    assert injected["driver"] > 8
    assert injected["rescale"] > 3
    assert restored > 15


def test_it_notices_when_what_was_found_is_not_in_checkpoints(run, monkeypatch):
    monkeypatch.setattr(AttemptEnumerators, "states", lambda self: {})
    often = Faults(worker_death=0.002, driver_death=0.006, damage=0)
    assert notices(lambda seed: Simulation(seed, records=60, faults=often, rocksdb=0).run())


def test_it_notices_when_a_checkpoint_knows_of_splits_that_were_found_after_it_was_triggered(run, monkeypatch):
    original = AttemptCheckpoints._write_manifest

    def late(self, checkpoint, handles, savepoint):
        self._in_flight[checkpoint].enumerated = self.connectors.enumerators.states()
        return original(self, checkpoint, handles, savepoint)

    monkeypatch.setattr(AttemptCheckpoints, "_write_manifest", late)
    assert notices(run)


def test_it_notices_when_readers_do_not_get_their_splits_back(run, monkeypatch):
    original = SourceOperator._add

    def forgetful(self, splits):
        if self._restored:
            return
        original(self, splits)

    monkeypatch.setattr(SourceOperator, "_add", forgetful)
    assert notices(run)
