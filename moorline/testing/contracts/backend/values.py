"""The five kinds of state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from moorline.api.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from moorline.state.backend import KeyedBackend
from moorline.testing.contracts.backend.base import (
    AGGREGATING,
    LIST,
    MAP,
    REDUCING,
    VALUE,
    BackendTests,
    Basket,
    Collect,
    at,
    saved,
)


class Values(BackendTests):
    """The five kinds of state."""

    # --- value state ----------------------------------------------------------------------------

    def test_a_value_is_what_it_was_updated_to(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(VALUE)
        at(backend, "a")
        state.update(1)
        state.update(2)
        assert state.value() == 2

    def test_a_value_that_was_never_set_is_the_default(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(VALUE)
        plain: Any = backend.bind(ValueStateDescriptor("plain", int))
        at(backend, "a")
        assert state.value() == 7
        assert plain.value() is None

    def test_reading_a_default_stores_nothing(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(VALUE)
        at(backend, "a")
        state.value()
        self.check_entries(backend, 0)

    def test_a_cleared_value_is_the_default_again(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(VALUE)
        at(backend, "a")
        state.update(1)
        state.clear()
        state.clear()
        assert state.value() == 7
        self.check_entries(backend, 0)

    def test_updating_with_none_clears(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(VALUE)
        at(backend, "a")
        state.update(1)
        state.update(None)
        assert state.value() == 7
        self.check_entries(backend, 0)

    @pytest.mark.parametrize("falsy", [0, False, "", [], {}, ()], ids=repr)
    def test_a_falsy_value_is_a_value(self, backend: KeyedBackend, falsy: Any) -> None:
        state: Any = backend.bind(ValueStateDescriptor("any", object, "default"))
        at(backend, "a")
        state.update(falsy)
        assert state.value() == falsy
        (again, restored) = self.restored(saved(backend), ValueStateDescriptor("any", object, "default"))
        at(again, "a")
        assert restored.value() == falsy

    def test_a_default_that_is_changed_in_place_changes_for_nobody_else(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(ValueStateDescriptor("basket", Basket, Basket("nobody")))
        at(backend, "a")
        state.value().items.append("x")
        at(backend, "b")
        assert state.value() == Basket("nobody")

    # --- list state -----------------------------------------------------------------------------

    def test_a_list_grows_in_order(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(LIST)
        at(backend, "a")
        state.add("x")
        state.add_all(["y", "z"])
        state.add_all(iter(["x"]))
        assert list(state.get()) == ["x", "y", "z", "x"]
        assert list(state) == ["x", "y", "z", "x"]

    def test_an_empty_list_is_empty(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(LIST)
        at(backend, "a")
        assert list(state.get()) == []
        state.add_all([])
        assert list(state.get()) == []

    def test_updating_a_list_replaces_it_and_with_nothing_clears_it(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(LIST)
        at(backend, "a")
        state.add("x")
        state.update(["y"])
        assert list(state.get()) == ["y"]
        state.update([])
        assert list(state.get()) == []
        self.check_entries(backend, 0)

    def test_a_cleared_list_can_grow_again(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(LIST)
        at(backend, "a")
        state.add("x")
        state.clear()
        state.add("y")
        assert list(state.get()) == ["y"]

    def test_what_a_list_was_updated_with_can_be_changed_afterwards(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(LIST)
        at(backend, "a")
        values = ["x"]
        state.update(values)
        values.append("y")
        assert list(state.get()) == ["x"]

    def test_a_list_can_grow_while_it_is_read(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(LIST)
        at(backend, "a")
        state.update(["x", "y"])
        for value in state.get():
            state.add(value + value)
        assert list(state.get()) == ["x", "y", "xx", "yy"]

    def test_a_long_list_survives_a_restart(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(LIST)
        words = [f"w{n}" for n in range(50_000)]
        for key in "ab":
            at(backend, key)
            state.update(words[:40_000])
            state.add_all(words[40_000:])
        (again, restored) = self.restored(saved(backend), LIST)
        for key in "ab":
            at(again, key)
            assert list(restored.get()) == words

    def test_a_list_keeps_none_as_an_element(self, backend: KeyedBackend) -> None:
        descriptor = ListStateDescriptor("list", int | None)
        state: Any = backend.bind(descriptor)
        at(backend, "a")
        state.add_all([1, None, 2])
        assert list(state.get()) == [1, None, 2]
        (again, restored) = self.restored(saved(backend), descriptor)
        at(again, "a")
        assert list(restored.get()) == [1, None, 2]

    # --- map state ------------------------------------------------------------------------------

    def test_a_map_has_flinks_manners(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(MAP)
        at(backend, "a")
        assert state.is_empty()
        state.put("x", 1)
        state.put_all({"y": 2, "z": 3})
        state.put("x", 10)
        assert state.get("x") == 10
        assert state.contains("y")
        state.remove("y")
        state.remove("y")
        assert not state.contains("y")
        assert sorted(state.keys()) == ["x", "z"]
        assert sorted(state.values()) == [3, 10]
        assert sorted(state.items()) == [("x", 10), ("z", 3)]
        assert not state.is_empty()

    def test_a_map_has_a_dicts_manners(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(MAP)
        at(backend, "a")
        state["x"] = 1
        state["y"] = 2
        assert state["x"] == 1
        assert ("x" in state, "q" in state) == (True, False)
        assert len(state) == 2
        del state["x"]
        assert list(state) == ["y"]
        assert state.get("x", 5) == 5
        assert state.get("x") is None

    def test_a_missing_entry_is_a_key_error_as_in_a_dict(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(MAP)
        at(backend, "a")
        with pytest.raises(KeyError):
            state["x"]
        with pytest.raises(KeyError):
            del state["x"]

    def test_put_all_takes_pairs_as_well(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(MAP)
        at(backend, "a")
        state.put_all([("x", 1), ("y", 2)])
        assert dict(state.items()) == {"x": 1, "y": 2}

    def test_a_map_keeps_none_as_a_value(self, backend: KeyedBackend) -> None:
        descriptor = MapStateDescriptor("map", str, int | None)
        state: Any = backend.bind(descriptor)
        at(backend, "a")
        state.put("x", None)
        assert state.contains("x")
        (again, restored) = self.restored(saved(backend), descriptor)
        at(again, "a")
        assert restored.contains("x")
        assert restored.get("x", 5) is None

    def test_a_map_that_lost_its_last_entry_is_gone(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(MAP)
        at(backend, "a")
        state.put("x", 1)
        state.remove("x")
        assert state.is_empty()
        self.check_entries(backend, 0)
        state.put("y", 1)
        state.clear()
        assert len(state) == 0

    def test_a_map_can_change_while_it_is_read(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(MAP)
        at(backend, "a")
        state.put_all({"x": 1, "y": 2})
        for key in state.keys():  # noqa: SIM118
            state.remove(key)
            state.put(key + key, 0)
        assert sorted(state.keys()) == ["xx", "yy"]

    def test_a_large_map_survives_a_restart(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(MAP)
        at(backend, "a")
        state.put_all({f"k{n}": n for n in range(20_000)})
        state.remove("k7")
        (again, restored) = self.restored(saved(backend), MAP)
        at(again, "a")
        assert len(restored) == 19_999
        assert restored.get("k19999") == 19_999
        assert not restored.contains("k7")

    # --- reducing and aggregating state ---------------------------------------------------------

    def test_reducing_state_reduces(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(REDUCING)
        at(backend, "a")
        assert state.get() is None
        state.add(0)
        assert state.get() == 0
        state.add(3)
        state.add(4)
        assert state.get() == 7
        state.clear()
        assert state.get() is None

    def test_reducing_state_takes_a_plain_function(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(ReducingStateDescriptor("max", max, int))
        at(backend, "a")
        for n in (3, 9, 4):
            state.add(n)
        assert state.get() == 9

    def test_a_plain_function_may_have_a_method_called_reduce(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(ReducingStateDescriptor("max", np.maximum, int))
        at(backend, "a")
        for n in (3, 9, 4):
            state.add(n)
        assert state.get() == 9

    def test_aggregating_state_keeps_an_accumulator_and_shows_its_result(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(AGGREGATING)
        at(backend, "a")
        assert state.get() is None
        state.add(1.0)
        state.add(2.0)
        assert state.get() == 1.5
        state.clear()
        assert state.get() is None
        state.add(9.0)
        assert state.get() == 9.0

    def test_aggregating_state_allows_an_accumulator_that_changes_in_place(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(AggregatingStateDescriptor("all", Collect(), list[int]))
        for key in "ab":
            at(backend, key)
            state.add(1)
            state.add(2)
        assert state.get() == (1, 2)
