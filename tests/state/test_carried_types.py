"""Which type may become which, of fields and by itself: what loses nothing, and nothing else."""

from __future__ import annotations

from dataclasses import make_dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, Flag
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from carried_values import HERE, PLAIN_POINT, POINT, Colour, Farbe, Tupled, carried, described, refused, same

from moorline.errors import PickleRefused, StateIncompatible
from moorline.model.type_tree.old_text import read_type
from moorline.state.evolution.plan import plan
from moorline.state.types.annotations import Pickled, stored


class OnlyRed(Enum):
    RED = 1


class Right(Flag):
    READ = 1


class Access(Flag):
    READ = 1
    WRITE = 2


#: Old type, old values, new type, new values.
CARRIED: list[tuple[Any, list[Any], Any, list[Any]]] = [
    (bool, [True, False], int, [1, 0]),
    (int, [2**53, -1], float, [2.0**53, -1.0]),
    (int, [1], int | None, [1]),
    (int | None, [1], int, [1]),
    (int | None, [None, 1], float | None, [None, 1.0]),
    (int, [5], np.int64, [np.int64(5)]),
    (bool, [True], np.bool_, [np.bool_(True)]),
    (np.int32, [np.int32(5)], np.int64, [np.int64(5)]),
    (np.int32, [np.int32(5)], int, [5]),
    (np.uint32, [np.uint32(2**32 - 1)], int, [2**32 - 1]),
    (np.int32, [np.int32(5)], float, [5.0]),
    (np.int64, [np.int64(5)], np.float64, [np.float64(5)]),
    (np.float32, [np.float32(0.5)], float, [0.5]),
    (np.float32, [np.float32(0.1)], np.float64, [np.float64(np.float32(0.1))]),
    (pa.int16(), [5], int, [5]),
    (int, [5], pa.int64(), [5]),
    (str, ["a"], pa.string(), ["a"]),
    (pa.date32(), [date(2024, 1, 1)], date, [date(2024, 1, 1)]),
    (list[int], [[1, 2], []], tuple[int, ...], [(1, 2), ()]),
    (tuple[int, ...], [(1, 2)], list[float], [[1.0, 2.0]]),
    (tuple[int, bool], [(1, True)], tuple[int, ...], [(1, 1)]),
    (tuple[int, int], [(1, 2)], list[int], [[1, 2]]),
    (tuple[int, bool], [(1, True)], tuple[float, int], [(1.0, 1)]),
    (set[int], [{1}], frozenset[float], [frozenset({1.0})]),
    (frozenset[int], [frozenset({1})], set[int], [{1}]),
    (set[int], [{1}], list[int], [[1]]),
    (dict[bool, int], [{True: 1}], dict[int, float], [{1: 1.0}]),
    (dict[str, list[int]], [{"a": [1]}], dict[str, list[int | None]], [{"a": [1]}]),
    (dict[Colour, int], [{Colour.RED: 1}], dict[Farbe, int], [{Farbe.RED: 1}]),
    (Colour, [Colour.RED, None], Farbe, [Farbe.RED, None]),
    (Colour, [Colour.RED], OnlyRed, [OnlyRed.RED]),
    (Right, [Right.READ], Access, [Access.READ]),
    (Literal["a"], ["a"], Literal["a", "b"], ["a"]),
    (Literal["a", "b"], ["a"], Literal["a"], ["a"]),
    (Literal["a"], ["a"], str, ["a"]),
    (str, ["a"], Literal["a", "b"], ["a"]),
    (Literal[1], [1], Literal[1, "a"], [1]),
    (Literal[1, "a"], ["a"], Literal["a"], ["a"]),
    (Literal[1], [1], float, [1.0]),
    (tuple[int, str], [(1, "a")], object, [(1, "a")]),
    (list[POINT], [[POINT(1, Colour.RED)]], object, [[PLAIN_POINT]]),
    (dict[str, np.int32], [{"a": np.int32(1)}], object, [{"a": 1}]),
    (set[POINT], [{POINT(1, Colour.RED)}], object, [[PLAIN_POINT]]),
    (dict[POINT, int], [{POINT(1, Colour.RED): 2}], object, [[(PLAIN_POINT, 2)]]),
    (int | None, [None, 1], object, [None, 1]),
    (object, [1, None], int, [1, None]),
    (object, [1], float, [1.0]),
    (object, [[1, 2]], list[int], [[1, 2]]),
    (object, [(1, {"a": None})], tuple[int, dict[str, int | None]], [(1, {"a": None})]),
    (object, [{"a": [1]}], Pickled(), [{"a": [1]}]),
    (object, ["a"], Literal["a"], ["a"]),
    (Pickled(), [{1}], Pickled(allow=["a.B"]), [{1}]),
    (int | str, [1, "a"], object, [1, "a"]),
]


