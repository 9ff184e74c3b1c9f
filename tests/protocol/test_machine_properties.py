"""Whatever happens in whatever order, triggering, restarts and the life of a job keep their promises."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.errors import InvalidTransition
from moorline.model.config.restarts import ExponentialDelay, FailureRate, FixedDelay
from moorline.protocol.restarts import Failure, RestartAfter, Restarts
from moorline.protocol.supervision.lifecycle import TRANSITIONS, JobStatus, Lifecycle
from moorline.protocol.triggering import Triggering

# --- triggering -------------------------------------------------------------------------------


@given(
    st.integers(1, 20),
    st.integers(0, 20),
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(["wait", "complete", "fail", "final"]), st.integers(0, 9)), max_size=60),
)
def test_triggering_keeps_interval_pause_and_number(interval, pause, concurrent, story):
    machine = Triggering(interval, pause, concurrent, next_id=1, started_ms=0)
    now, last_start, last_completion = 0, 0, None
    pending: list[int] = []
    started: list[int] = []
    final = None
    for step, number in story:
        match step:
            case "wait":
                now += number
            case "final":
                machine.final_requested()
            case _ if pending:
                checkpoint = pending.pop(number % len(pending))
                machine.ended(checkpoint, step == "complete", now)
                if step == "complete":
                    last_completion = now
                    if checkpoint == final:
                        assert machine.is_over
                final = None if checkpoint == final and not machine.is_over else final
        due = machine.next_due_ms()
        start = machine.time_passed(now)
        if start is None:
            assert due is None or now < due or len(pending) >= concurrent or final
            continue
        assert final is None, "nothing is started beside the final one, or after it"
        assert start.checkpoint == len(started) + 1, "ids count up without a gap"
        if not start.final:
            assert now - last_start >= interval
            assert last_completion is None or now - last_completion >= pause
            assert len(pending) < concurrent
        started.append(start.checkpoint)
        pending.append(start.checkpoint)
        last_start = now
        if start.final:
            final = start.checkpoint


# --- restarts ---------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.lists(st.integers(0, 200_000), max_size=30))
def test_exponential_delays_stay_between_their_bounds(seed, gaps):
    strategy = ExponentialDelay()
    machine, now = Restarts(strategy, random.Random(seed)), 0
    for gap in gaps:
        now += gap
        decision = machine.handle(Failure(now, None, 0))
        assert isinstance(decision, RestartAfter)
        assert strategy.initial_ms * (1 - strategy.jitter) - 1 <= decision.delay_ms <= strategy.maximum_ms


@given(st.integers(0, 5), st.integers(1, 20))
def test_a_fixed_delay_allows_exactly_so_many_restarts(attempts, failures):
    machine = Restarts(FixedDelay(attempts, "1s"), random.Random(0))
    allowed = [isinstance(machine.handle(Failure(n, None, 0)), RestartAfter) for n in range(failures)]
    assert sum(allowed) == min(attempts, failures)


@given(st.integers(1, 4), st.lists(st.integers(0, 40), max_size=20))
def test_a_failure_rate_is_the_number_of_failures_in_a_window(limit, gaps):
    machine, now, times = Restarts(FailureRate(limit, "60ms", "1s"), random.Random(0)), 0, []
    for gap in gaps:
        now += gap
        times.append(now)
        within = sum(t > now - 60 for t in times)
        assert isinstance(machine.handle(Failure(now, None, 0)), RestartAfter) == (within <= limit)


# --- lifecycle --------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(JobStatus), max_size=30))
def test_a_life_follows_the_table_and_a_wrong_step_changes_nothing(steps):
    life = Lifecycle()
    for step in steps:
        before, story = life.status, list(life.story)
        if step in TRANSITIONS[before]:
            life.move(step, "so")
            assert life.status is step
            assert life.story == [*story, f"{before.value} -> {step.value}: so"]
        else:
            with pytest.raises(InvalidTransition) as caught:
                life.move(step, "so")
            assert (life.status, life.story) == (before, story)
            assert caught.value.story == story


@pytest.mark.parametrize("status", JobStatus)
def test_a_terminal_state_is_one_that_leads_nowhere(status):
    assert status.is_terminal == (not TRANSITIONS[status])


@pytest.mark.parametrize("status", JobStatus)
def test_every_state_can_be_reached_and_every_job_can_end(status):
    reached, new = {JobStatus.CREATED}, {JobStatus.CREATED}
    while new:
        new = {to for at in new for to in TRANSITIONS[at]} - reached
        reached |= new
    assert status in reached
    ends, new = {status}, {status}
    while new:
        new = {to for at in new for to in TRANSITIONS[at]} - ends
        ends |= new
    assert any(s.is_terminal for s in ends)


@pytest.mark.parametrize("status", [s for s in JobStatus if not s.is_terminal and s is not JobStatus.CANCELLING])
def test_a_job_can_be_cancelled_and_can_fail_at_any_time(status):
    assert {JobStatus.CANCELLING, JobStatus.FAILED} <= TRANSITIONS[status]
