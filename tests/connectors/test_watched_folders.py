"""Watched folders: files that come, grow and go while they are read."""

import io
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files_read import Watched, as_csv, drain
from test_list_and_generator_sources import Clock, open_all

from moorline.connectors.files.source import Files


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_new_files_are_found_at_the_interval(watched: Watched) -> None:
    assert watched.reader.read(10) == []
    watched.append("a.txt", "1\n")
    assert watched.reader.read(10) == []
    assert watched.later() == ["1"]
    watched.append("b.txt", "2\n")
    assert watched.later() == ["2"]
    watched.restart()
    assert watched.later() == []


def test_lines_count_when_they_are_complete(watched: Watched) -> None:
    watched.append("a.jsonl", '{"a": 1}\n{"a"')
    assert watched.later() == [{"a": 1}]
    assert watched.later() == []
    watched.append("a.jsonl", ": 2}")
    assert watched.later() == []
    watched.restart()
    watched.append("a.jsonl", "\n")
    assert watched.later() == [{"a": 2}]


def test_a_character_cut_in_two_is_not_a_problem(watched: Watched) -> None:
    watched.append("a.txt", "漢".encode()[:2])
    assert watched.later() == []
    watched.append("a.txt", "漢".encode()[2:] + b"\n")
    assert watched.later() == ["漢"]


def test_csv_files_may_grow_at_any_byte(watched: Watched) -> None:
    rows = [[str(i), 'x\n"y\r\n' * (i % 3)] for i in range(6)]
    data = as_csv([["i", "t\nt"], *rows], "\r\n").encode()
    chance = random.Random(3)
    out: list[Any] = []
    watched.append("a.csv", b"\n")
    for byte in range(len(data)):
        watched.append("a.csv", data[byte : byte + 1])
        if chance.random() < 0.5:
            out += watched.later()
        if chance.random() < 0.3:
            watched.restart()
    out += watched.later() + watched.later()
    assert out == [{"i": i, "t\nt": t} for i, t in rows]


def test_parquet_files_count_when_their_footer_is_there(watched: Watched) -> None:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2]}), buffer)
    watched.append("a.parquet", buffer.getvalue()[:-3])
    assert watched.later() == []
    watched.append("a.parquet", buffer.getvalue()[-3:])
    assert watched.later() == [{"a": 1}, {"a": 2}]
    assert watched.reader.positions()["a.parquet"]["done"] is True
    assert watched.later() == []


def test_files_that_are_removed_from_a_watched_folder_are_forgotten(watched: Watched) -> None:
    watched.append("a.txt", "1\n")
    watched.append("b.txt", "2\n")
    assert watched.later() == ["1", "2"]
    os.remove(watched.folder / "a.txt")
    watched.append("c.txt", "3\n")
    assert watched.later() == ["3"]
    assert watched.later() == []
    assert list(watched.reader.positions()) == ["b.txt", "c.txt"]
    os.remove(watched.folder / "b.txt")
    watched.restart()
    assert list(watched.reader.positions()) == ["c.txt"]


def test_a_file_that_vanishes_between_listing_and_reading_is_forgotten(watched: Watched) -> None:
    watched.append("a.txt", "1\n")
    watched.append("b.txt", "2\n")
    watched.clock.now += 10
    assert watched.reader.read(1) == ["1"]
    os.remove(watched.folder / "b.txt")
    assert drain(watched.reader) == []


def test_a_fast_growing_file_does_not_keep_the_others_waiting(watched: Watched) -> None:
    watched.append("a.txt", "a\n" * 10)
    watched.append("b.txt", "b\n")
    watched.clock.now += 10
    seen: list[Any] = []
    for _ in range(30):
        watched.append("a.txt", "a\n" * 10)
        seen += watched.reader.read(5) or []
        if "b" in seen:
            return
    raise AssertionError("b.txt was never read")


def test_watching_at_another_parallelism_reads_each_file_once(tmp_path: Path) -> None:
    for n in range(20):
        (tmp_path / f"{n}.txt").write_text(f"{n}\n")
    clock = Clock()
    source = Files(tmp_path, watch=1.0, clock=clock)
    readers = open_all(source, 3, {})
    out = [r for reader in readers[:2] for r in drain(reader)]
    positions = {k: v for reader in readers for k, v in reader.positions().items()}
    out += [r for reader in open_all(source, 2, positions) for r in drain(reader)]
    assert sorted(out, key=int) == [str(n) for n in range(20)]
