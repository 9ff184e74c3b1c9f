"""The live states of the heap backend: the user's five interfaces over a dict.

These methods run for every record. They look up the current key and touch the dict; nothing else happens unless a
snapshot is being written, when a value that is shared with it is copied before it can change
(``state/heap/backend.py``).
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

from moorline.api.functions.base import ReduceFunction
from moorline.api.state.combining import AggregatingState, ReducingState
from moorline.api.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from moorline.api.state.states import ListState, MapState, State, ValueState
from moorline.errors import TtlNotEnabled
from moorline.model.copying.copies import copy_of
from moorline.model.durations import Duration
from moorline.state.backend import CurrentKey

#: So many snapshots that have not completed have an interval of their own.
MAX_INTERVALS = 16


class Table:
    """One state of one operator: a value per key. States of windows are kept under pairs of key and namespace."""

    __slots__ = ("entries", "pending_snapshots")

    def __init__(self) -> None:
        self.entries: dict[Any, Any] = {}
        #: What the snapshots that are being written hold of it. They share values with :attr:`entries`.
        self.pending_snapshots: list[dict[Any, Any]] = []

    def own(self, key: Any, deep: bool) -> Any:
        """The current value of ``key``, which may be changed in place now; None if there is none."""
        value = self.entries.get(key)
        return self._unshared(key, value, deep) if value is not None and self.pending_snapshots else value

    def _unshared(self, key: Any, value: Any, deep: bool) -> Any:
        """The value, or a copy of it in its place if a snapshot holds it too."""
        if any(held.get(key) is value for held in self.pending_snapshots):
            value = copy.deepcopy(value) if deep else value.copy()
            self.entries[key] = value
        return value

    def put(self, key: Any, value: Any) -> None:
        """Replace the value."""
        self.entries[key] = value

    def drop(self, key: Any) -> None:
        """Forget the value. Not ``pop``, which does not look at the key if there is none at all."""
        if key in self.entries:
            del self.entries[key]

    def put_all(self, values: dict[Any, Any]) -> None:
        """Replace many values."""
        self.entries.update(values)

    def take_all(self, keys: list[Any]) -> list[Any]:
        """Forget the values of many keys, and return them: None where there is none."""
        return list(map(self.entries.pop, keys, repeat(None)))


class TrackedTable(Table):
    """A table that knows which keys have changed since each of the last snapshots.

    A value that user code could have changed in place counts as changed when it is handed out.
    """

    __slots__ = ("_intervals", "changed")

    def __init__(self) -> None:
        super().__init__()
        #: The keys that have changed since the last snapshot, and whether each had a value at that time. One that
        #: came and went since then is not listed: windows do so all the time.
        self.changed: dict[Any, bool] = {}
        #: The same for the time between a snapshot and the one before it, by the later one's number, oldest first.
        self._intervals: list[tuple[int, dict[Any, bool]]] = []

    def own(self, key: Any, deep: bool) -> Any:
        value = self.entries.get(key)
        if value is None:
            return None
        if key not in self.changed:
            self.changed[key] = True
        return self._unshared(key, value, deep) if self.pending_snapshots else value

    def put(self, key: Any, value: Any) -> None:
        if key not in self.changed:
            self.changed[key] = key in self.entries
        self.entries[key] = value

    def drop(self, key: Any) -> None:
        if key in self.entries:
            if self.changed.get(key, True):
                self.changed[key] = True
            else:
                del self.changed[key]
            del self.entries[key]

    def put_all(self, values: dict[Any, Any]) -> None:
        entries, changed = self.entries, self.changed
        # As in put, but without a line of Python for each: windows come by the thousand.
        deque(map(changed.setdefault, values, list(map(entries.__contains__, values))), maxlen=0)
        entries.update(values)

    def take_all(self, keys: list[Any]) -> list[Any]:
        taken = super().take_all(keys)
        changed = self.changed
        existed = list(map(changed.pop, keys, repeat(None)))
        if existed.count(False) < len(keys):
            # Not new since the last snapshot, and there now or before.
            were_there = [k for k, was, v in zip(keys, existed, taken) if was or (was is None and v is not None)]
            changed.update(dict.fromkeys(were_there, True))
        return taken

    def begin(self) -> None:
        """Forget the changes up to here: the first snapshot is taken, with all there is."""
        self.changed.clear()

    def cut(self, checkpoint: int) -> None:
        """A snapshot is taken."""
        self._intervals.append((checkpoint, self.changed.copy()))
        self.changed.clear()  # not a new one: states hold on to it
        if len(self._intervals) > MAX_INTERVALS:
            # Checkpoints fail and fail. Two intervals become one: too many keys rather than too few.
            (_, first), (number, second), *rest = self._intervals
            for key, existed in first.items():
                second[key] = existed or second.get(key, False)
            self._intervals = [(number, second), *rest]

    def changed_since(self, checkpoint: int) -> dict[Any, bool]:
        """The keys that have changed since a snapshot, and whether each had a value in it (in doubt: yes)."""
        changed = self.changed.copy()
        for number, interval in reversed(self._intervals):
            if number > checkpoint:
                changed.update(interval)  # what was first is what the older snapshot knows
        return changed

    def forget(self, checkpoint: int) -> None:
        """Nothing older than this will be asked for."""
        self._intervals = [(number, i) for number, i in self._intervals if number > checkpoint]


def live_state(descriptor: StateDescriptor, table: Table, current: CurrentKey, is_immutable: bool) -> State:
    """The live state over ``table``."""
    match descriptor:
        case ValueStateDescriptor():
            live = HeapValueState if is_immutable else MutableHeapValueState
            return live(descriptor, table, current)
        case ListStateDescriptor():
            return HeapListState(descriptor, table, current, deep=not is_immutable)
        case MapStateDescriptor():
            return HeapMapState(descriptor, table, current, deep=not is_immutable)
        case ReducingStateDescriptor():
            return HeapReducingState(descriptor, table, current, deep=not is_immutable)
        case AggregatingStateDescriptor():
            return HeapAggregatingState(descriptor, table, current, deep=not is_immutable)
    raise ValueError(f"no state of kind {descriptor.kind!r}")


class HeapValueState(ValueState[Any]):
    """A value that cannot change in place, so it can be handed out and shared as it is.

    Its methods are closures over the dict and the current key: nothing is looked up on ``self``.
    """

    #: Replaces the values of many keys: a batch's windows. None of the values is None.
    put_all: Callable[[dict[Any, Any]], None]

    def __init__(self, descriptor: ValueStateDescriptor, table: Table, current: CurrentKey) -> None:
        super().__init__(descriptor.type, default=descriptor.default, name=descriptor.name)
        self.table, self.put_all = table, table.put_all
        entries, default = table.entries, descriptor.default
        get, drop = entries.get, table.drop

        def value() -> Any:
            return get(current.key, default)

        def update(value: Any, ttl: Any = None) -> None:
            if ttl is not None:
                _refuse(self, ttl)
            if value is None:
                drop(current.key)
            else:
                entries[current.key] = value

        def clear() -> None:
            drop(current.key)

        if isinstance(table, TrackedTable):
            update = _tracked_update(self, table, current)
        self.value, self.update, self.clear = value, update, clear  # type: ignore[method-assign]


def _tracked_update(state: HeapValueState, table: TrackedTable, current: CurrentKey) -> Any:
    entries, changed, drop = table.entries, table.changed, table.drop

    def update(value: Any, ttl: Any = None) -> None:
        if ttl is not None:
            _refuse(state, ttl)
        key = current.key
        if value is None:
            drop(key)
        else:
            if key not in changed:
                changed[key] = key in entries
            entries[key] = value

    return update


def _refuse(state: State, ttl: Duration) -> None:
    raise TtlNotEnabled(state._name or "?", ttl)


class MutableHeapValueState(ValueState[Any]):
    """A value that user code could change in place: handed out as a copy while a snapshot shares it."""

    def __init__(self, descriptor: ValueStateDescriptor, table: Table, current: CurrentKey) -> None:
        super().__init__(descriptor.type, default=descriptor.default, name=descriptor.name)
        self._table, self._current, self._is_tracked = table, current, isinstance(table, TrackedTable)
        self.put_all = table.put_all

    def value(self) -> Any:
        table = self._table
        if table.pending_snapshots or self._is_tracked:
            value = table.own(self._current.key, True)
        else:
            value = table.entries.get(self._current.key)
        if value is None and self._default is not None:
            return copy.deepcopy(self._default)
        return value

    def update(self, value: Any, ttl: Duration | None = None) -> None:
        if ttl is not None:
            _refuse(self, ttl)
        if value is None:
            self._table.drop(self._current.key)
        else:
            self._table.put(self._current.key, value)

    def clear(self) -> None:
        self._table.drop(self._current.key)


class HeapListState(ListState[Any]):
    """A list per key. What ``get`` returns is a copy: adding while reading it is fine."""

    def __init__(self, descriptor: ListStateDescriptor, table: Table, current: CurrentKey, *, deep: bool) -> None:
        super().__init__(descriptor.type, name=descriptor.name)
        self._table, self._current, self._deep = table, current, deep

    def get(self) -> list[Any]:
        key, table = self._current.key, self._table
        values = table.own(key, True) if self._deep else table.entries.get(key)
        return values.copy() if values else []

    def add(self, value: Any, ttl: Duration | None = None) -> None:
        if ttl is not None:
            _refuse(self, ttl)
        values = self._table.own(self._current.key, self._deep)
        if values is None:
            self._table.put(self._current.key, [value])
        else:
            values.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        new = list(values)
        if not new:
            return
        present = self._table.own(self._current.key, self._deep)
        if present is None:
            self._table.put(self._current.key, new)
        else:
            present += new

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

    def __init__(self, descriptor: MapStateDescriptor, table: Table, current: CurrentKey, *, deep: bool) -> None:
        super().__init__(descriptor.key_type, descriptor.type, name=descriptor.name)
        self._table, self._current, self._deep = table, current, deep

    def _entries(self) -> dict[Any, Any]:
        """The current key's map, whose values are handed out; a throw-away one if there is none."""
        key, table = self._current.key, self._table
        return (table.own(key, True) if self._deep else table.entries.get(key)) or {}

    def _keys(self) -> dict[Any, Any]:
        """The same if only its keys are of interest."""
        return self._table.entries.get(self._current.key) or {}

    def get(self, key: Any, default: Any = None) -> Any:
        return self._entries().get(key, default)

    def put(self, key: Any, value: Any, ttl: Duration | None = None) -> None:
        if ttl is not None:
            _refuse(self, ttl)
        entries = self._table.own(self._current.key, self._deep)
        if entries is None:
            self._table.put(self._current.key, {key: value})
        else:
            entries[key] = value

    def put_all(self, entries: dict[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        for key, value in dict(entries).items():
            self.put(key, value)

    def contains(self, key: Any) -> bool:
        return key in self._keys()

    def remove(self, key: Any) -> None:
        entries = self._table.own(self._current.key, self._deep)
        if entries is not None:
            entries.pop(key, None)
            if not entries:
                self.clear()

    def keys(self) -> list[Any]:
        return list(self._keys())

    def values(self) -> list[Any]:
        return list(self._entries().values())

    def items(self) -> list[tuple[Any, Any]]:
        return list(self._entries().items())

    def is_empty(self) -> bool:
        return not self._keys()

    def __len__(self) -> int:
        return len(self._keys())

    def clear(self) -> None:
        self._table.drop(self._current.key)


class HeapReducingState(ReducingState[Any]):
    """The reduction of what was added. A copy is handed out: the next reduction may be made in place."""

    def __init__(self, descriptor: ReducingStateDescriptor, table: Table, current: CurrentKey, *, deep: bool) -> None:
        super().__init__(descriptor.type, descriptor.reduce, name=descriptor.name)
        self._table, self._current, self._deep = table, current, deep
        reduce = descriptor.reduce
        self._combine = reduce.reduce if isinstance(reduce, ReduceFunction) else reduce

    def get(self) -> Any:
        value = self._table.entries.get(self._current.key)
        return copy_of(value) if self._deep else value

    def add(self, value: Any, ttl: Duration | None = None) -> None:
        if ttl is not None:
            _refuse(self, ttl)
        key, table = self._current.key, self._table
        before = table.own(key, True) if self._deep else table.entries.get(key)
        table.put(key, value if before is None else self._combine(before, value))

    def clear(self) -> None:
        self._table.drop(self._current.key)


class HeapAggregatingState(AggregatingState[Any, Any]):
    """The accumulator of what was added, shown as its result: a copy, for the next value may be added in place."""

    def __init__(
        self, descriptor: AggregatingStateDescriptor, table: Table, current: CurrentKey, *, deep: bool
    ) -> None:
        assert descriptor.aggregate is not None
        super().__init__(descriptor.type, descriptor.aggregate, name=descriptor.name)
        self._table, self._current, self._deep = table, current, deep

    def get(self) -> Any:
        accumulator = self._accumulator()
        return None if accumulator is None else copy_of(self._aggregate.get_result(accumulator))

    def add(self, value: Any, ttl: Duration | None = None) -> None:
        if ttl is not None:
            _refuse(self, ttl)
        accumulator = self._accumulator()
        if accumulator is None:
            accumulator = copy_of(self._aggregate.create_accumulator())
        self._table.put(self._current.key, self._aggregate.add(value, accumulator))

    def _accumulator(self) -> Any:
        key, table = self._current.key, self._table
        return table.own(key, True) if self._deep else table.entries.get(key)

    def clear(self) -> None:
        self._table.drop(self._current.key)
