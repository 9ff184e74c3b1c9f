"""Keys: one encoding for what Python calls equal, the same in every process, for ever."""

import contextlib
import os
import subprocess
import sys
from collections import namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from stable_ids import shown
from thoroughness import examples

from moorline.model import keys
from moorline.model.keys import NotAKey, UnknownClass, decode, encode, key_group


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Name(StrEnum):
    ANN = "ann"
    BOB = "bob"


class Ratio(float, Enum):
    HALF = 0.5
    WHOLE = 1.0


class Wire(bytes, Enum):
    X = b"x"


class Odd(int, Enum):
    """The value is not the number."""

    def __new__(cls, number: int, label: str):
        member = int.__new__(cls, number)
        member._value_ = label
        return member

    ONE = (1, "one")

    def __repr__(self) -> str:
        return "Odd.ONE"


class Colour(Enum):
    RED = 1
    BLUE = 2


class Shape(Enum):
    RED = 1


class Right(Flag):
    READ = 1
    WRITE = 2


Point = namedtuple("Point", "x y")


@dataclass(frozen=True)
class Account:
    bank: str
    number: int
    note: str = field(default="", compare=False)


@dataclass(frozen=True)
class Purse:
    bank: str
    number: int


@dataclass
class Mutable:
    x: int


@dataclass(frozen=True, eq=False)
class Lonely:
    x: int


@dataclass(frozen=True)
class Loose:
    bank: str
    number: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loose) and self.bank == other.bank

    def __hash__(self) -> int:
        return hash(self.bank)


class Caseless(str):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self) -> int:
        return hash(self.lower())


class Whim(Enum):
    YES = 1

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


# --- there and back ---------------------------------------------------------------------------

fixed_zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
aware = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=fixed_zones)
plain_keys = st.one_of(
    st.booleans(),
    st.integers(),
    st.integers(-3, 3),
    st.floats(allow_nan=False),
    st.integers(-3, 3).map(float),
    st.text(),
    st.binary(),
    st.dates(),
    st.datetimes(),
    aware,
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False).filter(lambda d: d.is_infinite() or d.adjusted() < 100),
    st.uuids(),
)
all_keys = st.recursive(
    plain_keys,
    lambda inner: st.lists(inner | st.none(), max_size=3).flatmap(
        lambda some: st.sampled_from([tuple, frozenset]).map(lambda made: made(some))
    ),
    max_leaves=6,
)
members = st.sampled_from([*Level, *Name, *Ratio, *Wire, *Odd, *Colour, *Shape, *Right, Right.READ | Right.WRITE])
objects = st.one_of(
    members,
    st.builds(Point, st.integers(-1, 1), st.floats(-1, 1)),
    st.builds(Account, st.sampled_from("ab"), st.integers(0, 1), st.sampled_from("xy")),
    st.builds(Purse, st.sampled_from("ab"), st.integers(0, 1)),
    st.sampled_from([np.int64(1), np.float64(1.0), np.float64(0.5), np.bool_(True), np.str_("ann"), pd.Timestamp(0)]),
)
#: Many of them equal to one another, in all sorts of ways.
clashing = st.one_of(
    objects,
    st.sampled_from([0, 1, 2, True, False, 0.0, -0.0, 1.0, 0.5, "ann", "bob", b"x", (1, 2), (1.0, 2), Point(1, 2)]),
    st.sampled_from([datetime(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1), time(0)]),
    st.sampled_from(
        [Decimal(1), Decimal("1.0"), Decimal("0.5"), Decimal("0.50"), Decimal("0.1"), Decimal("0.10"), 0.1]
    ),
    st.sampled_from(
        [Decimal.from_float(0.1), Decimal("1e30"), Decimal("inf"), float("inf"), Decimal("-0.0"), Decimal("1e-400")]
    ),
    st.sampled_from([(None,), (), (None, 1), frozenset({1}), frozenset({1.0, None}), frozenset({Decimal(1)}), ("n",)]),
    st.sampled_from([timedelta(1), timedelta(hours=24), pd.Timedelta(1, "d"), timedelta(0), timedelta.max]),
    st.sampled_from([datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 2**63, float(2**63), 10**30, 1e30]),
    all_keys,
)


@given(all_keys)
def test_a_key_comes_back_equal(key):
    assert decode(encode(key)) == key


@given(all_keys)
def test_what_comes_back_has_the_same_encoding(key):
    assert encode(decode(encode(key))) == encode(key)


def are_one_in_a_dict(a, b):
    try:
        return len({a, b}) == 1
    except TypeError:  # a Decimal cannot be compared with a number of NumPy
        assume(False)


@settings(max_examples=examples(500))
@given(clashing, clashing)
def test_encodings_are_equal_exactly_when_a_dict_calls_the_keys_equal(a, b):
    assert (encode(a) == encode(b)) == are_one_in_a_dict(a, b)


@given(st.lists(clashing, min_size=1, max_size=4).map(tuple), st.lists(clashing, min_size=1, max_size=4).map(tuple))
def test_tuples_are_equal_exactly_when_their_encodings_are(a, b):
    assert (encode(a) == encode(b)) == are_one_in_a_dict(a, b)


