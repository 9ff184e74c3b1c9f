"""A snapshot shows the state as it was, whatever the stream does meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from moorline.api.states import (
    AggregatingStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from moorline.errors import StateTypeMismatch
from moorline.model import keys
from moorline.state.backend import KeyedBackend
from moorline.testing.backend_contract.base import (
    ALL,
    BASKET,
    BASKET_MAP,
    BASKETS,
    KEYS,
    LIST,
    MAP,
    MAX_PARALLELISM,
    VALUE,
    BackendTests,
    Basket,
    Collect,
    Saved,
    at,
    merge,
    rows,
    saved,
    snapshot_of,
)


class Snapshots(BackendTests):
    """A snapshot shows the state as it was, whatever the stream does meanwhile."""

    # --- snapshots ------------------------------------------------------------------------------

    def test_a_snapshot_has_a_part_for_every_state(self, backend: KeyedBackend) -> None:
        for descriptor in ALL:
            backend.bind(descriptor)
        with snapshot_of(backend) as parts:
            assert {(p.state, p.kind, p.type) for p in parts.values()} == {
                ("value", "value", "int"),
                ("list", "list", "str"),
                ("map", "map", "str to int"),
                ("reducing", "reducing", "int"),
                ("aggregating", "aggregating", "tuple[int, float]"),
            }
            assert all(part.table().num_rows == 0 for part in parts.values())

    @pytest.mark.parametrize(
        "sample", [range(-300, 300), [f"k{n}" for n in range(300)], KEYS], ids=["int", "str", "any"]
    )
    def test_rows_are_sorted_by_key_group_and_key(self, backend: KeyedBackend, sample: Iterable[Any]) -> None:
        states: list[Any] = [backend.bind(d) for d in ALL]
        for key in sample:
            at(backend, key)
            self._fill(states)
            states[1].add("y")
        for part in saved(backend):
            groups, stored = part.table["key_group"].to_pylist(), part.table["key"].to_pylist()
            encoded = [k if pa.types.is_binary(part.table["key"].type) else keys.encode(k) for k in stored]
            assert groups == [keys.encoded_key_group(e, MAX_PARALLELISM) for e in encoded]
            assert list(zip(groups, encoded)) == sorted(zip(groups, encoded))

    def test_the_columns_can_be_read_by_anybody(self, backend: KeyedBackend) -> None:
        states: list[Any] = [backend.bind(d) for d in ALL]
        at(backend, "a")
        self._fill(states)
        with snapshot_of(backend) as parts:
            assert rows(parts["value"]) == [("a", 1)]
            assert rows(parts["list"]) == [("a", "x")]
            assert parts["map"].table().column_names == ["key_group", "key", "map_key", "value"]
            assert rows(parts["map"]) == [("a", "k", 1)]
            assert rows(parts["aggregating"]) == [("a", {"f0": 1, "f1": 1.0})]

    def test_what_happens_after_the_snapshot_is_not_in_it(self, backend: KeyedBackend) -> None:
        states: list[Any] = [backend.bind(d) for d in ALL]
        for key in "ab":
            at(backend, key)
            self._fill(states)
        with snapshot_of(backend) as parts:
            for key in "abc":
                at(backend, key)
                self._change(states)
            at(backend, "b")
            for state in states:
                state.clear()
            assert rows(parts["value"]) == self._rows(("a", 1), ("b", 1))
            assert rows(parts["list"]) == self._rows(("a", "x"), ("b", "x"))
            assert rows(parts["map"]) == self._rows(("a", "k", 1), ("b", "k", 1))
            assert rows(parts["reducing"]) == self._rows(("a", 1), ("b", 1))
            assert [row[1]["f0"] for row in rows(parts["aggregating"])] == [1, 1]
        at(backend, "a")
        assert self._shown(states) == (2, ["x", "y"], {"k": 2, "l": 3}, 3, 1.5)

    def test_a_value_changed_in_place_after_the_snapshot_is_not_changed_in_it(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(BASKET)
        at(backend, "a")
        state.update(Basket("ann", ["x"]))
        with snapshot_of(backend) as parts:
            basket = state.value()
            basket.items.append("y")
            state.update(basket)
            state.value().items.append("z")
            assert rows(parts["basket"]) == [("a", {"owner": "ann", "items": ["x"]})]
        assert state.value().items[:2] == ["x", "y"]

    def test_an_untyped_value_changed_in_place_is_not_changed_in_the_snapshot(self, backend: KeyedBackend) -> None:
        descriptor = ValueStateDescriptor("any")
        state: Any = backend.bind(descriptor)
        at(backend, "a")
        state.update({"x": [1, {"y": 2}]})
        with snapshot_of(backend) as parts:
            state.value()["x"][1]["y"] = 3
            part = parts["any"]
            written = [Saved(part.state, part.kind, part.type, part.table())]
        (again, restored) = self.restored(written, descriptor)
        at(again, "a")
        assert restored.value() == {"x": [1, {"y": 2}]}

    def test_elements_changed_in_place_after_the_snapshot_are_not_changed_in_it(self, backend: KeyedBackend) -> None:
        listed: Any = backend.bind(BASKETS)
        mapped: Any = backend.bind(BASKET_MAP)
        at(backend, "a")
        listed.add(Basket("ann", ["x"]))
        mapped.put("k", Basket("bob", ["x"]))
        with snapshot_of(backend) as parts:
            for basket in listed.get():
                basket.items.append("y")
            listed.add(Basket("new"))
            mapped.get("k").items.append("y")
            for basket in mapped.values():
                basket.items.append("z")
            for _, basket in mapped.items():
                basket.owner = "eve"
            mapped.put("l", Basket("new"))
            assert rows(parts["baskets"]) == [("a", {"owner": "ann", "items": ["x"]})]
            assert rows(parts["basket_map"]) == [("a", "k", {"owner": "bob", "items": ["x"]})]

    def test_an_accumulator_changed_in_place_after_the_snapshot_is_not_changed_in_it(
        self, backend: KeyedBackend
    ) -> None:
        aggregated: Any = backend.bind(AggregatingStateDescriptor("all", Collect(), list[int]))
        reduced: Any = backend.bind(ReducingStateDescriptor("longest", merge, list[int]))
        at(backend, "a")
        aggregated.add(1)
        reduced.add([1])
        with snapshot_of(backend) as parts:
            aggregated.add(2)
            reduced.add([2])
            reduced.get().append(3)
            assert rows(parts["all"]) == [("a", [1])]
            assert rows(parts["longest"]) == [("a", [1])]
        assert aggregated.get() == (1, 2)

    def test_two_snapshots_in_the_air_each_show_their_own_moment(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(BASKETS)
        at(backend, "a")
        state.add(Basket("ann", ["1"]))
        with snapshot_of(backend) as first:
            state.get()[0].items.append("2")
            state.update(state.get())
            with snapshot_of(backend) as second:
                changed = list(state.get())
                changed[0].items.append("3")
                state.update(changed)
                assert rows(first["baskets"]) == [("a", {"owner": "ann", "items": ["1"]})]
                assert rows(second["baskets"]) == [("a", {"owner": "ann", "items": ["1", "2"]})]
            changed = list(state.get())
            changed[0].items.append("4")
            state.update(changed)
            assert rows(first["baskets"]) == [("a", {"owner": "ann", "items": ["1"]})]
        assert state.get()[0].items == ["1", "2", "3", "4"]

    def test_the_older_snapshot_may_be_done_before_the_newer_one(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(LIST)
        at(backend, "a")
        state.add("1")
        older = backend.snapshot()
        state.add("2")
        newer = backend.snapshot()
        for part in older:
            part.release()
        state.add("3")
        assert [r[1] for r in rows(newer[0])] == ["1", "2"]

    def test_releasing_a_part_twice_is_harmless(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(LIST)
        at(backend, "a")
        state.add("1")
        older = backend.snapshot()
        newer = backend.snapshot()
        for part in [*older, *older]:
            part.release()
        state.add("2")
        assert [r[1] for r in rows(newer[0])] == ["1"]

    def test_a_snapshot_can_be_asked_for_its_table_again(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(VALUE)
        at(backend, "a")
        state.update(1)
        with snapshot_of(backend) as parts:
            assert parts["value"].table() == parts["value"].table()

    def test_a_snapshot_changes_nothing(self, backend: KeyedBackend) -> None:
        states: list[Any] = [backend.bind(d) for d in ALL]
        at(backend, "a")
        self._fill(states)
        before = self._shown(states)
        first = saved(backend)
        assert self._shown(states) == before
        assert saved(backend) == first

    @pytest.mark.parametrize("wrong", ["text", 1.5, True, 2**63, [1]], ids=repr)
    def test_a_value_that_does_not_fit_its_type_is_an_error_in_the_table(
        self, backend: KeyedBackend, wrong: Any
    ) -> None:
        state: Any = backend.bind(VALUE)
        at(backend, "a")
        state.update(wrong)
        with snapshot_of(backend) as parts, pytest.raises(StateTypeMismatch) as caught:
            parts["value"].table()
        assert (caught.value.state, caught.value.type) == ("value", "int")

    def test_a_map_entry_that_does_not_fit_is_an_error_in_the_table(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(MAP)
        at(backend, "a")
        state.put(1, 1)
        with snapshot_of(backend) as parts, pytest.raises(StateTypeMismatch):
            parts["map"].table()
