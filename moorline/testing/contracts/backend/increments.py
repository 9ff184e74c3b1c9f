"""Incremental snapshots: what they hold beside what they build on is what a full one would hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from moorline.api.state.descriptors import AggregatingStateDescriptor, StateDescriptor
from moorline.state.backend import Files
from moorline.testing.contracts.backend.base import (
    ALL,
    BASKET,
    BASKET_MAP,
    BASKETS,
    DAY,
    HOUR,
    KEYS,
    LIST,
    MAP,
    VALUE,
    BackendTests,
    Basket,
    Collect,
    Part,
    Subtask,
    shown,
)

ACCUMULATED = AggregatingStateDescriptor("all", Collect(), list[int])


class ChainTests(BackendTests):
    """The vocabulary of the parts about chains."""

    def _same(
        self, subtask: Subtask, parts: Iterable[Part], keys: Iterable[Any], *descriptors: StateDescriptor
    ) -> None:
        """Check that what was saved is what is there."""
        again = self.subtask(*descriptors, restored=parts, incremental=False)
        for key in keys:
            subtask.at(key)
            again.at(key)
            for old, new in zip(subtask.states, again.states, strict=True):
                assert shown(new) == shown(old), key


class Increments(ChainTests):
    """Incremental snapshots: what they hold beside what they build on is what a full one would hold."""

    # --- a chain is a snapshot ------------------------------------------------------------------

    @pytest.mark.parametrize("sample", [range(30), [f"k{n}" for n in range(30)], KEYS], ids=["int", "str", "any"])
    def test_a_base_and_its_increments_hold_what_a_full_snapshot_would(self, sample: Iterable[Any]) -> None:
        subtask = self.subtask(*ALL)
        sample = list(sample)
        for key in sample[:20]:
            subtask.at(key)
            self._fill(subtask.states)
        self._same(subtask, subtask.checkpoint(), sample, *ALL)
        for key in [*sample[:3], *sample[20:]]:
            subtask.at(key)
            self._fill(subtask.states)
            self._change(subtask.states)
        for key in sample[3:6]:
            subtask.at(key)
            self._clear(subtask.states)
        self._same(subtask, subtask.checkpoint(), sample, *ALL)
        for key in sample[4:8]:
            subtask.at(key)
            self._change(subtask.states)
        self._same(subtask, subtask.checkpoint(), sample, *ALL)

    def test_what_has_not_changed_is_not_written_again(self) -> None:
        subtask = self.subtask(VALUE)
        for key in range(1000):
            subtask.at(key)
            subtask.states[0].update(key)
        first = subtask.checkpoint()
        snapshot = subtask.begin()
        assert _written(snapshot.snapshot) == 0
        assert files_of(subtask.complete(snapshot)) == files_of(first)

    def test_an_increment_is_as_large_as_the_change(self) -> None:
        subtask = self.subtask(VALUE)
        for key in range(1000):
            subtask.at(key)
            subtask.states[0].update(key)
        subtask.checkpoint()
        for key in (5, 7):
            subtask.at(key)
            subtask.states[0].update(0)
        snapshot = subtask.begin().snapshot
        if any(isinstance(part, Files) for part in snapshot.parts):
            pytest.skip("files of the backend's own kind are as large as they are")
        assert _written(snapshot) == 2

    def test_what_is_gone_stays_gone(self) -> None:
        subtask = self.everything_under(range(20))
        subtask.checkpoint()
        for key in range(5):
            subtask.at(key)
            self._clear(subtask.states)
        self._same(subtask, subtask.checkpoint(), range(20), *ALL)
        subtask.at(2)
        self._fill(subtask.states)
        self._same(subtask, subtask.checkpoint(), range(20), *ALL)

    def test_everything_may_be_gone(self) -> None:
        subtask = self.everything_under(range(5))
        subtask.checkpoint()
        for key in range(5):
            subtask.at(key)
            self._clear(subtask.states)
        parts = subtask.checkpoint()
        self._same(subtask, parts, range(5), *ALL)
        again = self.subtask(*ALL, restored=parts, completed=2)
        again.at(1)
        self._fill(again.states)
        self._same(again, again.checkpoint(), range(5), *ALL)

    def test_what_came_and_went_between_two_checkpoints_leaves_no_trace(self) -> None:
        subtask = self.subtask(VALUE)
        for key in range(50):
            subtask.at(key)
            subtask.states[0].update(1)
        subtask.checkpoint()
        subtask.at("new")
        subtask.states[0].update(1)
        subtask.states[0].clear()
        parts = subtask.checkpoint()
        assert self.held(parts, VALUE, ["new", 3]) == {"new": 7, 3: 1}

    def test_a_list_that_grows_is_whole_after_every_checkpoint(self) -> None:
        subtask = self.subtask(LIST, MAP)
        for n in range(12):
            subtask.at("a")
            subtask.states[0].add(str(n))
            subtask.states[1].put(str(n), n)
            self._same(subtask, subtask.checkpoint(), "a", LIST, MAP)

    def test_an_entry_removed_from_a_map_does_not_come_back(self) -> None:
        subtask = self.subtask(MAP)
        subtask.at("a")
        subtask.states[0].put_all({"x": 1, "y": 2})
        subtask.checkpoint()
        subtask.at("a")
        subtask.states[0].remove("x")
        assert self.held(subtask.checkpoint(), MAP, "a") == {"a": {"y": 2}}

    def test_a_list_that_was_replaced_is_not_joined_with_the_old_one(self) -> None:
        subtask = self.subtask(LIST)
        subtask.at("a")
        subtask.states[0].update(["x", "y", "z"])
        subtask.checkpoint()
        subtask.at("a")
        subtask.states[0].update(["q"])
        assert self.held(subtask.checkpoint(), LIST, "a") == {"a": ["q"]}

    def test_windows_of_a_key_change_by_themselves(self) -> None:
        subtask = self.subtask(windows=ALL)
        for key in range(20):
            for window in (HOUR, DAY):
                subtask.at(key, window)
                self._fill(subtask.windows)
        subtask.checkpoint()
        subtask.at(1, HOUR)
        self._change(subtask.windows)
        subtask.at(2, DAY)
        for state in subtask.windows:
            state.clear()
        again = self.subtask(windows=ALL, restored=subtask.checkpoint(), incremental=False)
        for key in range(4):
            for window in (HOUR, DAY):
                subtask.at(key, window)
                again.at(key, window)
                assert self._shown(again.windows) == self._shown(subtask.windows)

    # --- values changed in place ----------------------------------------------------------------

    def test_values_changed_in_place_are_in_the_next_increment(self) -> None:
        descriptors = (BASKET, BASKETS, BASKET_MAP, ACCUMULATED)
        subtask = self.subtask(*descriptors)
        for key in "abcdef":
            subtask.at(key)
            value, listed, mapped, everything = subtask.states
            value.update(Basket(key, ["x"]))
            listed.add(Basket(key, ["x"]))
            mapped.put("k", Basket(key, ["x"]))
            everything.add(1)
        subtask.checkpoint()
        subtask.at("a")
        basket = value.value()
        basket.items.append("y")
        value.update(basket)
        changed = list(listed.get())
        changed[0].items.append("y")
        listed.update(changed)
        entry = mapped.get("k")
        entry.items.append("y")
        mapped.put("k", entry)
        everything.add(2)
        parts = subtask.checkpoint()
        expected = Basket("a", ["x", "y"])
        assert self.held_by(parts, *descriptors, key="a") == [expected, [expected], {"k": expected}, (1, 2)]

    def test_a_value_changed_after_the_snapshot_is_in_the_next_one_only(self) -> None:
        subtask = self.subtask(BASKET)
        for key in "abc":
            subtask.at(key)
            subtask.states[0].update(Basket(key))
        subtask.checkpoint()
        subtask.at("a")
        subtask.states[0].update(Basket("a", ["1"]))
        snapshot = subtask.begin()
        subtask.at("a")
        basket = subtask.states[0].value()
        basket.items.append("2")
        subtask.states[0].update(basket)
        assert self.held(subtask.complete(snapshot), BASKET, "a") == {"a": Basket("a", ["1"])}
        assert self.held(subtask.checkpoint(), BASKET, "a") == {"a": Basket("a", ["1", "2"])}

    # --- checkpoints that do not complete -------------------------------------------------------

    @pytest.mark.parametrize("how", ["never durable", "given up"])
    def test_what_a_failed_checkpoint_held_is_in_the_next_one(self, how: str) -> None:
        subtask = self.everything_under(range(20))
        subtask.checkpoint()
        subtask.at(1)
        self._change(subtask.states)
        subtask.at(2)
        self._clear(subtask.states)
        failed = subtask.begin()
        failed.failed() if how == "never durable" else subtask.give_up(failed)
        subtask.at(3)
        self._change(subtask.states)
        self._same(subtask, subtask.checkpoint(), range(5), *ALL)

    @pytest.mark.parametrize("how", ["never durable", "given up"])
    def test_the_first_checkpoint_may_fail(self, how: str) -> None:
        subtask = self.everything_under(range(5))
        failed = subtask.begin()
        failed.failed() if how == "never durable" else subtask.give_up(failed)
        subtask.at(1)
        self._change(subtask.states)
        self._same(subtask, subtask.checkpoint(), range(5), *ALL)

    def test_many_checkpoints_may_fail_in_a_row(self) -> None:
        subtask = self.everything_under(range(60))
        subtask.checkpoint()
        for key in range(40):
            subtask.at(key)
            self._change(subtask.states)
            if key % 3 == 0:
                self._clear(subtask.states)
            subtask.give_up(subtask.begin())
        self._same(subtask, subtask.checkpoint(), range(60), *ALL)

    def test_what_goes_and_comes_and_goes_between_failing_checkpoints_is_gone(self) -> None:
        subtask = self.everything_under(range(20))
        subtask.checkpoint()
        for change in (self._clear, self._fill, self._clear):
            subtask.give_up(subtask.begin())
            subtask.at(1)
            change(subtask.states)
        self._same(subtask, subtask.checkpoint(), range(5), *ALL)

    def test_a_confirmation_that_was_lost_does_no_harm(self) -> None:
        subtask = self.subtask(*ALL)
        for key in range(5):
            subtask.at(key)
            self._fill(subtask.states)
            subtask.checkpoint(confirm=False)
        self._same(subtask, subtask.checkpoint(confirm=False), range(5), *ALL)

    def test_a_checkpoint_that_builds_on_nothing_shares_no_file_with_others(self) -> None:
        """By a barrier that says 0: each of two sets of files can be lost, and the other is a snapshot all the same."""
        subtask = self.subtask(*ALL)
        before: set[str] = set()
        for key in range(10):
            subtask.at(key)
            self._fill(subtask.states)
            before |= files_of(subtask.checkpoint())
        subtask.completed = 0
        full = subtask.checkpoint()
        assert files_of(full)
        assert not files_of(full) & before
        self._same(subtask, full, range(10), *ALL)
        subtask.at(1)
        self._change(subtask.states)
        after = subtask.checkpoint()
        assert not files_of(after) & before
        self._same(subtask, after, range(10), *ALL)
        # The first one after a restore.
        again = self.subtask(*ALL, restored=after, completed=subtask.completed)
        again.completed = 0
        for _ in range(2):
            parts = again.checkpoint()
            assert not files_of(parts) & files_of(after)
            self._same(again, parts, range(10), *ALL)

    def test_two_checkpoints_in_flight_build_on_the_same_one(self) -> None:
        subtask = self.everything_under(range(10))
        subtask.checkpoint()
        subtask.at(1)
        self._change(subtask.states)
        second = subtask.begin()
        subtask.at(2)
        self._change(subtask.states)
        third = subtask.begin()
        second.done()
        self._same(subtask, subtask.complete(third), range(10), *ALL)

    def test_an_older_checkpoint_may_complete_while_a_newer_one_is_written(self) -> None:
        subtask = self.subtask(VALUE)
        for key in range(10):
            subtask.at(key)
            subtask.states[0].update(0)
        subtask.checkpoint()
        subtask.at(1)
        subtask.states[0].update(1)
        second = subtask.begin()
        subtask.at(2)
        subtask.states[0].update(2)
        third = subtask.begin()
        third.write()  # it builds on the first, which is kept until it is over
        subtask.complete(second)
        subtask.give_up(third)
        subtask.at(3)
        subtask.states[0].update(3)
        assert self.held(subtask.checkpoint(), VALUE, range(5)) == {0: 0, 1: 1, 2: 2, 3: 3, 4: 0}


def files_of(parts: Iterable[Part]) -> set[str]:
    return {file.path for part in parts for file in part.handle.all_files()}


def _written(snapshot: Any) -> int:
    """The number of rows, or files, that are written anew."""
    return sum(
        len(part.paths) if isinstance(part, Files) else sum(t.num_rows for t in part.tables())
        for part in snapshot.parts
    )
