"""The simulator notices when a rule about loops is broken: each test breaks one."""

from __future__ import annotations

import re

import pytest
from noticing import notices

from moorline.protocol.iteration.feedback import Returns
from moorline.protocol.iteration.termination import EndLoop, LoopHead, LoopPhase
from moorline.subtask.iteration.feedback import Feedback
from moorline.subtask.iteration.membership import Looping
from moorline.subtask.snapshot import in_flight
from moorline.testing.simulation import simulator
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.jobs.counting import LostOrDoubled
from moorline.testing.simulation.jobs.loops import loop_job
from moorline.testing.simulation.jobs.modes import at_least_once
from moorline.testing.simulation.simulator import Simulation

pytestmark = pytest.mark.slow

ROUGH = Faults(worker_death=0.004, driver_death=0.001, damage=0)


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(simulator, "job_of", lambda seed: loop_job)
    return lambda seed: Simulation(seed, records=120, faults=ROUGH, fault_steps=5000, rocksdb=0).run()


def test_unbroken_loops_lose_and_double_nothing(run):
    for seed in range(4):
        run(seed)


def test_at_least_once_no_record_is_lost_in_a_loop(monkeypatch):
    monkeypatch.setattr(simulator, "job_of", lambda seed: loop_job)
    monkeypatch.setattr(simulator, "mode_of", lambda seed, settings: at_least_once(settings))
    doubled = 0
    for seed in range(200):
        if seed >= 20 and doubled:
            break
        try:
            Simulation(seed, rocksdb=0).run()
        except LostOrDoubled as error:
            # Counts may be too high then; but whoever has set out arrives.
            missing = re.search(r"missing (.*), too many", str(error), re.DOTALL)
            assert missing
            assert "'done'" not in missing[1]
            doubled += 1
    assert doubled  # which is why there are other modes


def test_it_notices_when_a_feedback_record_is_lost(monkeypatch, run):
    """What comes back while a snapshot waits for its barrier is not logged."""
    monkeypatch.setattr(Returns, "is_logged", lambda self, channel, checkpoint: False)
    assert notices(run)


def test_it_notices_when_what_waited_at_the_snapshot_is_not_logged(monkeypatch, run):
    monkeypatch.setattr(Feedback, "_close_log", lambda self, checkpoint: self._logs.pop(checkpoint) and [])
    assert notices(run)


def test_it_notices_when_the_log_is_not_replayed(monkeypatch, run):
    monkeypatch.setattr(in_flight, "_frames", lambda share, *args: iter(()))
    assert notices(run)


def test_it_notices_when_a_snapshot_does_not_wait_for_its_barrier_to_come_back(monkeypatch, run):
    original = Looping.complete

    def at_once(self, snapshot, frames):
        if self.is_head:
            original(self, snapshot, frames)
        snapshot.write(frames)

    monkeypatch.setattr(Looping, "complete", at_once)
    monkeypatch.setattr(Looping, "_logged", lambda self, checkpoint, log: self._going_round.pop(checkpoint))
    assert notices(run)


def test_it_notices_when_records_behind_an_early_barrier_are_not_held_back(monkeypatch, run):
    monkeypatch.setattr(Feedback, "_blocked", property(lambda self: set(), lambda self, value: None), raising=False)
    # It takes a way round that does not lead through us, and a subtask that is slower than its neighbours.
    monkeypatch.setattr(Simulation, "_parallelism", lambda self: 4)
    assert notices(run)


def test_it_notices_when_a_loop_is_ended_with_records_in_it(monkeypatch, run):
    def after_the_first_round(self):
        """As if a mark that has come back were enough, clean or not."""
        self.rounds.next()
        self.phase = LoopPhase.OVER
        return [EndLoop()]

    monkeypatch.setattr(LoopHead, "_came_back", after_the_first_round)
    assert notices(run)
