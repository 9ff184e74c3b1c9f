"""How declared types are stored: every supported annotation there and back, and what is refused."""

import dataclasses
import typing
from collections import namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from typing import Any, NamedTuple, NotRequired, Optional, TypedDict, Union
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorline.errors import StateTypeMismatch, UnsupportedType
from moorline.state.types import stored, to_column


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


@dataclasses.dataclass(frozen=True)
class Frozen:
    name: str
    at: tuple[int, int] = (0, 0)


@dataclasses.dataclass(frozen=True)
class FrozenShell:
    """Frozen, but what is inside is not."""

    items: list[int]


@dataclasses.dataclass(frozen=True)
class Cached:
    x: int
    cache: list[int] = dataclasses.field(init=False, default_factory=list)


@dataclasses.dataclass
class Tree:
    left: "Tree | None"


@dataclasses.dataclass
class Empty:
    pass


class Pair(NamedTuple):
    key: str
    count: int | None = None


Loose = namedtuple("Loose", "a b")


class Movie(TypedDict):
    title: str
    year: int | None
    stars: NotRequired[int]


class Packed(msgspec.Struct, frozen=True):
    name: str
    sizes: list[int] = []


class Changing(msgspec.Struct):
    x: int


zone = timezone(timedelta(hours=5, minutes=30))

#: Annotation, its name, can its values not change in place, some values.
SUPPORTED: list[tuple[Any, str, bool, list[Any]]] = [
    (int, "int", True, [0, -1, 2**63 - 1, -(2**63)]),
    (float, "float", True, [0.0, 1.5, float("inf"), 1e300]),
    (bool, "bool", True, [True, False]),
    (str, "str", True, ["", "a", "größe", "\0", "日本"]),
    (bytes, "bytes", True, [b"", b"\0\xff"]),
    (date, "date", True, [date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)]),
    (timedelta, "timedelta", True, [timedelta(0), timedelta(days=-3, microseconds=7)]),
    (datetime, "datetime", True, [datetime(2024, 2, 29, 12, 30, 15, 123456), datetime(1, 1, 1, tzinfo=zone)]),
    (datetime, "datetime", True, [datetime(2024, 1, 1, tzinfo=UTC), datetime.max]),
    (time, "time", True, [time(0), time(23, 59, 59, 999999), time(1, tzinfo=UTC)]),
    (UUID, "UUID", True, [UUID(int=0), UUID(int=2**128 - 1)]),
    (Decimal, "Decimal", True, [Decimal("0.10"), Decimal("-1E+50"), Decimal("Infinity")]),
    (Colour, "enum Colour", True, [Colour.RED, Colour.BLUE]),
    (Level, "enum Level", True, [Level.LOW]),
    (Right, "flag Right", True, [Right.READ, Right.READ | Right.WRITE, Right(0)]),
    (int | None, "int | None", True, [1, None, 2]),
    (Optional[str], "str | None", True, ["a", None]),  # noqa: UP045
    (Union[date, None], "date | None", True, [None, date(2024, 1, 1)]),  # noqa: UP007
    (list[int], "list[int]", False, [[], [1], [1, 2, 3]]),
    (list[int | None], "list[int | None]", False, [[None], [1, None]]),
    (list[list[str]], "list[list[str]]", False, [[], [[]], [["a"], [], ["b", "c"]]]),
    (list[int] | None, "list[int] | None", False, [None, [], [1]]),
    (typing.List[int], "list[int]", False, [[1]]),  # noqa: UP006
    (set[str], "set[str]", False, [set(), {"a", "b"}]),
    (frozenset[int], "frozenset[int]", True, [frozenset(), frozenset({1, 2})]),
    (tuple[int, ...], "tuple[int, ...]", True, [(), (1,), (1, 2, 3)]),
    (tuple[int, str], "tuple[int, str]", True, [(1, "a"), (2, "")]),
    (tuple[int, tuple[str, float]], "tuple[int, tuple[str, float]]", True, [(1, ("a", 0.5))]),
    (tuple[list[int], int], "tuple[list[int], int]", False, [([1], 2), ([], 3)]),
    (tuple[int, str] | None, "tuple[int, str] | None", True, [None, (1, "a"), None]),
    (dict[str, int], "dict[str, int]", False, [{}, {"a": 1, "b": 2}]),
    (
        dict[tuple[int, str], list[float]],
        "dict[tuple[int, str], list[float]]",
        False,
        [{(1, "a"): [0.5], (2, "b"): []}],
    ),
    (dict[str, int | None], "dict[str, int | None]", False, [{"a": None}]),
    (Point, "Point(x: int, y: float)", False, [Point(1), Point(2, 3.5)]),
    (Frozen, "Frozen(name: str, at: tuple[int, int])", True, [Frozen("a"), Frozen("b", (1, 2))]),
    (FrozenShell, "FrozenShell(items: list[int])", False, [FrozenShell([1, 2])]),
    (Cached, "Cached(x: int)", False, [Cached(1)]),
    (list[Point], "list[Point(x: int, y: float)]", False, [[Point(1), Point(2)], []]),
    (Point | None, "Point(x: int, y: float) | None", False, [None, Point(1)]),
    (Pair, "Pair(key: str, count: int | None)", True, [Pair("a", 1), Pair("b")]),
    (Loose, "Loose(a: plain, b: plain)", False, [Loose(1, "x"), Loose([1], None)]),
    (Movie, "Movie(title: str, year: int | None, stars: int)", False, [{"title": "M", "year": None}]),
    (Movie, "Movie(title: str, year: int | None, stars: int)", False, [{"title": "M", "year": 1931, "stars": 5}]),
    (Packed, "Packed(name: str, sizes: list[int])", False, [Packed("a"), Packed("b", [1])]),
    (Changing, "Changing(x: int)", False, [Changing(3)]),
    (object, "plain", False, [1, "a", [1, (2, {3})], None]),
    (Any, "plain", False, [{"a": 1}]),
    (None, "plain", False, ["x"]),
    (list, "plain", False, [[1, "a"]]),
    (dict, "plain", False, [{1: 2}]),
    (tuple, "plain", False, [(1, "a")]),
    (typing.Dict, "plain", False, [{1: 2}]),  # noqa: UP006
    (int | str, "plain", False, [1, "a"]),
    (int | str | None, "plain", False, [1, None, "a"]),
    (list | None, "plain", False, [[1], None]),
]


