"""Classes whose fields have changed, and migrations by hand."""

from __future__ import annotations

import dataclasses
import pickle
from dataclasses import field, make_dataclass
from typing import Annotated, NotRequired, TypedDict

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from carried_values import HERE, PLAIN_POINT, POINT, Colour, Farbe, Tupled, carried, described, refused, same
from hypothesis import given, settings
from thoroughness import examples
from type_trees import types

from moorline.errors import StateIncompatible, UnsupportedType
from moorline.model.type_tree import tree
from moorline.model.type_tree.old_text import read_type
from moorline.state.evolution.plan import plan
from moorline.state.evolution.untyped import raw_type
from moorline.state.types.annotations import Pickled, RenamedFrom, stored

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
