"""When state is over its time: the rules, against Flink's arithmetic and against what a life means."""

from hypothesis import example, given
from hypothesis import strategies as st

from moorline.model.times import MAX_TIME, MIN_TIME
from moorline.protocol.expiry import after_read, after_write, event_now, event_stamp, is_expired, later

time = st.integers(MIN_TIME, MAX_TIME) | st.integers(-20, 20) | st.integers(MAX_TIME - 20, MAX_TIME)
maybe_time = st.none() | time
length = st.integers(1, MAX_TIME) | st.integers(1, 20)


def expired_in_64_bits(last_access: int, ttl: int, now: int) -> bool:
    """Flink's TtlUtils.expired: a sum that would overflow is cut off at the largest long."""
    without_overflow = min(MAX_TIME - last_access, ttl) if last_access > 0 else ttl
    end = last_access + without_overflow
    assert MIN_TIME <= end <= MAX_TIME
    return end <= now


@given(time, length, time)
@example(MAX_TIME, MAX_TIME, MAX_TIME)
@example(MAX_TIME - 5, 10, MAX_TIME - 1)
@example(0, MAX_TIME, MAX_TIME)
def test_expiry_is_what_flink_computes_in_64_bits(last_access, ttl, now):
    assert is_expired(last_access, ttl, now) == expired_in_64_bits(last_access, ttl, now)


def test_a_life_ends_exactly_after_its_length():
    assert [is_expired(100, 10, now) for now in (99, 109, 110, 111)] == [False, False, True, True]


@given(length, time)
def test_what_has_no_stamp_is_live(ttl, now):
    assert not is_expired(None, ttl, now)


@given(maybe_time, maybe_time, time, length, time)
def test_no_touch_shortens_a_life(last_access, touch, now, ttl, then):
    if is_expired(last_access, ttl, now):
        return
    for stamp in (later(last_access, touch, now), after_write(last_access, touch, now, ttl)):
        if last_access is not None:
            assert not is_expired(stamp, ttl, then) or is_expired(last_access, ttl, then)
        assert stamp is None or not is_expired(stamp, ttl, now) or now >= MAX_TIME


@given(maybe_time, maybe_time, time)
def test_a_read_that_does_not_count_changes_a_stamp_only_if_there_is_none(last_access, touch, now):
    assert after_read(last_access, touch, now, False) == (
        later(None, touch, now) if last_access is None else last_access
    )
    assert after_read(last_access, touch, now, True) == later(last_access, touch, now)


@given(time, maybe_time, time, length)
def test_writing_over_what_is_expired_is_writing_for_the_first_time(last_access, touch, now, ttl):
    """Or else the outcome would depend on whether it has been removed already."""
    if is_expired(last_access, ttl, now):
        assert after_write(last_access, touch, now, ttl) == touch


@given(st.integers(MIN_TIME + 1, MAX_TIME - 1), maybe_time)
def test_in_event_time_a_record_judges_and_touches_at_its_own_time(watermark, timestamp):
    assert event_now(watermark, timestamp) == max(watermark, MIN_TIME if timestamp is None else timestamp)
    assert event_stamp(watermark, timestamp) == (watermark if timestamp is None else timestamp)


@given(st.integers(0, MAX_TIME), length)
def test_before_any_watermark_nothing_expires_for_a_record_without_a_time(last_access, ttl):
    assert not is_expired(last_access, ttl, event_now(MIN_TIME, None))
    assert event_stamp(MIN_TIME, None) is None


@given(st.integers(0, MAX_TIME - 1), st.integers(1, 1 << 53))
def test_at_the_end_of_the_input_each_timer_has_its_own_time(last_access, ttl):
    assert not is_expired(last_access, ttl, event_now(MAX_TIME, last_access))
    assert is_expired(last_access, ttl, event_now(MAX_TIME, min(last_access + ttl, MAX_TIME)))
    assert not is_expired(last_access, ttl, event_now(MAX_TIME, None))
    assert event_stamp(MAX_TIME, None) is None