def roundtrip(annotation: Any, values: list[Any]) -> list[Any]:
    column = to_column(stored(annotation, "here"), values, "s")
    assert column.type == stored(annotation, "here").arrow
    # Through a file's form and back, as a snapshot does.
    table = pa.table({"value": column})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    again = pa.ipc.open_stream(sink.getvalue()).read_all()
    return stored(annotation, "here").from_array(again["value"].combine_chunks())


@pytest.mark.parametrize(("annotation", "name", "immutable", "values"), SUPPORTED, ids=[str(s[0]) for s in SUPPORTED])
def test_every_supported_annotation_comes_back_as_it_was(annotation, name, immutable, values):
    found = roundtrip(annotation, values)
    assert found == values
    assert list(map(type, found)) == list(map(type, values))
    assert roundtrip(annotation, []) == []
    assert roundtrip(annotation, [None, *values, None]) == [None, *values, None]


@pytest.mark.parametrize(("annotation", "name", "immutable", "values"), SUPPORTED, ids=[str(s[0]) for s in SUPPORTED])
def test_every_supported_annotation_has_its_name_and_knows_if_it_can_change(annotation, name, immutable, values):
    found = stored(annotation, "here")
    assert found.name == name
    assert found.is_immutable == immutable


leaves = st.sampled_from(
    [
        (int, st.integers(-(2**63), 2**63 - 1)),
        (float, st.floats(allow_nan=False)),
        (str, st.text()),
        (bytes, st.binary()),
        (bool, st.booleans()),
        (date, st.dates()),
        (UUID, st.uuids()),
        (Colour, st.sampled_from(Colour)),
        (object, st.none() | st.integers() | st.text()),
    ]
)


def wrapped(inner):
    annotation, values = inner
    return st.sampled_from(
        [
            (list[annotation], st.lists(values, max_size=3)),
            (tuple[annotation, ...], st.lists(values, max_size=3).map(tuple)),
            (tuple[annotation, int], st.tuples(values, st.just(1))),
            (dict[str, annotation], st.dictionaries(st.text(max_size=2), values, max_size=3)),
            (annotation | None, st.none() | values),
        ]
    )


@settings(max_examples=150)
@given(leaves.flatmap(wrapped).flatmap(wrapped), st.data())
def test_nested_annotations_come_back_as_they_were(annotation_and_values, data):
    annotation, values = annotation_and_values
    sample = data.draw(st.lists(values, max_size=4))
    assert roundtrip(annotation, sample) == sample


def test_a_nan_survives_in_a_float_column():
    assert str(roundtrip(float, [float("nan")])) == "[nan]"


