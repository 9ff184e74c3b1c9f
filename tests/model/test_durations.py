"""Durations as people write them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.errors import InvalidArgument
from moorline.model.durations import milliseconds


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("10 sec", 10_000),
        ("1.5s", 1500),
        ("5m", 300_000),
        ("5min", 300_000),
        (" 2h ", 7_200_000),
        ("1d", 86_400_000),
        ("10 seconds", 10_000),
        ("1 second", 1000),
        ("2 Minutes", 120_000),
        ("1 hour", 3_600_000),
        ("3 days", 259_200_000),
        ("1 week", 604_800_000),
        ("250 milliseconds", 250),
        ("1 minute 30 seconds", 90_000),
        ("1h30m", 5_400_000),
        (0, 0),
        (3, 3000),
        (0.25, 250),
        (timedelta(minutes=2), 120_000),
        (timedelta(microseconds=1500), 2),
    ],
)
def test_a_duration_is_so_many_milliseconds(written, expected):
    assert milliseconds(written) == expected


@pytest.mark.parametrize(
    "written",
    [
        "",
        "10",
        "s",
        "-1s",
        "1 year",
        "1s2",
        "10 secnods",
        "1 minute and 30 seconds",
        "seconds 10",
        "1e3s",
        "ten seconds",
        b"10s",
        "9" * 400 + "d",
        -1,
        float("nan"),
        True,
        None,
        [],
    ],
)
def test_anything_else_is_refused_with_advice(written):
    with pytest.raises(InvalidArgument, match="pause: got "):
        milliseconds(written, "pause")


@given(st.integers(0, 10**12))
def test_all_ways_to_write_it_agree(ms):
    assert milliseconds(f"{ms}ms") == milliseconds(timedelta(milliseconds=ms)) == ms


@given(st.one_of(st.text(max_size=20), st.from_regex(r"[0-9.]{1,6} ?[a-z]{1,4}", fullmatch=True)))
def test_any_text_is_a_duration_or_an_invalid_argument(text):
    try:
        assert milliseconds(text) >= 0
    except InvalidArgument as error:
        assert error.had == text
