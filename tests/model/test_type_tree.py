"""The type of a state as data: there and back in every encoding, old texts of it, and what is refused."""

from __future__ import annotations

import contextlib
import pickle

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples
from type_trees import state_types, types

from moorline.model.type_tree import arrow, tree
from moorline.model.type_tree.old_text import read_map, read_type

INT = {"is": "word", "word": "int"}


def nested(depth: int) -> tree.Type:
    made: tree.Type = tree.INT
    for _ in range(depth):
        made = tree.List.of(list, made)
    return made


# --- there and back -----------------------------------------------------------------------------


@settings(max_examples=examples(300))
@given(state_types)
def test_every_type_comes_back_from_json_from_msgpack_and_from_a_pickle(made):
    tree.check_bounds(made)
    copies = [
        msgspec.json.decode(msgspec.json.encode(made), type=tree.StateType),
        msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=tree.StateType),
        pickle.loads(pickle.dumps(made)),
    ]
    for copy in copies:
        assert (copy, hash(copy), str(copy)) == (made, hash(made), str(made))


@settings(max_examples=examples(300))
@given(types, types)
def test_two_types_are_the_same_if_their_texts_are(one, other):
    assert (one == other) == (str(one) == str(other))
    assert tree.Map(one, one) != one


def test_a_type_is_written_as_a_tagged_tree():
    made = tree.Map(
        tree.Optional(tree.Enum("Colour", is_flag=False)),
        tree.Fields.of("Basket", {"sizes": tree.List.of(set, tree.INT), "of": tree.Arrow(arrow.Decimal(128, 10, 2))}),
    )
    assert msgspec.to_builtins(made) == {
        "is": "map",
        "key": {"is": "optional", "inner": {"is": "enum", "class": "Colour", "flag": False}},
        "value": {
            "is": "fields",
            "class": "Basket",
            "fields": (
                {"name": "sizes", "type": {"is": "list", "build": "set", "item": INT}},
                {
                    "name": "of",
                    "type": {"is": "arrow", "type": {"is": "decimal", "bits": 128, "precision": 10, "scale": 2}},
                },
            ),
        },
    }
    assert str(made) == "enum Colour | None to Basket(sizes: set[int], of: arrow[decimal128(10, 2)])"


def test_the_order_of_fields_and_the_kind_of_a_member_count():
    one, other = {"a": tree.INT, "b": tree.INT}, {"b": tree.INT, "a": tree.INT}
    assert tree.Fields.of("C", one) != tree.Fields.of("C", other)
    assert tree.Literal.of((0, "a")) != tree.Literal.of((False, "a"))


def test_a_number_beyond_64_bits_is_written_as_digits():
    made = tree.Literal.of((1 << 64, "a"))
    assert msgspec.to_builtins(made) == {
        "is": "literal",
        "members": ({"is": "digits", "digits": "18446744073709551616"}, "a"),
    }
    assert (made.values, str(made)) == ((1 << 64, "a"), 'Literal[18446744073709551616, "a"]')


# --- trees from outside -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hostile",
    [
        None,
        "int",
        [],
        {},
        {"is": "os.system"},
        {"is": "word"},
        {"is": "word", "word": "os.system"},
        {"is": "word", "word": 5},
        {"is": "word", "word": "int", "more": 1},
        {"is": "optional", "inner": {"is": "optional", "inner": INT}},
        {"is": "optional", "inner": {"is": "map", "key": INT, "value": INT}},
        {"is": "map", "key": {"is": "map", "key": INT, "value": INT}, "value": INT},
        {"is": "list", "build": "dict", "item": INT},
        {"is": "list", "build": "__import__", "item": INT},
        {"is": "tuple", "items": []},
        {"is": "dict", "key": INT},
        {"is": "fields", "class": "C", "fields": []},
        {"is": "fields", "class": "C", "fields": [{"name": "x", "type": INT}] * 2},
        {"is": "enum", "class": "C"},
        {"is": "literal", "members": []},
        {"is": "literal", "members": [None]},
        {"is": "literal", "members": [1.5]},
        {"is": "literal", "members": [[1]]},
        {"is": "literal", "members": [1 << 64]},
        {"is": "literal", "members": [{"is": "digits", "digits": "1"}]},
        {"is": "literal", "members": [{"is": "digits", "digits": "0x" + "f" * 32}]},
        {"is": "literal", "members": [{"is": "digits", "digits": "9" * 100_000}]},
        {"is": "array", "item": "np.datetime64"},
        {"is": "array", "item": "object"},
        {"is": "arrow", "type": {"is": "word", "word": "null"}},
        {"is": "arrow", "type": {"is": "word", "word": "date64"}},
        {"is": "arrow", "type": {"is": "decimal", "bits": 128, "precision": 39, "scale": 2}},
        {"is": "arrow", "type": {"is": "decimal", "bits": 64, "precision": 5, "scale": 2}},
        {"is": "arrow", "type": {"is": "decimal", "bits": 256, "precision": 5, "scale": -1}},
        {"is": "arrow", "type": {"is": "fixed_size_binary", "width": -1}},
        {"is": "arrow", "type": {"is": "fixed_size_list", "item": {"is": "word", "word": "int8"}, "size": 1 << 40}},
        {"is": "arrow", "type": {"is": "struct", "fields": []}},
        {"is": "arrow", "type": {"is": "timestamp", "unit": "us", "zone": ""}},
        {"is": "arrow", "type": {"is": "timestamp", "unit": "s", "zone": "UTC"}},
        {"is": "arrow", "type": INT},
        {"is": "pickle", "allowed": [5]},
    ],
    ids=lambda h: f"{h!r:.60}",
)
def test_a_hostile_tree_is_refused(hostile):
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(hostile), type=tree.StateType)


