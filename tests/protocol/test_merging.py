"""Merging windows, against a twin that looks at all records that ever came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorline.protocol.merging import Merge, merge, merged

A, B, C = (0, 10), (20, 30), (40, 50)


def test_a_window_that_touches_nothing_stands_alone():
    assert merge({}, A) == Merge(A, A)
    assert merge({A: A, C: C}, B) == Merge(B, B)


def test_a_window_within_another_changes_nothing():
    assert merge({A: A}, (2, 9)) == Merge(A, A)
    assert merge({A: A}, A) == Merge(A, A)


def test_a_window_that_has_the_name_of_a_grown_one_finds_its_contents():
    assert merge({(0, 15): A}, (0, 15)) == Merge((0, 15), A)


def test_a_window_that_is_extended_keeps_its_contents_where_they_are():
    assert merge({A: A}, (5, 15)) == Merge((0, 15), A, ended=(A,))
    assert merge({B: B}, (15, 25)) == Merge((15, 30), B, ended=(B,))


def test_windows_that_touch_are_one():
    assert merge({A: A}, (10, 20)) == Merge((0, 20), A, ended=(A,))
    assert merge({A: A}, (-5, 0)) == Merge((-5, 10), A, ended=(A,))
    assert merge({A: A}, (11, 20)) == Merge((11, 20), (11, 20))


def test_a_window_between_two_brings_the_later_ones_contents_to_the_earlier_ones():
    assert merge({B: B, A: A}, (9, 21)) == Merge((0, 30), A, ended=(A, B), moved=(B,))


def test_a_window_over_many_swallows_all_of_them():
    found = merge({C: (42, 50), A: A, B: B}, (-5, 60))
    assert found == Merge((-5, 60), A, ended=(A, B, C), moved=(B, (42, 50)))


def test_only_those_that_end_leave_the_set():
    windows = {A: A, B: B, C: C}
    assert merged(windows, merge(windows, (9, 21))) == {C: C, (0, 30): A}
    assert windows == {A: A, B: B, C: C}


def test_what_happens_is_told_in_one_sentence():
    assert str(merge({}, A)) == "window [0,10), contents under [0,10)"


class Naive:
    """Windows as what is left when all records that touch are put together."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int]] = []

    def windows(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        found: list[tuple[tuple[int, int], list[tuple[int, int]]]] = []
        for record in sorted(self.records):
            if found and record[0] <= found[-1][0][1]:
                (first, end), records = found.pop()
                found.append(((first, max(end, record[1])), [*records, record]))
            else:
                found.append((record, [record]))
        return dict(found)


spans = st.tuples(st.integers(-50, 50), st.integers(1, 12)).map(lambda pair: (pair[0], sum(pair)))


@given(st.lists(st.one_of(spans, st.just("retire"))))
def test_windows_are_what_is_left_when_all_records_that_touch_are_put_together(steps):
    windows, contents, naive = {}, {}, Naive()
    for step in steps:
        if step == "retire":
            if windows:
                over = min(windows)
                naive.records = [r for r in naive.records if not over[0] <= r[0] < over[1]]
                del contents[windows.pop(over)]
            continue
        naive.records.append(step)
        found = merge(windows, step)
        assert set(found.ended) <= windows.keys()
        # All that end have their contents here afterwards, and nobody else's are touched.
        assert {windows[w] for w in found.ended} - {found.contents} == set(found.moved)
        for moved in found.moved:
            contents.setdefault(found.contents, []).extend(contents.pop(moved))
        contents.setdefault(found.contents, []).append(step)
        windows = merged(windows, found)

        assert {w: sorted(contents[kept]) for w, kept in windows.items()} == naive.windows()
        assert contents.keys() == set(windows.values())
        # So no window that comes later can take the name of another one's contents.
        assert all(w[0] <= kept[0] and kept[1] <= w[1] for w, kept in windows.items())
