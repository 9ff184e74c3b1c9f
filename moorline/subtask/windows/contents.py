"""The contents of a window until it fires: all records, a reduction, an accumulator, or a list for each of two sides.

Each kind answers the same few questions about the window that the scope of its states points at. ``take`` and
``absorb`` move contents from one window to another when windows merge.

A reduction and an accumulator are kept in a value state, not in a reducing or aggregating one: a batch may then fold
many records into one before it writes, and two accumulators can be merged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Protocol

from moorline.api.columns.windows import WindowAggregation
from moorline.api.functions.base import AggregateFunction, ReduceFunction
from moorline.api.functions.reduce import nothing_combined
from moorline.api.state.descriptors import ListStateDescriptor, StateDescriptor, ValueStateDescriptor
from moorline.api.state.states import ListState, ValueState
from moorline.api.windows.assigners import Window
from moorline.api.windows.evictors import Evictor
from moorline.api.windows.streams import WindowSpec
from moorline.errors import InvalidOutput
from moorline.model.copying.copies import copies_of, copy_of
from moorline.model.times import MIN_TIME

#: The name of the state; two sides have one each.
CONTENTS = "window-contents"

Bind = Callable[[StateDescriptor], Any]


class Contents(Protocol):
    """The contents of the current window."""

    def add(self, record: Any, timestamp: int | None, side: int) -> None: ...

    def elements(self, window: Window) -> Any:
        """The elements for the window function; None if there are none."""
        ...

    def clear(self) -> None: ...

    def take(self) -> Any:
        """Everything, which is not there any more."""
        ...

    def absorb(self, taken: Any) -> None:
        """Add what was taken from another window."""
        ...


class Collected:
    """All records, in the order they came."""

    def __init__(self, bind: Bind, kind: Any, name: str = CONTENTS) -> None:
        self.state: ListState[Any] = bind(ListStateDescriptor(name, kind))

    def add(self, record: Any, timestamp: int | None, side: int) -> None:
        self.state.add(record)

    def elements(self, window: Window) -> Any:
        return list(self.state.get()) or None

    def clear(self) -> None:
        self.state.clear()

    def take(self) -> Any:
        taken = list(self.state.get())
        self.state.clear()
        return taken

    def absorb(self, taken: Any) -> None:
        if taken:
            self.state.add_all(taken)


class Reduced:
    """The reduction of the records."""

    is_aggregate = False

    def __init__(self, bind: Bind, kind: Any, function: Any, uid: str) -> None:
        self.state: ValueState[Any] = bind(ValueStateDescriptor(CONTENTS, kind))
        self.combine = function.reduce if isinstance(function, ReduceFunction) else function
        self._uid = uid

    def add(self, record: Any, timestamp: int | None, side: int) -> None:
        before = self.state.value()
        made = record if before is None else self.combine(before, record)
        if made is None:
            raise self.nothing()
        self.state.update(made)

    def nothing(self) -> InvalidOutput:
        return nothing_combined(self._uid, "reduce")

    def elements(self, window: Window) -> Any:
        value = self.state.value()
        return None if value is None else [value]

    def clear(self) -> None:
        self.state.clear()

    def take(self) -> Any:
        taken = self.state.value()
        self.state.clear()
        return taken

    def absorb(self, taken: Any) -> None:
        if taken is not None:
            self.add(taken, None, 0)


class Aggregated:
    """The accumulator of the records, shown as its result."""

    is_aggregate = True

    def __init__(self, bind: Bind, kind: Any, function: AggregateFunction[Any, Any, Any], uid: str) -> None:
        self._uid = uid
        self.state: ValueState[Any] = bind(ValueStateDescriptor(CONTENTS, kind))
        self.combine, self._create = function.add, function.create_accumulator
        self.result, self._merge = function.get_result, function.merge

    def create(self) -> Any:
        return copy_of(self._create())  # it may be one for all

    def add(self, record: Any, timestamp: int | None, side: int) -> None:
        before = self.state.value()
        made = self.combine(record, self.create() if before is None else before)
        if made is None:
            raise self.nothing()
        self.state.update(made)

    def nothing(self) -> InvalidOutput:
        return nothing_combined(self._uid, "add")

    def elements(self, window: Window) -> Any:
        accumulator = self.state.value()
        result = None if accumulator is None else self.result(accumulator)
        return None if result is None else [result]

    def clear(self) -> None:
        self.state.clear()

    def take(self) -> Any:
        taken = self.state.value()
        self.state.clear()
        return taken

    def absorb(self, taken: Any) -> None:
        if taken is not None:
            before = self.state.value()
            self.state.update(taken if before is None else self._merge(before, taken))


class Sides:
    """All records of two inputs, apart."""

    def __init__(self, bind: Bind, kinds: tuple[Any, ...]) -> None:
        left, right = (Collected(bind, kind, f"{CONTENTS}-{side}") for kind, side in zip(kinds, ("left", "right")))
        self.sides = left, right

    def add(self, record: Any, timestamp: int | None, side: int) -> None:
        self.sides[side].state.add(record)

    def elements(self, window: Window) -> Any:
        lefts, rights = (side.elements(window) or [] for side in self.sides)
        return (lefts, rights) if lefts or rights else None

    def clear(self) -> None:
        for side in self.sides:
            side.clear()

    def take(self) -> Any:
        return [side.take() for side in self.sides]

    def absorb(self, taken: Any) -> None:
        for side, records in zip(self.sides, taken):
            side.absorb(records)


class Evicted(Collected):
    """All records with their timestamps; an evictor has its say at each firing, then they are combined."""

    def __init__(self, bind: Bind, kind: Any, evictor: Evictor, combine: Callable[[list[Any]], Any]) -> None:
        super().__init__(bind, object if kind is object else tuple[int, kind])
        self._evictor, self._combine = evictor, combine

    def add(self, record: Any, timestamp: int | None, side: int) -> None:
        self.state.add((MIN_TIME if timestamp is None else timestamp, record))

    def elements(self, window: Window) -> Any:
        before = list(self.state.get())
        passed = self._evictor.evict_before(before, window)
        kept = self._evictor.evict_after(passed, window)
        if len(kept) != len(before):
            self.state.update(kept)
        # Copies: what is combined is kept, and combined again when the window fires again.
        return self._combine(copies_of([value for _, value in passed])) if passed else None


def contents_of(spec: WindowSpec, function: Any, bind: Bind, uid: str) -> Contents:
    """The contents that an operator with this function keeps of its windows."""
    combine = function if spec.combine is None else spec.combine
    if spec.contents == "sides":
        return Sides(bind, spec.types)
    if spec.evictor is not None:
        return Evicted(bind, spec.types[0], spec.evictor, _combining(spec.contents, combine))
    match spec.contents:
        case "reduce":
            return Reduced(bind, spec.types[0], combine, uid)
        case "aggregate":
            # Of rows with a schema, the function makes the type of what is kept.
            kept = combine.kept if isinstance(combine, WindowAggregation) else spec.types[0]
            return Aggregated(bind, kept, combine, uid)
        case _:
            return Collected(bind, spec.types[0])


def _combining(contents: str, function: Any) -> Callable[[list[Any]], Any]:
    """From all records to the elements that a window function gets."""
    if contents == "reduce":
        two = function.reduce if isinstance(function, ReduceFunction) else function
        return lambda values: [reduce(two, values)]
    if contents == "aggregate":

        def result(values: list[Any]) -> list[Any]:
            accumulator = copy_of(function.create_accumulator())
            for value in values:
                accumulator = function.add(value, accumulator)
            return [function.get_result(accumulator)]

        return result
    return lambda values: values
