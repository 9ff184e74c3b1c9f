"""Looks for splits: one at a time, each split to its owner, and a state that changes together with the assignments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorline.api.sources import owner_of
from moorline.protocol.connectors.enumerating import Assign, Enumerating, GiveUpLooking, LookForSplits


def machine(parallelism: int = 2) -> Enumerating:
    return Enumerating(parallelism, owner_of, interval_ms=100)


def test_the_first_look_is_due_at_once_and_the_next_after_the_interval():
    splits = machine()
    assert splits.time_passed(7) == [LookForSplits()]
    assert splits.time_passed(8) == []
    splits.looked({}, None, 10)
    assert splits.time_passed(109) == []
    assert splits.time_passed(110) == [LookForSplits()]


def test_at_the_first_look_everyone_is_told_also_who_gets_nothing():
    splits = machine(3)
    splits.time_passed(0)
    assert splits.looked({0: "a"}, 1, 0) == [Assign(0, {0: "a"}, False), Assign(1, {}, False), Assign(2, {}, False)]
    splits.time_passed(100)
    assert splits.looked({1: "b"}, 2, 100) == [Assign(1, {1: "b"}, False)]


def test_that_there_are_no_more_is_for_everyone_and_nothing_is_looked_for_then():
    splits = machine()
    splits.time_passed(0)
    splits.looked({0: 0}, 1, 0)
    splits.time_passed(100)
    assert splits.looked(None, 1, 100) == [Assign(0, {}, True), Assign(1, {}, True)]
    assert splits.time_passed(10_000) == []


def test_a_split_that_is_found_twice_is_assigned_once():
    splits = machine()
    splits.time_passed(0)
    splits.looked({0: 0}, 1, 0)
    splits.time_passed(100)
    assert splits.looked({0: 0}, 1, 100) == []


def test_the_state_changes_with_the_assignments():
    splits = machine()
    splits.state = "restored"
    splits.time_passed(0)
    assert splits.state == "restored"
    splits.looked({0: 0}, "found", 0)
    assert splits.state == "found"


def test_a_look_that_fails_is_the_last():
    splits = machine()
    splits.time_passed(0)
    assert splits.failed("no route") == [GiveUpLooking("no route")]
    assert splits.time_passed(1_000) == []


def test_what_is_announced_is_for_everyone_when_it_changes():
    splits = machine()
    splits.time_passed(0)
    assert splits.looked({0: 0}, 1, 0, "first") == [Assign(0, {0: 0}, False, "first"), Assign(1, {}, False, "first")]
    splits.time_passed(100)
    assert splits.looked({1: 0}, 1, 100, "first") == [Assign(1, {1: 0}, False)]
    splits.time_passed(200)
    found = splits.looked({3: 0}, 1, 200, "second")
    assert list(map(str, found)) == [
        "announce second, assign [] to subtask 0",
        "announce second, assign ['3'] to subtask 1",
    ]


def test_a_report_of_a_reader_makes_a_look_due():
    splits = machine()
    splits.time_passed(0)
    splits.looked({}, 1, 0)
    splits.reported()
    assert splits.time_passed(1) == [LookForSplits()]
    splits.reported()  # while it looks: the look may not know of it
    splits.looked({}, 1, 5)
    assert splits.time_passed(5) == [LookForSplits()]
    splits.looked({}, 1, 6)
    assert splits.time_passed(7) == []


def test_a_report_does_not_start_a_look_when_there_will_be_no_more_splits():
    splits = machine()
    splits.time_passed(0)
    splits.reported()
    splits.looked(None, 1, 0)
    splits.reported()
    assert splits.time_passed(1_000) == []


@given(st.integers(1, 5), st.lists(st.dictionaries(st.integers(0, 30) | st.text(max_size=3), st.integers())))
def test_every_split_goes_to_its_owner_once(parallelism, looks):
    splits, assigned = machine(parallelism), {}
    for number, found in enumerate(looks):
        splits.time_passed(number * 100)
        for action in splits.looked(found, number, number * 100):
            assert isinstance(action, Assign)
            for split in action.splits:
                assert split not in assigned
                assert owner_of(split, parallelism) == action.subtask
                assigned[split] = action.subtask
    assert assigned.keys() == {split for found in looks for split in found}
