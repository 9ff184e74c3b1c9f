"""State that was stored under another type: what is carried over, what is refused and why."""

from __future__ import annotations

import dataclasses
import pickle
from dataclasses import field, make_dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, Flag
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from thoroughness import examples
from type_trees import types

from moorline.errors import PickleRefused, StateIncompatible, UnsupportedType
from moorline.model.type_tree import tree
from moorline.model.type_tree.old_text import read_type
from moorline.state.evolution.plan import Where, plan
from moorline.state.evolution.untyped import raw_type
from moorline.state.types.annotations import Pickled, RenamedFrom, stored

HERE = Where("totals", "sums")


def carried(old: Any, values: list[Any], new: Any, migrate: Any = None) -> list[Any]:
    """Old values as the new type sees them: out of a column, and the same out of bytes."""
    was = stored(old, "here")
    reader = plan(was.tree, new, where=HERE, migrate=migrate)
    column = was.to_array(values)
    assert reader.arrow == column.type
    found = reader.from_array(column)
    assert repr([reader.unpack(was.pack(v)) for v in values]) == repr(found)
    now = stored(new, "here")
    now.to_array(found)  # what was carried over can be stored again
    return found


def described(old: Any, new: Any) -> str:
    return plan(stored(old, "here").tree, new, where=HERE).describe()


def refused(old: Any, new: Any) -> str:
    with pytest.raises(StateIncompatible) as caught:
        plan(stored(old, "here").tree, new, where=HERE)
    assert (caught.value.uid, caught.value.state) == ("totals", "sums")
    assert caught.value.declared == stored(new, "here").name
    return caught.value.reason


def same(a: Any, b: Any) -> bool:
    return repr(a) == repr(b)


# --- the same type ----------------------------------------------------------------------------


def test_equal_types_are_read_by_the_type_itself():
    reader = plan(read_type("tuple[int, float]"), tuple[int, float], where=HERE, migrate=lambda v: 1 / 0)
    assert reader.is_identity
    assert reader.describe() == "unchanged"
    pair = stored(tuple[int, float], "")
    assert reader.from_array(pair.to_array([(1, 2.0)])) == [(1, 2.0)]
    assert reader.unpack(pair.pack((1, 2.0))) == (1, 2.0)


def test_an_annotation_without_stored_form_is_the_authors_error():
    with pytest.raises(UnsupportedType, match="state 'sums' of operator 'totals'"):
        plan(tree.INT, complex, where=HERE)


# --- fields -----------------------------------------------------------------------------------

OldBasket = make_dataclass("Basket", [("owner", str), ("zip", str), ("n", int)])


@dataclasses.dataclass
class Basket:
    owner: str
    n: float
    age: int = 0
    tags: list[str] = field(default_factory=list)
    note: str | None = None


def test_fields_are_added_with_their_defaults_dropped_and_widened():
    found = carried(OldBasket, [OldBasket("ann", "12", 3), None], Basket)
    assert found == [Basket("ann", 3.0), None]
    assert type(found[0].n) is float
    assert described(OldBasket, Basket) == (
        "field 'n' widened from int to float; field 'age' added (default 0); field 'tags' added (default list()); "
        "field 'note' added (default None); field 'zip' dropped"
    )


def test_each_value_gets_a_default_of_its_own():
    first, second = carried(OldBasket, [OldBasket("a", "1", 1), OldBasket("b", "2", 2)], Basket)
    assert first.tags is not second.tags


class Structured(msgspec.Struct):
    x: int
    more: list[int] = []
    some: int | None = 7


class Tupled(NamedTuple):
    x: int
    y: int = 5


class Typed(TypedDict):
    x: int
    maybe: NotRequired[str]
    none: int | None


def test_every_sort_of_class_has_its_defaults():
    old = make_dataclass("Old", [("x", int)])
    assert carried(old, [old(1)], Structured) == [Structured(1, [], 7)]
    assert carried(old, [old(1)], Tupled) == [Tupled(1, 5)]
    assert carried(old, [old(1)], Typed) == [{"x": 1, "none": None}]
    assert described(old, Typed) == (
        "class Old renamed to Typed; field 'maybe' added (absent); field 'none' added (default None)"
    )


