"""read_files: a file is known again by what is in it, whatever it is called, and exchanged content is not read on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files_read import Watched, drain
from test_list_and_generator_sources import Clock, open_all

from moorline.api.sources import SourceContext
from moorline.connectors.files.source import Files, read_files
from moorline.errors import StorageError


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def rename(watched: Watched, old: str, new: str) -> None:
    os.rename(watched.folder / old, watched.folder / new)


# --- another name -------------------------------------------------------------------------------


def test_a_renamed_file_is_not_read_twice(watched: Watched) -> None:
    watched.append("a.txt", "1\n")
    assert watched.later() == ["1"]
    rename(watched, "a.txt", "b.txt")
    assert watched.later() == []
    watched.append("b.txt", "2\n")
    assert watched.later() == ["2"]
    assert watched.later() == []
    assert list(watched.reader.positions()) == ["b.txt"]


def test_a_file_that_was_renamed_while_the_job_was_down_is_not_read_twice(watched: Watched) -> None:
    watched.append("a.txt", "1\n")
    assert watched.later() == ["1"]
    rename(watched, "a.txt", "b.txt")
    watched.append("b.txt", "2\n")
    watched.restart()
    assert watched.later() == ["2"]


def test_a_renamed_parquet_file_is_not_read_twice(watched: Watched) -> None:
    pq.write_table(pa.table({"n": [1, 2]}), watched.folder / "a.parquet")
    assert len(watched.later()) == 2
    rename(watched, "a.parquet", "b.parquet")
    assert watched.later() == []
    rename(watched, "b.parquet", "c.parquet")
    watched.restart()
    assert watched.later() == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_log_that_is_rotated_loses_and_doubles_nothing(watched: Watched, restarts: bool) -> None:
    out: list[Any] = []
    for n in range(6):
        watched.append("app.log", f"{n} before\n")
        if n % 2:
            out += watched.later()
        watched.append("app.log", f"{n} after\n")
        for age in (2, 1):
            if (watched.folder / f"app.{age}.log").exists():
                rename(watched, f"app.{age}.log", f"app.{age + 1}.log")
        rename(watched, "app.log", "app.1.log")
        watched.append("app.log", f"{n} anew\n")
        if restarts:
            watched.restart()
        out += watched.later()
    assert sorted(out) == sorted(f"{n} {when}" for n in range(6) for when in ("before", "after", "anew"))


def test_a_rename_in_the_middle_of_reading_goes_on_in_the_middle(watched: Watched) -> None:
    watched.append("a.txt", "1\n2\n3\n")
    watched.clock.now += 10
    assert watched.reader.read(1) == ["1"]
    rename(watched, "a.txt", "b.txt")
    assert watched.later() == ["2", "3"]
    watched.restart()
    assert watched.later() == []


def test_a_file_that_is_renamed_before_it_was_begun_is_read_once(watched: Watched) -> None:
    watched.append("a.txt", "1\n")
    watched.append("b.txt", "2\n")
    watched.clock.now += 10
    assert watched.reader.read(1) == ["1"]
    rename(watched, "b.txt", "c.txt")
    assert watched.later() == ["2"]


def test_a_listing_that_shows_neither_name_is_no_reason_to_read_again(watched: Watched, tmp_path_factory: Any) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "a.txt"
    watched.append("a.txt", "1\n")
    assert watched.later() == ["1"]
    os.rename(watched.folder / "a.txt", elsewhere)
    assert watched.later() == []
    os.rename(elsewhere, watched.folder / "b.txt")
    assert watched.later() == []


def test_a_new_file_with_the_content_of_one_that_is_gone_is_read(watched: Watched) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        watched.append(name, "the same\n")
        os.utime(watched.folder / name, ns=(0, ord(name[0])))
        assert watched.later() == ["the same"]
        os.rename(watched.folder / name, watched.folder / ".hidden")


def test_names_are_handed_over_between_subtasks_by_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    source = Files(tmp_path, watch="10s", clock=clock)
    owner = {name: SourceContext("in", 0, 2, 1).owns(name) for name in (f"{n}.txt" for n in range(20))}
    old = next(name for name, first in owner.items() if first)
    new = next(name for name, first in owner.items() if not first)
    (tmp_path / old).write_text("1\n")
    first, second = open_all(source, 2, {})
    assert (drain(first), drain(second)) == (["1"], [])
    os.rename(tmp_path / old, tmp_path / new)
    clock.now += 10
    # Whoever looks first: the new owner waits, and the old one has the job start again.
    assert drain(second) == []
    positions = {**first.positions(), **second.positions()}
    with pytest.raises(StorageError, match=f"it is called {new} now") as handed:
        first.read(10)
    assert handed.value.can_pass
    (tmp_path / new).open("a").write("2\n")
    first, second = open_all(source, 2, positions)
    assert (drain(first), drain(second)) == ([], ["2"])


def test_a_file_that_nobody_hands_over_is_read_after_a_while(tmp_path: Path) -> None:
    clock = Clock()
    source = Files(tmp_path, watch="10s", clock=clock)
    owner = {name: SourceContext("in", 0, 2, 1).owns(name) for name in (f"{n}.txt" for n in range(20))}
    old = next(name for name, first in owner.items() if first)
    new = next(name for name, first in owner.items() if not first)
    (tmp_path / old).write_text("1\n")
    _, second = open_all(source, 2, {})
    os.rename(tmp_path / old, tmp_path / new)
    out: list[Any] = []
    for _ in range(4):
        clock.now += 10
        out += drain(second)
    assert out == ["1"]


# --- other content ------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["3\n4\n", "3\n4\n5\n", "1\n3\n"])
def test_a_file_that_was_rewritten_is_an_error(watched: Watched, content: str) -> None:
    watched.append("a.txt", "1\n2\n")
    assert watched.later() == ["1", "2"]
    (watched.folder / "a.txt").write_text(content)
    with pytest.raises(
        StorageError, match=r"a\.txt: its beginning is not what was read .* was it replaced\?"
    ) as refused:
        watched.later()
    assert refused.value.can_pass is False
    with pytest.raises(StorageError, match="was it replaced"):
        watched.restart()
        watched.later()


def test_a_half_read_file_that_was_rewritten_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n2\n3\n")
    [reader] = open_all(read_files(tmp_path), 1, {})
    assert reader.read(1) == [1]
    (tmp_path / "a.jsonl").write_text("4\n5\n6\n")
    [again] = open_all(read_files(tmp_path), 1, reader.positions())
    with pytest.raises(StorageError, match="was it replaced"):
        again.read(10)


def test_a_parquet_file_that_was_rewritten_is_an_error(watched: Watched) -> None:
    pq.write_table(pa.table({"n": [1, 2]}), watched.folder / "a.parquet")
    assert len(watched.later()) == 2
    pq.write_table(pa.table({"n": [3, 4]}), watched.folder / "a.parquet")
    with pytest.raises(StorageError, match="was it replaced"):
        watched.later()


def test_a_file_that_was_only_touched_is_the_same(watched: Watched) -> None:
    watched.append("a.txt", "1\n")
    pq.write_table(pa.table({"n": [1]}), watched.folder / "b.parquet")
    assert len(watched.later()) == 2
    for name in ("a.txt", "b.parquet"):
        os.utime(watched.folder / name, (1, 1))
    assert watched.later() == []
    watched.append("a.txt", "2\n")
    assert watched.later() == ["2"]


# --- snapshots of older versions, and odd names ---------------------------------------------------


def test_positions_of_older_versions_are_believed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n2\n")
    (tmp_path / "b.txt").write_text("3\n")
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "c.parquet")
    positions = {"a.txt": {"offset": 2}, "b.txt": {"done": True}, "c.parquet": {"row": 1}}
    for watch in (None, "10s"):
        [reader] = open_all(read_files(tmp_path, watch=watch), 1, positions)
        assert drain(reader) == ["2", {"n": 2}]


@pytest.mark.parametrize("watch", [None, "10s"])
def test_a_name_that_is_not_utf8_is_read_like_any_other(tmp_path: Path, watch: str | None) -> None:
    pq.write_table(pa.table({"n": [3]}), tmp_path / "plain.parquet")
    os.rename(tmp_path / "plain.parquet", os.fsencode(tmp_path) + b"/caf\xe9.parquet")
    for name, text in ((b"caf\xe9.txt", "1\n"), (b"caf\\xe9.txt", "2\n")):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text(text)
    source = read_files(tmp_path, watch=watch)
    source.check()
    [reader] = open_all(source, 1, {})
    assert sorted(map(str, drain(reader))) == ["1", "2", "{'n': 3}"]
    [again] = open_all(source, 1, reader.positions())
    assert drain(again) == []


def test_a_name_that_is_not_utf8_can_be_told(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.jsonl")).write_text("{")
    [reader] = open_all(read_files(tmp_path), 1, {})
    with pytest.raises(StorageError, match=r"caf\\xe9\.jsonl: the line at byte 0 is not JSON") as failed:
        reader.read(10)
    str(failed.value).encode()
