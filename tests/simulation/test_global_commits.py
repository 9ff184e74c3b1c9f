"""Sinks that the driver commits, under faults: each test but the first breaks a rule, and it is noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from noticing import notices
from thoroughness import examples

from moorline.driver import restore
from moorline.protocol.connectors.committing import Committing
from moorline.protocol.coordination import ConfirmEverywhere
from moorline.subtask.operators.sink import SinkOperator
from moorline.testing.simulation import simulator
from moorline.testing.simulation.audit import ledger
from moorline.testing.simulation.audit.ledger import Ledger
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.jobs.connectors import table_job
from moorline.testing.simulation.simulator import Simulation

pytestmark = pytest.mark.slow

ROUGH = Faults(worker_death=0.004, driver_death=0.0015, damage=0.3)


@pytest.fixture
def run(monkeypatch) -> Callable[[int], Simulation]:
    monkeypatch.setattr(simulator, "job_of", lambda seed: table_job)
    return lambda seed: Simulation(seed, records=60, faults=ROUGH, rocksdb=0).run()


def test_nothing_is_lost_or_doubled(run, monkeypatch):
    faults = []
    original = Ledger.next_fault
    monkeypatch.setattr(Ledger, "next_fault", lambda self: faults.append(original(self)) or faults[-1])
    drivers = sum(run(seed).injected["driver"] for seed in range(examples(10)))
    # Not vacuous: commits did fail, before and after they took effect, and drivers died.
    assert faults.count("before") > 1
    assert faults.count("after") > 1
    assert len(faults) > 60
    assert drivers > 8


def test_it_notices_when_checkpoints_are_confirmed_before_the_commit(run, monkeypatch):
    def hasty(self, checkpoint, final, batches):
        self._add(batches)
        return [ConfirmEverywhere(checkpoint, final), *self._next()]

    monkeypatch.setattr(Committing, "published", hasty)
    assert notices(run)


def test_it_notices_when_what_was_restored_is_not_committed(run, monkeypatch):
    monkeypatch.setattr(restore, "_staged_in", lambda manifest, graph, store: {})
    monkeypatch.setattr(SinkOperator, "_restored_committables", lambda self: [])
    assert notices(run)


def test_it_notices_when_subtasks_forget_what_was_restored(run, monkeypatch):
    """The driver commits it, unless it dies before: then the next checkpoint must have it."""
    monkeypatch.setattr(SinkOperator, "_restored_committables", lambda self: [])
    assert notices(run, times=1, seeds=200)


def test_it_notices_when_a_commit_is_repeated(run, monkeypatch):
    original = ledger._LedgerCommitter.commit
    count = iter(range(1_000_000))

    def forgetful(self, lineage, checkpoint, committables):
        staged = Ledger.of(self._name).staged
        kept = {entry: staged[entry] for entry in committables if entry in staged}
        try:
            original(self, f"{lineage}-{next(count)}", checkpoint, committables)
        finally:
            staged.update(kept)

    monkeypatch.setattr(ledger._LedgerCommitter, "commit", forgetful)
    assert notices(run)