@pytest.mark.parametrize(("old", "values", "new", "expected"), CARRIED, ids=lambda v: f"{v!s:.40}")
def test_what_loses_nothing_is_carried_over(old, values, new, expected):
    assert same(carried(old, values, new), expected)


@pytest.mark.parametrize(("old", "values", "new", "expected"), CARRIED, ids=lambda v: f"{v!s:.40}")
def test_it_is_carried_over_inside_of_others_too(old, values, new, expected):
    was, now = make_dataclass("C", [("f", old)]), make_dataclass("C", [("f", new)])
    assert same(carried(dict[str, was], [{"k": was(values[-1])}], dict[str, now]), [{"k": now(expected[-1])}])
    assert same(carried(tuple[int, old], [(1, v) for v in values], tuple[int, new]), [(1, e) for e in expected])
    assert same(carried(list[old], [values], list[new]), [expected])


def test_arrays_are_carried_over_to_wider_ones():
    narrow = np.array([[1, 2]], np.float32)
    for new in (npt.NDArray[np.float64], np.ndarray):
        (found,) = carried(npt.NDArray[np.float32], [narrow], new)
        np.testing.assert_array_equal(found, narrow)
        assert found.flags.writeable
    assert carried(np.ndarray, [narrow], npt.NDArray[np.float32])[0].tolist() == [[1.0, 2.0]]
    with pytest.raises(StateIncompatible, match="dtype float32 is not one of float64"):
        carried(np.ndarray, [narrow], npt.NDArray[np.float64])
    with_array, wider = (
        make_dataclass("C", [("a", np.ndarray)]),
        make_dataclass("C", [("a", np.ndarray), ("n", int, 0)]),
    )
    assert carried(with_array, [with_array(narrow)], wider)[0].a.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (int, str, "it was int and is str"),
        (str, int, "it was str and is int"),
        (int, bool, "it was int and is bool"),
        (bool, float, "it was bool and is float"),
        (float, int, "it was float and is int"),
        (date, datetime, "it was date and is datetime"),
        (datetime, str, "it was datetime and is str"),
        (Decimal, float, "it was Decimal and is float"),
        (int, Decimal, "it was int and is Decimal"),
        (np.int64, np.int32, "it was np.int64 and is np.int32"),
        (np.uint64, int, "it was np.uint64 and is int"),
        (int, np.float32, "it was int and is np.float32"),
        (float, np.float32, "it was float and is np.float32"),
        (list[int], set[int], "it was list[int] and is set[int]"),
        (list[str], list[int], "part '[]' was str and is int"),
        (list[int], tuple[int, int], "it was list[int] and is tuple[int, int]"),
        (tuple[int, int], tuple[int], "it had 2 parts and has 1"),
        (tuple[int, str], tuple[int, ...], "part '[1]' was str and is int"),
        (tuple[int, int], set[int], "it was tuple[int, int] and is set[int]"),
        (dict[str, int], dict[int, int], "part '{key}' was str and is int"),
        (dict[str, int], dict[str, str], "part '{value}' was int and is str"),
        (dict[str, int], list[int], "it was dict[str, int] and is list[int]"),
        (list[int], dict[int, int], "it was list[int] and is dict[int, int]"),
        (Colour, str, "it was enum Colour and is str"),
        (str, Colour, "it was str and is enum Colour"),
        (Right, Colour, "it was flag Right and is enum Colour"),
        (Colour, Right, "it was enum Colour and is flag Right"),
        (POINT, tuple[int, Colour], "it was Point(x: int, colour: enum Colour) and is tuple[int, enum Colour]"),
        (tuple[int, int], Tupled, "it was tuple[int, int] and is Tupled(x: int, y: int)"),
        (int, Literal["a"], 'it was int and is Literal["a"]'),
        (list[int], Literal[1, "a"], 'it was list[int] and is Literal[1, "a"]'),
        (Literal["a"], int, "it was str and is int"),
        (np.ndarray, object, "it was np.ndarray, which is not plain data"),
        (tuple[int, npt.NDArray[np.int8]], object, "it was np.ndarray[np.int8], which is not plain data"),
        (npt.NDArray[np.int64], npt.NDArray[np.float64], "it was np.ndarray[np.int64] and is np.ndarray[np.float64]"),
        (npt.NDArray[np.float64], list[float], "it was np.ndarray[np.float64] and is list[float]"),
        (Pickled(), object, "it was pickle[], which is not plain data"),
        (int, Pickled(), "it was int and is pickle[]"),
        (pa.int64(), pa.int32(), "it was arrow[int64] and is arrow[int32]"),
        (pa.list_(pa.int8()), pa.list_(pa.int16()), "it was arrow[list<int8>] and is arrow[list<int16>]"),
        (pa.timestamp("us"), datetime, "it was arrow[timestamp[us]] and is datetime"),
        (np.datetime64, datetime, "it was np.datetime64 and is datetime"),
    ],
    ids=lambda v: f"{v!s:.40}",
)
def test_what_could_lose_something_is_refused_before_any_value_is_read(old, new, reason):
    assert refused(old, new) == reason


