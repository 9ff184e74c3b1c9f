"""What every state backend must do, as tests: for ours and for yours.

    class TestMyBackend(KeyedBackendContract):
        def make_backend(self, uid, max_parallelism):
            return MyBackend(uid, max_parallelism)

Needs pytest. A backend that passes can be restored at any parallelism, and a snapshot of it shows the state as it
was at the barrier, whatever the stream has done to it since.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from enum import Enum, IntEnum
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from moorline.api.functions import AggregateFunction, ReduceFunction
from moorline.api.states import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from moorline.errors import InvalidArgument, NoCurrentKey, StateIncompatible, StateTypeMismatch, UnsupportedType
from moorline.model import keys
from moorline.model.key_groups import owned
from moorline.state.backend import NO_KEY, KeyedBackend, Part

MAX_PARALLELISM = 128


class Colour(Enum):
    """A key, and a value, that only the job's own code can make."""

    RED = 1
    BLUE = 2


class Size(IntEnum):
    """A key that equals a number."""

    SMALL = 1
    LARGE = 2


@dataclasses.dataclass(frozen=True)
class Account:
    """A key made of two parts."""

    bank: str
    number: int


@dataclasses.dataclass
class Basket:
    """A value that can be changed in place."""

    owner: str
    items: list[str] = dataclasses.field(default_factory=list)


class Sum(ReduceFunction):
    """Adds."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1 + value2


class Mean(AggregateFunction[float, tuple[int, float], float]):
    """A mean, as count and total."""

    def create_accumulator(self) -> tuple[int, float]:
        return 0, 0.0

    def add(self, value: float, accumulator: tuple[int, float]) -> tuple[int, float]:
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator: tuple[int, float]) -> float:
        return accumulator[1] / accumulator[0]


class Collect(AggregateFunction[Any, list[Any], tuple[Any, ...]]):
    """Changes its accumulator in place, as Flink allows."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[Any]) -> tuple[Any, ...]:
        return tuple(accumulator)


VALUE = ValueStateDescriptor("value", int, 7)
LIST = ListStateDescriptor("list", str)
MAP = MapStateDescriptor("map", str, int)
REDUCING = ReducingStateDescriptor("reducing", Sum(), int)
AGGREGATING = AggregatingStateDescriptor("aggregating", Mean(), tuple[int, float])
ALL = (VALUE, LIST, MAP, REDUCING, AGGREGATING)

BASKET = ValueStateDescriptor("basket", Basket)
BASKETS = ListStateDescriptor("baskets", Basket)
BASKET_MAP = MapStateDescriptor("basket_map", str, Basket)

#: One of each kind of key. No two are equal.
KEYS: list[Any] = [
    0,
    -1,
    2**70,
    1.5,
    "",
    "a",
    "größe",
    b"",
    b"\0a",
    date(2024, 2, 29),
    datetime(2024, 2, 29, 12),
    datetime(2024, 2, 29, 12, tzinfo=UTC),
    time(12),
    UUID(int=5),
    (),
    ("a", 1),
    (("a",), (1, b"x")),
    Colour.RED,
    Colour.BLUE,
    Account("north", 1),
    ("a", Colour.RED),
    Size.LARGE,
]


class Saved(NamedTuple):
    """One state of one backend, as it was written."""

    state: str
    kind: str
    type: str
    table: pa.Table


def at(backend: KeyedBackend, key: Any) -> None:
    """A record with ``key`` is being processed from now on."""
    backend.claim([key])
    backend.current.key = key


@contextmanager
def snapshot_of(backend: KeyedBackend) -> Iterator[dict[str, Part]]:
    """A snapshot in the air: taken at the start of the block, released at its end."""
    parts = backend.snapshot()
    try:
        yield {part.state: part for part in parts}
    finally:
        for part in parts:
            part.release()


def saved(backend: KeyedBackend) -> list[Saved]:
    """A whole snapshot, written at once."""
    with snapshot_of(backend) as parts:
        return [Saved(p.state, p.kind, p.type, p.table()) for p in parts.values()]


def rows(part: Part) -> list[tuple[Any, ...]]:
    """The rows of a part without their key groups."""
    return [tuple(row.values()) for row in part.table().drop_columns(["key_group"]).to_pylist()]


def _within(table: pa.Table, subtask: int, parallelism: int) -> pa.Table:
    mine = owned(subtask, parallelism, MAX_PARALLELISM)
    groups = table["key_group"]
    return table.filter(pc.and_(pc.greater_equal(groups, mine.first), pc.less(groups, mine.end)))


