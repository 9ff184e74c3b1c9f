"""The live value, reducing and aggregating states of the RocksDB backend: the user's interfaces over cached cells.

These methods run for every record, so they are closures and nothing is looked up on ``self``. Lists and maps have
files of their own, ``state/rocksdb/lists.py`` and ``state/rocksdb/maps.py``.
"""

from __future__ import annotations

import copy
from typing import Any, NoReturn

from moorline.api.functions.base import ReduceFunction
from moorline.api.state.combining import AggregatingState, ReducingState
from moorline.api.state.descriptors import (
    AggregatingStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from moorline.api.state.states import State, ValueState
from moorline.errors import TtlNotEnabled
from moorline.model.copying.copies import copy_of
from moorline.model.durations import Duration
from moorline.state.backend import CurrentKey
from moorline.state.rocksdb.cells import Cells, value_accessors


def refuse_ttl(state: State, ttl: Duration) -> NoReturn:
    """A time to live was given for a value of a state that has none."""
    raise TtlNotEnabled(state._name or "?", ttl)


def cell_state(descriptor: StateDescriptor, cells: Cells, current: CurrentKey, is_immutable: bool) -> State:
    """The live state of a descriptor with one value per key."""
    match descriptor:
        case ValueStateDescriptor():
            return RocksDbValueState(descriptor, cells, current, is_immutable)
        case ReducingStateDescriptor():
            return RocksDbReducingState(descriptor, cells, current)
        case AggregatingStateDescriptor():
            return RocksDbAggregatingState(descriptor, cells, current)
    raise ValueError(f"no state of kind {descriptor.kind!r}")


class RocksDbValueState(ValueState[Any]):
    """A value per key."""

    def __init__(self, descriptor: ValueStateDescriptor, cells: Cells, current: CurrentKey, is_immutable: bool) -> None:
        super().__init__(descriptor.type, default=descriptor.default, name=descriptor.name)
        get, put = value_accessors(cells, current)
        default = descriptor.default

        def value() -> Any:
            stored = get()
            return default if stored is None else stored

        def value_or_own_default() -> Any:
            stored = get()
            return copy.deepcopy(default) if stored is None else stored

        def update(value: Any, *, ttl: Duration | None = None) -> None:
            if ttl is not None:
                refuse_ttl(self, ttl)
            put(value)

        def clear() -> None:
            put(None)

        if default is None:
            self.value = get  # type: ignore[method-assign]
        else:
            self.value = value if is_immutable else value_or_own_default  # type: ignore[method-assign]
        self.update, self.clear = update, clear  # type: ignore[method-assign]


class RocksDbReducingState(ReducingState[Any]):
    """The reduction of what was added."""

    def __init__(self, descriptor: ReducingStateDescriptor, cells: Cells, current: CurrentKey) -> None:
        super().__init__(descriptor.type, descriptor.reduce, name=descriptor.name)
        get, put = value_accessors(cells, current)
        reduce = descriptor.reduce
        combine = reduce.reduce if isinstance(reduce, ReduceFunction) else reduce

        def add(value: Any, *, ttl: Duration | None = None) -> None:
            if ttl is not None:
                refuse_ttl(self, ttl)
            before = get()
            put(value if before is None else combine(before, value))

        def clear() -> None:
            put(None)

        self.get, self.add, self.clear = get, add, clear  # type: ignore[method-assign]


class RocksDbAggregatingState(AggregatingState[Any, Any]):
    """The accumulator of what was added, shown as its result."""

    def __init__(self, descriptor: AggregatingStateDescriptor, cells: Cells, current: CurrentKey) -> None:
        assert descriptor.aggregate is not None
        super().__init__(descriptor.type, descriptor.aggregate, name=descriptor.name)
        read, put = value_accessors(cells, current)
        aggregate = descriptor.aggregate

        def get() -> Any:
            accumulator = read()
            return None if accumulator is None else aggregate.get_result(accumulator)

        def add(value: Any, *, ttl: Duration | None = None) -> None:
            if ttl is not None:
                refuse_ttl(self, ttl)
            accumulator = read()
            if accumulator is None:
                accumulator = copy_of(aggregate.create_accumulator())  # it may be one for all
            put(aggregate.add(value, accumulator))

        def clear() -> None:
            put(None)

        self.get, self.add, self.clear = get, add, clear  # type: ignore[method-assign]
