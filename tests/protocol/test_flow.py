"""What is on its way is bounded by the time that it takes the receiver, and nobody is slowed down by that."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorline.protocol.flow import (
    FIRST_WINDOW,
    LEAST_FOR_CALLS,
    MOST_WINDOW,
    PATIENCE_MS,
    TARGET_MS,
    Grant,
    Outflow,
    Receiving,
    Sending,
)

RECORD = 10


class World:
    """Senders that always have more, a receiver of some speed, and words that take their time on the way.

    A step is a millisecond. Frames take ``way_ms`` to arrive, what is said to senders ``word_ms``.
    """

    def __init__(
        self, us_per_record: float, senders: int = 2, way_ms: int = 5, word_ms: int = 30, ms_per_call: float = 0
    ) -> None:
        self.us_per_record, self.ms_per_call = us_per_record, ms_per_call
        self.receiving = Receiving(senders, least=LEAST_FOR_CALLS if ms_per_call else 1)
        self.outflows = [Outflow() for _ in range(senders)]
        self.sending = [Sending([outflow]) for outflow in self.outflows]
        self.way_ms, self.word_ms = way_ms, word_ms
        self.now_ms = 0
        #: When it arrives, from whom, how many bytes.
        self.frames: deque[tuple[int, int, int]] = deque()
        self.words: deque[tuple[int, int, int, int]] = deque()
        #: The frame that is being processed, and how long that will take.
        self.frame = (0, 0)
        self.busy_us = self.worked_us = 0.0
        self.done_bytes = 0
        self.is_deaf = False
        self.has_more = [True] * senders

    def step(self) -> None:
        self.now_ms += 1
        while self.words and self.words[0][0] <= self.now_ms:
            _, channel, taken, window = self.words.popleft()
            self.outflows[channel].granted(taken, window)
            self.sending[channel].heard()
        for channel, (outflow, sending) in enumerate(zip(self.outflows, self.sending)):
            while self.has_more[channel] and not sending.is_held([0], self.now_ms):
                size = max(RECORD, min(outflow.frame_bytes, 256 << 10) // RECORD * RECORD)
                outflow.sent += size
                self.frames.append((self.now_ms + self.way_ms, channel, size))
                if sum(size for _, _, size in self.frames) > 200 << 20:
                    raise AssertionError("nothing holds the senders back")
        self._receive()

    def _receive(self) -> None:
        left_us = 1000.0
        while left_us > 0:
            if self.busy_us > 0:
                spent = min(self.busy_us, left_us)
                self.busy_us -= spent
                left_us -= spent
                self.worked_us += spent
                if self.busy_us <= 0:
                    self.receiving.processed(*self.frame)
                    self.done_bytes += self.frame[1]
                continue
            if not self.frames or self.frames[0][0] > self.now_ms:
                return
            _, channel, size = self.frames.popleft()
            for grant in self.receiving.took(channel, size, self.worked_us / 1000):
                if not self.is_deaf:
                    self.words.append((self.now_ms + self.word_ms, *grant))
            self.frame = channel, size
            self.busy_us += size / RECORD * self.us_per_record + 1000 * self.ms_per_call

    def run(self, ms: int) -> None:
        for _ in range(ms):
            self.step()

    def waiting_ms(self) -> float:
        """How long the receiver needs for what is on its way."""
        return (sum(size for _, _, size in self.frames) / RECORD * self.us_per_record + self.busy_us) / 1000


@pytest.mark.parametrize("us_per_record", [1, 10, 100, 1_000, 20_000])
@pytest.mark.parametrize("senders", [1, 2, 8])
def test_what_is_on_its_way_takes_the_receiver_less_than_half_a_second_at_any_speed(us_per_record, senders):
    world = World(us_per_record, senders)
    # What was sent before anything was known has to be worked off first.
    world.run(3_000 + int(3 * senders * FIRST_WINDOW / RECORD * us_per_record / 1_000))
    longest = 0.0
    for _ in range(2_000):
        world.step()
        longest = max(longest, world.waiting_ms())
    # A record that takes long counts for each sender, however little it may send.
    assert longest < 500 + senders * us_per_record / 1_000


@pytest.mark.parametrize("us_per_record", [1, 10, 100, 1_000])
@pytest.mark.parametrize("word_ms", [5, 50, 150])
def test_a_receiver_always_has_something_to_do(us_per_record, word_ms):
    world = World(us_per_record, word_ms=word_ms)
    world.run(3_000)
    before = world.worked_us
    world.run(3_000)
    assert (world.worked_us - before) / 3_000_000 > 0.98


@pytest.mark.parametrize("ms_per_call", [30, 200, 1_000])
@pytest.mark.parametrize("senders", [1, 2, 4])
def test_a_receiver_that_takes_as_long_for_little_as_for_much_gets_much(ms_per_call, senders):
    """A sink that makes one request of all that it is given: a microsecond for each record is next to nothing."""
    world = World(1, senders, ms_per_call=ms_per_call)
    world.run(int(60 * senders * ms_per_call))
    before, calls = world.done_bytes, 40
    world.run(int(calls * ms_per_call))
    assert (world.done_bytes - before) / calls > LEAST_FOR_CALLS / senders / 8, (
        "the requests became smaller and smaller"
    )


def test_windows_follow_a_receiver_that_becomes_slow_and_quick_again():
    world = World(2)
    world.run(3_000)
    quick = world.outflows[0].window
    world.us_per_record = 50
    # What was on its way when it became slow has to be worked off first.
    world.run(int(world.waiting_ms()) + 3_000)
    assert world.waiting_ms() < 500
    assert world.outflows[0].window < quick / 15
    world.us_per_record = 2
    world.run(3_000)
    assert world.outflows[0].window > quick / 2


def test_a_sender_that_had_little_to_send_may_send_more_at_once():
    world = World(10)
    world.has_more[1] = False
    world.run(2_000)
    assert world.outflows[1].window >= TARGET_MS * 1_000 / world.us_per_record * RECORD / 10


def test_a_receiver_with_time_to_spare_is_judged_by_the_time_that_it_works():
    receiving = Receiving(1)
    windows = []
    for number in range(2_000):  # a millisecond of work for each, whatever came between
        windows += [grant.window for grant in receiving.took(0, 1_000, worked_ms=number)]
        receiving.processed(0, 1_000)
    assert windows[-1] == pytest.approx(1_000 * TARGET_MS)


def test_senders_go_on_though_the_driver_is_silent_and_not_without_bounds():
    world = World(100)
    world.run(2_000)
    world.is_deaf = True
    world.run(1_000)
    before = world.done_bytes
    world.run(60_000)
    assert world.done_bytes > before
    assert world.waiting_ms() < 1_000


def test_a_sender_that_comes_late_hears_what_was_said_before_it_was_there():
    """After a kill the new worker is the last to start, and what its receivers say meanwhile has nowhere to go."""
    world = World(10, ms_per_call=1)  # such a receiver says much, and not soon again
    world.has_more[1] = False
    world.run(2_000)
    early = world.outflows[1]
    assert early.window > FIRST_WINDOW
    late = world.outflows[1] = Outflow()
    world.sending[1] = Sending([late])
    world.has_more[1] = True
    world.run(1_500)
    assert late.window > FIRST_WINDOW
    assert late.taken > 4 * FIRST_WINDOW, "it goes at full speed, and does not grope its way"


def test_what_one_receiver_says_does_not_keep_a_sender_from_its_patience_with_another():
    silent, chatty = Outflow(window=100, sent=100), Outflow(window=100)
    sending = Sending([silent, chatty])
    for now_ms in range(0, PATIENCE_MS, 10):
        assert sending.is_held([0, 0], now_ms)
        sending.heard()
    assert not sending.is_held([0, 0], PATIENCE_MS)


def test_what_is_made_and_not_sent_counts():
    sending = Sending([Outflow(window=100)])
    assert not sending.is_held([99], 0)
    assert sending.is_held([100], 0)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("took"), st.integers(0, 2), st.integers(1, 1 << 20)),
        st.tuples(st.just("processed"), st.integers(0, 2), st.integers(1, 1 << 20)),
        st.tuples(st.just("worked"), st.just(0), st.integers(0, 10_000)),
    ),
    max_size=60,
)


@given(steps)
@settings(max_examples=200)
def test_whatever_happens_a_word_is_of_what_was_taken_and_leaves_room_for_more(found):
    receiving, taken, worked = Receiving(3), [0, 0, 0], 0
    said: dict[int, Grant] = {}
    for step, channel, number in found:
        if step == "took":
            taken[channel] += number
            for grant in receiving.took(channel, number, worked):
                # One to a sender that may not have been there is said again, as it was.
                assert grant.taken == taken[grant.channel] or grant == said[grant.channel]
                said[grant.channel] = grant
                assert 1 <= grant.window <= MOST_WINDOW
        elif step == "processed":
            receiving.processed(channel, number)
        else:
            worked += number


def test_words_are_few():
    world = World(5, senders=4)
    world.run(2_000)
    said = 0
    for _ in range(5_000):
        before = len(world.words)
        world.step()
        said += max(0, len(world.words) - before)
    assert said / 5 < 4 * 25


def test_it_holds_for_speeds_that_change_all_the_time():
    chance = random.Random(3)
    world = World(10)
    for _ in range(40):
        world.us_per_record = chance.choice([1, 5, 20, 50])
        world.run(500)
    world.us_per_record = 10
    world.run(3_000)
    assert world.waiting_ms() < 500
