"""Where things lie, and what is refused as a place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.errors import SnapshotCorrupt
from moorline.storage.layout import (
    HISTORY,
    attempt_of,
    check_path,
    data_path,
    entry_path,
    job_url,
    number_of,
    safe_name,
)
from moorline.testing.contracts.store import HOSTILE_PATHS

names = st.text(min_size=1, max_size=100)


@given(names, names, st.integers(1, 10**9), st.integers(0, 32767), st.integers(1, 10**9))
def test_every_name_gives_a_path_that_passes_and_tells_its_attempt(
    uid: str, state: str, checkpoint: int, subtask: int, attempt: int
) -> None:
    path = data_path(checkpoint, uid, state, subtask, attempt)
    assert check_path(path) == path
    assert attempt_of(path) == attempt


@given(names, names)
def test_different_names_stay_different(one: str, other: str) -> None:
    assert (safe_name(one) == safe_name(other)) == (one == other)


@pytest.mark.parametrize("name", ["count", "Count_2", "a-b", "x" * 48])
def test_a_harmless_name_is_kept(name: str) -> None:
    assert safe_name(name) == name


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "Zähler", "a b", "x" * 100, "\ud800", "😀" * 100, "a.b"])
def test_any_other_name_becomes_harmless_and_short(name: str) -> None:
    assert check_path(safe_name(name)) != name
    assert len(safe_name(name)) <= 48


def test_no_path_is_made_twice() -> None:
    assert len({data_path(1, "u", "s", 0, 1) for _ in range(1000)}) == 1000


def test_a_state_called_like_an_attempt_does_not_confuse() -> None:
    assert attempt_of(data_path(1, "u", "s-7-8-abc", 3, 4, unique="9")) == 4


@pytest.mark.parametrize(
    "path",
    [
        "data/chk-1/u/note.txt",
        "data/x",
        "history/0000000001.json",
        "data/chk-1/u/s-0-x-1.parquet",
        "data/chk-1/s-0-1-a",
    ],
)
def test_a_file_that_is_not_ours_has_no_attempt(path: str) -> None:
    assert attempt_of(path) is None


def test_entries_sort_as_they_are_numbered() -> None:
    numbers = [1, 9, 10, 99, 12345, 10**10 - 1]
    paths = [entry_path(n) for n in numbers]
    assert paths == sorted(paths)
    assert [number_of(HISTORY, p) for p in paths] == numbers
    assert number_of(HISTORY, "history/1.json") is None
    assert number_of(HISTORY, "history/0000000001.json.bak") is None
    for n in (0, -1, 10**10):
        with pytest.raises(ValueError, match="no number"):
            entry_path(n)


@pytest.mark.parametrize("path", HOSTILE_PATHS, ids=ascii)
def test_a_hostile_path_is_refused_and_shown_without_harm(path: str) -> None:
    with pytest.raises(SnapshotCorrupt) as refused:
        check_path(path)
    assert str(refused.value).isascii() and str(refused.value).isprintable() and len(str(refused.value)) < 300


def test_each_job_has_a_folder_of_its_own() -> None:
    assert job_url("/data/", "average") == "/data/average"
    assert job_url("memory://x", "a/../b").startswith("memory://x/a-b-")
