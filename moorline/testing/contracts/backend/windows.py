"""States of windows: one for each key and namespace, dealt out by the key alone."""

from __future__ import annotations

from typing import Any

import pytest

from moorline.api.state.descriptors import StateDescriptor
from moorline.api.state.states import ListState, MapState, ValueState
from moorline.errors import NoCurrentKey
from moorline.testing.contracts.backend.base import (
    ALL,
    BASKET,
    DAY,
    HOUR,
    KEYS,
    LIST,
    VALUE,
    Account,
    BackendTests,
    Basket,
    Colour,
    rows_of,
    saved,
    subtask_of,
)


class Windows(BackendTests):
    """States of windows: one for each key and namespace, dealt out by the key alone."""

    def test_windows_of_a_key_do_not_see_each_other(self) -> None:
        subtask = self.subtask(windows=ALL)
        subtask.at("a", HOUR)
        self._fill(subtask.windows)
        subtask.at("a", DAY)
        assert self._shown(subtask.windows) == (7, [], {}, None, None)
        self._fill(subtask.windows)
        self._change(subtask.windows)
        subtask.at("a", HOUR)
        assert self._shown(subtask.windows) == (1, ["x"], {"k": 1}, 1, 1.0)

    def test_keys_do_not_see_each_others_windows(self) -> None:
        subtask = self.subtask(windows=[VALUE])
        for n, key in enumerate(KEYS):
            subtask.at(key)
            subtask.windows[0].update(n)
        assert subtask.held(0, KEYS, window=HOUR) == {key: n for n, key in enumerate(KEYS)}
        assert set(subtask.held(0, KEYS, window=DAY).values()) == {7}

    def test_a_state_of_windows_and_one_of_keys_do_not_see_each_other(self) -> None:
        subtask = self.subtask(VALUE, windows=[LIST])
        subtask.at("a")
        subtask.states[0].update(1)
        subtask.windows[0].add("x")
        assert (subtask.states[0].value(), list(subtask.windows[0].get())) == (1, ["x"])

    def test_clearing_one_window_leaves_the_others(self) -> None:
        subtask = self.subtask(windows=ALL)
        for window in (HOUR, DAY):
            subtask.at("a", window)
            self._fill(subtask.windows)
        for state in subtask.windows:
            state.clear()
        assert self._shown(subtask.windows) == (7, [], {}, None, None)
        subtask.at("a", HOUR)
        assert self._shown(subtask.windows) == (1, ["x"], {"k": 1}, 1, 1.0)

    def test_without_a_current_window_its_state_cannot_be_touched(self) -> None:
        subtask = self.subtask(windows=[VALUE])
        with pytest.raises(NoCurrentKey):
            subtask.windows[0].value()

    @pytest.mark.parametrize("window", [(-5, 0), (-(1 << 63), (1 << 63) - 1), (0, 1)], ids=str)
    @pytest.mark.parametrize("descriptor", ALL, ids=lambda d: d.kind)
    def test_windows_survive_a_restart(self, descriptor: StateDescriptor, window: tuple[int, int]) -> None:
        subtask = self.subtask(windows=[descriptor], incremental=False)
        for at_window in (window, HOUR):
            subtask.at("a", at_window)
            self._put_one(subtask.windows[0])
        before = subtask.held(0, "ab", window=window)
        again = self.subtask(windows=[descriptor], restored=saved(subtask.backend))
        assert again.held(0, "ab", window=window) == before
        assert again.held(0, "ab", window=HOUR) == before
        assert again.held(0, "ab", window=DAY).get("a") in (None, 7)

    def _put_one(self, state: Any) -> None:
        if isinstance(state, ValueState):
            state.update(1)
        elif isinstance(state, ListState):
            state.add_all(["x", "y"])
        elif isinstance(state, MapState):
            state.put_all({"k": 1, "l": 2})
        else:
            state.add(1)

    @pytest.mark.parametrize("incremental", [False, True], ids=["full", "incremental"])
    def test_all_windows_of_a_key_go_where_the_key_goes(self, incremental: bool) -> None:
        subtask = self.subtask(windows=[VALUE], incremental=incremental)
        spans = [(n * 10, n * 10 + 10) for n in range(20)]
        for key in KEYS:
            for n, span in enumerate(spans):
                subtask.at(key, span)
                subtask.windows[0].update(n)
        parts = subtask.checkpoint()
        three = [self.subtask(windows=[VALUE], restored=parts, index=i, parallelism=3, completed=1) for i in range(3)]
        for key in KEYS:
            for n, span in enumerate(spans):
                owner = three[subtask_of(key, 3)]
                assert owner.held(0, [key], window=span) == {key: n}
        if self.exact_entries:
            assert sum(s.backend.entries() for s in three) == len(KEYS) * len(spans)

    def test_rows_of_windows_name_their_window(self) -> None:
        if not self.writes_rows:
            pytest.skip("the backend writes files of its own kind")
        subtask = self.subtask(windows=[VALUE], incremental=False)
        for window in (DAY, HOUR):
            subtask.at("a", window)
            subtask.windows[0].update(window[1])
        spans = [{"start": start, "end": end} for start, end in (HOUR, DAY)]
        assert rows_of(saved(subtask.backend), "value") == [("a", span, span["end"]) for span in spans]

    def test_what_happens_in_a_window_after_the_snapshot_is_not_in_it(self) -> None:
        subtask = self.subtask(windows=[BASKET], incremental=False)
        subtask.at("a")
        subtask.windows[0].update(Basket("ann", ["x"]))
        snapshot = subtask.begin()
        subtask.at("a")
        subtask.windows[0].value().items.append("y")
        subtask.at("a", DAY)
        subtask.windows[0].update(Basket("bob"))
        again = self.subtask(windows=[BASKET], restored=snapshot.done())
        assert again.held(0, "a", window=HOUR) == {"a": Basket("ann", ["x"])}
        assert again.held(0, "a", window=DAY) == {}

    def test_windows_of_the_jobs_own_classes_are_found_again(self) -> None:
        sample = [Colour.RED, Account("north", 1), (Colour.BLUE, 2)]
        subtask = self.subtask(windows=[VALUE], incremental=False)
        for key in sample:
            for window in (HOUR, DAY):
                subtask.at(key, window)
                subtask.windows[0].update(window[1])
        again = self.subtask(windows=[VALUE], restored=saved(subtask.backend))
        for key in sample:
            assert again.held(0, [key], window=DAY) == {key: DAY[1]}
            assert again.held(0, [key], window=HOUR) == {key: HOUR[1]}
        again.at(Colour.RED, HOUR)
        again.windows[0].clear()
        assert again.held(0, [Colour.RED], window=DAY) == {Colour.RED: DAY[1]}

    def test_a_key_with_several_windows_is_one_key(self) -> None:
        subtask = self.subtask(windows=[VALUE])
        for window in (HOUR, DAY):
            subtask.at("a", window)
            subtask.windows[0].update(1)
        subtask.backend.flush()
        assert list(subtask.backend.keys("value")) == ["a"]
