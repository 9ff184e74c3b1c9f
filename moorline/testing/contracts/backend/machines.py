"""Each kind of state, and timers, against a plain dict: through checkpoints, failures, restarts and rescaling.

    MACHINES = machines(lambda *args, **options: MyBackend(*args, **options))

    @pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.__name__)
    def test_a_state_is_what_a_dict_says_it_is(machine):
        run_state_machine_as_test(machine, settings=settings(max_examples=30, stateful_step_count=30))

Needs hypothesis. What happens to the job is in ``jobs.py``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from moorline.api.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from moorline.state.backend import KeyedBackend, Namespace, TimerStore
from moorline.testing.contracts.backend.base import Collect
from moorline.testing.contracts.backend.jobs import (
    KEYS,
    OTHERS,
    JobMachine,
    StateMachine,
    number,
    some_key,
    some_window,
)


class ValueMachine(StateMachine):
    descriptor = ValueStateDescriptor("s", int)

    def touch(self, key: Any, window: tuple[int, int]) -> None:
        self.update(key, window, 1)

    @rule(key=some_key, window=some_window, value=number)
    def update(self, key: Any, window: tuple[int, int], value: int) -> None:
        self.state(key, window).update(value)
        self.model[self.ident(key, window)] = value

    @rule(key=some_key, window=some_window)
    def update_with_none(self, key: Any, window: tuple[int, int]) -> None:
        self.state(key, window).update(None)
        self.model.pop(self.ident(key, window), None)


class MutableValueMachine(StateMachine):
    descriptor = ValueStateDescriptor("s", dict[str, list[int]])

    def touch(self, key: Any, window: tuple[int, int]) -> None:
        self.update(key, window, {"x": [1]})

    @rule(key=some_key, window=some_window, value=st.dictionaries(st.sampled_from("xy"), st.lists(number, max_size=2)))
    def update(self, key: Any, window: tuple[int, int], value: dict[str, list[int]]) -> None:
        self.state(key, window).update(copy.deepcopy(value))
        self.model[self.ident(key, window)] = value

    @rule(key=some_key, window=some_window, n=number)
    def change_in_place(self, key: Any, window: tuple[int, int], n: int) -> None:
        state = self.state(key, window)
        value = state.value()
        if value is None:
            value = {}
        value.setdefault("x", []).append(n)
        state.update(value)
        self.model.setdefault(self.ident(key, window), {}).setdefault("x", []).append(n)


class ListMachine(StateMachine):
    descriptor = ListStateDescriptor("s", int)

    def touch(self, key: Any, window: tuple[int, int]) -> None:
        self.add_all(key, window, [1, 2])

    @rule(key=some_key, window=some_window, value=number)
    def add(self, key: Any, window: tuple[int, int], value: int) -> None:
        self.state(key, window).add(value)
        self.model.setdefault(self.ident(key, window), []).append(value)

    @rule(key=some_key, window=some_window, values=st.lists(number, max_size=3))
    def add_all(self, key: Any, window: tuple[int, int], values: list[int]) -> None:
        self.state(key, window).add_all(values)
        if values:
            self.model.setdefault(self.ident(key, window), []).extend(values)

    @rule(key=some_key, window=some_window, values=st.lists(number, max_size=3))
    def update(self, key: Any, window: tuple[int, int], values: list[int]) -> None:
        self.state(key, window).update(values)
        self.model.pop(self.ident(key, window), None)
        if values:
            self.model[self.ident(key, window)] = list(values)


class MutableListMachine(StateMachine):
    descriptor = ListStateDescriptor("s", list[int])

    def touch(self, key: Any, window: tuple[int, int]) -> None:
        self.add(key, window, [1])

    @rule(key=some_key, window=some_window, value=st.lists(number, max_size=2))
    def add(self, key: Any, window: tuple[int, int], value: list[int]) -> None:
        self.state(key, window).add(list(value))
        self.model.setdefault(self.ident(key, window), []).append(value)

    @rule(key=some_key, window=some_window, n=number)
    def change_elements(self, key: Any, window: tuple[int, int], n: int) -> None:
        state = self.state(key, window)
        elements = list(state.get())
        for element in elements:
            element.append(n)
        state.update(elements)
        for element in self.model.get(self.ident(key, window), ()):
            element.append(n)


class MapMachine(StateMachine):
    descriptor = MapStateDescriptor("s", str, int)

    def touch(self, key: Any, window: tuple[int, int]) -> None:
        self.put_all(key, window, {"x": 1, "y": 2})

    @rule(key=some_key, window=some_window, inner=st.sampled_from("xyz"), value=number)
    def put(self, key: Any, window: tuple[int, int], inner: str, value: int) -> None:
        self.state(key, window).put(inner, value)
        self.model.setdefault(self.ident(key, window), {})[inner] = value

    @rule(key=some_key, window=some_window, entries=st.dictionaries(st.sampled_from("xyz"), number))
    def put_all(self, key: Any, window: tuple[int, int], entries: dict[str, int]) -> None:
        self.state(key, window).put_all(entries)
        if entries:
            self.model.setdefault(self.ident(key, window), {}).update(entries)

    @rule(key=some_key, window=some_window, inner=st.sampled_from("xyz"))
    def remove(self, key: Any, window: tuple[int, int], inner: str) -> None:
        state, ident = self.state(key, window), self.ident(key, window)
        assert state.contains(inner) == (inner in self.model.get(ident, {}))
        state.remove(inner)
        self.model.get(ident, {}).pop(inner, None)
        if not self.model.get(ident, True):
            del self.model[ident]


class ReducingMachine(StateMachine):
    descriptor = ReducingStateDescriptor("s", max, int)

    def touch(self, key: Any, window: tuple[int, int]) -> None:
        self.add(key, window, 1)

    @rule(key=some_key, window=some_window, value=number)
    def add(self, key: Any, window: tuple[int, int], value: int) -> None:
        self.state(key, window).add(value)
        ident = self.ident(key, window)
        self.model[ident] = max(self.model.get(ident, value), value)


class AggregatingMachine(StateMachine):
    """The aggregate changes its accumulator in place."""

    descriptor = AggregatingStateDescriptor("s", Collect(), list[int])

    def touch(self, key: Any, window: tuple[int, int]) -> None:
        self.add(key, window, 1)

    @rule(key=some_key, window=some_window, value=number)
    def add(self, key: Any, window: tuple[int, int], value: int) -> None:
        self.state(key, window).add(value)
        ident = self.ident(key, window)
        self.model[ident] = (*self.model.get(ident, ()), value)


class TimersMachine(JobMachine):
    """The model knows the timers of each key as a set of (time, namespace)."""

    timers = ("event",)

    def touch(self, key: Any, window: tuple[int, int]) -> None:
        self.register(key, 1000, window)

    def _timers(self, key: Any) -> tuple[TimerStore, Any]:
        """The timers of the subtask that has a key, and what stands for the key there."""
        subtask = self.owner(key)
        subtask.at(key)
        return subtask.timers[0], subtask.backend.identities.of(key)

    def _of_key(self, key: Any) -> list[tuple[int, Namespace]]:
        timers, identity = self._timers(key)
        return timers.of_key(identity)

    def agree(self) -> None:
        for key in [*KEYS, *OTHERS]:
            timers = self._of_key(key)
            assert [time for time, _ in timers] == sorted(time for time, _ in timers)
            assert (len(timers), set(timers)) == (len(self.model.get(key, ())), self.model.get(key, set())), key

    @rule(key=some_key, window=some_window)
    def look(self, key: Any, window: tuple[int, int]) -> None:
        assert set(self._of_key(key)) == self.model.get(key, set())

    @rule(key=some_key, time=number, namespace=st.none() | some_window)
    def register(self, key: Any, time: int, namespace: Namespace) -> None:
        timers, identity = self._timers(key)
        timers.register(time, identity, namespace)
        self.model.setdefault(key, set()).add((time, namespace))

    @rule(key=some_key, time=number, namespace=st.none() | some_window)
    def delete(self, key: Any, time: int, namespace: Namespace) -> None:
        timers, identity = self._timers(key)
        timers.delete(time, identity, namespace)
        self.model.get(key, set()).discard((time, namespace))

    @rule(up_to=number)
    def fire(self, up_to: int) -> None:
        expected = {(time, key, n) for key, timers in self.model.items() for time, n in timers if time <= up_to}
        fired = []
        for subtask in self.subtasks:
            of_subtask = []
            while (timer := subtask.timers[0].pop_due(up_to)) is not None:
                of_subtask.append(timer)
            assert [time for time, _, _ in of_subtask] == sorted(time for time, _, _ in of_subtask)
            subtask.backend.flush()
            fired += of_subtask
        assert len(fired) == len(expected)
        assert set(fired) == expected
        for time, key, namespace in fired:
            self.model[key].discard((time, namespace))


KINDS: tuple[type[StateMachine], ...] = (
    ValueMachine,
    MutableValueMachine,
    ListMachine,
    MutableListMachine,
    MapMachine,
    ReducingMachine,
    AggregatingMachine,
)


def machines(factory: Callable[..., KeyedBackend]) -> list[type[JobMachine]]:
    """All machines, for backends that are made by ``factory``, which is called as ``make_backend`` of the contract is.

    >>> from moorline.state.heap.backend import HeapBackend
    >>> [machine.__name__ for machine in machines(HeapBackend)][:2]
    ['ValueMachine', 'WindowedValueMachine']
    """
    made: list[type[JobMachine]] = []
    for kind in KINDS:
        for name, is_windowed in ((kind.__name__, False), (f"Windowed{kind.__name__}", True)):
            made.append(type(name, (kind,), {"factory": staticmethod(factory), "is_windowed": is_windowed}))
    return [*made, type("TimersMachine", (TimersMachine,), {"factory": staticmethod(factory)})]
