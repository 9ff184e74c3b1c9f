"""Marks find out that a loop is empty: never before it is, and always some time after."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from moorline.errors import InvalidTransition
from moorline.protocol.iteration.termination import (
    EndLoop,
    EndTime,
    InputEnded,
    LoopHead,
    LoopPhase,
    MarkArrived,
    OnTheWay,
    RecordReturned,
    SendMark,
)


def told(machine, event) -> list[str]:
    return [str(action) for action in machine.handle(event)]


def test_a_loop_that_stays_empty_ends_after_two_clean_marks():
    head = LoopHead(frozenset({0}))
    assert told(head, InputEnded()) == ["send mark 1, not clean"]
    assert told(head, MarkArrived(0, 1, False)) == ["send mark 2, clean"]
    assert told(head, MarkArrived(0, 2, True)) == ["end time in the loop", "send mark 3, not clean"]
    assert told(head, MarkArrived(0, 3, False)) == ["send mark 4, clean"]
    assert told(head, MarkArrived(0, 4, True)) == ["end the loop"]
    assert head.phase is LoopPhase.OVER


def test_a_record_that_comes_back_makes_the_next_mark_unclean():
    head = LoopHead(frozenset({0}))
    head.handle(InputEnded())
    head.handle(RecordReturned())
    assert told(head, MarkArrived(0, 1, False)) == ["send mark 2, not clean"]
    assert told(head, MarkArrived(0, 2, False)) == ["send mark 3, clean"]


def test_a_mark_is_passed_on_when_all_channels_have_brought_it_and_nothing_else_can_come_in():
    way = OnTheWay(frozenset({0, 1}))
    assert told(way, MarkArrived(0, 1, True)) == []
    assert told(way, MarkArrived(1, 1, False)) == []
    assert told(way, InputEnded()) == ["send mark 1, not clean"]


def test_marks_of_other_subtasks_may_come_before_our_own_input_has_ended():
    head = LoopHead(frozenset({0, 1}))
    assert told(head, MarkArrived(1, 1, False)) == []
    assert told(head, InputEnded()) == ["send mark 1, not clean"]


def test_one_round_ahead_is_as_far_as_a_channel_can_be():
    head = LoopHead(frozenset({0, 1}))
    head.handle(InputEnded())
    head.handle(MarkArrived(1, 1, False))
    head.handle(MarkArrived(1, 2, True))
    with pytest.raises(InvalidTransition):
        head.handle(MarkArrived(1, 3, True))


def test_a_record_in_a_loop_that_was_empty_is_a_bug():
    head = LoopHead(frozenset({0}))
    for event in (InputEnded(), *(MarkArrived(0, n, n % 2 == 0) for n in range(1, 5))):
        head.handle(event)
    with pytest.raises(InvalidTransition):
        head.handle(RecordReturned())


class World:
    """Heads, a stage on the way, and channels between all of them; a record goes round as often as its number says."""

    def __init__(self, chance: random.Random, width: int, all_to_all: bool, input_records: int) -> None:
        self.chance, self.width = chance, width
        #: From head to stage, and back; each a queue per pair.
        to = [[i] if not all_to_all else list(range(width)) for i in range(width)]
        self.there = {(i, j): deque() for i in range(width) for j in to[i]}
        self.back = {(i, j): deque() for i in range(width) for j in range(width)}
        self.heads = [LoopHead(frozenset(range(width))) for _ in range(width)]
        self.stage = [OnTheWay(frozenset(i for i, j in self.there if j == s)) for s in range(width)]
        for way in self.stage:
            way.handle(InputEnded())
        self.input = [[chance.randrange(4) for _ in range(chance.randrange(input_records + 1))] for _ in range(width)]
        self.ended = [False] * width
        self.timers = [chance.randrange(3) for _ in range(width)]

    def on_their_way(self) -> int:
        return sum(isinstance(x, int) for q in (*self.there.values(), *self.back.values()) for x in q)

    def send(self, head: int, what) -> None:
        receivers = [key for key in self.there if key[0] == head]
        for key in receivers if not isinstance(what, int) else [self.chance.choice(receivers)]:
            self.there[key].append(what)

    def obey(self, head: int, actions) -> None:
        for action in actions:
            match action:
                case SendMark():
                    self.send(head, action)
                case EndTime():
                    assert all(self.ended)
                    for _ in range(self.timers[head]):
                        self.send(head, self.chance.randrange(3))
                case EndLoop():
                    assert not self.on_their_way()
                    assert all(self.ended)

    def step(self) -> bool:
        """One thing happens. False: nothing can."""
        moves = [("input", i) for i in range(self.width) if not self.ended[i]]
        moves += [("there", key) for key, q in self.there.items() if q]
        moves += [("back", key) for key, q in self.back.items() if q]
        if not moves:
            return False
        kind, where = self.chance.choice(moves)
        if kind == "input":
            if self.input[where]:
                self.send(where, self.input[where].pop())
            else:
                self.ended[where] = True
                self.obey(where, self.heads[where].handle(InputEnded()))
        elif kind == "there":
            sender, at = where
            what = self.there[where].popleft()
            if isinstance(what, int):
                if what:
                    self.back[at, self.chance.randrange(self.width)].append(what - 1)
            else:
                for mark in self.stage[at].handle(MarkArrived(sender, what.round, what.clean)):
                    for head in range(self.width):
                        self.back[at, head].append(mark)
        else:
            sender, head = where
            what = self.back[where].popleft()
            if isinstance(what, int):
                self.heads[head].handle(RecordReturned())
                self.send(head, what)
            else:
                self.obey(head, self.heads[head].handle(MarkArrived(sender, what.round, what.clean)))
        return True


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 4), st.booleans(), st.integers(0, 6))
def test_a_loop_ends_when_and_only_when_nothing_is_on_its_way(seed, width, all_to_all, records):
    world = World(random.Random(seed), width, all_to_all, records)
    for _ in range(100_000):
        if not world.step():
            break
    assert all(head.phase is LoopPhase.OVER for head in world.heads)
    assert not world.on_their_way()
