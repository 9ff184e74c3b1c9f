"""The vocabulary of the contract's tests: types, states, and a way to save and restore a backend.

:class:`Subtask` is the world as a backend sees it: batches of records, barriers with the last completed checkpoint,
and a restart with what was in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from moorline.api.functions.base import AggregateFunction, ReduceFunction
from moorline.api.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from moorline.api.state.states import ListState, MapState, ValueState
from moorline.model import keys
from moorline.model.key_groups import owned, owner
from moorline.state.backend import NO_KEY, CurrentKey, KeyedBackend, KeyedSnapshot, OperatorClock, TimerStore
from moorline.testing.contracts.backend.storage import Part, cut, rows_of, write

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
    """A sum."""

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
    """An aggregate that changes its accumulator in place, as Flink allows."""

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

#: Two moments, an hour apart, that Python calls equal: the clock was put back in between.
BEFORE, AFTER = (datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=fold) for fold in (0, 1))


def key_id(key: Any) -> str:
    """The name of a key in the name of a test: the same in every process, whatever order its sets are in.

    >>> key_id(frozenset({"b", "a"}))
    "frozenset('a', 'b')"
    """
    return f"frozenset({', '.join(sorted(map(repr, key)))})" if isinstance(key, frozenset) else repr(key)


#: One of each kind of key. No two of them are one key.
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
    timedelta(microseconds=1),
    timedelta.max,
    UUID(int=5),
    Decimal("0.1"),
    Decimal("1e-400"),
    frozenset(),
    frozenset({"a", 1, (2,)}),
    (),
    (None,),
    ("a", None),
    ("a", 1),
    (("a",), (1, b"x")),
    Colour.RED,
    Colour.BLUE,
    Account("north", 1),
    ("a", Colour.RED),
    frozenset({Colour.RED, Colour.BLUE}),
    Size.LARGE,
]


#: Two windows.
HOUR, DAY = (0, 3_600_000), (0, 86_400_000)


def at(backend: KeyedBackend, key: Any) -> None:
    """A record with ``key`` is being processed from now on."""
    backend.flush()
    identity = backend.identities.of(key)
    backend.prefetch([identity])
    backend.current.key = identity


def _go_on(backend: KeyedBackend) -> None:
    """The next record has the same key."""
    if backend.current.key is not NO_KEY:
        backend.prefetch([backend.current.key])


def shown(state: Any) -> Any:
    """The content of a live state for the current key: a value, a list, a dict, or a result. None if it has none."""
    if isinstance(state, ValueState):
        return state.value()
    if isinstance(state, ListState):
        return list(state.get()) or None
    if isinstance(state, MapState):
        return dict(state.items()) or None
    return state.get()


class PendingSnapshot:
    """A snapshot of which the synchronous part is done."""

    def __init__(
        self, backend: KeyedBackend, number: int, completed: int, reusable: Sequence[Part], key_groups: Any
    ) -> None:
        self.number, self._reusable, self._key_groups = number, reusable, key_groups
        # Backends are called what their folders are called; a backend in one file, what the file is called.
        self._name = type(backend).__module__.removesuffix(".backend").rpartition(".")[2]
        backend.flush()
        self.snapshot: KeyedSnapshot = backend.snapshot(number, completed)
        _go_on(backend)
        self._written: list[Part] | None = None

    def write(self) -> list[Part]:
        """The slow part: what is durable then. Everything it builds on must be part of the completed checkpoint."""
        if self._written is None:
            self._written = write(self.snapshot, self._key_groups, self._reusable, self._name)
        return self._written

    def done(self) -> list[Part]:
        """The files are durable."""
        parts = self.write()
        self.snapshot.done([p.handle for p in parts])
        return parts

    def failed(self) -> None:
        """The files never will be durable."""
        self.snapshot.done(None)


@contextmanager
def snapshot_of(backend: KeyedBackend) -> Iterator[PendingSnapshot]:
    """A pending full snapshot: taken at the start of the block, released at its end."""
    snapshot = PendingSnapshot(backend, 1, 0, [], owned(0, 1, MAX_PARALLELISM))
    try:
        yield snapshot
    finally:
        snapshot.failed()


def saved(backend: KeyedBackend) -> list[Part]:
    """A whole snapshot, written at once."""
    with snapshot_of(backend) as snapshot:
        return snapshot.write()


def merge(first: list[int], second: list[int]) -> list[int]:
    """Merge two lists, in place of the first."""
    first.extend(second)
    return first


class Subtask:
    """One backend and what happens to it, from one restart to the next."""

    def __init__(
        self,
        tests: BackendTests,
        *descriptors: StateDescriptor,
        windows: Sequence[StateDescriptor] = (),
        timers: Sequence[str] = (),
        incremental: bool = True,
        key_type: Any = None,
        moment: OperatorClock | None = None,
        restored: Iterable[Part] = (),
        completed: int = 0,
        index: int = 0,
        parallelism: int = 1,
    ) -> None:
        self._key_groups = owned(index, parallelism, MAX_PARALLELISM)
        #: What a snapshot may build on, and what it is called.
        self.parts, self.completed, self.next = list(cut(restored, self._key_groups)), completed, completed + 1
        self.backend = tests.make_backend("op", MAX_PARALLELISM, moment, incremental=incremental, key_type=key_type)
        self.backend.restore([p.restored(self._key_groups) for p in self.parts])
        self.scope = CurrentKey()
        self.states: list[Any] = [self.backend.bind(d) for d in descriptors]
        self.windows: list[Any] = [self.backend.bind(d, self.scope) for d in windows]
        self.timers: list[TimerStore] = [self.backend.timers(name) for name in timers]
        self.backend.check_all_bound()

    def at(self, key: Any, window: tuple[int, int] = HOUR) -> None:
        at(self.backend, key)
        self.scope.key = (self.backend.current.key, window)

    def begin(self) -> PendingSnapshot:
        """A barrier has come."""
        number, self.next = self.next, self.next + 1
        return PendingSnapshot(self.backend, number, self.completed, self.parts, self._key_groups)

    def complete(self, snapshot: PendingSnapshot, *, confirm: bool = True) -> list[Part]:
        """The checkpoint is complete. All older ones are deleted. The subtask may or may not hear of it."""
        self.parts, self.completed = snapshot.done(), snapshot.number
        if confirm:
            self.backend.confirmed(snapshot.number)
        return self.parts

    def checkpoint(self, *, confirm: bool = True) -> list[Part]:
        """A barrier comes, and the checkpoint completes."""
        return self.complete(self.begin(), confirm=confirm)

    def give_up(self, snapshot: PendingSnapshot) -> None:
        """Our part was durable, another subtask's was not: all files are deleted again."""
        snapshot.done()

    def held(self, position: int = 0, keys: Iterable[Any] = (), *, window: tuple[int, int] | None = None) -> Any:
        """The content of a state, by key."""
        by_key = {}
        for key in keys:
            self.at(key, window or HOUR)
            state = self.states[position] if window is None else self.windows[position]
            if (value := shown(state)) is not None:
                by_key[key] = value
        return by_key


