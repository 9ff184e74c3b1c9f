"""Several drivers for one job: at most one leads, whatever clocks, pauses and storage do."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from moorline.protocol.supervision import leadership as le
from moorline.storage.history import History
from moorline.storage.lease import LeaseFiles
from moorline.testing.simulation.leadership import Leaders, TwoLeaders

SEEDS = 50


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="moorline")


def broken_seeds(seeds: int = 40) -> int:
    broken = 0
    for seed in range(seeds):
        try:
            Leaders(seed).run()
        except AssertionError:
            broken += 1
    return broken


def test_at_most_one_driver_leads_and_its_successors_go_on():
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        seen += Leaders(seed).run().seen
    # Not vacuous: leaders died, slept, lost their lease and came back too late.
    assert seen["leaders"] > 3 * SEEDS
    assert seen["pauses"] > SEEDS
    assert seen["deaths"] > SEEDS
    assert seen["partitions"] > SEEDS
    assert seen["fenced"] > SEEDS / 10
    assert seen["StopLeading"] > SEEDS
    assert seen["failed requests"] > SEEDS
    assert seen["publications"] > 20 * SEEDS


def test_the_same_seed_is_the_same_story():
    assert Leaders(7).run().seen == Leaders(7).run().seen


def test_it_notices_a_leader_that_goes_on_without_its_lease(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(le.Leadership, "_patience_ms", property(lambda self: 10 * self.ttl_ms))
    assert broken_seeds() > 30


def test_it_notices_a_standby_that_does_not_wait(monkeypatch: pytest.MonkeyPatch):
    original = le.Leadership._looked

    def hasty(self, term, now):
        self.seen_ms -= self.ttl_ms // 2
        return original(self, term, now)

    monkeypatch.setattr(le.Leadership, "_looked", hasty)
    assert broken_seeds() > 30


def test_it_notices_a_lease_that_counts_from_the_answer(monkeypatch: pytest.MonkeyPatch):
    original = le.Leadership._got

    def late(self, term, now):
        self.asked_ms = now + self.ttl_ms // 2
        return original(self, term, now)

    monkeypatch.setattr(le.Leadership, "_got", late)
    assert broken_seeds() > 10


def test_it_notices_numbers_that_can_be_taken_twice(monkeypatch: pytest.MonkeyPatch):
    def careless(self, term):
        original(self, term)
        return True

    original = LeaseFiles.take
    monkeypatch.setattr(LeaseFiles, "take", careless)
    monkeypatch.setattr(LeaseFiles, "renew", careless)
    assert broken_seeds() > 10


def test_it_notices_a_successor_that_starts_afresh(monkeypatch: pytest.MonkeyPatch):
    original = History.claim

    def forgetful(self, fresh, now_ms):
        run, self.run = self.run, ""
        attempt = original(self, fresh, now_ms)
        self.run = run
        return attempt

    monkeypatch.setattr(History, "claim", forgetful)
    assert broken_seeds() > 30


def test_it_notices_a_driver_that_slept_before_its_claim_and_takes_the_job_back(monkeypatch: pytest.MonkeyPatch):
    original = History.claim

    def unaware(self, fresh, now_ms):
        term, self.term = self.term, 1 << 40
        try:
            return original(self, fresh, now_ms)
        finally:
            self.term = term

    monkeypatch.setattr(History, "claim", unaware)
    assert broken_seeds() > 1


def test_two_leaders_are_an_error_of_their_own():
    assert issubclass(TwoLeaders, AssertionError)
