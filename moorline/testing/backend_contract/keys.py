"""Which keys there are, and how states are bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moorline.api.states import (
    ListStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from moorline.errors import InvalidArgument, NoCurrentKey, UnsupportedType
from moorline.state.backend import NO_KEY, KeyedBackend
from moorline.testing.backend_contract.base import (
    ALL,
    KEYS,
    REDUCING,
    VALUE,
    BackendTests,
    Size,
    at,
    saved,
)


class Keys(BackendTests):
    """Which keys there are, and how states are bound."""

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
