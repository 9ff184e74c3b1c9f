"""The live states of the heap backend: the user's five interfaces over a dict.

These methods run for every record. They look up the current key and touch the dict; nothing else happens unless a
snapshot is being written, when a value that is shared with it is copied before it can change (``state/heap.py``).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from moorline.api.functions import ReduceFunction
from moorline.api.states import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    MapState,
    ReducingState,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from moorline.state.backend import CurrentKey


class Table:
    """One state of one operator: a value per key."""

    __slots__ = ("entries", "private", "snapshots")

    def __init__(self) -> None:
        self.entries: dict[Any, Any] = {}
        #: While a snapshot is being written: the keys whose values it does not share. None: no snapshot.
        self.private: set[Any] | None = None
        self.snapshots = 0

    def share(self) -> None:
        """A snapshot has copied the entries: every value is shared now."""
        self.snapshots += 1
        self.private = set()

    def unshare(self) -> None:
        """A snapshot is written, or never will be."""
        self.snapshots -= 1
        if not self.snapshots:
            self.private = None

    def own(self, key: Any, deep: bool) -> Any:
        """The current value of ``key``, the stream's own from now on; None if there is none."""
        value = self.entries.get(key)
        private = self.private
        if value is not None and private is not None and key not in private:
            value = copy.deepcopy(value) if deep else value.copy()
            self.entries[key] = value
            private.add(key)
        return value

    def put(self, key: Any, value: Any) -> None:
        """A new value that no snapshot knows."""
        self.entries[key] = value
        private = self.private
        if private is not None:
            private.add(key)

    def drop(self, key: Any) -> None:
        """Forget the value. Not ``pop``, which does not look at the key if there is none at all."""
        if key in self.entries:
            del self.entries[key]


def live_state(descriptor: StateDescriptor, table: Table, current: CurrentKey, is_immutable: bool) -> State:
    """The live state over ``table``."""
    live: type[State]
    match descriptor.kind:
        case "value":
            live = HeapValueState if is_immutable else MutableHeapValueState
        case "list":
            live = HeapListState
        case "map":
            live = HeapMapState
        case "reducing":
            live = HeapReducingState
        case "aggregating":
            live = HeapAggregatingState
        case _:
            raise ValueError(f"no state of kind {descriptor.kind!r}")
    return live(descriptor, table, current, not is_immutable)  # type: ignore[arg-type]


class HeapValueState(ValueState[Any]):
    """A value that cannot change in place, so it can be handed out and shared as it is.

    Its methods are closures over the dict and the current key: nothing is looked up on ``self``.
    """

    def __init__(self, descriptor: ValueStateDescriptor, table: Table, current: CurrentKey, deep: bool) -> None:
        super().__init__(descriptor.type, default=descriptor.default, name=descriptor.name)
        entries, default = table.entries, descriptor.default
        get, drop = entries.get, table.drop

        def value() -> Any:
            return get(current.key, default)

        def update(value: Any) -> None:
            if value is None:
                drop(current.key)
            else:
                entries[current.key] = value

        def clear() -> None:
            drop(current.key)

        self.value, self.update, self.clear = value, update, clear  # type: ignore[method-assign]


class MutableHeapValueState(ValueState[Any]):
    """A value that user code could change in place: handed out as a copy while a snapshot shares it."""

    def __init__(self, descriptor: ValueStateDescriptor, table: Table, current: CurrentKey, deep: bool) -> None:
        super().__init__(descriptor.type, default=descriptor.default, name=descriptor.name)
        self._table, self._current = table, current

    def value(self) -> Any:
        table = self._table
        if table.private is None:
            value = table.entries.get(self._current.key)
        else:
            value = table.own(self._current.key, True)
        if value is None and self._default is not None:
            return copy.deepcopy(self._default)
        return value

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self._table.put(self._current.key, value)

    def clear(self) -> None:
        self._table.drop(self._current.key)


