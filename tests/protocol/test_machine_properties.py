"""Whatever happens in whatever order, the machines keep their promises."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from moorline.errors import FailureReason, InvalidTransition
from moorline.model.config.restarts import ExponentialDelay, FailureRate, FixedDelay
from moorline.model.ids import SubtaskId
from moorline.model.manifest import OperatorHandles
from moorline.protocol import coordination as co
from moorline.protocol.alignment import (
    Alignment,
    BarrierArrived,
    BarrierQueued,
    Block,
    CheckpointAborted,
    GiveUp,
    Overtake,
    OvertakeOrdered,
    TakeSnapshot,
    Unblock,
)
from moorline.protocol.coordination import Coordination
from moorline.protocol.restarts import Failure, RestartAfter, Restarts
from moorline.protocol.supervision.lifecycle import TRANSITIONS, JobStatus, Lifecycle
from moorline.protocol.triggering import Triggering

# --- alignment --------------------------------------------------------------------------------


class AlignmentObserver:
    """Obeys an alignment as ``subtask/gate.py`` does, and checks it after each event."""

    def __init__(self, channels: int) -> None:
        self.machine = Alignment(frozenset(range(channels)))
        self.blocked: set[int] = set()
        self.delivered: dict[int, set[int]] = {}
        self.aborted: set[int] = set()
        self.taken: list[int] = []
        self.given_up: list[int] = []

    def tell(self, event) -> None:
        if isinstance(event, BarrierArrived | BarrierQueued):
            self.delivered.setdefault(event.checkpoint, set()).add(event.channel)
        elif isinstance(event, CheckpointAborted):
            self.aborted.add(event.checkpoint)
        for action in self.machine.handle(event):
            match action:
                case Block(channel):
                    self.blocked.add(channel)
                case Overtake():
                    self.blocked = set(self.machine.channels)
                case Unblock(channels):
                    assert set(channels) <= self.blocked, "only a blocked channel can be unblocked"
                    self.blocked -= set(channels)
                case TakeSnapshot(checkpoint):
                    assert self.delivered[checkpoint] == self.machine.channels, "a channel has not delivered yet"
                    assert checkpoint not in self.aborted
                    self.taken.append(checkpoint)
                case GiveUp(checkpoint):
                    self.given_up.append(checkpoint)
        assert self.blocked == self.machine.blocked, "the gate and the machine agree on what is blocked"
        assert self.blocked < self.machine.channels or self.machine.is_overtaking, (
            "if every channel is blocked nothing moves again"
        )

    def check(self) -> None:
        assert self.taken == sorted(set(self.taken)), "ids go up, each at most once"
        assert not set(self.taken) & set(self.given_up)


@given(st.integers(1, 4), st.data())
def test_alignment_takes_a_snapshot_only_when_every_channel_has_delivered(channels, data):
    observer = AlignmentObserver(channels)
    barriers = st.builds(BarrierArrived, st.integers(0, channels - 1), st.integers(1, 6))
    aborts = st.builds(CheckpointAborted, st.integers(1, 6))
    for event in data.draw(st.lists(st.one_of(barriers, barriers, barriers, aborts), max_size=40)):
        observer.tell(event)
    observer.check()


@given(st.integers(1, 4), st.integers(1, 6), st.randoms(use_true_random=False))
def test_alignment_over_fifo_channels_takes_every_snapshot_and_lets_everything_through(channels, checkpoints, chance):
    observer = AlignmentObserver(channels)
    queues = [list(range(1, checkpoints + 1)) for _ in range(channels)]
    while any(queues):
        ready = [c for c, queue in enumerate(queues) if queue and c not in observer.blocked]
        assert ready, "stuck"
        channel = chance.choice(ready)
        observer.tell(BarrierArrived(channel, queues[channel].pop(0)))
    assert observer.taken == list(range(1, checkpoints + 1))
    assert not observer.blocked
    assert not observer.given_up


@given(st.integers(1, 4), st.integers(1, 6), st.sets(st.integers(1, 6)), st.randoms(use_true_random=False))
def test_alignment_is_never_stuck_when_checkpoints_are_aborted(channels, checkpoints, doomed, chance):
    observer = AlignmentObserver(channels)
    queues = [list(range(1, checkpoints + 1)) for _ in range(channels)]
    aborts = list(doomed)
    while any(queues):
        if aborts and chance.random() < 0.3:
            observer.tell(CheckpointAborted(aborts.pop(chance.randrange(len(aborts)))))
            continue
        ready = [c for c, queue in enumerate(queues) if queue and c not in observer.blocked]
        assert ready, "stuck"
        channel = chance.choice(ready)
        observer.tell(BarrierArrived(channel, queues[channel].pop(0)))
    observer.check()
    assert not observer.blocked
    assert set(range(1, checkpoints + 1)) - doomed <= set(observer.taken)


class QueuesObserver(AlignmentObserver):
    """Channels with records and barriers in them, worked off as ``subtask/gate.py`` does it."""

    def __init__(self, channels: int, checkpoints: int, records: int) -> None:
        super().__init__(channels)
        #: On their way, and come in but not processed. A number is a barrier, None a record.
        runs = [item for n in range(1, checkpoints + 1) for item in [*[None] * records, n]]
        self.coming: list[list[int | None]] = [list(runs) for _ in range(channels)]
        self.held: list[list[int | None]] = [[] for _ in range(channels)]
        self.seen = [0] * channels
        self.records = records

    def come_in(self, channel: int) -> None:
        item = self.coming[channel].pop(0)
        self.held[channel].append(item)
        if item is not None:
            self.tell(BarrierQueued(channel, item))

    def process(self, channel: int) -> None:
        item = self.held[channel].pop(0)
        if item is None:
            self.seen[channel] += 1
        else:
            self.tell(BarrierArrived(channel, item))

    def tell(self, event) -> None:
        taken = len(self.taken)
        super().tell(event)
        for checkpoint in self.taken[taken:]:
            for channel, held in enumerate(self.held):
                before = held[: held.index(checkpoint)] if checkpoint in held else []
                in_flight = before.count(None)
                assert self.seen[channel] + in_flight == checkpoint * self.records, "each record before it, once"


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 3), st.integers(0, 1 << 30).map(random.Random))
def test_with_what_is_in_flight_a_snapshot_has_every_record_before_the_barriers_and_none_after(
    channels, checkpoints, records, chance
):
    observer = QueuesObserver(channels, checkpoints, records)
    while any(observer.coming) or any(observer.held):
        ready = [c for c, held in enumerate(observer.held) if held and c not in observer.blocked]
        coming = [c for c, items in enumerate(observer.coming) if items]
        # The driver has one under way at a time: it asks for the next one when the last one is taken.
        following = len(observer.taken) + 1
        if following <= checkpoints and chance.random() < 0.1:
            observer.tell(OvertakeOrdered(following))
        elif ready and (not coming or chance.random() < 0.5):
            observer.process(chance.choice(ready))
        else:
            assert coming, "stuck"
            channel = chance.choice(coming)
            # The barrier after the next does not exist before the next one is taken.
            if observer.coming[channel][0] is None or observer.coming[channel][0] <= following:
                observer.come_in(channel)
            elif not ready:
                channel = next(c for c in coming if (observer.coming[c][0] or 0) <= following)
                observer.come_in(channel)
    assert observer.taken == list(range(1, checkpoints + 1))
    assert not observer.blocked
    assert not observer.given_up


# --- coordination -----------------------------------------------------------------------------

SUBTASKS = [SubtaskId(0, 0), SubtaskId(0, 1), SubtaskId(1, 0)]
STRANGER = SubtaskId(9, 9)


class CoordinationObserver:
    """Obeys a coordination as ``driver/checkpoints/coordinator.py`` does, and knows where every handle has got to."""

    def __init__(self, tolerable: int, publish_fails: random.Random) -> None:
        self.machine = Coordination(frozenset(SUBTASKS), timeout_ms=50, tolerable=tolerable)
        self.publish_fails = publish_fails
        self.now, self.next_id = 0, 1
        self.sent: Counter[str] = Counter()
        self.published: list[int] = []
        self.in_manifests: set[str] = set()
        self.in_doubt: set[str] = set()
        self.discarded: Counter[str] = Counter()
        self.confirmed: list[int] = []
        self.aborted: list[int] = []
        self.has_failed = False

    def start(self) -> None:
        self.tell(co.Started(self.next_id, self.now))
        self.next_id += 1

    def acknowledge(self, subtask: SubtaskId, checkpoint: int) -> None:
        name = f"{subtask} of {checkpoint}"
        self.sent[name] += 1
        self.tell(co.Acknowledged(subtask, checkpoint, (OperatorHandles(name),)))

    def tell(self, event) -> None:
        for action in self.machine.handle(event):
            match action:
                case co.Publish(checkpoint, parts):
                    self.publish(checkpoint, parts)
                case co.ConfirmEverywhere(checkpoint):
                    assert checkpoint in self.published, "nobody is told before the manifest is there"
                    self.confirmed.append(checkpoint)
                case co.AbortEverywhere(checkpoint):
                    assert checkpoint not in self.confirmed
                    self.aborted.append(checkpoint)
                case co.Discard(_, handles):
                    self.discarded.update(h.uid for h in handles)
                case co.FailAttempt(failures=failures):
                    assert failures > self.machine.tolerable
                    self.has_failed = True

    def publish(self, checkpoint: int, parts) -> None:
        assert [subtask for subtask, _ in parts] == sorted(SUBTASKS), "every subtask has its part"
        names = {h.uid for _, handles in parts for h in handles}
        assert names == {f"{s} of {checkpoint}" for s in SUBTASKS}, "and its own part"
        assert checkpoint > max(self.published, default=0), "published ids go up, each at most once"
        if self.publish_fails.random() < 0.3:
            self.in_doubt |= names
            self.tell(co.PublishFailed(checkpoint))
        else:
            self.published.append(checkpoint)
            self.in_manifests |= names
            self.tell(co.Published(checkpoint))

    def check(self) -> None:
        kept = self.in_manifests | self.in_doubt
        pending = {h.uid for p in self.machine.pending.values() for hs in p.acks.values() for h in hs}
        assert not kept & set(self.discarded), "files of a published checkpoint were discarded"
        assert not kept & pending
        assert not pending & set(self.discarded), "files that are still needed were discarded"
        assert kept | pending | set(self.discarded) == set(self.sent), "every file is owned, pending or discarded"
        assert self.confirmed == self.published
        assert len(self.aborted) == len(set(self.aborted))
        assert not set(self.aborted) & set(self.published)


events = st.one_of(
    st.just(("start",)),
    *[st.tuples(st.just("ack"), st.sampled_from(SUBTASKS), st.integers(1, 3))] * 5,
    st.tuples(st.just("ack"), st.just(STRANGER), st.integers(1, 3)),
    st.tuples(st.just("decline"), st.sampled_from(SUBTASKS), st.integers(1, 3), st.sampled_from(FailureReason)),
    st.tuples(st.just("wait"), st.integers(1, 30)),
)


@settings(max_examples=examples(200))
@given(st.integers(0, 3), st.integers(0, 2**32), st.lists(events, max_size=60))
def test_coordination_loses_no_file_and_discards_none_that_is_needed(tolerable, seed, story):
    observer = CoordinationObserver(tolerable, random.Random(seed))
    for step in story:
        match step:
            case ("start",):
                observer.start()
            case ("ack", subtask, back) if observer.next_id > back:
                observer.acknowledge(subtask, observer.next_id - back)
            case ("decline", subtask, back, reason) if observer.next_id > back:
                observer.tell(co.Declined(subtask, observer.next_id - back, reason))
            case ("wait", ms):
                observer.now += ms
                observer.tell(co.TimePassed(observer.now))
        observer.check()


@given(st.integers(0, 5), st.lists(st.booleans(), max_size=30))
def test_coordination_fails_the_attempt_exactly_when_too_many_fail_in_a_row(tolerable, outcomes):
    machine = Coordination(frozenset(SUBTASKS), timeout_ms=50, tolerable=tolerable)
    in_a_row = 0
    for checkpoint, succeeds in enumerate(outcomes, 1):
        machine.handle(co.Started(checkpoint, 0))
        if succeeds:
            for subtask in SUBTASKS:
                machine.handle(co.Acknowledged(subtask, checkpoint, ()))
            machine.handle(co.Published(checkpoint))
            in_a_row = 0
            continue
        in_a_row += 1
        actions = machine.handle(co.Declined(SUBTASKS[0], checkpoint, FailureReason.DECLINED))
        assert any(isinstance(a, co.FailAttempt) for a in actions) == (in_a_row > tolerable)


@pytest.mark.parametrize("reason", FailureReason)
def test_only_some_reasons_count_as_failures(reason):
    machine = Coordination(frozenset(SUBTASKS), timeout_ms=50, tolerable=0)
    machine.handle(co.Started(1, 0))
    actions = machine.handle(co.Declined(SUBTASKS[0], 1, reason))
    not_counted = {FailureReason.SUBSUMED, FailureReason.OVERTAKEN}
    assert any(isinstance(a, co.FailAttempt) for a in actions) == (reason not in not_counted)


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
