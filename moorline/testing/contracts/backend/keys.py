"""The keys of a state, and the binding of states."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from moorline.api.state.descriptors import ListStateDescriptor, StateDescriptor, ValueStateDescriptor
from moorline.errors import (
    InvalidArgument,
    KeyClassesClash,
    KeyClassUnknown,
    NoCurrentKey,
    UnknownState,
    UnsupportedType,
)
from moorline.model.keys import encode
from moorline.state.backend import NO_KEY, KeyedBackend
from moorline.testing.contracts.backend.base import (
    AFTER,
    ALL,
    BEFORE,
    KEYS,
    LIST,
    REDUCING,
    VALUE,
    Account,
    BackendTests,
    Colour,
    Size,
    at,
    key_id,
    saved,
)


class Pair(NamedTuple):
    """A tuple in other clothes."""

    left: Any
    right: Any


class Keys(BackendTests):
    """The keys of a state, and the binding of states."""

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
        "equal",
        [
            (1, 1.0, True, Size.SMALL, Decimal(1), np.int64(1)),
            (0.0, -0.0, 0, Decimal("-0.00")),
            (Decimal("1.1"), Decimal("1.10")),
            (("a", 1), ("a", True), Pair("a", Size.SMALL)),
            (timedelta(days=1), timedelta(hours=24)),
            (frozenset({1, "a"}), frozenset({"a", 1.0})),
            (AFTER, AFTER.astimezone(UTC), AFTER.astimezone(timezone(timedelta(hours=3)))),
        ],
        ids=["numbers", "zero", "decimals", "tuples", "timedeltas", "frozensets", "moments"],
    )
    def test_keys_that_are_equal_are_one_key(self, backend: KeyedBackend, equal: tuple[Any, ...]) -> None:
        state: Any = backend.bind(REDUCING)
        for key in equal:
            at(backend, key)
            state.add(1)
        assert state.get() == len(equal)
        self.check_entries(backend, 1)
        (again, restored) = self.restored(saved(backend), REDUCING)
        for key in equal:
            at(again, key)
            assert restored.get() == len(equal)

    @pytest.mark.parametrize("restarts", [False, True])
    def test_the_two_moments_of_a_repeated_hour_are_two_keys(self, restarts: bool) -> None:
        assert BEFORE == AFTER, "in Python"
        subtask = self.subtask(VALUE, incremental=False)
        for n, key in enumerate((BEFORE, AFTER)):
            subtask.at(key)
            subtask.states[0].update(n)
        if restarts:
            subtask = self.subtask(VALUE, restored=saved(subtask.backend), incremental=False)
        for n, key in enumerate((BEFORE, AFTER)):
            for zone in (ZoneInfo("Europe/Berlin"), UTC):
                subtask.at(key.astimezone(zone))
                assert subtask.states[0].value() == n

    @pytest.mark.parametrize("key", [Colour.RED, Account("north", 1), ("a", Colour.RED)], ids=repr)
    def test_two_classes_of_one_name_are_refused(self, backend: KeyedBackend, key: Any) -> None:
        at(backend, key)
        other: dict[str, Any] = {"Colour": Enum("Colour", "RED BLUE", module="elsewhere")}
        other["Account"] = dataclasses.make_dataclass(
            "Account", ["bank", "number"], frozen=True, namespace={"__module__": "elsewhere"}
        )
        twin = {Colour.RED: other["Colour"].RED, ("a", Colour.RED): ("a", other["Colour"].RED)}.get(key)
        with pytest.raises(KeyClassesClash, match=r"operator 'op'.*'elsewhere'.*Rename one"):
            at(backend, twin or other["Account"]("north", 1))

    @pytest.mark.parametrize("key", KEYS, ids=key_id)
    def test_every_kind_of_key_survives_a_restart(self, backend: KeyedBackend, key: Any) -> None:
        state: Any = backend.bind(VALUE)
        at(backend, key)
        state.update(42)
        (again, restored) = self.restored(saved(backend), VALUE)
        self.check_entries(again, 1)
        at(again, key)
        assert restored.value() == 42
        restored.update(43)
        self.check_entries(again, 1)

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
        self.check_entries(backend, 0)

    def test_entries_count_the_keys_of_all_states(self, backend: KeyedBackend) -> None:
        states: list[Any] = [backend.bind(d) for d in ALL]
        for key in range(3):
            at(backend, key)
            self._fill(states)
        self.check_entries(backend, 15)

    # --- all keys -------------------------------------------------------------------------------

    def test_all_keys_of_a_state_can_be_listed(self, backend: KeyedBackend) -> None:
        value: Any = backend.bind(VALUE)
        listed: Any = backend.bind(LIST)
        for key in KEYS:
            at(backend, key)
            value.update(1)
        listed.add("x")
        at(backend, KEYS[0])
        value.clear()
        backend.flush()
        keys_of_state = list(backend.keys("value"))
        assert sorted(map(encode, keys_of_state)) == sorted(map(encode, KEYS[1:]))
        assert list(map(encode, backend.keys("list"))) == [encode(KEYS[-1])]

    def test_states_may_change_while_their_keys_are_listed(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(VALUE)
        for key in range(200):
            at(backend, key)
            state.update(1)
        backend.flush()
        seen = []
        for key in backend.keys("value"):
            seen.append(key)
            at(backend, key)
            state.clear()
            at(backend, key + 1000)
            state.update(1)
            backend.flush()
        assert set(range(200)) <= set(seen)
        assert {key - 1000 for key in backend.keys("value")} == set(seen)

    def test_a_state_that_nobody_has_bound_has_no_keys_to_list(self, backend: KeyedBackend) -> None:
        with pytest.raises(UnknownState):
            list(backend.keys("nothing"))

    def test_restored_keys_of_declared_classes_can_be_listed(self) -> None:
        sample = [Colour.RED, Account("north", 1), (Colour.BLUE, Account("south", 2)), 5]
        subtask = self.subtask(VALUE, incremental=False)
        for key in sample:
            subtask.at(key)
            subtask.states[0].update(1)
        declared = Colour | Account | tuple[Colour, Account] | int
        again = self.subtask(VALUE, restored=saved(subtask.backend), key_type=declared)
        assert set(again.backend.keys("value")) == set(sample)

    def test_restored_keys_of_unknown_classes_cannot_be_listed(self) -> None:
        subtask = self.subtask(VALUE, incremental=False)
        subtask.at(Account("north", 1))
        subtask.states[0].update(1)
        again = self.subtask(VALUE, restored=saved(subtask.backend))
        with pytest.raises(KeyClassUnknown, match="Account"):
            list(again.backend.keys("value"))
        again.at(Account("north", 1))
        again.backend.flush()
        assert list(again.backend.keys("value")) == [Account("north", 1)]

    # --- claiming -------------------------------------------------------------------------------

    def test_claiming_keys_that_are_not_there_makes_nothing(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(VALUE)
        identities = backend.identities.of_batch(KEYS)
        backend.prefetch(identities)
        for backend.current.key in identities:
            assert state.value() == 7
        backend.flush()
        self.check_entries(backend, 0)

    def test_a_batch_may_have_a_key_many_times(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(REDUCING)
        for _ in range(3):
            batch = backend.identities.of_batch(["a", "b", "a", Colour.RED, "a", Colour.RED])
            backend.prefetch(iter(batch))
            for key in batch:
                backend.current.key = key
                state.add(1)
            backend.flush()
        for key, times in (("a", 9), (Colour.RED, 6)):
            at(backend, key)
            assert state.get() == times

    def test_a_state_may_have_many_keys(self, backend: KeyedBackend) -> None:
        state: Any = backend.bind(VALUE)
        backend.prefetch(range(20_000))
        for key in range(20_000):
            backend.current.key = key
            state.update(key * 2)
        backend.flush()
        again, restored = self.restored(saved(backend), VALUE)
        self.check_entries(again, 20_000)
        again.prefetch(range(20_000))
        for key in range(20_000):
            again.current.key = key
            assert restored.value() == key * 2

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
