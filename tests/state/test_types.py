"""Types that can be stored: values come back as they were."""

import dataclasses
import typing
from collections import namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional, Union
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_classes import Changing, Colour, Level, Movie, OddKeys, Packed, Pair, Point, Right, UserId, roundtrip, same
from thoroughness import examples

from moorline.state.types.annotations import Pickled, RenamedFrom, stored, to_bytes, to_column


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


Loose = namedtuple("Loose", "a b")
Renamed = dataclasses.make_dataclass("Renamed", [("total", Annotated[int, RenamedFrom("sum")])])
utc = pa.timestamp("us", "UTC")
zone = timezone(timedelta(hours=5, minutes=30))
FROZEN = "Frozen(name: str, at: tuple[int, int])"


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
    (Renamed, "Renamed(total: int)", False, [Renamed(1)]),
    (OddKeys, 'OddKeys("unit price": int, "a, (b)": str)', False, [{"unit price": 1}, {"unit price": 2, "a, (b)": ""}]),
    (UserId, "int", True, [UserId(5)]),
    (Annotated[list[Annotated[int, "unhashable", []]], {}], "list[int]", False, [[1]]),
    (Literal["b", "a"], 'Literal["a", "b"]', True, ["a", "b"]),
    (Literal[1, 2, None], "Literal[1, 2] | None", True, [1, None]),
    (Literal[1, "1", True], 'Literal[true, 1, "1"]', True, [1, "1", True]),
    (dict[Literal["x"], int], 'dict[Literal["x"], int]', False, [{"x": 1}, {}]),
    (dict[int | None, UUID], "dict[int | None, UUID]", False, [{None: UUID(int=1), 5: UUID(int=2)}]),
    (dict[Frozen, Point], f"dict[{FROZEN}, Point(x: int, y: float)]", False, [{Frozen("a"): Point(1)}, {}]),
    (set[Frozen], f"set[{FROZEN}]", False, [{Frozen("a"), Frozen("b")}, set()]),
    (frozenset[tuple[int, str]], "frozenset[tuple[int, str]]", True, [frozenset({(1, "a")})]),
    (list[Colour], "list[enum Colour]", False, [[Colour.RED], []]),
    (np.int8, "np.int8", True, [np.int8(-128), np.int8(127)]),
    (np.int16, "np.int16", True, [np.int16(-5)]),
    (np.int32, "np.int32", True, [np.int32(2**31 - 1)]),
    (np.int64, "np.int64", True, [np.int64(-(2**63))]),
    (np.uint8, "np.uint8", True, [np.uint8(255)]),
    (np.uint16, "np.uint16", True, [np.uint16(65535)]),
    (np.uint32, "np.uint32", True, [np.uint32(2**32 - 1)]),
    (np.uint64, "np.uint64", True, [np.uint64(2**64 - 1), np.uint64(0)]),
    (np.float32, "np.float32", True, [np.float32(0.1), np.float32("inf")]),
    (np.float64, "np.float64", True, [np.float64(0.1)]),
    (np.bool_, "np.bool", True, [np.bool_(True), np.bool_(False)]),
    (np.datetime64, "np.datetime64", True, [np.datetime64("2024-02-29T01:02:03.123456789"), np.datetime64(0, "ns")]),
    (np.timedelta64, "np.timedelta64", True, [np.timedelta64(-5, "ns"), np.timedelta64(3, "h")]),
    (dict[np.int32, np.float32], "dict[np.int32, np.float32]", False, [{np.int32(1): np.float32(0.5)}]),
    (np.int64 | None, "np.int64 | None", True, [None, np.int64(1)]),
    (pa.int32(), "arrow[int32]", True, [5, -(2**31)]),
    (pa.decimal128(10, 2), "arrow[decimal128(10, 2)]", True, [Decimal("1.50")]),
    (utc, "arrow[timestamp[us, tz=UTC]]", True, [datetime(2024, 1, 1, 12, 0, 0, 1, tzinfo=UTC)]),
    (pa.timestamp("ns"), "arrow[timestamp[ns]]", True, [pa.scalar(1234567890123456789, pa.timestamp("ns")).as_py()]),
    (pa.time64("us"), "arrow[time64[us]]", True, [time(1, 2, 3, 4)]),
    (pa.time32("ms"), "arrow[time32[ms]]", True, [time(1, 2, 3, 4000)]),
    (pa.float16(), "arrow[float16]", True, [0.5]),
    (pa.list_(pa.int16()), "arrow[list<int16>]", False, [[1, None], []]),
    (pa.list_(pa.duration("ms"), 2), "arrow[fixed_size_list<duration[ms]>[2]]", False, [[timedelta(0), None]]),
    (pa.map_(pa.string(), utc), "arrow[map<string, timestamp[us, tz=UTC]>]", False, [[("a", None)], []]),
    (
        pa.struct([pa.field("a b", pa.int8(), nullable=False), ("c", pa.large_list(pa.binary(2)))]),
        'arrow[struct<"a b": int8 not null, c: large_list<fixed_size_binary[2]>>]',
        False,
        [{"a b": 1, "c": [b"ab"]}],
    ),
    (Optional[pa.string()], "arrow[string] | None", True, ["a", None]),  # noqa: UP045
    (list[pa.int8()], "list[arrow[int8]]", False, [[1, 2]]),
    (Pickled(), "pickle[]", False, [{"a": {1, 2}}, 1j, [datetime(2024, 1, 1, tzinfo=zone), UUID(int=3)]]),
    (Pickled(Point), f"pickle[{Point.__module__}.Point]", False, [Point(1)]),
    (list[Pickled(Point)], f"list[pickle[{Point.__module__}.Point]]", False, [[Point(1), Point(2)]]),
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