class HeapListState(ListState[Any]):
    """A list per key. What ``get`` returns is a copy: adding while reading it is fine."""

    def __init__(self, descriptor: Any, table: Table, current: CurrentKey, deep: bool) -> None:
        super().__init__(descriptor.type, name=descriptor.name)
        self._table, self._current, self._deep = table, current, deep

    def get(self) -> list[Any]:
        key, table = self._current.key, self._table
        values = table.own(key, True) if self._deep else table.entries.get(key)
        return values.copy() if values else []

    def add(self, value: Any) -> None:
        values = self._table.own(self._current.key, self._deep)
        if values is None:
            self._table.put(self._current.key, [value])
        else:
            values.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)

    def update(self, values: Iterable[Any]) -> None:
        new = list(values)
        if new:
            self._table.put(self._current.key, new)
        else:
            self.clear()

    def clear(self) -> None:
        self._table.drop(self._current.key)


class HeapMapState(MapState[Any, Any]):
    """A dict per key."""

    def __init__(self, descriptor: Any, table: Table, current: CurrentKey, deep: bool) -> None:
        super().__init__(descriptor.key_type, descriptor.type, name=descriptor.name)
        self._table, self._current, self._deep = table, current, deep

    def _entries(self) -> dict[Any, Any]:
        """The current key's map for reading; a throw-away one if there is none."""
        key, table = self._current.key, self._table
        return (table.own(key, True) if self._deep else table.entries.get(key)) or {}

    def get(self, key: Any, default: Any = None) -> Any:
        return self._entries().get(key, default)

    def put(self, key: Any, value: Any) -> None:
        entries = self._table.own(self._current.key, self._deep)
        if entries is None:
            self._table.put(self._current.key, {key: value})
        else:
            entries[key] = value

    def put_all(self, entries: dict[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        for key, value in dict(entries).items():
            self.put(key, value)

    def contains(self, key: Any) -> bool:
        return key in self._entries()

    def remove(self, key: Any) -> None:
        entries = self._table.own(self._current.key, self._deep)
        if entries is not None:
            entries.pop(key, None)
            if not entries:
                self.clear()

    def keys(self) -> list[Any]:
        return list(self._entries())

    def values(self) -> list[Any]:
        return list(self._entries().values())

    def items(self) -> list[tuple[Any, Any]]:
        return list(self._entries().items())

    def is_empty(self) -> bool:
        return not self._entries()

    def __len__(self) -> int:
        return len(self._entries())

    def clear(self) -> None:
        self._table.drop(self._current.key)


class HeapReducingState(ReducingState[Any]):
    """The reduction of what was added."""

    def __init__(self, descriptor: ReducingStateDescriptor, table: Table, current: CurrentKey, deep: bool) -> None:
        super().__init__(descriptor.type, descriptor.reduce, name=descriptor.name)
        self._table, self._current, self._deep = table, current, deep
        reduce = descriptor.reduce
        self._combine = reduce.reduce if isinstance(reduce, ReduceFunction) else reduce

    def get(self) -> Any:
        key, table = self._current.key, self._table
        return table.own(key, True) if self._deep else table.entries.get(key)

    def add(self, value: Any) -> None:
        before = self.get()
        self._table.put(self._current.key, value if before is None else self._combine(before, value))

    def clear(self) -> None:
        self._table.drop(self._current.key)


class HeapAggregatingState(AggregatingState[Any, Any]):
    """The accumulator of what was added, shown as its result."""

    def __init__(self, descriptor: AggregatingStateDescriptor, table: Table, current: CurrentKey, deep: bool) -> None:
        assert descriptor.aggregate is not None
        super().__init__(descriptor.type, descriptor.aggregate, name=descriptor.name)
        self._table, self._current, self._deep = table, current, deep

    def get(self) -> Any:
        accumulator = self._accumulator()
        return None if accumulator is None else self._aggregate.get_result(accumulator)

    def add(self, value: Any) -> None:
        accumulator = self._accumulator()
        if accumulator is None:
            accumulator = self._aggregate.create_accumulator()
        self._table.put(self._current.key, self._aggregate.add(value, accumulator))

    def _accumulator(self) -> Any:
        key, table = self._current.key, self._table
        return table.own(key, True) if self._deep else table.entries.get(key)

    def clear(self) -> None:
        self._table.drop(self._current.key)
