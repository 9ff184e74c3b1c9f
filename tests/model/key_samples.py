"""Classes whose objects can be keys, and keys of every sort."""

from collections import namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum

import numpy as np
import pandas as pd
from hypothesis import assume
from hypothesis import strategies as st


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


def are_one_in_a_dict(a, b):
    try:
        return len({a, b}) == 1
    except TypeError:  # a Decimal cannot be compared with a number of NumPy
        assume(False)