def test_a_key_that_was_absent_stays_absent():
    wider = TypedDict("Typed", {"maybe": NotRequired[str], "none": int | None, "x": float})  # noqa: UP013
    found = carried(Typed, [{"x": 1, "none": None}, {"x": 2, "none": 3, "maybe": "m"}], wider)
    assert found == [{"none": None, "x": 1.0}, {"maybe": "m", "none": 3, "x": 2.0}]


def test_a_field_that_may_be_none_needs_no_default():
    new = make_dataclass("Basket", [("owner", str), ("zip", str), ("n", int), ("extra", list[int] | None)])
    assert carried(OldBasket, [OldBasket("a", "1", 2)], new)[0].extra is None


def test_a_field_without_default_is_refused_by_name():
    new = make_dataclass("Basket", [("owner", str), ("zip", str), ("n", int), ("age", int)])
    assert refused(OldBasket, new) == "field 'age' is new and has no default"


def test_a_renamed_field_says_what_it_was_called():
    new = make_dataclass("Basket", [("owner", str), ("total", Annotated[float, "doc", RenamedFrom("n")]), ("zip", str)])
    assert same(carried(OldBasket, [OldBasket("a", "1", 2)], new), [new("a", 2.0, "1")])
    assert described(OldBasket, new) == (
        "field 'total' renamed from 'n'; field 'total' widened from int to float; fields in another order"
    )


def test_the_new_name_of_a_field_wins_once_it_is_there():
    old = make_dataclass("C", [("n", int), ("total", int)])
    new = make_dataclass("C", [("total", Annotated[int, RenamedFrom("n")])])
    assert carried(old, [old(1, 2)], new) == [new(2)]


def test_a_name_that_was_given_away_is_a_new_field():
    old = make_dataclass("C", [("n", int)])
    new = make_dataclass("C", [("total", Annotated[int, RenamedFrom("n")]), ("n", int, 9)])
    assert carried(old, [old(1)], new) == [new(1, 9)]
    latest = make_dataclass("C", [("sum", Annotated[int, RenamedFrom("total"), RenamedFrom("n")])])
    assert carried(old, [old(1)], latest) == [latest(1)]


def test_a_renamed_key_that_is_not_required():
    old = TypedDict("T", {"a": int})  # noqa: UP013
    new = TypedDict("T", {"b": Annotated[NotRequired[int], RenamedFrom("a")]})  # noqa: UP013
    assert carried(old, [{"a": 1}], new) == [{"b": 1}]


def test_fields_are_found_by_name_wherever_the_class_is():
    inner, wider = make_dataclass("In", [("a", int), ("b", str)]), make_dataclass("In", [("b", str), ("a", float)])
    old, new = dict[str, list[tuple[int, inner]]], dict[str, list[tuple[int, wider]]]
    assert same(carried(old, [{"k": [(1, inner(2, "x"))]}], new), [{"k": [(1, wider("x", 2.0))]}])
    assert "part '{value}[][1]' fields in another order" in described(old, new)


def test_the_reason_names_the_path():
    address, other = make_dataclass("Address", [("zip", str)]), make_dataclass("Address", [("zip", int)])
    old, new = make_dataclass("P", [("address", address)]), make_dataclass("P", [("address", other)])
    assert refused(old, new) == "field 'address.zip' was str and is int"
    assert refused(list[old], list[new]) == "field '[].address.zip' was str and is int"
    with pytest.raises(StateIncompatible, match="or give the state a function migrate= that") as caught:
        plan(stored(old, "").tree, new, where=HERE)
    assert pickle.loads(pickle.dumps(caught.value)).reason == caught.value.reason


