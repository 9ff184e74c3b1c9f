"""Which complete checkpoints may go, and in which order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.protocol.retention import superfluous

ids = st.sets(st.integers(1, 99)).map(list)


@pytest.mark.parametrize(
    ("completed", "retained", "expected"),
    [([], 1, []), ([5], 1, []), ([5, 6], 1, [5]), ([6, 5], 1, [5]), ([1, 2, 3, 4], 2, [1, 2]), ([1, 2], 9, [])],
)
def test_the_newest_stay(completed, retained, expected):
    assert superfluous(completed, retained) == expected


@given(ids, st.integers(1, 5))
def test_what_goes_is_older_than_what_stays_and_goes_oldest_first(completed, retained):
    doomed = superfluous(completed, retained)
    kept = set(completed) - set(doomed)
    assert doomed == sorted(doomed)
    assert len(kept) == min(retained, len(completed))
    assert all(d < k for d in doomed for k in kept)


@given(ids, st.integers(1, 5), st.data())
def test_a_crash_half_way_leaves_no_older_one_that_outlives_a_newer_one(completed, retained, data):
    doomed = superfluous(completed, retained)
    left = set(completed) - set(doomed[: data.draw(st.integers(0, len(doomed)))])
    assert all(gone < alive for gone in set(completed) - left for alive in left)
    assert superfluous(sorted(left), retained) == [d for d in doomed if d in left]
