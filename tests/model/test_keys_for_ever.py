"""Encodings and key groups: the same in every process, for ever, and spread evenly."""

import os
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from key_samples import all_keys
from stable_ids import shown

from moorline.model import keys
from moorline.model.keys import encode, key_group

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


@given(
    st.lists(st.one_of(st.text(max_size=20), st.text(min_size=100, max_size=600)), max_size=30), st.integers(1, 32_768)
)
def test_many_texts_have_the_key_groups_that_each_has_alone(texts, max_parallelism):
    found = keys.str_key_groups(texts, max_parallelism)
    assert found.tolist() == [keys.key_group(text, max_parallelism) for text in texts]


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
