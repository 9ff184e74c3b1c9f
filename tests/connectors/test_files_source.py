"""The file source: each record once through any restarts, and of which files."""

import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files_read import as_csv, drain, read_all
from hypothesis import given, settings
from hypothesis import strategies as st
from test_list_and_generator_sources import Clock, open_all, read_with_restarts
from thoroughness import examples

from moorline.connectors.files.formats import lines
from moorline.connectors.files.source import Files, read_files
from moorline.errors import InvalidArgument, RestoreError, StorageError

#: Texts that CSV has to quote, with characters of one to four bytes.
texts = st.text(st.sampled_from('ab",;\n\r é漢🚲'), max_size=8)


# --- exactly once, through any restarts -------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(st.integers(), max_size=12), max_size=5), st.booleans(), st.randoms(use_true_random=False))
def test_json_lines_come_once(files: list[list[int]], ended: bool, chance: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for n, numbers in enumerate(files):
            text = "\n".join(json.dumps({"n": i, "ü": "é" * (i % 5)}, ensure_ascii=False) for i in numbers)
            Path(folder, f"{n}.jsonl").write_text(text + ("\n" if ended and text else ""), encoding="utf-8")
        out = read_with_restarts(read_files(folder), chance)
    assert sorted(r["n"] for r in out) == sorted(i for numbers in files for i in numbers)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.lists(texts, min_size=2, max_size=2), max_size=12),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_csv_rows_come_once_and_in_order(rows: list[list[str]], end: str, ended: bool, chance: random.Random) -> None:
    text = as_csv([["na\nme", "b"], *rows], end)
    expected = [{"na\nme": a, "b": b} for a, b in rows]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.csv").write_bytes((text if ended else text.removesuffix(end)).encode())
        assert read_with_restarts(read_files(folder), chance) == expected


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(texts.filter(lambda t: "\n" not in t and not t.endswith("\r")), max_size=12), st.randoms())
def test_text_lines_come_once_and_in_order(expected: list[str], chance: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.txt").write_bytes("".join(line + chance.choice(["\n", "\r\n"]) for line in expected).encode())
        assert read_with_restarts(read_files(folder), chance) == expected


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.integers(0, 20), max_size=4), st.integers(1, 7), st.randoms(use_true_random=False))
def test_parquet_rows_come_once(counts: list[int], group: int, chance: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for n, count in enumerate(counts):
            table = pa.table({"file": [n] * count, "i": pa.array(range(count), pa.int64())})
            pq.write_table(table, Path(folder, f"{n}.parquet"), row_group_size=group)
        out = read_with_restarts(read_files(folder), chance)
    expected = [(n, i) for n, count in enumerate(counts) for i in range(count)]
    assert sorted((r["file"], r["i"]) for r in out) == expected


def test_files_larger_than_a_chunk_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "CHUNK", 100)
    rows = [[str(i), "x\n" * (i % 70)] for i in range(300)]
    (tmp_path / "a.csv").write_bytes(as_csv([["i", "x"], *rows], "\n").encode())
    expected = [{"i": i, "x": x} for i, x in rows]
    for limit in (1, 7, 1000):
        assert read_all(read_files(tmp_path), limit) == expected


# --- which files ------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in [
        "b.txt",
        "a.txt",
        "sub/c.txt",
        "sub/_d.txt",
        ".hidden.txt",
        "_temporary/e.txt",
        ".moorline-staging/f.txt",
    ]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name + "\n")
    return tmp_path


def test_a_folder_is_read_with_the_folders_below_it_but_without_what_is_hidden(tree: Path) -> None:
    [reader] = open_all(read_files(tree), 1, {})
    assert drain(reader) == ["a.txt", "b.txt", "sub/c.txt"]
    assert list(reader.positions()) == ["a.txt", "b.txt", "sub/c.txt"]


