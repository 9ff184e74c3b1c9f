"""A snapshot shows the state as it was, whatever the stream does meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from moorline.api.state.descriptors import AggregatingStateDescriptor, ReducingStateDescriptor, ValueStateDescriptor
from moorline.errors import StateTypeMismatch
from moorline.model import keys
from moorline.model.manifest import StoredState
from moorline.state.backend import Files, KeyedBackend, Rows
from moorline.testing.contracts.backend.base import (
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
    at,
    merge,
    rows_of,
    saved,
    snapshot_of,
)

ACCUMULATED = AggregatingStateDescriptor("all", Collect(), list[int])
LONGEST = ReducingStateDescriptor("longest", merge, list[int])


class Snapshots(BackendTests):
    """A snapshot shows the state as it was, whatever the stream does meanwhile."""

    def test_a_snapshot_names_every_state(self, backend: KeyedBackend) -> None:
        for descriptor in ALL:
            backend.bind(descriptor)
        with snapshot_of(backend) as snapshot:
            named = set()
            for part in snapshot.snapshot.parts:
                states = part.states if isinstance(part, Files) else [StoredState(part.state, part.kind, part.type)]
                named |= {(name, kind, str(stored)) for name, kind, stored in states}
            assert named == {
                ("value", "value", "int"),
                ("list", "list", "str"),
                ("map", "map", "str to int"),
                ("reducing", "reducing", "int"),
                ("aggregating", "aggregating", "tuple[int, float]"),
            }
            assert all(part.stored_rows == 0 for part in snapshot.write())

    # --- rows -----------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "sample", [range(-300, 300), [f"k{n}" for n in range(300)], KEYS], ids=["int", "str", "any"]
    )
    def test_rows_are_sorted_by_key_group_and_key(self, backend: KeyedBackend, sample: Iterable[Any]) -> None:
        self._only_if_rows()
        states: list[Any] = [backend.bind(d) for d in ALL]
        for key in sample:
            at(backend, key)
            self._fill(states)
            states[1].add("y")
        for part in saved(backend):
            for table in part.tables:
                groups, stored = table["key_group"].to_pylist(), table["key"].to_pylist()
                encoded = [k if pa.types.is_binary(table["key"].type) else keys.encode(k) for k in stored]
                assert groups == [keys.encoded_key_group(e, MAX_PARALLELISM) for e in encoded]
                assert list(zip(groups, encoded)) == sorted(zip(groups, encoded))

    def test_the_columns_can_be_read_by_anybody(self, backend: KeyedBackend) -> None:
        self._only_if_rows()
        states: list[Any] = [backend.bind(d) for d in ALL]
        at(backend, "a")
        self._fill(states)
        parts = saved(backend)
        assert rows_of(parts, "value") == [("a", 1)]
        assert rows_of(parts, "list") == [("a", "x")]
        assert rows_of(parts, "map") == [("a", "k", 1)]
        assert rows_of(parts, "aggregating") == [("a", {"f0": 1, "f1": 1.0})]
        (mapped,) = [p for p in parts if p.state == "map"]
        assert mapped.tables[0].column_names == ["key_group", "key", "map_key", "value"]

    def test_rows_of_a_large_state_come_in_tables_cut_between_key_groups(self, backend: KeyedBackend) -> None:
        self._only_if_rows()
        state: Any = backend.bind(ValueStateDescriptor("blob", bytes))
        for key in range(800):
            at(backend, key)
            state.update(bytes(200_000))
        with snapshot_of(backend) as snapshot:
            seen: list[int] = []
            tables = 0
            for part in snapshot.snapshot.parts:
                assert isinstance(part, Rows)
                for table in part.tables():
                    groups = set(table["key_group"].to_pylist())
                    assert not groups & set(seen)
                    assert table.nbytes < 100 << 20
                    seen += groups
                    tables += 1
            assert tables > 1
            assert seen == sorted(seen)

    def _only_if_rows(self) -> None:
        if not self.writes_rows:
            pytest.skip("the backend writes files of its own kind")

    # --- as it was at the barrier ---------------------------------------------------------------

    def test_what_happens_after_the_snapshot_is_not_in_it(self, backend: KeyedBackend) -> None:
        states: list[Any] = [backend.bind(d) for d in ALL]
        for key in "ab":
            at(backend, key)
            self._fill(states)
        with snapshot_of(backend) as snapshot:
            for key in "abc":
                at(backend, key)
                self._change(states)
            at(backend, "b")
            for state in states:
                state.clear()
            for key in "ab":
                assert self.held_by(snapshot.write(), *ALL, key=key) == [1, ["x"], {"k": 1}, 1, 1.0]
            assert self.held_by(snapshot.write(), *ALL, key="c") == [7, None, None, None, None]
        at(backend, "a")
        assert self._shown(states) == (2, ["x", "y"], {"k": 2, "l": 3}, 3, 1.5)

    def test_a_value_changed_in_place_after_the_snapshot_is_not_changed_in_it(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(BASKET)
        at(backend, "a")
        state.update(Basket("ann", ["x"]))
        with snapshot_of(backend) as snapshot:
            basket = state.value()
            basket.items.append("y")
            state.update(basket)
            state.value().items.append("z")
            assert self.held(snapshot.write(), BASKET, "a") == {"a": Basket("ann", ["x"])}
        assert state.value().items[:2] == ["x", "y"]

    def test_an_untyped_value_changed_in_place_is_not_changed_in_the_snapshot(self, backend: KeyedBackend) -> None:
        descriptor = ValueStateDescriptor("any")
        state: Any = backend.bind(descriptor)
        at(backend, "a")
        state.update({"x": [1, {"y": 2}]})
        with snapshot_of(backend) as snapshot:
            state.value()["x"][1]["y"] = 3
            assert self.held(snapshot.write(), descriptor, "a") == {"a": {"x": [1, {"y": 2}]}}

    def test_elements_changed_in_place_after_the_snapshot_are_not_changed_in_it(self, backend: KeyedBackend) -> None:
        listed: Any = backend.bind(BASKETS)
        mapped: Any = backend.bind(BASKET_MAP)
        at(backend, "a")
        listed.add(Basket("ann", ["x"]))
        mapped.put("k", Basket("bob", ["x"]))
        with snapshot_of(backend) as snapshot:
            for basket in listed.get():
                basket.items.append("y")
            listed.add(Basket("new"))
            mapped.get("k").items.append("y")
            for basket in mapped.values():
                basket.items.append("z")
            for _, basket in mapped.items():
                basket.owner = "eve"
            mapped.put("l", Basket("new"))
            held = self.held_by(snapshot.write(), BASKETS, BASKET_MAP, key="a")
            assert held == [[Basket("ann", ["x"])], {"k": Basket("bob", ["x"])}]

    def test_an_accumulator_changed_in_place_after_the_snapshot_is_not_changed_in_it(
        self, backend: KeyedBackend
    ) -> None:
        aggregated: Any = backend.bind(ACCUMULATED)
        reduced: Any = backend.bind(LONGEST)
        at(backend, "a")
        aggregated.add(1)
        reduced.add([1])
        with snapshot_of(backend) as snapshot:
            aggregated.add(2)
            reduced.add([2])
            reduced.get().append(3)
            assert self.held_by(snapshot.write(), ACCUMULATED, LONGEST, key="a") == [(1,), [1]]
        assert aggregated.get() == (1, 2)

    def test_two_snapshots_in_the_air_each_show_their_own_moment(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(BASKETS)
        at(backend, "a")
        state.add(Basket("ann", ["1"]))
        with snapshot_of(backend) as first:
            state.get()[0].items.append("2")
            state.update([Basket("ann", ["1", "2"])])
            with snapshot_of(backend) as second:
                changed = list(state.get())
                changed[0].items.append("3")
                state.update(changed)
                assert self.held(second.write(), BASKETS, "a") == {"a": [Basket("ann", ["1", "2"])]}
            changed = list(state.get())
            changed[0].items.append("4")
            state.update(changed)
            assert self.held(first.write(), BASKETS, "a") == {"a": [Basket("ann", ["1"])]}
        assert state.get()[0].items == ["1", "2", "3", "4"]

    def test_the_older_snapshot_may_be_done_before_the_newer_one(self) -> None:
        subtask = self.subtask(LIST, incremental=False)
        (state,) = subtask.states
        subtask.at("a")
        state.add("1")
        older = subtask.begin()
        state.add("2")
        newer = subtask.begin()
        older.failed()
        state.add("3")
        assert self.held(newer.write(), LIST, "a") == {"a": ["1", "2"]}

    def test_being_told_twice_that_a_snapshot_is_over_is_harmless(self) -> None:
        subtask = self.subtask(LIST, incremental=False)
        (state,) = subtask.states
        subtask.at("a")
        state.add("1")
        older = subtask.begin()
        newer = subtask.begin()
        older.failed()
        older.failed()
        state.add("2")
        assert self.held(newer.write(), LIST, "a") == {"a": ["1"]}

    def test_a_snapshot_changes_nothing(self, backend: KeyedBackend) -> None:
        states: list[Any] = [backend.bind(d) for d in ALL]
        at(backend, "a")
        self._fill(states)
        before = self._shown(states)
        first = saved(backend)
        assert self._shown(states) == before
        assert self.held_by(saved(backend), *ALL, key="a") == self.held_by(first, *ALL, key="a")

    # --- values that do not fit -----------------------------------------------------------------

    @pytest.mark.parametrize("wrong", ["text", 1.5, True, 2**63, [1]], ids=repr)
    def test_a_value_that_does_not_fit_its_type_is_refused_before_it_is_durable(
        self, backend: KeyedBackend, wrong: Any
    ) -> None:
        state: Any = backend.bind(VALUE)
        at(backend, "a")
        with pytest.raises(StateTypeMismatch) as caught:
            state.update(wrong)
            saved(backend)
        assert (caught.value.state, caught.value.type) == ("value", "int")

    def test_a_map_entry_that_does_not_fit_is_refused_before_it_is_durable(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(MAP)
        at(backend, "a")
        with pytest.raises(StateTypeMismatch):
            state.put(1, 1)
            saved(backend)
