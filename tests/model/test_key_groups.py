"""Who owns which key group: against Flink's own numbers, and against a loop."""

import golden
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.model.key_groups import MAX_KEY_GROUPS, KeyGroupRange, default_max_parallelism, owned, owner

shapes = st.integers(1, 512).flatmap(lambda m: st.tuples(st.integers(1, m), st.just(m)))


@pytest.mark.parametrize(("parallelism", "expected"), golden.default_max_parallelism())
def test_the_default_number_of_key_groups_is_flinks(parallelism, expected):
    assert default_max_parallelism(parallelism) == expected


@pytest.mark.parametrize(("max_parallelism", "parallelism", "pairs"), golden.ranges())
def test_ranges_are_flinks(max_parallelism, parallelism, pairs):
    found = [owned(i, parallelism, max_parallelism) for i in range(parallelism)]
    assert [(r.first, r.end - 1) for r in found] == pairs


@pytest.mark.parametrize(("max_parallelism", "parallelism", "pairs"), golden.ranges())
def test_owners_are_flinks(max_parallelism, parallelism, pairs):
    for subtask, (first, last) in enumerate(pairs):
        assert owner(first, parallelism, max_parallelism) == subtask
        assert owner(last, parallelism, max_parallelism) == subtask


@given(shapes)
def test_owned_is_the_exact_inverse_of_owner(shape):
    parallelism, max_parallelism = shape
    naive = {subtask: [] for subtask in range(parallelism)}
    for key_group in range(max_parallelism):
        naive[owner(key_group, parallelism, max_parallelism)].append(key_group)
    for subtask, key_groups in naive.items():
        found = owned(subtask, parallelism, max_parallelism)
        assert list(range(found.first, found.end)) == key_groups


@given(shapes)
def test_the_shares_differ_by_one_at_most(shape):
    parallelism, max_parallelism = shape
    sizes = {len(owned(i, parallelism, max_parallelism)) for i in range(parallelism)}
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, MAX_KEY_GROUPS))
def test_the_default_is_a_power_of_two_with_room_to_grow(parallelism):
    found = default_max_parallelism(parallelism)
    assert found & (found - 1) == 0
    assert 128 <= found <= MAX_KEY_GROUPS
    assert found == MAX_KEY_GROUPS or found >= parallelism + parallelism // 2


ranges = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda t: KeyGroupRange(min(t), max(t)))


@given(ranges, ranges)
def test_an_intersection_is_what_lies_in_both(a, b):
    both = a & b
    assert [k for k in range(31) if k in both] == [k for k in range(31) if k in a and k in b]
    assert len(both) == sum(k in a and k in b for k in range(31))


def test_a_range_shows_that_its_end_is_open():
    assert str(KeyGroupRange(43, 86)) == "[43,86)"
