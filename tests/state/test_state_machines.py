"""Each kind of state against a plain dict, through snapshots, overlapping ones, restarts and rescaling."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moorline.api.states import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from moorline.model import keys as key_codec
from moorline.model.key_groups import owner
from moorline.state.heap import HeapBackend
from moorline.testing.backend_contract.base import MAX_PARALLELISM, Account, Collect, Colour, Saved, at, within

KEYS = [0, 1, 2, -5, "a", "b", (1, "a"), Colour.RED, Account("north", 1), 2.5]
some_key = st.sampled_from(KEYS)
number = st.integers(-9, 9)


class StateMachine(RuleBasedStateMachine):
    """A job with one keyed state: some subtasks, a dict that knows better, and snapshots in the air."""

    descriptor: StateDescriptor

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[Any, Any] = {}
        self.in_the_air: list[tuple[list[list[Any]], dict[Any, Any]]] = []
        self.start(1, [])

    # --- the job --------------------------------------------------------------------------------

    def start(self, parallelism: int, saved: list[Saved]) -> None:
        self.backends = [HeapBackend("op", MAX_PARALLELISM) for _ in range(parallelism)]
        for index, backend in enumerate(self.backends):
            for part in saved:
                backend.restore(part.state, part.kind, part.type, within(part.table, index, parallelism))
        self.states = [b.bind(self.descriptor) for b in self.backends]
        self.in_the_air = []

    def state(self, key: Any) -> Any:
        subtask = owner(key_codec.key_group(key, MAX_PARALLELISM), len(self.backends), MAX_PARALLELISM)
        at(self.backends[subtask], key)
        return self.states[subtask]

    def shown(self, key: Any) -> Any:
        """What the live state holds, in the model's terms; None for nothing."""
        raise NotImplementedError

    @rule()
    @precondition(lambda self: len(self.in_the_air) < 3)
    def begin_snapshot(self) -> None:
        self.in_the_air.append(([b.snapshot() for b in self.backends], copy.deepcopy(self.model)))

    @rule(which=st.integers(0, 2), parallelism=st.none() | st.integers(1, 4))
    @precondition(lambda self: self.in_the_air)
    def finish_snapshot_and_maybe_restart_from_it(self, which: int, parallelism: int | None) -> None:
        parts_of_all, model = self.in_the_air.pop(which % len(self.in_the_air))
        saved = [Saved(p.state, p.kind, p.type, p.table()) for parts in parts_of_all for p in parts]
        for parts in parts_of_all:
            for part in parts:
                part.release()
        before, self.model = self.model, model
        living = (self.backends, self.states, self.in_the_air)
        self.start(parallelism or 1, saved)
        self.state_and_model_agree()
        if parallelism is None:
            self.model = before
            self.backends, self.states, self.in_the_air = living

    @rule(key=some_key)
    def clear(self, key: Any) -> None:
        self.state(key).clear()
        self.model.pop(key, None)

    @invariant()
    def state_and_model_agree(self) -> None:
        assert {k: v for k in KEYS if (v := self.shown(k)) is not None} == self.model
        assert sum(b.entries() for b in self.backends) == len(self.model)


class ValueMachine(StateMachine):
    descriptor = ValueStateDescriptor("s", int)

    def shown(self, key):
        return self.state(key).value()

    @rule(key=some_key, value=number)
    def update(self, key, value):
        self.state(key).update(value)
        self.model[key] = value

    @rule(key=some_key)
    def update_with_none(self, key):
        self.state(key).update(None)
        self.model.pop(key, None)


class MutableValueMachine(StateMachine):
    descriptor = ValueStateDescriptor("s", dict[str, list[int]])

    def shown(self, key):
        return self.state(key).value()

    @rule(key=some_key, value=st.dictionaries(st.sampled_from("xy"), st.lists(number, max_size=2)))
    def update(self, key, value):
        self.state(key).update(copy.deepcopy(value))
        self.model[key] = value

    @rule(key=some_key, n=number)
    def change_in_place(self, key, n):
        value = self.state(key).value()
        if value is None:
            value = {}
        value.setdefault("x", []).append(n)
        self.state(key).update(value)
        self.model.setdefault(key, {}).setdefault("x", []).append(n)


class ListMachine(StateMachine):
    descriptor = ListStateDescriptor("s", int)

    def shown(self, key):
        return list(self.state(key).get()) or None

    @rule(key=some_key, value=number)
    def add(self, key, value):
        self.state(key).add(value)
        self.model.setdefault(key, []).append(value)

    @rule(key=some_key, values=st.lists(number, max_size=3))
    def add_all(self, key, values):
        self.state(key).add_all(values)
        if values:
            self.model.setdefault(key, []).extend(values)

    @rule(key=some_key, values=st.lists(number, max_size=3))
    def update(self, key, values):
        self.state(key).update(values)
        self.model.pop(key, None)
        if values:
            self.model[key] = values


class MutableListMachine(StateMachine):
    descriptor = ListStateDescriptor("s", list[int])

    def shown(self, key):
        return list(self.state(key).get()) or None

    @rule(key=some_key, value=st.lists(number, max_size=2))
    def add(self, key, value):
        self.state(key).add(list(value))
        self.model.setdefault(key, []).append(value)

    @rule(key=some_key, n=number)
    def change_elements_in_place(self, key, n):
        for element in self.state(key).get():
            element.append(n)
        for element in self.model.get(key, ()):
            element.append(n)


class MapMachine(StateMachine):
    descriptor = MapStateDescriptor("s", str, int)

    def shown(self, key):
        return dict(self.state(key).items()) or None

    @rule(key=some_key, inner=st.sampled_from("xyz"), value=number)
    def put(self, key, inner, value):
        self.state(key).put(inner, value)
        self.model.setdefault(key, {})[inner] = value

    @rule(key=some_key, entries=st.dictionaries(st.sampled_from("xyz"), number))
    def put_all(self, key, entries):
        self.state(key).put_all(entries)
        if entries:
            self.model.setdefault(key, {}).update(entries)

    @rule(key=some_key, inner=st.sampled_from("xyz"))
    def remove(self, key, inner):
        assert self.state(key).contains(inner) == (inner in self.model.get(key, {}))
        self.state(key).remove(inner)
        self.model.get(key, {}).pop(inner, None)
        if not self.model.get(key, True):
            del self.model[key]


class ReducingMachine(StateMachine):
    descriptor = ReducingStateDescriptor("s", max, int)

    def shown(self, key):
        return self.state(key).get()

    @rule(key=some_key, value=number)
    def add(self, key, value):
        self.state(key).add(value)
        self.model[key] = max(self.model.get(key, value), value)


class AggregatingMachine(StateMachine):
    """The aggregate changes its accumulator in place."""

    descriptor = AggregatingStateDescriptor("s", Collect(), list[int])

    def shown(self, key):
        return self.state(key).get()

    @rule(key=some_key, value=number)
    def add(self, key, value):
        self.state(key).add(value)
        self.model[key] = (*self.model.get(key, ()), value)


@pytest.mark.parametrize(
    "machine",
    [
        ValueMachine,
        MutableValueMachine,
        ListMachine,
        MutableListMachine,
        MapMachine,
        ReducingMachine,
        AggregatingMachine,
    ],
)
def test_a_state_is_what_a_dict_says_it_is(machine):
    case = machine.TestCase
    case.settings = settings(max_examples=30, stateful_step_count=30)
    case("runTest").runTest()
