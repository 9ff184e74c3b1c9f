"""Chains of increments: through restarts and rescaling, with keys of any kind, and not without end."""

from __future__ import annotations

from moorline.testing.contracts.backend.base import ALL, KEYS, LIST, VALUE, Account, Colour, Part, subtask_of
from moorline.testing.contracts.backend.increments import ChainTests, files_of


class Chains(ChainTests):
    """Chains of increments: through restarts and rescaling, with keys of any kind, and not without end."""

    # --- restarts -------------------------------------------------------------------------------

    def test_the_chain_goes_on_after_a_restart(self) -> None:
        subtask = self.everything_under(range(20))
        parts = subtask.checkpoint()
        for round_ in range(3):
            subtask = self.subtask(*ALL, restored=parts, completed=round_ + 1)
            subtask.at(round_)
            self._change(subtask.states)
            subtask.at(round_ + 5)
            self._clear(subtask.states)
            before = files_of(parts)
            parts = subtask.checkpoint()
            assert before & files_of(parts)
            self._same(subtask, parts, range(20), *ALL)

    def test_a_restored_chain_is_not_built_on_when_something_newer_has_completed(self) -> None:
        subtask = self.subtask(VALUE)
        for key in range(10):
            subtask.at(key)
            subtask.states[0].update(0)
        parts = subtask.checkpoint()
        again = self.subtask(VALUE, restored=parts, completed=1)
        for round_ in range(4):
            again.at(round_)
            again.states[0].update(9)
            parts = again.checkpoint()  # fails if it refers to a file that is deleted
        assert self.held(parts, VALUE, range(5)) == {0: 9, 1: 9, 2: 9, 3: 9, 4: 0}

    def test_a_checkpoint_that_fails_after_a_restart_leaves_the_restored_chain_to_build_on(self) -> None:
        subtask = self.everything_under(range(20))
        parts = subtask.checkpoint()
        again = self.subtask(*ALL, restored=parts, completed=1)
        for key in range(3):
            again.at(key)
            self._change(again.states)
            again.give_up(again.begin())
        again.at(5)
        self._change(again.states)
        self._same(again, again.checkpoint(), range(20), *ALL)

    def test_the_chain_goes_on_at_another_parallelism(self) -> None:
        first = self.everything_under(KEYS)
        parts = first.checkpoint()
        expected = dict.fromkeys(KEYS, 1)
        for completed, parallelism in enumerate((3, 2, 1), start=1):
            saved_by_all: list[Part] = []
            for index in range(parallelism):
                subtask = self.subtask(*ALL, restored=parts, completed=completed, index=index, parallelism=parallelism)
                for key in KEYS[completed::4]:
                    if subtask_of(key, parallelism) == index:
                        subtask.at(key)
                        subtask.states[0].update(completed + 10)
                        expected[key] = completed + 10
                saved_by_all += subtask.checkpoint()
            parts = saved_by_all
        for key in KEYS:
            assert self.held_by(parts, *ALL, key=key) == [expected[key], ["x"], {"k": 1}, 1, 1.0]

    def test_a_full_snapshot_can_be_built_on(self) -> None:
        full = self.subtask(VALUE, incremental=False)
        for key in range(10):
            full.at(key)
            full.states[0].update(0)
        again = self.subtask(VALUE, restored=full.checkpoint(), completed=1)
        again.at(1)
        again.states[0].update(1)
        assert self.held(again.checkpoint(), VALUE, range(3)) == {0: 0, 1: 1, 2: 0}

    def test_a_chain_can_be_restored_by_a_backend_that_takes_full_snapshots(self) -> None:
        subtask = self.subtask(*ALL)
        for key in range(10):
            subtask.at(key)
            self._fill(subtask.states)
            parts = subtask.checkpoint()
        full = self.subtask(*ALL, restored=parts, completed=10, incremental=False)
        self._same(full, full.checkpoint(), range(10), *ALL)

    def test_a_new_state_joins_a_restored_chain(self) -> None:
        subtask = self.subtask(VALUE)
        subtask.at("a")
        subtask.states[0].update(1)
        again = self.subtask(VALUE, LIST, restored=subtask.checkpoint(), completed=1)
        again.at("a")
        again.states[1].add("x")
        assert self.held_by(again.checkpoint(), VALUE, LIST, key="a") == [1, ["x"]]

    def test_keys_of_the_jobs_own_classes_stay_in_the_chain(self) -> None:
        sample = [Colour.RED, Colour.BLUE, Account("north", 1), "plain"]
        subtask = self.everything_under(sample)
        again = self.subtask(*ALL, restored=subtask.checkpoint(), completed=1)
        again.at(Colour.RED)
        self._change(again.states)
        again.at("plain")
        self._clear(again.states)
        parts = again.checkpoint()
        self._same(again, parts, sample, *ALL)
        once_more = self.subtask(*ALL, restored=parts, completed=2)
        once_more.at(Account("north", 1))
        self._clear(once_more.states)
        self._same(once_more, once_more.checkpoint(), sample, *ALL)

    # --- long chains ----------------------------------------------------------------------------

    def test_a_chain_does_not_grow_without_end(self) -> None:
        subtask = self.everything_under(range(300))
        for n in range(60):
            subtask.at(n % 7)
            self._change(subtask.states)
            subtask.at(n)
            if n % 5 == 0:
                self._clear(subtask.states)
            parts = subtask.checkpoint()
            assert len(parts) <= 50 * len(ALL)
        self._same(subtask, parts, range(300), *ALL)

    def test_key_columns_of_several_kinds_meet_in_one_chain(self) -> None:
        subtask = self.subtask(VALUE)
        for sample in (range(100), [f"k{n}" for n in range(9)], [Colour.RED, (1, "a")], [2**70], [5]):
            for key in sample:
                subtask.at(key)
                subtask.states[0].update(len(str(key)))
            parts = subtask.checkpoint()
        expected = {0: 1, 5: 1, "k3": 2, Colour.RED: len(str(Colour.RED)), (1, "a"): 8, 2**70: 22}
        assert self.held(parts, VALUE, expected) == expected
