"""A subtask decides by the marks in an outside store whether it may go on there."""

import pytest

from moorline.errors import ExternalStateBehind
from moorline.model.store_marks import NOT_YET, Mark, Owner
from moorline.protocol.takeover import StoreStart, take_over


def start(attempt=3, first=0, end=16, **options):
    owner = Owner("job", "op", attempt, first, end, "mine")
    return StoreStart(owner, "the store", {"s": "value of int"}, options.pop("on_fresh_start", "error"), **options)


def test_a_key_group_counts_by_its_newest_mark_that_reached_something():
    old, new = Mark(1, 0, 16, "a", 5, 5), Mark(2, 0, 8, "b", 6, NOT_YET)
    reached = dict.fromkeys(range(16), 5)
    decision = take_over([new, old], start(restored=6, built_on=reached))
    assert (decision.mark.reaching, decision.mark.reached) == (6, NOT_YET)
    assert decision.drop == (new,)  # it has reached nothing, and will not any more
    with pytest.raises(ExternalStateBehind):
        take_over([new, old], start(restored=6, built_on=reached | {3: 6}))


def test_an_old_mark_is_dropped_when_all_its_key_groups_have_newer_ones():
    old, low, high = Mark(1, 0, 16, "a", 5, 5), Mark(2, 0, 8, "b", 6, 6), Mark(2, 8, 16, "c", 6, 6)
    reached = dict.fromkeys(range(16), 5)
    assert take_over([old, low], start(restored=6, built_on=reached)).drop == ()
    assert take_over([old, low, high], start(restored=6, built_on=reached)).drop == (old,)


def test_a_takeover_that_is_done_again_comes_to_the_same_decision():
    """The answer to the first one got lost."""
    old, reached = Mark(2, 0, 16, "a", 5, 5), dict.fromkeys(range(16), 5)
    once = take_over([old], start(restored=5, built_on=reached))
    assert take_over([old, once.mark], start(restored=5, built_on=reached)) == once
    fresh = take_over([old], start(on_fresh_start="clear"))
    assert take_over([fresh.mark], start(on_fresh_start="clear")).mark == fresh.mark
