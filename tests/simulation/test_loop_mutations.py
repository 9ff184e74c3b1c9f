"""The simulator notices when a rule about loops is broken: each test breaks one, and many seeds must fail."""

from __future__ import annotations

import re

import pytest

from moorline.errors import MoorlineError
from moorline.protocol.feedback import Returns
from moorline.protocol.termination import EndLoop, Head, Phase
from moorline.subtask import in_flight
from moorline.subtask.feedback import Feedback
from moorline.subtask.looping import Looping
from moorline.testing import simulator
from moorline.testing.faults import Faults
from moorline.testing.simulated_jobs import LostOrDoubled
from moorline.testing.simulated_loops import loop_job
from moorline.testing.simulated_modes import at_least_once
from moorline.testing.simulator import Simulation

ROUGH = Faults(worker_death=0.004, driver_death=0.001, damage=0)


@pytest.fixture
def broken_seeds(monkeypatch):
    monkeypatch.setattr(simulator, "job_of", lambda seed: loop_job)

    def count(seeds: int) -> int:
        broken = 0
        for seed in range(seeds):
            try:
                Simulation(seed, records=120, faults=ROUGH, fault_steps=5000, rocksdb=0).run()
            except (LostOrDoubled, AssertionError, MoorlineError):
                broken += 1
        return broken

    return count


def test_unbroken_loops_lose_and_double_nothing(broken_seeds):
    assert broken_seeds(8) == 0


def test_at_least_once_no_record_is_lost_in_a_loop(monkeypatch):
    monkeypatch.setattr(simulator, "job_of", lambda seed: loop_job)
    monkeypatch.setattr(simulator, "mode_of", lambda seed, settings: at_least_once(settings))
    doubled = 0
    for seed in range(20):
        try:
            Simulation(seed, rocksdb=0).run()
        except LostOrDoubled as error:
            # Counts may be too high then; but whoever has set out arrives.
            missing = re.search(r"missing (.*), too many", str(error), re.DOTALL)
            assert missing
            assert "'done'" not in missing[1]
            doubled += 1
    assert doubled  # which is why there are other modes


def test_it_notices_when_a_feedback_record_is_lost(monkeypatch, broken_seeds):
    """What comes back while a snapshot waits for its barrier is not logged."""
    monkeypatch.setattr(Returns, "is_logged", lambda self, channel, checkpoint: False)
    assert broken_seeds(12) > 3


def test_it_notices_when_what_waited_at_the_snapshot_is_not_logged(monkeypatch, broken_seeds):
    monkeypatch.setattr(Feedback, "_close_log", lambda self, checkpoint: self._logs.pop(checkpoint) and [])
    assert broken_seeds(12) > 3


def test_it_notices_when_the_log_is_not_replayed(monkeypatch, broken_seeds):
    monkeypatch.setattr(in_flight, "_frames", lambda share, *args: iter(()))
    assert broken_seeds(12) > 3


def test_it_notices_when_a_snapshot_does_not_wait_for_its_barrier_to_come_back(monkeypatch, broken_seeds):
    original = Looping.snapshot

    def at_once(self, checkpoint, taken, found, write):
        original(self, checkpoint, taken, found, lambda logged: None)
        write(found)

    monkeypatch.setattr(Looping, "snapshot", at_once)
    assert broken_seeds(12) > 3


def test_it_notices_when_records_behind_an_early_barrier_are_not_held_back(monkeypatch, broken_seeds):
    monkeypatch.setattr(Feedback, "_blocked", property(lambda self: set(), lambda self, value: None), raising=False)
    # It takes a way round that does not lead through us, and a subtask that is slower than its neighbours.
    monkeypatch.setattr(Simulation, "_parallelism", lambda self: 4)
    assert broken_seeds(16) > 1


def test_it_notices_when_a_loop_is_ended_with_records_in_it(monkeypatch, broken_seeds):
    def after_the_first_round(self):
        """As if a mark that has come back were enough, clean or not."""
        self.rounds.next()
        self.phase = Phase.OVER
        return [EndLoop()]

    monkeypatch.setattr(Head, "_came_back", after_the_first_round)
    assert broken_seeds(12) > 3