@pytest.mark.parametrize(
    "equal",
    [
        (1, 1.0, True, Level.LOW, Ratio.WHOLE, Odd.ONE, np.int64(1), np.uint8(1), np.float32(1), np.bool_(True)),
        (0, 0.0, -0.0, False),
        (0.5, Ratio.HALF, np.float64(0.5)),
        ("ann", Name.ANN, np.str_("ann")),
        (b"x", Wire.X),
        ((1, 2), Point(1, 2), (True, 2.0), Point(Level.LOW, Level.HIGH)),
        (2**63, float(2**63)),
        (10**22, 1e22),
        (datetime(2024, 7, 1, 12, tzinfo=UTC), datetime(2024, 7, 1, 14, tzinfo=ZoneInfo("Europe/Berlin"))),
        (datetime(2024, 7, 1, 12), pd.Timestamp(2024, 7, 1, 12)),
        (Account("a", 1, "old"), Account("a", 1, "new")),
    ],
    ids=lambda keys: type(keys[-1]).__name__,
)
def test_equal_keys_are_one_key(equal):
    assert len(set(equal)) == 1
    assert len({encode(key) for key in equal}) == 1
    assert len({key_group(key, 32768) for key in equal}) == 1


def test_unequal_keys_stay_apart():
    apart = [
        1, "1", b"1", (1,), ((1,),), 1.5, "", b"", (), ("",), date(2024, 1, 1), datetime(2024, 1, 1),
        datetime(2024, 1, 1, tzinfo=UTC), time(0), UUID(int=1), Colour.RED, Colour.BLUE, Shape.RED, Right.READ,
        Account("a", 1), Purse("a", 1), ("a", 1), ("Account", "a", 1), ("ab", "c"), ("a", "bc"), "I", "i\0",
        (None,), ("None",), timedelta(1), frozenset(), frozenset({1}), frozenset({frozenset()}), Decimal("0.1"), 0.1,
    ]  # fmt: skip
    assert len({encode(key) for key in apart}) == len(apart)


# --- what is no key ---------------------------------------------------------------------------


def nested(depth: int):
    key = ()
    for _ in range(depth):
        key = (key,)
    return key


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (None, "None is not a key"),
        (float("nan"), "NaN"),
        (np.float64("nan"), "NaN"),
        ([1], "list is mutable"),
        ({"a": 1}, "dict is mutable"),
        ({1}, "set is mutable"),
        (bytearray(b"x"), "bytearray is mutable"),
        (Mutable(1), "not frozen"),
        (Lonely(1), "eq=False"),
        ("\ud800", "not valid Unicode"),
        (Decimal("nan"), "NaN"),
        (Decimal("snan"), "NaN"),
        (Decimal("1e999999"), "too many digits"),
        (pd.Timedelta(1, "ns"), "whole microseconds"),
        (Loose("a", 1), "__eq__ of its own"),
        (Caseless("a"), "__eq__ of its own"),
        (Whim.YES, "__eq__ of its own"),
        (1j, "complex has no stable encoding"),
        (object(), "object has no stable encoding"),
        (int, "type has no stable encoding"),
        (Account, "type has no stable encoding"),
        (time(1, tzinfo=UTC), "time has no stable encoding"),
        (pd.Timestamp("2024-01-01T00:00:00.000000001"), "whole microseconds"),
        (pd.NaT, "whole microseconds"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "out of range"),
        (datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2))), "out of range"),
        (10**5000, "too many digits"),
        (nested(100_000), "nested too deeply"),
    ],
    ids=lambda v: shown(v)[:30] if not isinstance(v, (int, tuple)) else "",
)
def test_what_cannot_be_found_again_is_refused_with_the_reason(key, why):
    with pytest.raises(NotAKey, match=why):
        encode(key)


@pytest.mark.parametrize("inner", [float("nan"), [1], Mutable(1), "\ud800", Caseless("a")])
def test_it_is_refused_inside_of_others_too(inner):
    for key in [("a", inner), (("a", inner),), Purse("a", inner), Point(0, inner)]:
        with pytest.raises(NotAKey):
            encode(key)


# --- what only the job's code can make --------------------------------------------------------


@pytest.mark.parametrize("key", [Colour.RED, Right.READ, Account("a", 1), ("a", Colour.RED), (("a", Purse("b", 2)),)])
def test_classes_of_the_job_encode_but_a_snapshot_does_not_name_them(key):
    with pytest.raises(UnknownClass):
        decode(encode(key))


def test_an_enum_is_its_class_and_member():
    assert encode(Colour.RED) == b"eColour\0RED"


@given(st.binary(max_size=40))
def test_other_bytes_are_a_value_error(data):
    with contextlib.suppress(ValueError):
        decode(data)


@pytest.mark.parametrize("data", [b"", b"i", b"i123", b"t" + b"\xff" * 8, b"d" + b"\xff" * 8, b"(\0\0\0\x05ab", b"Ix"])
def test_a_damaged_encoding_is_a_value_error(data):
    with pytest.raises(ValueError, match=r".+"):
        decode(data)


