"""How large slices are, and how much of the time is left to records."""

from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from moorline.model.config.thresholds import SLICE_RULE, SliceRule
from moorline.protocol.slicing import Slicing

COSTS = st.lists(st.floats(0.00001, 0.5), min_size=1, max_size=50)


@settings(max_examples=examples(200))
@given(costs=COSTS, share=st.floats(0.05, 1))
def test_work_is_never_more_than_its_share_but_for_the_slice_that_is_under_way(costs, share):
    slicing = Slicing(SliceRule(share=share))
    worked = rested = 0.0
    for ms_per_row in costs:
        ms = slicing.rows * ms_per_row
        worked += ms
        rested += slicing.worked(slicing.rows, ms, is_awaited=False)
        open_ms = SLICE_RULE.slice_ms + ms
        assert worked - open_ms <= share * (worked + rested) + 1e-6


@settings(max_examples=examples(200))
@given(costs=COSTS)
def test_it_takes_no_longer_than_its_share_says(costs):
    slicing = Slicing()
    worked = rested = 0.0
    for ms_per_row in costs:
        ms = slicing.rows * ms_per_row
        worked += ms
        rested += slicing.worked(slicing.rows, ms, is_awaited=False)
    assert worked + rested <= worked / SLICE_RULE.share + 1e-6


@given(ms_per_row=st.floats(0.0001, 0.02))
def test_a_slice_comes_to_take_as_long_as_it_should(ms_per_row):
    slicing = Slicing()
    for _ in range(20):
        slicing.worked(slicing.rows, slicing.rows * ms_per_row, is_awaited=False)
    took = slicing.rows * ms_per_row
    is_as_large_as_can_be = slicing.rows == SLICE_RULE.most_rows
    assert took <= SLICE_RULE.slice_ms + ms_per_row
    assert took >= SLICE_RULE.slice_ms - ms_per_row or is_as_large_as_can_be


def test_rows_that_are_large_are_encoded_few_at_a_time_but_not_one_by_one():
    slicing = Slicing()
    slicing.worked(256, 5000.0, is_awaited=False)
    assert slicing.rows == SLICE_RULE.least_rows


def test_what_somebody_waits_for_does_not_rest():
    slicing = Slicing()
    assert not any(slicing.worked(slicing.rows, 10.0, is_awaited=True) for _ in range(10))


def test_work_that_was_waited_for_is_not_rested_for_later():
    slicing = Slicing(SliceRule(slice_ms=2, share=0.5))
    slicing.worked(100, 100.0, is_awaited=True)
    assert slicing.worked(100, 2.0, is_awaited=False) == 2.0


def test_slices_without_rows_count_as_work():
    slicing = Slicing(SliceRule(slice_ms=2, share=0.5))
    before = slicing.rows
    assert (slicing.worked(0, 3.0, is_awaited=False), slicing.rows) == (3.0, before)
