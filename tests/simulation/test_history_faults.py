"""Entries of a simulated history are lost, cut short, replaced and copied: nothing is lost or doubled, and it shows."""

from __future__ import annotations

from collections import Counter

import pytest
from noticing import notices

from moorline.storage import log
from moorline.storage.chain import HistoryLook, verified
from moorline.testing.simulation import simulator
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.jobs.counting import counting_job
from moorline.testing.simulation.simulator import Simulation

SPOILED = Faults(driver_death=0.004, worker_death=0.0005, zombie=0.1, damage=1.0, history=1.0, autoscale=0)


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(simulator, "job_of", lambda seed: counting_job)
    return lambda seed: Simulation(seed, faults=SPOILED, rocksdb=0).run()


def test_a_spoiled_history_is_gone_back_in_and_nothing_is_lost_or_doubled(run):
    injected: Counter[str] = Counter()
    for seed in range(14):
        injected.update(run(seed).injected)
    assert sum(count for what, count in injected.items() if what.startswith("history entry")) >= 5


def test_it_notices_when_what_vouches_for_a_history_is_not_asked(monkeypatch, run):
    def trusting(read, head, remembered=None):
        look = verified(read, None)
        present = [r for r in read if r.entry is not None]
        return HistoryLook(present, [], max(look.highest, head.number if head else 0), look.next_checkpoint)

    monkeypatch.setattr(log, "verified", trusting)
    assert notices(run, times=2, seeds=60)
