"""Classes of every sort that has a stored form, and the way of their values through a file."""

import dataclasses
from enum import Enum, Flag, IntEnum
from typing import Any, NamedTuple, NewType, NotRequired, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from moorline.state.types.annotations import stored, to_column


class Colour(Enum):
    RED = 1
    BLUE = 2
    CRIMSON = 1


class Level(IntEnum):
    LOW = 1


class Right(Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


class Pair(NamedTuple):
    key: str
    count: int | None = None


class Movie(TypedDict):
    title: str
    year: int | None
    stars: NotRequired[int]


class Packed(msgspec.Struct, frozen=True):
    name: str
    sizes: list[int] = []


class Changing(msgspec.Struct):
    x: int


OddKeys = TypedDict("OddKeys", {"unit price": int, "a, (b)": NotRequired[str]})
UserId = NewType("UserId", int)


def roundtrip(annotation: Any, values: list[Any]) -> list[Any]:
    column = to_column(stored(annotation, "here"), values, "s")
    assert column.type == stored(annotation, "here").arrow
    # Through a file's form and back, as a snapshot does.
    table = pa.table({"value": column})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="lz4", use_dictionary=False)
    again = pq.read_table(pa.BufferReader(sink.getvalue()), use_threads=False)
    assert again["value"].type == column.type
    return stored(annotation, "here").from_array(again["value"].combine_chunks())


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if dataclasses.is_dataclass(a):
        return same(vars(a), vars(b))
    return a == b
