"""The bytes of rows: no key is the beginning of another, and rows are sorted as what they stand for is."""

import dataclasses
from datetime import date, datetime, time
from enum import Enum

from hypothesis import given
from hypothesis import strategies as st

from moorline.model import keys
from moorline.state.rocksdb import layout


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass(frozen=True)
class Account:
    bank: str
    number: int


simple = (
    st.integers()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.text("a\0\xff", max_size=4)
    | st.binary()
    | st.binary(max_size=3)
    | st.dates()
    | st.datetimes()
    | st.times()
    | st.uuids()
    | st.sampled_from(Colour)
    | st.builds(Account, st.text("a\0", max_size=3), st.integers(-2, 2))
)
any_key = simple | st.lists(simple, max_size=3).map(tuple)
encodings = any_key.map(keys.encode)


@given(encodings, encodings)
def test_no_key_is_the_beginning_of_another(one, other):
    if one != other:
        assert not layout.prefix_free(one).startswith(layout.prefix_free(other))


@given(encodings, encodings)
def test_keys_are_sorted_as_their_encodings_are(one, other):
    assert (one < other) == (layout.prefix_free(one) < layout.prefix_free(other))


@given(encodings, st.integers(1, 1 << 15), st.binary(max_size=20))
def test_a_place_is_found_again_whatever_follows_it(encoded, max_parallelism, rest):
    place = layout.encoded_place(encoded, max_parallelism)
    row = layout.number_bytes(7) + place + rest
    end = layout.place_end(row)
    assert row[2:end] == place
    assert layout.encoded_key(row[2:end]) == encoded
    assert layout.group_of(row) == keys.encoded_key_group(encoded, max_parallelism)


@given(st.binary(max_size=12))
def test_bytes_that_are_no_place_are_refused_and_nothing_else_happens(row):
    try:
        end = layout.place_end(row)
    except ValueError:
        return
    assert 2 < end <= len(row)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=20), st.integers(1, 1 << 15))
def test_places_of_many_ints_are_those_of_each(numbers, max_parallelism):
    assert layout.int_places(numbers, max_parallelism) == [layout.place(n, max_parallelism) for n in numbers]


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.text("a\0"), max_size=9), st.integers(1, 1 << 15)
)
def test_places_of_many_texts_are_those_of_each(texts, max_parallelism):
    assert layout.str_places(texts, max_parallelism) == [layout.place(t, max_parallelism) for t in texts]


@given(encodings, encodings, st.integers(1, 1 << 15))
def test_everything_of_a_key_lies_in_its_range_and_nothing_else_does(mine, other, max_parallelism):
    prefix = layout.number_bytes(3) + layout.encoded_place(mine, max_parallelism)
    row = layout.number_bytes(3) + layout.encoded_place(other, max_parallelism) + b"\xff\xff"
    assert (prefix <= row < layout.after(prefix)) == (mine == other)


times = st.integers(-(1 << 63), (1 << 63) - 1)


@given(times, times)
def test_times_are_sorted(one, other):
    assert (one < other) == (layout.time_bytes(one) < layout.time_bytes(other))
    assert layout.time_at(layout.time_bytes(one), 0) == one


@given(st.none() | st.tuples(times, times))
def test_windows_come_back(window):
    data = layout.window_bytes(window)
    assert layout.window_at(b"xx" + data, 2) == (window, 2 + len(data))


@given(st.binary(), st.none() | times, st.none() | times, st.none() | st.binary())
def test_elements_come_back_with_every_combination_of_parts(packed, last_access, ttl, map_key):
    row = layout.element(packed, last_access, ttl, map_key)
    found_access, found_ttl, at = layout.stamp(row)
    found_key, at = layout.packed_map_key(row, at)
    assert (found_access, found_ttl, found_key, row[at:]) == (last_access, ttl, map_key, packed)
    assert layout.packed_value(row) == packed


def test_every_encoding_of_fixed_length_has_the_length_that_its_tag_says():
    samples = [0, 1.5, date(2024, 2, 29), datetime(2024, 2, 29), time(12), -(1 << 63)]
    for sample in samples:
        encoded = keys.encode(sample)
        assert layout.prefix_free(encoded) == encoded
        assert layout.place_end(b"\0\1\0\0" + encoded) == 4 + len(encoded)
