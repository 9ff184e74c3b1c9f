"""Sinks that subtasks commit in the background, under faults: each test but the first breaks a rule, and it shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from noticing import notices
from thoroughness import examples

from moorline.model.connector_states import COMMITTABLES, ORDERED_COMMITTABLES
from moorline.subtask.operators.background_commits import BackgroundCommits
from moorline.subtask.operators.sink import SinkOperator
from moorline.subtask.task import Phase, Subtask
from moorline.testing.simulation import simulator
from moorline.testing.simulation.audit import ledger
from moorline.testing.simulation.audit.ledger import Ledger
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.jobs.connectors import server_job
from moorline.testing.simulation.simulator import Simulation

pytestmark = pytest.mark.slow

ROUGH = Faults(worker_death=0.004, driver_death=0.0015, damage=0.3)


@pytest.fixture
def run(monkeypatch) -> Callable[[int], Simulation]:
    monkeypatch.setattr(simulator, "job_of", lambda seed: server_job)
    return lambda seed: Simulation(seed, records=60, faults=ROUGH, rocksdb=0).run()


def test_nothing_is_lost_or_doubled(run, monkeypatch):
    faults, snapshots = [], []
    original, elements = Ledger.next_fault, SinkOperator.elements

    def counted(self):
        found = elements(self)
        snapshots.append(self._commits is not None and bool(self._commits.due))
        return found

    monkeypatch.setattr(Ledger, "next_fault", lambda self: faults.append(original(self)) or faults[-1])
    monkeypatch.setattr(SinkOperator, "elements", counted)
    for seed in range(examples(8)):
        run(seed)
    # Not vacuous: commits did fail, before and after they took effect, and snapshots were taken while one was due.
    assert faults.count("before") > 1
    assert faults.count("after") > 1
    assert sum(snapshots) > 8


def test_it_notices_when_snapshots_leave_out_what_is_being_committed(run, monkeypatch):
    elements = SinkOperator.elements

    def forgetful(self):
        if self._commits is None:
            return elements(self)
        due, self._commits.due = self._commits.due, []
        try:
            return elements(self)
        finally:
            self._commits.due = due

    monkeypatch.setattr(SinkOperator, "elements", forgetful)
    assert notices(run, seeds=200)


def test_it_notices_when_committables_of_a_subtask_are_given_to_several(run, monkeypatch):
    elements = SinkOperator.elements

    def scattered(self):
        return [
            (COMMITTABLES, mode, [pair for pairs in values for pair in pairs])
            if state == ORDERED_COMMITTABLES
            else (state, mode, values)
            for state, mode, values in elements(self)
        ]

    monkeypatch.setattr(SinkOperator, "elements", scattered)
    assert notices(run, times=1, seeds=600)


def test_it_notices_when_the_end_does_not_wait_for_commits(run, monkeypatch):
    def hasty(self):
        if self._is_last_confirmed:
            self._enter(Phase.DONE)

    monkeypatch.setattr(Subtask, "_end_when_committed", hasty)
    assert notices(run)


def test_it_notices_when_what_was_restored_is_not_committed(run, monkeypatch):
    monkeypatch.setattr(SinkOperator, "_restored_committables", lambda self: [])
    assert notices(run)


def test_it_notices_when_a_failed_commit_is_taken_for_done(run, monkeypatch):
    done = BackgroundCommits._done
    monkeypatch.setattr(BackgroundCommits, "_done", lambda self, count, error: done(self, count or len(self.due), None))
    assert notices(run)


def test_it_notices_when_a_server_forgets_its_marks(run, monkeypatch):
    commit = ledger._ServerCommitter.commit
    count = iter(range(1_000_000))

    def unmarked(self, committables):
        commit(self, [[f"{lineage}-{next(count)}", *rest] for lineage, *rest in committables])

    monkeypatch.setattr(ledger._ServerCommitter, "commit", unmarked)
    assert notices(run)
