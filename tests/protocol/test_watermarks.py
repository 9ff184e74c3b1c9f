"""How far a subtask has come: the rules one by one, and against a twin that starts from scratch at every event."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorline.model.times import MAX_TIME, MIN_TIME
from moorline.protocol.watermarks import IDLE, Watermarks


def test_a_subtask_has_come_as_far_as_the_slowest_of_its_channels():
    times = Watermarks(3)
    assert [times.advanced(0, 10), times.advanced(1, 20)] == [None, None], "channel 2 has said nothing yet"
    assert times.advanced(2, 5) == 5
    assert times.advanced(2, 30) == 10
    assert times.advanced(0, 40) == 20
    assert times.current == 20


def test_the_same_time_is_announced_once():
    times = Watermarks(1)
    assert [times.advanced(0, 5), times.advanced(0, 5), times.advanced(0, 6)] == [5, None, 6]


def test_time_never_goes_back():
    times = Watermarks(2)
    times.advanced(0, 10), times.advanced(1, 10)
    assert times.advanced(0, 3) is None
    assert times.advanced(1, 20) is None, "channel 0 is still at 10, not at 3"
    assert times.advanced(0, 11) == 11


def test_a_channel_that_is_idle_is_not_waited_for():
    times = Watermarks(2)
    times.advanced(0, 10)
    assert times.idled(1) == 10
    assert times.advanced(0, 20) == 20


def test_a_channel_that_comes_back_behind_the_others_does_not_lower_what_was_announced():
    times = Watermarks(2)
    times.idled(1)
    assert times.advanced(0, 20) == 20
    assert times.advanced(1, 5) is None
    assert times.current == 20
    assert times.advanced(0, 30) is None, "it is waited for again"
    assert times.advanced(1, 25) == 25


def test_a_subtask_is_idle_when_all_of_its_channels_are_and_says_so_once():
    times = Watermarks(2)
    times.advanced(0, 10), times.advanced(1, 10)
    assert times.idled(0) is None
    assert times.idled(1) == IDLE
    assert times.idled(1) is None


def test_a_subtask_that_is_back_says_so_even_if_time_stands_still():
    times = Watermarks(2)
    times.advanced(0, 10), times.advanced(1, 10), times.idled(0), times.idled(1)
    assert times.advanced(0, 10) == 10
    assert times.advanced(1, 10) is None, "and once is enough"


def test_a_subtask_that_is_back_before_any_watermark_says_so_too():
    times = Watermarks(1)
    assert times.idled(0) == IDLE
    assert times.advanced(0, MIN_TIME) == MIN_TIME, (
        "or whoever waits for us takes us for idle, and our records for late"
    )


def test_when_the_last_channel_goes_idle_the_furthest_one_counts_whichever_was_last():
    """As in Flink's StatusWatermarkValve: all are idle, so nobody holds time back any more."""
    times = Watermarks(2)
    times.advanced(0, 10), times.advanced(1, 5), times.idled(0)
    times.idled(1)
    assert times.current == 10


def test_a_channel_that_has_ended_is_never_waited_for_again():
    times = Watermarks(3)
    times.advanced(0, 10), times.advanced(1, 20)
    assert times.ended(2) == 10
    assert times.ended(0) == 20
    assert times.ended(1) is None, "nobody is left to say anything"


def test_the_end_of_time_comes_when_the_last_channel_has_reached_it():
    times = Watermarks(2)
    assert times.advanced(0, MAX_TIME) is None
    assert times.advanced(1, MAX_TIME) == MAX_TIME
    assert [times.ended(0), times.ended(1)] == [None, None]


def test_if_all_that_are_left_are_idle_so_is_the_subtask():
    times = Watermarks(2)
    times.advanced(0, 10), times.advanced(1, 10), times.idled(0)
    assert times.ended(1) == IDLE
    assert times.advanced(0, 11) == 11


# --- the naive twin -------------------------------------------------------------------------------

events = st.lists(
    st.tuples(st.sampled_from(["advanced", "idled", "ended"]), st.integers(0, 3), st.integers(0, 20)), max_size=40
)


def waited_for(channels: int, story: list[tuple[str, int, int]]) -> tuple[list[int], bool]:
    """The last times of all channels that count after a story; and whether any channel is open."""
    times, is_open = [], False
    for channel in range(channels):
        mine = [(kind, time) for kind, where, time in story if where == channel]
        if "ended" in [kind for kind, _ in mine]:
            continue
        is_open = True
        if not mine or mine[-1][0] != "idled":
            times.append(max((time for kind, time in mine if kind == "advanced"), default=MIN_TIME))
    return times, is_open


@given(st.integers(1, 4), events)
def test_it_agrees_with_the_naive_twin(channels, wanted):
    watermarks, story, announced, was_idle = Watermarks(channels), [], MIN_TIME, False
    for kind, channel, time in wanted:
        if channel >= channels or any(k == "ended" and c == channel for k, c, _ in story):
            continue
        story.append((kind, channel, time))
        answer = watermarks.advanced(channel, time) if kind == "advanced" else getattr(watermarks, kind)(channel)
        times, is_open = waited_for(channels, story)
        if not is_open:
            assert answer is None
        elif not times:
            assert answer == (None if was_idle else IDLE)
            was_idle = True
        else:
            now = max(announced, min(times))
            assert answer == (now if now > announced or was_idle else None)
            announced, was_idle = now, False
        assert watermarks.current == announced
