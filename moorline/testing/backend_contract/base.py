"""What the contract's tests are told with: types, states, and a way to save and restore a backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from enum import Enum, IntEnum
from typing import Any, NamedTuple
from uuid import UUID

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
from moorline.model import keys
from moorline.model.key_groups import owned
from moorline.state.backend import KeyedBackend, Part

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


def within(table: pa.Table, subtask: int, parallelism: int) -> pa.Table:
    mine = owned(subtask, parallelism, MAX_PARALLELISM)
    groups = table["key_group"]
    return table.filter(pc.and_(pc.greater_equal(groups, mine.first), pc.less(groups, mine.end)))


def merge(one: list[int], other: list[int]) -> list[int]:
    """Changes its argument in place."""
    one.extend(other)
    return one


class BackendTests:
    """Base of the contract's parts."""

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
            table = within(part.table, subtask, parallelism)
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
