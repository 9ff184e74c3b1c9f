"""Whatever barriers come in whatever order, a snapshot has every record before them and nothing is stuck."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from moorline.protocol.alignment import (
    Alignment,
    BarrierArrived,
    BarrierQueued,
    Block,
    CheckpointAborted,
    GiveUpCheckpoint,
    Overtake,
    OvertakeOrdered,
    TakeSnapshot,
    Unblock,
)


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
                case GiveUpCheckpoint(checkpoint):
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