def test_a_class_that_cannot_be_made_of_old_values_is_refused_with_its_own_words():
    @dataclasses.dataclass
    class Positive:
        n: int
        extra: int = 0

        def __post_init__(self):
            if self.n <= 0:
                raise RuntimeError("must be positive")

    old = make_dataclass("Positive", [("n", int)])
    with pytest.raises(StateIncompatible, match="RuntimeError: must be positive"):
        carried(old, [old(-1)], Positive)


# --- everything else --------------------------------------------------------------------------


class Colour(Enum):
    RED = 1
    BLUE = 2


class Farbe(Enum):
    BLUE = "b"
    RED = "r"


class OnlyRed(Enum):
    RED = 1


class Right(Flag):
    READ = 1


class Access(Flag):
    READ = 1
    WRITE = 2


POINT = make_dataclass("Point", [("x", int), ("colour", Colour)], frozen=True)
PLAIN_POINT = {"x": 1, "colour": "RED"}

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


# --- migrate ----------------------------------------------------------------------------------


def test_migrate_gets_the_old_value_in_natural_form():
    old = make_dataclass("Old", [("points", dict[POINT, int]), ("tags", set[str]), ("at", tuple[int, np.int32])])
    seen = []
    value = old({POINT(1, Colour.RED): 2}, {"a"}, (1, np.int32(2)))
    assert carried(old, [value], int, migrate=lambda v: seen.append(v) or 5) == [5]
    assert same(seen[0], {"points": [(PLAIN_POINT, 2)], "tags": {"a"}, "at": (1, 2)})
    assert seen[0] == seen[1]


def test_migrate_decides_what_the_rules_would_not():
    assert carried(int, [1, None], str, migrate=str) == ["1", None]
    assert carried(int | None, [1, None], str, migrate=str) == ["1", "None"]
    assert carried(POINT, [POINT(1, Colour.BLUE)], Farbe, migrate=lambda p: Farbe[p["colour"]]) == [Farbe.BLUE]
    assert carried(list[int], [[1, 1]], set[int], migrate=set) == [{1}]
    assert plan(tree.INT, str, where=HERE, migrate=str).describe() == "made from int by str"


def test_migrate_gets_a_pickle_as_bytes():
    pickled = Pickled(POINT)
    value = POINT(1, Colour.RED)
    opened = Pickled(POINT, allow=[Colour])
    assert carried(opened, [value], int, migrate=lambda data: opened.load(data).x) == [1]
    with pytest.raises(TypeError):
        pickled.dump(value)


def test_what_migrate_makes_must_fit_and_its_errors_are_shown():
    with pytest.raises(StateIncompatible, match=r"migrate made 1 of 1: a int is not a str"):
        plan(tree.INT, str, where=HERE, migrate=lambda v: v).from_array(pa.array([1]))
    with pytest.raises(StateIncompatible, match=r"migrate failed for \{'x': 1\} with KeyError: 'y'"):
        plan(read_type("Old(x: int)"), str, where=HERE, migrate=lambda v: v["y"]).from_array(pa.array([{"x": 1}]))


# --- trees ------------------------------------------------------------------------------------


@settings(max_examples=examples(300))
@given(types)
def test_values_of_every_type_can_be_read_by_its_tree(stored_type):
    assert raw_type(stored_type).tree == stored_type


def test_another_spelling_in_an_old_snapshot_is_no_other_type():
    odd_keys = TypedDict("Odd", {"unit price": int})
    assert stored(odd_keys, "").name == 'Odd("unit price": int)'
    assert plan(read_type("Odd(unit price: int)"), odd_keys, where=HERE).is_identity


def test_a_type_that_a_manifest_cannot_have_is_refused():
    with pytest.raises(UnsupportedType, match="surrogates"):
        stored(Literal["\ud800"], "here")


def test_a_type_that_could_not_be_read_is_refused_before_it_is_stored():
    deep: Any = int
    for _ in range(80):
        deep = list[deep]
    with pytest.raises(UnsupportedType, match="nested too deeply"):
        stored(deep, "here")