@pytest.mark.parametrize(
    ("old", "value", "new", "reason"),
    [
        (int, 2**53 + 1, float, "it is 9007199254740993, which is no float"),
        (list[int], [1, 2**60 + 1], list[float], r"part '\[\]' is 1152921504606846977, which is no float"),
        (int | None, None, int, "it is None"),
        (list[int | None], [1, None], list[int], r"part '\[\]' is None"),
        (Colour, Colour.BLUE, OnlyRed, "it is 'BLUE', which is no enum OnlyRed: OnlyRed has no member 'BLUE'"),
        (Access, Access.WRITE, Right, "it is 2, which is no flag Right"),
        (Literal["a", "b"], "b", Literal["a"], "it is 'b', which is no Literal"),
        (object, "x", int, "it is 'x', which is no int: a str is not a int"),
        (object, {"x": 1}, Tupled, "it is {'x': 1}, which is no Tupled"),
        (dict[str, object], {"k": [1]}, dict[str, int], r"part '{value}' is \[1\], which is no int"),
        (object, 2**70, int, "it is 1180591620717411303424, which is no int"),
    ],
    ids=lambda v: f"{v!s:.30}",
)
def test_a_value_that_does_not_survive_is_refused_and_shown(old, value, new, reason):
    was = stored(old, "")
    reader = plan(was.tree, new, where=HERE)
    for read in (lambda: reader.from_array(was.to_array([value])), lambda: reader.unpack(was.pack(value))):
        with pytest.raises(StateIncompatible, match=f"cannot be carried over: {reason}"):
            read()


def test_a_member_that_was_removed_from_the_same_enum_is_refused_too():
    with pytest.raises(StateIncompatible, match="Colour has no member 'GREEN'"):
        plan(read_type("enum Colour"), Colour, where=HERE).from_array(pa.array(["GREEN"]))


def test_a_pickle_is_read_only_with_what_is_allowed_now():
    reader = plan(stored(Pickled(POINT), "").tree, Pickled(), where=HERE)
    assert "other classes allowed" in reader.describe()
    with pytest.raises(PickleRefused):
        reader.from_array(pa.array([b"cos\nsystem\n(S'true'\ntR."]))


def test_a_renamed_class_is_mentioned():
    assert described(Colour, Farbe) == "class Colour renamed to Farbe"
