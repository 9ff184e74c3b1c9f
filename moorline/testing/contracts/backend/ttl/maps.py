"""Maps whose entries expire: whichever way one looks at a map, it shows the same."""

from __future__ import annotations

import pytest

from moorline.api.state.descriptors import MapStateDescriptor
from moorline.state.backend import OperatorClock
from moorline.testing.contracts.backend.base import MAP
from moorline.testing.contracts.backend.ttl.rules import LENGTH, START, TtlTests, living


class TtlMaps(TtlTests):
    """Each entry of a map lives its own life."""

    def test_map_entries_expire_one_by_one(self, moment: OperatorClock) -> None:
        subtask = self.under(moment, living(MAP))
        (state,) = subtask.states
        state.put("x", 1)
        moment.processing_ms += LENGTH // 2
        state.put_all({"y": 2, "z": 3})
        moment.processing_ms += LENGTH // 2
        assert state.get("x") is None
        assert state.get("x", 9) == 9
        assert not state.contains("x")
        assert "x" not in state
        assert state.get("y") == state["y"] == 2
        moment.processing_ms += LENGTH // 2
        assert list(state.items()) == []
        self.check_entries(subtask.backend, 0)

    def test_iterating_a_map_passes_over_what_is_expired_and_removes_it(self, moment: OperatorClock) -> None:
        (state,) = self.under(moment, living(MAP)).states
        state.put_all({"x": 1, "y": 2})
        moment.processing_ms += LENGTH // 2
        state.put("y", 3)
        moment.processing_ms += LENGTH // 2
        assert (len(state), state.is_empty()) == (1, False)
        assert (list(state.keys()), list(state.values()), list(state.items())) == (["y"], [3], [("y", 3)])
        assert list(state) == ["y"]
        moment.processing_ms = START
        assert state.get("x") is None
        moment.processing_ms += 2 * LENGTH
        assert (len(state), state.is_empty(), list(state.items())) == (0, True, [])

    @pytest.mark.parametrize("read", ["contains", "get", "items", "keys", "values"])
    def test_looking_for_an_entry_counts_as_reading_it(self, read: str, moment: OperatorClock) -> None:
        (state,) = self.under(moment, living(MAP, update="on_read_and_write")).states
        state.put("k", 1)
        for _ in range(3):
            moment.processing_ms += LENGTH - 1
            getattr(state, read)(*["k"] if read in ("contains", "get") else [])
        assert state.get("k") == 1

    def test_counting_entries_does_not_touch_them(self, moment: OperatorClock) -> None:
        (state,) = self.under(moment, living(MAP, update="on_read_and_write")).states
        state.put("k", 1)
        moment.processing_ms += LENGTH - 1
        assert (len(state), state.is_empty()) == (1, False)
        moment.processing_ms += 1
        assert (len(state), state.is_empty()) == (0, True)

    @pytest.mark.parametrize("look", ["contains", "in", "get", "[]", "items", "keys", "values"])
    def test_an_expired_entry_is_shown_once_however_one_looks(self, look: str, moment: OperatorClock) -> None:
        (state,) = self.under(moment, living(MAP, visibility="return_expired_if_not_cleaned_up")).states
        state.put("k", 1)
        moment.processing_ms += LENGTH
        assert (len(state), state.is_empty()) == (1, False)
        match look:
            case "contains":
                assert state.contains("k")
            case "in":
                assert "k" in state
            case "get":
                assert state.get("k") == 1
            case "[]":
                assert state["k"] == 1
            case _:
                assert len(list(getattr(state, look)())) == 1
        assert (len(state), state.is_empty(), state.contains("k")) == (0, True, False)
        with pytest.raises(KeyError):
            state["k"]

    def test_none_is_a_value_of_a_map_like_any_other(self, moment: OperatorClock) -> None:
        (state,) = self.under(moment, living(MapStateDescriptor("map", str, int | None))).states
        state.put("k", None)
        assert (state.contains("k"), state.get("k", 9), state["k"], dict(state.items())) == (
            True,
            None,
            None,
            {"k": None},
        )
        moment.processing_ms += LENGTH
        assert (state.contains("k"), state.get("k", 9), dict(state.items())) == (False, 9, {})

    def test_entries_are_removed_as_from_a_dict(self, moment: OperatorClock) -> None:
        (state,) = self.under(moment, living(MAP)).states
        state["x"], state["y"] = 1, 2
        del state["x"]
        state.remove("gone")
        assert dict(state.items()) == {"y": 2}
        moment.processing_ms += LENGTH
        with pytest.raises(KeyError):
            del state["y"]