def test_columns_are_typed_so_that_anybody_can_read_them():
    assert to_column(stored(tuple[int, float], ""), [(1, 2.0)], "s").to_pylist() == [{"f0": 1, "f1": 2.0}]
    assert to_column(stored(Point, ""), [Point(1)], "s").to_pylist() == [{"x": 1, "y": 0.0}]
    assert to_column(stored(Colour, ""), [Colour.RED], "s").to_pylist() == ["RED"]
    assert to_column(stored(dict[str, int], ""), [{"a": 1}], "s").to_pylist() == [[{"key": "a", "value": 1}]]


# --- what is refused --------------------------------------------------------------------------


class Opaque:
    pass


@pytest.mark.parametrize(
    "annotation",
    [
        Opaque,
        complex,
        range,
        list[Opaque],
        tuple[int, Opaque],
        dict[str, Opaque],
        Opaque | None,
        typing.Callable[[int], int],
        typing.Iterator[int],
        typing.TypeVar("T"),
        Tree,
        Empty,
        "int",
        3,
    ],
    ids=str,
)
def test_a_type_that_cannot_be_stored_is_refused_by_name(annotation):
    with pytest.raises(UnsupportedType, match=r"^here: .* cannot be stored\. Use int"):
        stored(annotation, "here")


def test_an_annotation_that_cannot_be_resolved_is_refused():
    @dataclasses.dataclass
    class Local:
        other: "NowhereToBeFound"  # noqa: F821

    with pytest.raises(UnsupportedType, match="NowhereToBeFound"):
        stored(Local, "here")


@dataclasses.dataclass
class Point3(Point):
    z: float = 0.0


@pytest.mark.parametrize(
    ("annotation", "wrong"),
    [
        (int, "1"),
        (int, 1.5),
        (int, 1.0),
        (int, True),
        (int, 2**63),
        (float, "1"),
        (float, True),
        (bool, 1),
        (str, 1),
        (str, b"x"),
        (str, "\ud800"),
        (bytes, "x"),
        (bytes, bytearray(b"x")),
        (date, "2024-01-01"),
        (date, 5),
        (date, datetime(2024, 1, 1)),
        (datetime, date(2024, 1, 1)),
        (datetime, "2024-01-01"),
        (time, "12:00"),
        (timedelta, 5),
        (timedelta, timedelta.max),
        (UUID, "not a uuid"),
        (UUID, 5),
        (Decimal, "1.5"),
        (Decimal, 1.5),
        (Colour, "RED"),
        (Colour, 1),
        (Colour, Level.LOW),
        (Right, 1),
        (list[int], ["a"]),
        (list[int], (1,)),
        (list[str], "abc"),
        (set[int], [1]),
        (tuple[int, ...], [1]),
        (tuple[int, int], (1,)),
        (tuple[int, int], (1, 2, 3)),
        (tuple[str, str], "ab"),
        (tuple[int, int], 5),
        (dict[str, int], {"a": "b"}),
        (dict[str, int], [("a", 1)]),
        (Point, (1, 2.0)),
        (Point, Point3(1, 2.0, 3.0)),
        (Point, Point("a")),
        (Pair, ("a", 1)),
        (Packed, Changing(1)),
        (Movie, {"title": "M"}),
        (Movie, {"title": "M", "year": 1931, "director": "Lang"}),
        (Movie, [("title", "M")]),
        (object, Opaque()),
        (int | str, Opaque()),
        (list, [Opaque()]),
    ],
    ids=lambda v: f"{v!s:.30}".encode("ascii", "replace").decode(),
)
def test_a_value_that_does_not_fit_is_refused_before_it_is_stored(annotation, wrong):
    with pytest.raises(StateTypeMismatch) as caught:
        to_column(stored(annotation, "here"), [wrong], "sums")
    assert caught.value.state == "sums"
    assert caught.value.type == stored(annotation, "here").name


def test_numpy_numbers_and_members_that_are_numbers_fit():
    assert roundtrip(int, [np.int64(5), np.uint8(7), Level.LOW]) == [5, 7, 1]
    assert roundtrip(float, [np.float64(0.5), np.float32(0.25), 3]) == [0.5, 0.25, 3.0]
    assert roundtrip(bool, [np.bool_(True)]) == [True]


def test_a_subclass_of_text_or_tuple_comes_back_plain():
    assert roundtrip(tuple[str, int], [Pair("a", 1)]) == [("a", 1)]
    assert roundtrip(str, [np.str_("a")]) == ["a"]
