"""Whatever subtasks report in whatever order, no file of a checkpoint is lost and none that is needed is discarded."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from moorline.errors import FailureReason
from moorline.model.ids import SubtaskId
from moorline.model.manifest import OperatorHandles
from moorline.protocol import coordination as co
from moorline.protocol.coordination import Coordination

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
