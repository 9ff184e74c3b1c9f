"""Functions that are generated for a type do what its plain methods do, and nothing of a name gets into their text."""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict, namedtuple
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import CodeType
from typing import Any, Literal, Optional

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_classes import Changing, Colour, Movie, Packed, Pair, Point, Right, same
from thoroughness import examples

from moorline.model.type_tree import tree
from moorline.state.evolution.untyped import raw_type
from moorline.state.types import generated
from moorline.state.types.annotations import UNFIT, stored
from moorline.state.types.composite import DictType, ListType, OptionalType, StructType
from moorline.state.types.leaf import PLAIN, StoredType, encode


@dataclasses.dataclass(kw_only=True, frozen=True)
class Named:
    x: int
    y: str = ""


@dataclasses.dataclass
class Single:
    only: date


@dataclasses.dataclass
class Mixed:
    late: int = dataclasses.field(kw_only=True, default=1)
    first: str = "a"


class Swapped(msgspec.Struct, kw_only=True):
    b: int
    a: float


SMALL = st.integers(-5, 5)
LEAVES = [
    (int, st.integers(-(2**65), 2**65) | SMALL),
    (float, st.floats(allow_nan=False) | st.integers(-(2**60), 2**60)),
    (str, st.text(max_size=3) | st.just("\ud800")),
    (bytes, st.binary(max_size=3)),
    (bool, st.booleans()),
    (date, st.dates() | st.datetimes()),
    (timedelta, st.timedeltas()),
    (datetime, st.datetimes()),
    (Decimal, st.decimals(allow_nan=False)),
    (Colour, st.sampled_from(Colour)),
    (Right, st.sampled_from([Right.READ, Right.READ | Right.WRITE])),
    (Literal["a", "b"], st.sampled_from(["a", "b", "c"])),
    (np.int16, st.integers(-(2**15), 2**15 - 1).map(np.int16) | SMALL),
    (pa.int16(), SMALL),
    (object, st.none() | SMALL | st.text(max_size=3)),
    (Pair, st.builds(Pair, st.text(max_size=2), st.none() | SMALL)),
    (Point, st.builds(Point, SMALL, st.floats(allow_nan=False) | st.text(max_size=1))),
    (Named, st.builds(Named, x=SMALL, y=st.text(max_size=2))),
    (Single, st.builds(Single, st.dates())),
    (Mixed, st.builds(Mixed, late=SMALL, first=st.text(max_size=2))),
    (Packed, st.builds(Packed, st.text(max_size=2), st.lists(SMALL, max_size=2))),
    (Changing, st.builds(Changing, SMALL)),
    (Swapped, st.builds(Swapped, b=SMALL, a=st.just(0.5))),
    (Movie, st.fixed_dictionaries({"title": st.text(max_size=2), "year": st.none()}, optional={"stars": SMALL})),
]


def is_hashable(value: Any) -> bool:
    try:
        return hash(value) is not None
    except TypeError:
        return False


def wrapped(inner: Any) -> Any:
    annotation, values = inner
    hashable = values.filter(is_hashable)
    return st.sampled_from(
        [
            (list[annotation], st.lists(values, max_size=3)),
            (tuple[annotation, ...], st.lists(values, max_size=3).map(tuple)),
            (frozenset[annotation], st.frozensets(hashable, max_size=3)),
            (tuple[annotation], st.tuples(values)),
            (tuple[annotation, int], st.tuples(values, SMALL) | st.tuples(values) | st.tuples(values, st.none())),
            (tuple[int, Optional[annotation]], st.tuples(SMALL, st.none() | values)),  # noqa: UP045
            (dict[str, annotation], st.dictionaries(st.text(max_size=2), values, max_size=3)),
            (Optional[annotation], st.none() | values),  # noqa: UP045
            (dict[annotation, int], st.dictionaries(hashable, SMALL, max_size=2)),
        ]
    )


TYPES = st.sampled_from(LEAVES).flatmap(wrapped) | st.sampled_from(LEAVES).flatmap(wrapped).flatmap(wrapped)


def outcome(work: Any, *arguments: Any) -> Any:
    """What comes of it: a result, or the sort and the text of an error."""
    try:
        return work(*arguments)
    except UNFIT as error:
        return type(error), str(error)


def plainly_packed(stored_type: StoredType, value: Any) -> bytes:
    return encode(stored_type.lower(value))


def plainly_unpacked(stored_type: StoredType, data: bytes) -> Any:
    thing = msgspec.msgpack.Decoder(stored_type.wire | None).decode(data)
    return thing if stored_type.lift is None else stored_type.lift(thing)


def arrow_thing(stored_type: StoredType, value: Any) -> Any:
    """The value as Arrow itself makes a column of it."""
    if value is None:
        return None
    match stored_type:
        case OptionalType():
            return arrow_thing(stored_type.inner, value)
        case DictType():
            parts = stored_type.key, stored_type.value
            return [dict(zip(("key", "value"), map(arrow_thing, parts, entry))) for entry in value.items()]
        case ListType():
            return [arrow_thing(stored_type.item, v) for v in value]
        case StructType():
            parts = stored_type._take(value)
            return {f.name: arrow_thing(f.type, v) for f, v in zip(stored_type.fields, parts, strict=True)}
    is_arrows_own = str(stored_type.tree) in ("int", "float", "bool", "str", "bytes", "date", "timedelta")
    return value if is_arrows_own or isinstance(stored_type.tree, tree.Arrow) else stored_type.lower(value)