def test_an_encoding_nested_without_end_is_a_value_error():
    data = b"("
    for _ in range(5000):
        data = b"(" + len(data).to_bytes(4, "big") + data
    with pytest.raises(ValueError, match="no key"):
        decode(data)


# --- for ever ---------------------------------------------------------------------------------

#: Key, encoding, key group of 128, key group of 32,768. Part of the storage format: never change a line.
FIXED = [
    (0, "698000000000000000", 0, 0),
    (1, "698000000000000001", 43, 11081),
    (-1, "697fffffffffffffff", 90, 23144),
    (42, "69800000000000002a", 83, 21420),
    (9223372036854775807, "69ffffffffffffffff", 45, 11572),
    (-9223372036854775808, "690000000000000000", 18, 4833),
    (9223372036854775808, "4939323233333732303336383534373735383038", 82, 21047),
    (-1000000000000000000000000000000, "492d31303030303030303030303030303030303030303030303030303030303030", 36, 9218),
    (1.5, "663ff8000000000000", 29, 7617),
    (-0.5, "66bfe0000000000000", 16, 4242),
    (float("inf"), "667ff0000000000000", 36, 9416),
    (float("-inf"), "66fff0000000000000", 83, 21353),
    ("", "73", 107, 27484),
    ("a", "7361", 119, 30528),
    ("user-1", "73757365722d31", 14, 3745),
    ("café", "73636166c3a9", 44, 11451),
    ("日本", "73e697a5e69cac", 91, 23438),
    (b"", "62", 43, 11181),
    (b"\x00\xff", "6200ff", 114, 29428),
    (date(1970, 1, 1), "6400000000000af93b", 41, 10598),
    (date(2024, 2, 29), "6400000000000b4681", 75, 19311),
    (datetime(1970, 1, 1, 0, 0), "7400dcbffeff2bc000", 75, 19425),
    (datetime(2024, 2, 29, 12, 30, 15, 123456), "7400e2d2836b0c4600", 95, 24354),
    (datetime(2024, 2, 29, 12, 0, tzinfo=UTC), "5400e2d282fedbb000", 2, 630),
    (time(0, 0), "630000000000000000", 12, 3282),
    (time(23, 59, 59, 999999), "63000000141dd75fff", 16, 4130),
    (UUID("00000000-0000-0000-0000-000000000000"), "7500000000000000000000000000000000", 114, 29276),
    (UUID("12345678-1234-5678-1234-567812345678"), "7512345678123456781234567812345678", 38, 9771),
    ((), "28", 81, 20910),
    (Decimal("-1.10"), "6d2d3131652d31", 6, 1768),
    (timedelta(seconds=1), "6c800000000000000000000000000f4240", 59, 15317),
    (frozenset({"a", 1}), "7b00000009698000000000000001000000027361", 120, 30789),
    (("a", None), "28000000027361000000016e", 75, 19226),
    (("a", 1), "2800000002736100000009698000000000000001", 30, 7823),
    (
        (("a",), (1, (2.5, b"x"))),
        "280000000728000000027361000000262800000009698000000000000001000000142800000009664004000000000000000000026278",
        12,
        3315,
    ),
]


@pytest.mark.parametrize(("key", "encoding", "of_128", "of_32768"), FIXED, ids=[shown(f[0])[:40] for f in FIXED])
def test_encodings_and_key_groups_never_change(key, encoding, of_128, of_32768):
    assert encode(key).hex() == encoding
    assert key_group(key, 128) == of_128
    assert key_group(key, 32768) == of_32768


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), st.integers(1, 32768))
def test_a_whole_column_of_ints_hashes_like_each_of_them(numbers, max_parallelism):
    found = keys.int_key_groups(np.array(numbers, np.int64), max_parallelism)
    assert found.tolist() == [key_group(n, max_parallelism) for n in numbers]


@given(all_keys, st.integers(1, 32768))
def test_a_key_group_is_in_range(key, max_parallelism):
    assert 0 <= key_group(key, max_parallelism) < max_parallelism


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=10))
def test_int_keys_sort_by_their_encoding_as_numbers_do(numbers):
    assert sorted(numbers, key=encode) == sorted(numbers)


@pytest.mark.parametrize(
    "make", [int, str, lambda n: (n, "x"), lambda n: n + 0.5], ids=["int", "str", "tuple", "float"]
)
def test_keys_in_a_row_spread_over_the_key_groups(make):
    counts = np.bincount([key_group(make(n), 128) for n in range(12_800)], minlength=128)
    assert counts.min() > 50
    assert counts.max() < 170


def test_another_process_with_another_hash_seed_agrees():
    sample = [f[0] for f in FIXED[:20]] + [f"user-{n}" for n in range(20)]
    sample = [k for k in sample if isinstance(k, (int, str, bytes))]
    program = (
        "import sys; from moorline.model.keys import key_group; print([key_group(k, 32768) for k in eval(sys.argv[1])])"
    )
    out = subprocess.run(
        [sys.executable, "-c", program, repr(sample)],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.strip() == repr([key_group(k, 32768) for k in sample])
