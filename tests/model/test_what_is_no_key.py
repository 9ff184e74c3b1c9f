"""What could not be found again is no key, and is refused with the reason."""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum

import numpy as np
import pandas as pd
import pytest
from key_samples import Account, Point, Purse
from stable_ids import shown

from moorline.model.keys import NotAKey, encode


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
