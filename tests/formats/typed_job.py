"""A job whose snapshots hold a state of every sort of type that can be declared.

See ``keyed_job.py``. A manifest says of each state what its type is, in the way of its format.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum, Flag
from typing import Any, Literal, TypedDict
from uuid import UUID

import numpy as np
import pyarrow as pa
from keyed_job import COUNT, Numbers

import moorline as mo

#: Each key is in one split, so that its records come in their order.
STEP = Numbers.SPLITS


class Colour(Enum):
    RED = 1
    BLUE = 2


class Right(Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Item:
    name: str
    prices: tuple[float, ...]
    colour: Colour | None


@dataclass
class Basket:
    owner: str
    items: list[Item]
    by_day: dict[datetime, Decimal]


#: A field's name that is none in Python.
Odd = TypedDict("Odd", {"unit price": int, "größe": float})


class Mark:
    """Known by pickles alone."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __repr__(self) -> str:
        return f"Mark({self.n})"


_VECTOR = np.ndarray[Any, np.dtype[np.float32]]
_ARROW = pa.struct(
    [
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("not a name", pa.list_(pa.decimal128(10, 2)), nullable=False),
        pa.field("by", pa.map_(pa.string(), pa.list_(pa.int16(), 2))),
        pa.field("raw", pa.binary(3)),
    ]
)
_START = datetime(2024, 2, 29, 12)


def _basket(n: int) -> Basket:
    items = [Item("pear", (1.5, float(n)), Colour(1 + n % 2)), Item("", (), None)]
    return Basket(f"owner {n}", items, {_START + timedelta(days=n): Decimal(n) / 4})


def _arrow(n: int) -> dict[str, Any]:
    at = _START.replace(microsecond=n)
    return {"at": at, "not a name": [Decimal(f"{n}.25")], "by": [("x", [n, n + 1])], "raw": b"%03d" % n}


#: By the name of a state: its type, and the value after record n.
TYPES: dict[str, tuple[Any, Any]] = {
    "basket": (Basket, _basket),
    "odd": (Odd, lambda n: {"unit price": n, "größe": n / 2}),
    "colour": (Colour, lambda n: Colour(1 + n % 2)),
    "rights": (Right, lambda n: Right(n % 4)),
    "word": (Literal["many", "few"], lambda n: "many" if n > 9 else "few"),
    "mixed": (Literal["many", 0, 1, True], lambda n: ("many", 0, 1, True)[n % 4]),
    "perhaps": (int | None, lambda n: n if n % 2 else None),
    "sets": (tuple[set[int], frozenset[str]], lambda n: ({n, n + 1}, frozenset([str(n)]))),
    "ids": (dict[UUID, timedelta], lambda n: {UUID(int=n): timedelta(seconds=n)}),
    "small": (np.int16, np.int16),
    "moment": (np.datetime64, lambda n: np.datetime64(n, "ns")),
    "array": (np.ndarray, lambda n: np.array([[n, 2 * n]])),
    "vector": (_VECTOR, lambda n: np.array([n, n / 2], np.float32)),
    "arrow": (_ARROW, _arrow),
    "marks": (mo.Pickled(Mark), Mark),
    "plain": (object, lambda n: {"at": (n, {n})}),
}


def _shown(value: Any) -> str:
    """A value as text, alike whichever backend held it."""
    if isinstance(value, dict) and "at" in value and isinstance(value["at"], datetime):
        value = {**value, "at": value["at"].replace(tzinfo=None)}
    return repr(value)


class Typed(mo.KeyedProcessFunction):
    """A value state of each type, a list and a map. Emits what each has from the record before."""

    listed = mo.ListState(Item)
    mapped = mo.MapState(Colour, list[Decimal])

    def open(self, ctx):
        self.values = {
            name: ctx.get_state(mo.ValueStateDescriptor(name, declared)) for name, (declared, _) in TYPES.items()
        }

    def process_element(self, n, ctx):
        for name, (_, make) in TYPES.items():
            yield ctx.current_key, name, _shown(self.values[name].value())
            self.values[name].update(make(n))
        self.listed.add(Item(str(n), (), Colour.RED))
        self.mapped.put(Colour(1 + n // STEP % 2), [Decimal(n)])
        yield ctx.current_key, "listed", _shown([item.name for item in self.listed.get()][-3:])
        yield ctx.current_key, "mapped", _shown(sorted((c.name, d) for c, d in self.mapped.items()))


def typed(name: str, parallelism: int = 2) -> mo.Job:
    """A state of every sort of type, under as many keys as there are splits."""
    job = mo.Job(name, parallelism=parallelism, max_parallelism=16)
    numbers = job.source(Numbers(), uid="numbers")
    numbers.key_by(lambda n: n % STEP).process(Typed(), uid="types").sink(mo.collect("types"), uid="types-out")
    return job


def typed_output() -> dict[str, Counter]:
    """What :func:`typed` emits from its first record to its last, found by a loop."""
    output: Counter = Counter()
    for n in range(COUNT):
        key, before = n % STEP, n - STEP
        for name, (_, make) in TYPES.items():
            output[repr((key, name, _shown(make(before) if before >= 0 else None)))] += 1
        last = [str(m) for m in range(max(key, n - 2 * STEP), n + 1, STEP)]
        output[repr((key, "listed", _shown(last)))] += 1
        mapped = {Colour(1 + m // STEP % 2).name: [Decimal(m)] for m in range(max(key, n - STEP), n + 1, STEP)}
        output[repr((key, "mapped", _shown(sorted(mapped.items()))))] += 1
    return {"types": output}
