"""Types and values that cannot be stored: refused by name, before they are."""

import dataclasses
import sys
import typing
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from stored_classes import Changing, Colour, Level, Movie, OddKeys, Packed, Pair, Point, Right, UserId, roundtrip, same

from moorline.errors import StateTypeMismatch, UnsupportedType
from moorline.state.types.annotations import Pickled, stored, to_bytes, to_column


@dataclasses.dataclass
class Tree:
    left: "Tree | None"


@dataclasses.dataclass
class Empty:
    pass


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
        [],
        np.integer,
        np.complex128,
        np.float16,
        pa.dictionary(pa.int8(), pa.string()),
        pa.null(),
        pa.date64(),
        pa.time32("s"),
        pa.list_(pa.timestamp("s")),
        pa.decimal128(5, -2),
        pa.decimal128(5, 6),
        pa.struct([]),
        Literal[b"x"],
        Literal[Colour.RED],
        Literal[None],
        typing.ClassVar[int],
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


def test_a_type_that_a_manifest_cannot_have_is_refused():
    with pytest.raises(UnsupportedType, match="surrogates"):
        stored(Literal["\ud800"], "here")


def test_a_type_that_could_not_be_read_is_refused_before_it_is_stored():
    deep: Any = int
    for _ in range(80):
        deep = list[deep]
    with pytest.raises(UnsupportedType, match="nested too deeply"):
        stored(deep, "here")


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
        (Literal["a", "b"], "c"),
        (Literal[1], True),
        (Literal[1, "a"], [1]),
        (UserId, "x"),
        (OddKeys, {}),
        (np.int8, 128),
        (np.int8, 1.0),
        (np.int8, True),
        (np.int8, np.timedelta64(1, "ns")),
        (np.uint8, -1),
        (np.float32, 0.1),
        (np.float32, 1e300),
        (np.float32, "1"),
        (np.float64, 2**60 + 1),
        (np.bool_, 1),
        (np.datetime64, datetime(2024, 1, 1)),
        (np.datetime64, np.datetime64("1500-01-01")),
        (np.datetime64, np.datetime64(10**17, "Y")),
        (np.datetime64, np.datetime64(1, "ps")),
        (np.timedelta64, np.timedelta64(1, "Y")),
        (np.timedelta64, np.timedelta64(1)),
        (np.timedelta64, np.timedelta64(2**62, "s")),
        (pa.int8(), 128),
        (pa.int8(), "x"),
        (pa.int64(), 2**63),
        (pa.decimal128(4, 2), Decimal("1.234")),
        (pa.list_(pa.int8()), [1, "a"]),
        (Pickled(), Opaque()),
        (Pickled(Point), 5),
    ],
    ids=lambda v: f"{v!s:.30}".encode("ascii", "replace").decode(),
)
def test_a_value_that_does_not_fit_is_refused_before_it_is_stored(annotation, wrong):
    with pytest.raises(StateTypeMismatch) as caught:
        to_column(stored(annotation, "here"), [wrong], "sums")
    assert caught.value.state == "sums"
    assert caught.value.type == stored(annotation, "here").name
    with pytest.raises((TypeError, ValueError)):
        stored(annotation, "here").pack(wrong)
    with pytest.raises(StateTypeMismatch):
        to_bytes(stored(annotation, "here"), wrong, "sums")


def test_numpy_numbers_and_members_that_are_numbers_fit():
    assert roundtrip(int, [np.int64(5), np.uint8(7), Level.LOW]) == [5, 7, 1]
    assert roundtrip(float, [np.float64(0.5), np.float32(0.25), 3]) == [0.5, 0.25, 3.0]
    assert roundtrip(bool, [np.bool_(True)]) == [True]
    number = stored(int, "here")
    assert same([number.unpack(number.pack(v)) for v in [np.int64(5), np.uint8(7), Level.LOW]], [5, 7, 1])
    real = stored(float, "here")
    assert same([real.unpack(real.pack(v)) for v in [np.float64(0.5), np.float32(0.25), 3]], [0.5, 0.25, 3.0])
    assert same(stored(bool, "").unpack(stored(bool, "").pack(np.bool_(True))), True)
    narrow = stored(np.int32, "here")
    assert same([narrow.unpack(narrow.pack(v)) for v in [5, np.int64(6), Level.LOW]], list(map(np.int32, [5, 6, 1])))


def test_moments_of_other_units_become_nanoseconds_and_nat_stays():
    values = [np.datetime64("2024-05"), np.datetime64("2024"), np.datetime64(7, "25s"), np.datetime64("NaT")]
    found = roundtrip(np.datetime64, values)
    assert found[:3] == values[:3]
    assert np.isnat(found[3])
    assert {v.dtype.str for v in found} == {"<M8[ns]"}
    moment = stored(np.datetime64, "here")
    assert np.isnat(moment.unpack(moment.pack(values[3])))


def test_a_subclass_of_text_or_tuple_comes_back_plain():
    assert roundtrip(tuple[str, int], [Pair("a", 1)]) == [("a", 1)]
    assert roundtrip(str, [np.str_("a")]) == ["a"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type statements are new in Python 3.12")
@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("type Amount = int", "int"),
        ("type Amount = list[str] | None", "list[str] | None"),
        ("type Pair[T] = tuple[T, T]\nAmount = Pair[int]", "tuple[int, int]"),
    ],
)
def test_an_alias_is_stored_as_what_it_stands_for(statement, name):
    namespace = {}
    exec(statement, namespace)
    assert stored(namespace["Amount"], "here").name == name


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type statements are new in Python 3.12")
def test_an_alias_that_contains_itself_is_refused():
    namespace = {}
    exec("type Own = dict[str, Own]", namespace)
    with pytest.raises(UnsupportedType, match="contains itself"):
        stored(namespace["Own"], "here")