@settings(max_examples=examples(300))
@given(TYPES, TYPES, st.data())
def test_bytes_are_those_of_the_plain_methods_and_so_are_refusals(declared, other, data):
    annotation, values = declared
    stored_type = stored(annotation, "here")
    for value in [None, *data.draw(st.lists(values | other[1], max_size=3))]:
        packed = outcome(stored_type.pack, value)
        assert packed == outcome(plainly_packed, stored_type, value)
        assert outcome(lambda v: encode(stored_type.generated_lower(v)), value) == packed
        if isinstance(packed, bytes):
            assert same(stored_type.unpack(packed), plainly_unpacked(stored_type, packed))


@settings(max_examples=examples(200))
@given(TYPES, TYPES, st.data())
def test_bytes_of_another_type_come_to_the_same(declared, other, data):
    stored_type, written = stored(declared[0], "here"), stored(other[0], "here")
    for value in data.draw(st.lists(other[1], max_size=3)):
        packed = outcome(written.pack, value)
        if isinstance(packed, bytes):
            found, plain = (
                outcome(u, packed) for u in (stored_type.unpack, lambda d: plainly_unpacked(stored_type, d))
            )
            assert repr(found) == repr(plain)


@settings(max_examples=examples(300))
@given(TYPES, st.data())
def test_a_column_is_what_arrow_makes_of_the_values_one_by_one(declared, data):
    annotation, values = declared
    stored_type = stored(annotation, "here")
    sample = [v for v in data.draw(st.lists(st.none() | values, max_size=4)) if is_fit(stored_type, v)]
    column = stored_type.to_array(sample)
    column.validate(full=True)
    assert column.equals(pa.array([arrow_thing(stored_type, v) for v in sample], stored_type.arrow))
    found = stored_type.from_array(column)
    assert same(found, [stored_type.unpack(stored_type.pack(v)) for v in sample])
    assert same(stored_type.from_array(column.slice(1)), found[1:])


def is_fit(stored_type: StoredType, value: Any) -> bool:
    return isinstance(outcome(stored_type.pack, value), bytes) and not isinstance(
        outcome(stored_type.to_array, [value]), tuple
    )


@settings(max_examples=examples(200))
@given(TYPES, TYPES, st.data())
def test_a_column_refuses_what_a_single_value_is_refused_for(declared, other, data):
    stored_type = stored(declared[0], "here")
    wrong = data.draw(other[1])
    if not is_fit(stored_type, wrong):
        with pytest.raises(UNFIT):
            stored_type.to_array([None, wrong])


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (tuple[int, int], namedtuple("Two", "a b")(1, 2)),
        (dict[str, int], OrderedDict(a=1)),
        (list[int], type("Items", (list,), {})([1, 2])),
        (tuple[int, str], (np.int64(5), "a")),
        (tuple[float, float], (1, np.float32(0.5))),
    ],
    ids=str,
)
def test_a_value_of_another_class_that_fits_comes_back_as_declared(annotation, value):
    stored_type = stored(annotation, "here")
    assert stored_type.pack(value) == plainly_packed(stored_type, value)
    assert same(stored_type.unpack(stored_type.pack(value)), stored_type.from_array(stored_type.to_array([value]))[0])


def functions_of(stored_type: StoredType) -> list[Any]:
    made = [stored_type.pack, stored_type.unpack, stored_type.generated_lower, stored_type.generated_lift]
    return [f for f in made if "<generated" in getattr(getattr(f, "__code__", None), "co_filename", "")]


def codes(code: CodeType) -> list[CodeType]:
    return [code, *(inner for c in code.co_consts if isinstance(c, CodeType) for inner in codes(c))]


def check_text(stored_type: StoredType) -> int:
    functions = functions_of(stored_type)
    for function in functions:
        assert function.__globals__["__builtins__"] == {}
        for code in codes(function.__code__):
            words = [*code.co_names, *code.co_varnames]
            assert all(re.fullmatch(r"(c|p)\d+|v|x|k|items|\.0", word) for word in words), words
            told = ("function.<locals>.<listcomp>", "function.<locals>.<dictcomp>")
            assert all(c is None or type(c) in (int, CodeType) or c in told for c in code.co_consts), code.co_consts
    return len(functions)


@settings(max_examples=examples(100))
@given(TYPES)
def test_no_name_of_a_type_is_in_the_text_of_its_functions(declared):
    stored_type = stored(declared[0], "here")
    assert check_text(stored_type) or isinstance(stored_type, OptionalType) or stored_type is PLAIN


def test_a_hostile_manifest_writes_no_code():
    names = {"v): import os\n#": tree.INT, "__import__('os').system('true')": tree.Word("Decimal"), "c0": tree.INT}
    read = raw_type(tree.Fields.of("x); evil(", names))
    assert check_text(read) == 4
    assert read.unpack(read.pack((1, Decimal("1.5"), 2))) == (1, Decimal("1.5"), 2)


def test_types_of_one_shape_share_one_text():
    first = stored(tuple[int, int, str], "here").pack
    second = stored(dataclasses.make_dataclass("A", [("x", int), ("y", Decimal)]), "here").pack
    third = stored(dataclasses.make_dataclass("B", [("z", int), ("w", Decimal)]), "here").pack
    assert second.__code__ is third.__code__ and second.__code__ is not first.__code__


def test_a_type_of_very_many_parts_has_no_function_of_its_own():
    wide = stored(tuple[(int,) * (generated.MOST_PARTS + 1)], "here")  # type: ignore[misc]
    value = tuple(range(generated.MOST_PARTS + 1))
    assert not functions_of(wide)
    assert wide.unpack(wide.pack(value)) == value