@pytest.mark.parametrize(
    "hostile",
    [
        nested(61),
        tree.Map(tree.INT, nested(61)),
        tree.Tuple((tree.INT,) * 100_000),
        tree.Enum("C" * 100_001, is_flag=False),
        tree.Pickle(("C" * 100_000,)),
        tree.Fields.of("C", {"x" * 100_000: tree.INT}),
    ],
    ids=lambda t: f"{t!s:.30}",
)
def test_a_tree_that_is_too_deep_or_too_large_is_refused(hostile):
    with pytest.raises(ValueError, match=r"nested too deeply|too large"):
        tree.check_bounds(hostile)


def test_the_deepest_tree_is_as_deep_with_what_is_optional_and_with_arrow_in_it():
    made: tree.Type = tree.Optional(tree.INT)
    for _ in range(60):
        made = tree.Optional(tree.List.of(list, made))
    tree.check_bounds(made)
    deep: arrow.ArrowType = arrow.Word("int8")
    for _ in range(60):
        deep = arrow.List(deep, is_large=False)
    tree.check_bounds(tree.Arrow(deep))
    with pytest.raises(ValueError, match="nested too deeply"):
        tree.check_bounds(tree.List.of(list, tree.Arrow(deep)))


def test_thousands_of_levels_are_refused_before_they_are_a_tree():
    for levels in (500, 100_000):
        text = b'{"is":"optional","inner":' * levels
        with pytest.raises((msgspec.MsgspecError, RecursionError)):
            msgspec.json.decode(text, type=tree.StateType)


def test_a_name_that_cannot_be_written_is_refused():
    with pytest.raises(ValueError, match="surrogates"):
        tree.check_bounds(tree.Literal.of(("\ud800",)))


# --- texts of formats 1 to 3 --------------------------------------------------------------------


@settings(max_examples=examples(300))
@given(types)
def test_every_text_that_was_ever_written_is_read(made):
    assert read_type(str(made)) == made
    assert read_map(f"{made} to {made}") == tree.Map(made, made)


@given(st.text(alphabet='intsrlo[](), |:."<>NoneAarwpck0', max_size=40) | types.map(str), st.data())
def test_another_text_is_a_value_error(text, data):
    cut = data.draw(st.integers(0, len(text)))
    for hostile in (text[:cut], text[cut:], text + text, text[:cut] + data.draw(st.characters()) + text[cut:]):
        with contextlib.suppress(ValueError):
            tree.check_bounds(read_type(hostile))


@pytest.mark.parametrize(
    "hostile",
    [
        "",
        "int ",
        " int",
        "int | None | None",
        "list[]",
        "list[int",
        "list[int]]",
        "tuple[]",
        "dict[int]",
        "os.system",
        "__import__('os')",
        "C()",
        "C(x int)",
        "C(x: int, x: int)",
        "C(x: int,y: int)",
        "enum ",
        "Literal[]",
        "Literal[null]",
        "Literal[1.5]",
        "Literal[[1]]",
        "Literal[" + "[" * 50_000,
        "np.ndarray[np.datetime64]",
        "np.ndarray[object]",
        "arrow[null]",
        "arrow[decimal128(99, 2)]",
        "arrow[decimal128(-1, 2)]",
        "arrow[decimal128(5, -2)]",
        "arrow[date64]",
        "arrow[fixed_size_binary[-1]]",
        "arrow[struct<>]",
        "arrow[struct<a: int8, a: int8>]",
        "arrow[timestamp[us, tz=]]",
        "pickle[",
        "pickle[a b]",
        "list[" * 100 + "int" + "]" * 100,
        "arrow[" + "list<" * 100 + "int8" + ">" * 100 + "]",
        "list[" * 60 + "arrow[list<int8>]" + "]" * 60,
        "int" * 50_000,
        "C(" * 50_000,
    ],
    ids=lambda t: f"{t:.30}",
)
def test_a_hostile_text_is_a_value_error_and_a_reason(hostile):
    with pytest.raises(ValueError, match=r"is not a type name|is too long") as caught:
        read_type(hostile)
    assert len(str(caught.value)) < 1000


def test_texts_of_the_first_snapshots_are_read():
    inner = tree.Fields.of("f.<locals>.X", {"a": tree.Optional(tree.INT)})
    first = read_type("Movie(unit price: int, of: f.<locals>.X(a: int | None))")
    assert first == tree.Fields.of("Movie", {"unit price": tree.INT, "of": inner})
    assert first == read_type('Movie("unit price": int, of: f.<locals>.X(a: int | None))')
    whole = read_map("enum Colour to tuple[int, ...]")
    assert whole == tree.Map(tree.Enum("Colour", is_flag=False), tree.List.of(tuple, tree.INT))
    with pytest.raises(ValueError, match="' to ' is missing"):
        read_map("int")