class KeyedBackendContract:
    """One test per promise of ``state/backend.py`` and of the five state interfaces. Override ``make_backend``."""

    def make_backend(self, uid: str, max_parallelism: int) -> KeyedBackend:
        raise NotImplementedError("override this with a function that returns an empty backend")

    @pytest.fixture
    def backend(self) -> KeyedBackend:
        return self.make_backend("op", MAX_PARALLELISM)

    # --- what the tests are told with -----------------------------------------------------------

    def restored(
        self, parts: Iterable[Saved], *descriptors: StateDescriptor, subtask: int = 0, parallelism: int = 1
    ) -> tuple[Any, ...]:
        """A new backend with the rows of one subtask, and its bound states."""
        backend = self.make_backend("op", MAX_PARALLELISM)
        for part in parts:
            table = _within(part.table, subtask, parallelism)
            if table.num_rows:
                backend.restore(part.state, part.kind, part.type, table)
        states = [backend.bind(d) for d in descriptors]
        backend.check_all_bound()
        return backend, *states

    def rescaled(self, parts: list[Saved], parallelism: int, *descriptors: StateDescriptor) -> list[list[Saved]]:
        """What every subtask saves again after a restart at another parallelism."""
        return [
            saved(self.restored(parts, *descriptors, subtask=i, parallelism=parallelism)[0]) for i in range(parallelism)
        ]

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
        assert backend.entries() == 0

    def test_a_cleared_value_is_the_default_again(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(VALUE)
        at(backend, "a")
        state.update(1)
        state.clear()
        state.clear()
        assert state.value() == 7
        assert backend.entries() == 0

    def test_updating_with_none_clears(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(VALUE)
        at(backend, "a")
        state.update(1)
        state.update(None)
        assert state.value() == 7
        assert backend.entries() == 0

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
        assert backend.entries() == 0

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
        assert backend.entries() == 0
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
        state: Any = backend.bind(ReducingStateDescriptor("max", np.maximum, object))
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

    # --- keys -----------------------------------------------------------------------------------

    def test_keys_do_not_see_each_other(self, backend: KeyedBackend) -> None:
        states: list[Any] = [backend.bind(d) for d in ALL]
        value, listed, mapped, reduced, mean = states
        for n, key in enumerate(KEYS):
            at(backend, key)
            value.update(n)
            listed.add(str(n))
            mapped.put("n", n)
            reduced.add(n)
            mean.add(float(n))
        for n, key in enumerate(KEYS):
            at(backend, key)
            assert value.value() == n
            assert list(listed.get()) == [str(n)]
            assert dict(mapped.items()) == {"n": n}
            assert reduced.get() == n
            assert mean.get() == float(n)

    def test_clearing_one_key_leaves_the_others(self, backend: KeyedBackend) -> None:
        states: list[Any] = [backend.bind(d) for d in ALL]
        for key in "ab":
            at(backend, key)
            self._fill(states)
        at(backend, "a")
        for state in states:
            state.clear()
        at(backend, "b")
        assert self._shown(states) == (1, ["x"], {"k": 1}, 1, 1.0)
        at(backend, "a")
        assert self._shown(states) == (7, [], {}, None, None)

    def test_states_do_not_see_each_other(self, backend: KeyedBackend) -> None:
        one: Any = backend.bind(ValueStateDescriptor("one", int))
        two: Any = backend.bind(ValueStateDescriptor("two", int))
        at(backend, "a")
        one.update(1)
        assert two.value() is None

    @pytest.mark.parametrize(
        "equal", [(1, 1.0, True, Size.SMALL), (0.0, -0.0, 0), (("a", 1), ("a", True))], ids=lambda e: repr(e[0])
    )
    def test_keys_that_are_equal_in_python_are_one_key(self, backend: KeyedBackend, equal: tuple[Any, ...]) -> None:
        state: Any = backend.bind(REDUCING)
        for key in equal:
            at(backend, key)
            state.add(1)
        assert state.get() == len(equal)
        assert backend.entries() == 1
        (again, restored) = self.restored(saved(backend), REDUCING)
        for key in equal:
            at(again, key)
            assert restored.get() == len(equal)

    @pytest.mark.parametrize("key", KEYS, ids=repr)
    def test_every_kind_of_key_survives_a_restart(self, backend: KeyedBackend, key: Any) -> None:
        state: Any = backend.bind(VALUE)
        at(backend, key)
        state.update(42)
        (again, restored) = self.restored(saved(backend), VALUE)
        assert again.entries() == 1
        at(again, key)
        assert restored.value() == 42
        restored.update(43)
        assert again.entries() == 1

    def test_without_a_current_key_state_cannot_be_touched(self, backend: KeyedBackend) -> None:
        states: list[Any] = [backend.bind(d) for d in ALL]
        value, listed, mapped, reduced, mean = states
        assert backend.current.key is NO_KEY
        for attempt in (
            value.value,
            value.clear,
            lambda: value.update(1),
            listed.get,
            lambda: listed.add("x"),
            lambda: mapped.get("x"),
            lambda: mapped.put("x", 1),
            lambda: mapped.contains("x"),
            reduced.get,
            lambda: reduced.add(1),
            mean.get,
            lambda: mean.add(1.0),
        ):
            with pytest.raises(NoCurrentKey):
                attempt()
        assert backend.entries() == 0

    def test_entries_count_the_keys_of_all_states(self, backend: KeyedBackend) -> None:
        states: list[Any] = [backend.bind(d) for d in ALL]
        for key in range(3):
            at(backend, key)
            self._fill(states)
        assert backend.entries() == 15

    # --- binding --------------------------------------------------------------------------------

    def test_binding_the_same_state_twice_gives_the_same_object(self, backend: KeyedBackend) -> None:
        assert backend.bind(VALUE) is backend.bind(ValueStateDescriptor("value", int, 7))

    @pytest.mark.parametrize(
        "other", [ListStateDescriptor("value", int), ValueStateDescriptor("value", str)], ids=["kind", "type"]
    )
    def test_one_name_cannot_be_two_states(self, backend: KeyedBackend, other: StateDescriptor) -> None:
        backend.bind(VALUE)
        with pytest.raises(InvalidArgument, match="another name"):
            backend.bind(other)

    def test_a_type_that_cannot_be_stored_is_refused_when_the_state_is_bound(self, backend: KeyedBackend) -> None:
        with pytest.raises(UnsupportedType, match="'socket' of operator 'op'"):
            backend.bind(ValueStateDescriptor("socket", Iterator))

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
        reduced: Any = backend.bind(ReducingStateDescriptor("longest", _merge, list[int]))
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

    # --- restoring ------------------------------------------------------------------------------

    def test_a_restored_backend_is_as_the_old_one_was(self, backend: KeyedBackend) -> None:
        states: list[Any] = [backend.bind(d) for d in ALL]
        for key in "ab":
            at(backend, key)
            self._fill(states)
            self._change(states)
        again, *restored = self.restored(saved(backend), *ALL)
        assert again.entries() == backend.entries()
        for key in "abc":
            at(backend, key)
            at(again, key)
            assert self._shown(restored) == self._shown(states)
        assert saved(again) == saved(backend)

    def test_a_list_comes_back_in_order_and_a_map_with_every_entry(self, backend: KeyedBackend) -> None:
        listed: Any = backend.bind(LIST)
        mapped: Any = backend.bind(MAP)
        for key in range(20):
            at(backend, key)
            listed.update([f"{key}-{n}" for n in range(key + 1)])
            mapped.put_all({f"{key}-{n}": n for n in range(key + 1)})
        again, restored_list, restored_map = self.restored(saved(backend), LIST, MAP)
        for key in range(20):
            at(again, key)
            assert list(restored_list.get()) == [f"{key}-{n}" for n in range(key + 1)]
            assert dict(restored_map.items()) == {f"{key}-{n}": n for n in range(key + 1)}

    @pytest.mark.parametrize("sample", [range(100), [f"k{n}" for n in range(100)], KEYS], ids=["int", "str", "any"])
    def test_state_is_dealt_out_by_key_groups_and_put_together_again(
        self, backend: KeyedBackend, sample: Iterable[Any]
    ) -> None:
        states: list[Any] = [backend.bind(d) for d in ALL]
        for key in sample:
            at(backend, key)
            self._fill(states)
        one = saved(backend)
        three = self.rescaled(one, 3, *ALL)
        assert sum(p.table.num_rows for parts in three for p in parts) == sum(p.table.num_rows for p in one)
        for subtask, parts in enumerate(three):
            mine = owned(subtask, 3, MAX_PARALLELISM)
            assert all(group in mine for p in parts for group in p.table["key_group"].to_pylist())
        two = self.rescaled([p for parts in three for p in parts], 2, *ALL)
        again, *restored = self.restored([p for parts in two for p in parts], *ALL)
        assert again.entries() == backend.entries()
        for key in sample:
            at(again, key)
            assert self._shown(restored) == (1, ["x"], {"k": 1}, 1, 1.0)

    def test_keys_of_the_jobs_own_classes_wait_until_a_record_brings_them(self, backend: KeyedBackend) -> None:
        sample = [Colour.RED, Account("north", 1), (Colour.BLUE, 2), "plain"]
        states: list[Any] = [backend.bind(d) for d in ALL]
        for key in sample:
            at(backend, key)
            self._fill(states)
        again, *restored = self.restored(saved(backend), *ALL)
        assert again.entries() == len(sample) * len(ALL)
        at(again, Account("north", 1))
        assert self._shown(restored) == (1, ["x"], {"k": 1}, 1, 1.0)
        self._change(restored)
        at(again, Account("south", 1))
        assert self._shown(restored) == (7, [], {}, None, None)
        once_more, *last = self.restored(saved(again), *ALL)
        for key in sample:
            at(once_more, key)
            changed = key == Account("north", 1)
            assert last[0].value() == (2 if changed else 1)

    def test_a_waiting_key_is_still_in_the_next_snapshot(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(BASKET)
        at(backend, Colour.RED)
        state.update(Basket("ann", ["x"]))
        again, restored = self.restored(saved(backend), BASKET)
        with snapshot_of(again) as parts:
            at(again, Colour.RED)
            restored.value().items.append("y")
            assert [row[1] for row in rows(parts["basket"])] == [{"owner": "ann", "items": ["x"]}]

    def test_rows_of_several_files_come_together(self, backend: KeyedBackend) -> None:
        other = self.make_backend("op", MAX_PARALLELISM)
        for one, key in ((backend, "a"), (other, 5)):
            state: Any = one.bind(LIST)
            at(one, key)
            state.add(str(key))
        again, restored = self.restored([*saved(backend), *saved(other)], LIST)
        for key in ("a", 5):
            at(again, key)
            assert list(restored.get()) == [str(key)]

    @pytest.mark.parametrize(
        "declared",
        [
            ValueStateDescriptor("value", str),
            ValueStateDescriptor("value"),
            ListStateDescriptor("value", int),
            ReducingStateDescriptor("value", max, int),
        ],
        ids=["another type", "no type", "another kind", "a kind that looks the same"],
    )
    def test_state_of_another_shape_is_refused(self, backend: KeyedBackend, declared: StateDescriptor) -> None:
        state: Any = backend.bind(VALUE)
        at(backend, "a")
        state.update(1)
        with pytest.raises(StateIncompatible) as caught:
            self.restored(saved(backend), declared)
        assert (caught.value.uid, caught.value.state, caught.value.stored) == ("op", "value", "value of int")

    def test_state_that_nobody_declares_any_more_is_refused(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(VALUE)
        at(backend, "a")
        state.update(1)
        with pytest.raises(StateIncompatible, match="no such state"):
            self.restored(saved(backend), LIST)

    def test_a_new_state_beside_a_restored_one_starts_empty(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(VALUE)
        at(backend, "a")
        state.update(1)
        again, restored, new = self.restored(saved(backend), VALUE, LIST)
        at(again, "a")
        assert restored.value() == 1
        assert list(new.get()) == []

    # --- a bit of everything --------------------------------------------------------------------

    def _fill(self, states: list[Any]) -> None:
        value, listed, mapped, reduced, mean = states
        value.update(1), listed.add("x"), mapped.put("k", 1), reduced.add(1), mean.add(1.0)

    def _change(self, states: list[Any]) -> None:
        value, listed, mapped, reduced, mean = states
        value.update(2), listed.add("y"), mapped.put_all({"k": 2, "l": 3}), reduced.add(2), mean.add(2.0)

    def _shown(self, states: Iterable[Any]) -> tuple[Any, ...]:
        value, listed, mapped, reduced, mean = states
        return value.value(), list(listed.get()), dict(mapped.items()), reduced.get(), mean.get()

    def _rows(self, *expected: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return sorted(expected, key=lambda row: (keys.key_group(row[0], MAX_PARALLELISM), keys.encode(row[0])))


def _merge(one: list[int], other: list[int]) -> list[int]:
    """Changes its argument in place."""
    one.extend(other)
    return one