def test_one_file_a_pattern_or_a_glob_can_be_read(tree: Path) -> None:
    assert read_all(read_files(tree / "a.txt")) == ["a.txt"]
    assert read_all(read_files(f"file://{tree}/a.txt")) == ["a.txt"]
    assert read_all(read_files(tree, pattern="[bc].*")) == ["b.txt", "sub/c.txt"]
    assert read_all(read_files(f"{tree}/**/*.txt")) == ["a.txt", "b.txt", "sub/c.txt"]
    assert read_all(read_files(f"{tree}/s*")) == ["sub/c.txt"]


def test_what_is_not_there_is_an_error_that_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    wrong = [
        read_files(tmp_path / "none"),
        read_files(tmp_path / "none", watch="1s"),
        read_files(tmp_path / "*.txt"),
        read_files(tmp_path, pattern="*.tsv"),
        read_files(tmp_path, pattern="b.csv"),
        read_files(tmp_path / "none" / "*.csv", watch="1s"),
    ]
    for source in wrong:
        with pytest.raises(StorageError, match=r"no such f|no file matches") as refused:
            open_all(source, 1, {})
        assert refused.value.can_pass is False
        with pytest.raises(StorageError, match=r"no such f|no file matches"):
            source.check()


def test_what_cannot_be_read_is_known_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "a.dat").write_text("x")
    with pytest.raises(StorageError, match="tell the format of"):
        read_files(tmp_path).check()
    read_files(tmp_path, format="text").check()


def test_a_pattern_that_nothing_matches_yet_is_waited_for_with_a_word(tmp_path: Path, caplog: Any) -> None:
    clock = Clock()
    source = Files(tmp_path / "*.txt", watch="10s", clock=clock)
    source.check()
    assert f"nothing matches {tmp_path}/*.txt so far" in caplog.text
    [reader] = open_all(source, 1, {})
    assert drain(reader) == []
    (tmp_path / "a.txt").write_text("a\n")
    clock.now += 10
    assert drain(reader) == ["a"]
    assert len(caplog.records) == 1


def test_a_folder_without_files_ends_at_once_with_a_word(tmp_path: Path, caplog: Any) -> None:
    read_files(tmp_path).check()
    assert f"there is no file in {tmp_path}: the source ends at once" in caplog.text
    assert read_all(read_files(tmp_path)) == []


def test_paths_that_are_none_are_refused() -> None:
    for path in ("nope://x/in", "s3://bucket/a/../in", "s3://bucket//in", "file://host/in", "", "a\0b"):
        with pytest.raises(InvalidArgument, match="path"):
            read_files(path)


def test_the_folder_can_be_moved_between_two_runs(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    [reader] = open_all(read_files(tree), 1, {})
    seen = reader.read(1)
    moved = tmp_path_factory.mktemp("other") / "in"
    os.rename(tree, moved)
    [again] = open_all(read_files(moved), 1, reader.positions())
    assert (seen or []) + drain(again) == ["a.txt", "b.txt", "sub/c.txt"]


def test_a_half_read_file_that_is_gone_is_an_error_and_a_finished_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("1\n")
    open_all(read_files(tmp_path), 1, {"a.txt": {"done": True}})
    with pytest.raises(StorageError, match=r"a.txt: it is gone, and was read only up to \{'offset': 4\}"):
        open_all(read_files(tmp_path), 1, {"a.txt": {"offset": 4}})


def test_a_file_that_was_replaced_by_a_shorter_one_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n")
    with pytest.raises(StorageError, match="has 2 bytes, but 10 were read"):
        drain(open_all(read_files(tmp_path), 1, {"a.txt": {"offset": 10}})[0])
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(StorageError, match="has 1 rows, but 10 were read"):
        drain(open_all(read_files(tmp_path / "a.parquet"), 1, {"a.parquet": {"row": 10}})[0])


def test_a_position_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n")
    with pytest.raises(RestoreError, match="another format"):
        drain(open_all(read_files(tmp_path), 1, {"a.txt": {"row": 1}})[0])