class BackendTests:
    """Base of the contract's parts."""

    #: Does ``entries`` count, or does it estimate?
    exact_entries = True
    #: Are full snapshots rows (or files of the backend's own kind)?
    writes_rows = True

    def make_backend(
        self,
        uid: str,
        max_parallelism: int,
        moment: OperatorClock | None = None,
        *,
        incremental: bool = False,
        key_type: Any = None,
    ) -> KeyedBackend:
        raise NotImplementedError("override this with a function that returns an empty backend")

    @pytest.fixture
    def backend(self) -> Iterator[KeyedBackend]:
        backend = self.make_backend("op", MAX_PARALLELISM)
        yield backend
        backend.close()

    # --- the vocabulary of the tests ------------------------------------------------------------

    def subtask(self, *descriptors: StateDescriptor, **options: Any) -> Subtask:
        """A backend with states, ready for records."""
        return Subtask(self, *descriptors, **options)

    def everything_under(self, keys: Iterable[Any]) -> Subtask:
        """A backend with a bit of everything under some keys."""
        subtask = self.subtask(*ALL)
        for key in keys:
            subtask.at(key)
            self._fill(subtask.states)
        return subtask

    def restored(
        self, parts: Iterable[Part], *descriptors: StateDescriptor, subtask: int = 0, parallelism: int = 1
    ) -> tuple[Any, ...]:
        """A new backend with what belongs to one subtask, and its bound states."""
        new = self.subtask(*descriptors, restored=parts, incremental=False, index=subtask, parallelism=parallelism)
        return new.backend, *new.states

    def held(self, parts: Iterable[Part], descriptor: StateDescriptor, keys: Iterable[Any]) -> dict[Any, Any]:
        """The content of a state after a restore, by key."""
        return self.subtask(descriptor, restored=parts, incremental=False).held(0, keys)  # type: ignore[no-any-return]

    def held_by(self, parts: Iterable[Part], *descriptors: StateDescriptor, key: Any) -> list[Any]:
        """The content of some states for one key after a restore."""
        new = self.subtask(*descriptors, restored=parts, incremental=False)
        new.at(key)
        return [shown(state) for state in new.states]

    def rescaled(self, parts: list[Part], parallelism: int, *descriptors: StateDescriptor) -> list[list[Part]]:
        """The parts that every subtask saves again after a restart at another parallelism."""
        return [
            saved(self.restored(parts, *descriptors, subtask=i, parallelism=parallelism)[0]) for i in range(parallelism)
        ]

    def check_entries(self, backend: KeyedBackend, expected: int) -> None:
        backend.flush()
        if self.exact_entries:
            assert backend.entries() == expected
            assert sum(backend.figures().keys.values()) == expected
        _go_on(backend)

    # --- a bit of everything --------------------------------------------------------------------

    def _fill(self, states: list[Any]) -> None:
        value, listed, mapped, reduced, mean = states
        value.update(1), listed.add("x"), mapped.put("k", 1), reduced.add(1), mean.add(1.0)

    def _change(self, states: list[Any]) -> None:
        value, listed, mapped, reduced, mean = states
        value.update(2), listed.add("y"), mapped.put_all({"k": 2, "l": 3}), reduced.add(2), mean.add(2.0)

    def _clear(self, states: list[Any]) -> None:
        for state in states:
            state.clear()

    def _shown(self, states: Iterable[Any]) -> tuple[Any, ...]:
        value, listed, mapped, reduced, mean = states
        return value.value(), list(listed.get()), dict(mapped.items()), reduced.get(), mean.get()


def subtask_of(key: Any, parallelism: int) -> int:
    """The subtask that owns a key."""
    return owner(keys.key_group(key, MAX_PARALLELISM), parallelism, MAX_PARALLELISM)


__all__ = ["BackendTests", "Part", "PendingSnapshot", "Subtask", "at", "rows_of", "saved", "shown", "snapshot_of"]
