"""Plain data as bytes: what comes back is what was stored, and nothing else can come out."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import random
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.state.types import plain
from moorline.state.types.plain import NotPlain, decode, encode

hashables = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.integers(-700, 700).map(lambda m: timezone(timedelta(minutes=m)))),
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
)
keys = st.recursive(hashables, lambda inner: st.lists(inner, max_size=2).map(tuple), max_leaves=3)
values = st.recursive(
    hashables | st.frozensets(keys, max_size=3) | st.sets(keys, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)

PLAIN_TYPES = {
    type(None), bool, int, float, str, bytes, list, tuple, dict, set, frozenset,
    date, datetime, time, timedelta, Decimal, UUID,
}  # fmt: skip


def kinds(value) -> set[type]:
    """All types in a value."""
    found = {type(value)}
    if isinstance(value, dict):
        for k, v in value.items():
            found |= kinds(k) | kinds(v)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            found |= kinds(item)
    return found


def same(a, b) -> bool:
    """Equal, and of the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@given(values)
def test_what_comes_back_is_the_same_in_value_and_type(value):
    assert same(decode(encode(value)), value)


@pytest.mark.parametrize(
    "value",
    [
        float("inf"),
        -0.0,
        2**63,
        2**64,
        -(2**63) - 1,
        10**4000,
        datetime(2024, 1, 1, tzinfo=UTC),
        timedelta.max,
        timedelta.min,
        Decimal("1E+100"),
        Decimal("-0.00"),
        {1: "a", "1": "b", (1,): "c"},
        {None: {frozenset({1}): [()]}},
        "\0",
        [[[[[[]]]]]],
    ],
    ids=lambda v: f"{v!r:.30}",
)
def test_the_odd_ones_come_back_too(value):
    assert same(decode(encode(value)), value)


def test_a_nan_comes_back_as_a_nan():
    assert str(decode(encode([float("nan")]))) == "[nan]"


class Level(IntEnum):
    LOW = 1


class Colour(Enum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int


class Text(str):
    pass


def contains_itself():
    value: list = []
    value.append(value)
    return value


def nested(depth):
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "object"),
        (Point(1), "Point"),
        (Level.LOW, "Level"),
        (Colour.RED, "Colour"),
        (Text("x"), "Text"),
        (len, "builtin_function_or_method"),
        (int, "type"),
        (1j, "complex"),
        (bytearray(b"x"), "bytearray"),
        (range(3), "range"),
        ([1, {"a": (Point(1),)}], "Point"),
        ({Point: 1}, "type"),
        (contains_itself(), "contains itself"),
        (nested(100_000), "nested too deeply"),
        ("\ud800", "cannot be stored"),
        ({"\ud800": 1}, "cannot be stored"),
        (10**5000, "cannot be stored"),
    ],
    ids=lambda v: v if isinstance(v, str) and v.isprintable() else "",
)
def test_what_is_not_plain_is_refused_when_it_is_written(value, why):
    with pytest.raises(NotPlain, match=why):
        encode(value)


# --- hostile bytes ----------------------------------------------------------------------------


def ext(code: int, value) -> bytes:
    return msgspec.msgpack.encode(msgspec.msgpack.Ext(code, msgspec.msgpack.encode(value)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x93\x01",
        ext(0, 5),
        ext(1, [[]]),
        ext(3, "many"),
        ext(4, 5),
        ext(4, "soon"),
        ext(5, "2024-13-01"),
        ext(6, None),
        ext(7, "x"),
        ext(7, 1e300),
        ext(8, "x"),
        ext(8, [1]),
        ext(9, b"short"),
        ext(9, 5),
        ext(10, [[1]]),
        ext(10, 5),
        ext(11, 1),
        ext(-1, 1),
        ext(127, 1),
        b"\xa1\xff",
        msgspec.msgpack.encode(msgspec.msgpack.Ext(0, b"\xc1")),
    ],
    ids=lambda d: d.hex(),
)
def test_other_bytes_are_a_value_error(data):
    with pytest.raises(ValueError, match=r".*"):
        decode(data)


@given(st.binary(max_size=60))
def test_noise_is_plain_data_or_a_value_error(data):
    with contextlib.suppress(ValueError):
        assert kinds(decode(data)) <= PLAIN_TYPES


def test_mutants_are_plain_data_or_a_value_error():
    chance = random.Random(5)
    sample = [
        encode(v) for v in [(1, {"a", 2}), {1: Decimal(3)}, [UUID(int=1), date(2024, 1, 1)], datetime(2024, 1, 1)]
    ]
    for _ in range(3000):
        mutant = bytearray(chance.choice(sample))
        for _ in range(chance.randint(1, 3)):
            mutant[chance.randrange(len(mutant))] = chance.randrange(256)
        with contextlib.suppress(ValueError):
            assert kinds(decode(bytes(mutant))) <= PLAIN_TYPES


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("/tmp/moorline-was-here",)


def test_a_pickle_is_never_loaded():
    bomb = pickle.dumps(Bomb())
    for data in [bomb, encode(bomb), *(ext(code, bomb) for code in range(12))]:
        with contextlib.suppress(ValueError):
            assert kinds(decode(data)) <= PLAIN_TYPES
    assert not os.path.exists("/tmp/moorline-was-here")


@pytest.mark.parametrize(
    "data",
    [b"\x91" * 1_000_000 + b"\xc0", b"\x81\xa1a" * 300_000 + b"\xc0", b"\x91" * 1_000_000],
    ids=["lists", "dicts", "cut short"],
)
def test_deep_nesting_is_a_value_error_and_not_a_crash(data):
    with pytest.raises(ValueError, match=r".+"):
        decode(data)


def test_deeply_nested_tuples_are_a_value_error_and_not_a_crash():
    data = b"\xc0"
    for _ in range(3000):
        data = msgspec.msgpack.encode(msgspec.msgpack.Ext(0, b"\x91" + data))
    with pytest.raises(ValueError, match=r".+"):
        decode(data)


@pytest.mark.parametrize("depth", [1, 10, 100, 200])
def test_reasonable_nesting_is_fine(depth):
    value = nested(depth)
    assert decode(encode(value)) == value
    for _ in range(depth):
        value = (value,)
    assert decode(encode(value)) == value


def test_a_view_of_bytes_will_do():
    assert plain.decode(memoryview(encode((1, 2)))) == (1, 2)
