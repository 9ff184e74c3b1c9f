"""Slots are found, given back and taken again, as a dict says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorline.state.columns.index import IntIndex, ObjectIndex
from moorline.state.columns.removed import MOST_REMOVED, Idents, RemovedKeys

KEYS = st.lists(st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63), 1 << 40]), min_size=1, max_size=30)


@settings(max_examples=60)
@given(width=st.integers(1, 2), steps=st.lists(st.tuples(st.booleans(), KEYS, KEYS), max_size=12))
def test_ints_and_pairs_have_the_slots_that_a_dict_says(width: int, steps: Any) -> None:
    index, twin = IntIndex(width), dict[Any, int]()
    for is_removal, first, second in steps:
        rows = list(zip(first, second))[:30] if width == 2 else [(key,) for key in first]
        keys = [np.array(part, np.int64) for part in zip(*rows)]
        if is_removal:
            gone = [row for row in dict.fromkeys(rows) if row in twin]
            if gone:
                index.remove(np.array([twin.pop(row) for row in gone]))
        else:
            for row, slot in zip(rows, index.slots(*keys).tolist()):
                assert twin.setdefault(row, slot) == slot
        assert index.find(*keys).tolist() == [twin.get(row, -1) for row in rows]
        assert sorted(twin.values()) == index.numbers.used().tolist()
        assert len(set(twin.values())) == len(twin) == len(index)


def test_a_table_that_is_filled_and_emptied_again_does_not_grow() -> None:
    index = IntIndex(2)
    for window in range(40):
        keys = np.arange(3000, dtype=np.int64)
        slots = index.slots(keys, np.full(3000, window))
        assert index.size <= 6000
        if window:
            index.remove(before)  # noqa: F821  the slots of the window before
        before = slots  # noqa: F841
    assert len(index) == 3000
    assert len(index._slots) <= 1 << 15


def test_other_keys_get_slots_that_were_given_back() -> None:
    index = ObjectIndex()
    index.slots(["a", "b", "c"])
    index.remove(np.array([1]))
    assert index.find("b") == -1
    assert index.slots(["d", "a", "d"]).tolist() == [1, 0, 1]
    assert index.keys_of(np.array([1])) == ["d"]


def test_what_is_removed_while_no_checkpoint_completes_is_bounded() -> None:
    removed = RemovedKeys()
    some = Idents(np.arange(MOST_REMOVED // 2), np.zeros(MOST_REMOVED // 2, np.int64))
    removed.note(3, some)
    removed.note(4, some)
    assert len(removed.since(3)) == 1
    removed.note(5, some)
    assert removed.forgotten == 5
    assert removed.since(5) == []


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_all_slots_may_be_given_back_at_once(count: int) -> None:
    index = IntIndex()
    slots = index.slots(np.arange(count, dtype=np.int64))
    if count:
        index.remove(slots)
    assert (len(index), index.size) == (0, 0)
    assert index.slots(np.array([7])).tolist() == [0]
