"""Keys: one encoding for what Python calls equal, and back again."""

import contextlib
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from key_samples import (
    Account,
    Colour,
    Level,
    Name,
    Odd,
    Point,
    Purse,
    Ratio,
    Right,
    Shape,
    Wire,
    all_keys,
    are_one_in_a_dict,
    clashing,
)
from thoroughness import examples

from moorline.model.keys import UnknownClass, decode, encode, key_group


@given(all_keys)
def test_a_key_comes_back_equal(key):
    assert decode(encode(key)) == key


@given(all_keys)
def test_what_comes_back_has_the_same_encoding(key):
    assert encode(decode(encode(key))) == encode(key)


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
