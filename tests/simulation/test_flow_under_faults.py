"""Words between receivers and senders may be late or lost: a job is slower then, and nothing else."""

from __future__ import annotations

import pytest

from moorline.driver.attempts.running import RunningAttempt
from moorline.protocol import flow
from moorline.subtask.output import Output
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.simulator import Simulation

pytestmark = pytest.mark.slow

ROUGH = Faults(worker_death=0.002, driver_death=0.0005, damage=0)


@pytest.fixture
def held(monkeypatch) -> list[int]:
    """Grows whenever a simulated subtask is held back."""
    found: list[int] = []
    is_held = Output.is_held

    def noting(self: Output) -> bool:
        result = is_held(self)
        if result:
            found.append(1)
        return result

    monkeypatch.setattr(Output, "is_held", noting)
    return found


def test_senders_wait_for_their_receivers_in_the_simulation_too(held):
    for seed in range(6):
        Simulation(seed, records=150, faults=ROUGH, rocksdb=0).run()
    assert len(held) > 50


def test_a_job_ends_well_though_no_word_ever_reaches_a_sender(monkeypatch, held):
    monkeypatch.setattr(RunningAttempt, "sent_ahead", lambda self, receiver, report: iter(()))
    monkeypatch.setattr(flow, "PATIENCE_MS", 20)
    for seed in range(4):
        Simulation(seed, records=150, faults=ROUGH, rocksdb=0).run()
    assert len(held) > 50


def test_a_job_ends_well_though_every_third_word_is_lost(monkeypatch, held):
    words = [0]
    sent_ahead = RunningAttempt.sent_ahead

    def losing(self, receiver, report):
        words[0] += 1
        return iter(()) if words[0] % 3 == 0 else sent_ahead(self, receiver, report)

    monkeypatch.setattr(RunningAttempt, "sent_ahead", losing)
    for seed in range(4):
        Simulation(seed, records=150, faults=ROUGH, rocksdb=0).run()
    assert words[0] > 20