@pytest.mark.parametrize(("annotation", "name", "immutable", "values"), SUPPORTED, ids=[str(s[0]) for s in SUPPORTED])
def test_one_value_as_bytes_comes_back_as_it_does_from_a_column(annotation, name, immutable, values):
    found = stored(annotation, "here")
    for value in [*values, None]:
        data = to_bytes(found, value, "s")
        assert same(found.unpack(data), found.from_array(found.to_array([value]))[0])
        assert same(found.unpack(memoryview(data)), found.unpack(data))


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
        (timedelta, st.timedeltas(timedelta(days=-9999), timedelta(days=9999))),
        (datetime, st.datetimes()),
        (Decimal, st.decimals(allow_nan=False)),
        (Literal["a", "b"], st.sampled_from(["a", "b"])),
        (np.int16, st.integers(-(2**15), 2**15 - 1).map(np.int16)),
        (np.float32, st.floats(width=32, allow_nan=False).map(np.float32)),
        (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
        (Pair, st.builds(Pair, st.text(), st.none() | st.integers(0, 9))),
        (object, st.none() | st.integers() | st.text()),
    ]
)


def is_hashable(value: Any) -> bool:
    try:
        return hash(value) is not None
    except TypeError:
        return False


def wrapped(inner):
    annotation, values = inner
    return st.sampled_from(
        [
            (list[annotation], st.lists(values, max_size=3)),
            (tuple[annotation, ...], st.lists(values, max_size=3).map(tuple)),
            (tuple[annotation, int], st.tuples(values, st.just(1))),
            (dict[str, annotation], st.dictionaries(st.text(max_size=2), values, max_size=3)),
            (Optional[annotation], st.none() | values),  # noqa: UP045
            (dict[annotation, int], st.dictionaries(values.filter(is_hashable), st.just(1), max_size=2)),
        ]
    )


@settings(max_examples=examples(150))
@given(leaves.flatmap(wrapped).flatmap(wrapped), st.data())
def test_nested_annotations_come_back_as_they_were(annotation_and_values, data):
    annotation, values = annotation_and_values
    sample = data.draw(st.lists(values, max_size=4))
    found = roundtrip(annotation, sample)
    assert found == sample
    one = stored(annotation, "here")
    assert same([one.unpack(one.pack(v)) for v in sample], found)


def test_a_nan_survives_in_a_float_column():
    assert str(roundtrip(float, [float("nan")])) == "[nan]"


def test_columns_are_typed_so_that_anybody_can_read_them():
    assert to_column(stored(tuple[int, float], ""), [(1, 2.0)], "s").to_pylist() == [{"f0": 1, "f1": 2.0}]
    assert to_column(stored(Point, ""), [Point(1)], "s").to_pylist() == [{"x": 1, "y": 0.0}]
    assert to_column(stored(Colour, ""), [Colour.RED], "s").to_pylist() == ["RED"]
    assert to_column(stored(dict[str, int], ""), [{"a": 1}], "s").to_pylist() == [[{"key": "a", "value": 1}]]
