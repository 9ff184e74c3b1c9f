"""read_files: every record once, from every format, through restarts and while files grow."""

import csv
import io
import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_list_and_generator_sources import Clock, open_all, read_with_restarts
from thoroughness import examples

from moorline.api.sources import SourceReader
from moorline.connectors.files import formats, lines
from moorline.connectors.files.source import Files, read_files
from moorline.errors import InvalidArgument, RestoreError, StorageError
from moorline.state.types import plain

#: Texts that CSV has to quote, with characters of one to four bytes.
texts = st.text(st.sampled_from('ab",;\n\r é漢🚲'), max_size=8)


def read_all(source: Any, limit: int = 1000) -> list[Any]:
    [reader] = open_all(source, 1, {})
    return drain(reader, limit)


def drain(reader: SourceReader, limit: int = 1000) -> list[Any]:
    """All there is for now."""
    out: list[Any] = []
    idle = 0
    while idle < 2:
        records = reader.read(limit)
        if records is None:
            break
        idle = 0 if records else idle + 1
        out += records
    assert plain.decode(plain.encode(reader.positions())) == reader.positions()
    return out


def as_csv(rows: list[list[str]], end: str) -> str:
    text = io.StringIO(newline="")
    # The csv module of Python 3.11 does not quote a lone \r when lines end with \n.
    quoting = csv.QUOTE_ALL if any("\r" in field for row in rows for field in row) else csv.QUOTE_MINIMAL
    csv.writer(text, lineterminator=end, quoting=quoting).writerows(rows)
    return text.getvalue()


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
    monkeypatch.setattr(lines, "_CHUNK", 100)
    rows = [[str(i), "x\n" * (i % 70)] for i in range(300)]
    (tmp_path / "a.csv").write_bytes(as_csv([["i", "x"], *rows], "\n").encode())
    expected = [{"i": i, "x": x} for i, x in rows]
    for limit in (1, 7, 1000):
        assert read_all(read_files(tmp_path), limit) == expected


# --- the formats ------------------------------------------------------------------------------


def test_a_byte_order_mark_is_not_part_of_the_first_record(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name\nAda\n", encoding="utf-8-sig")
    (tmp_path / "b.jsonl").write_text('{"name": "Bob"}\n', encoding="utf-8-sig")
    (tmp_path / "c.txt").write_text("Cy\n", encoding="utf-8-sig")
    assert read_all(read_files(tmp_path)) == [{"name": "Ada"}, {"name": "Bob"}, "Cy"]


def test_empty_files_and_blank_lines_give_nothing(tmp_path: Path) -> None:
    for n in range(200):
        (tmp_path / f"{n}.csv").touch()
    (tmp_path / "head.csv").write_text("\n\nname\n\nAda\n\n")
    (tmp_path / "only-head.csv").write_text("name\n")
    (tmp_path / "a.jsonl").write_text("\n  \r\n1\n\n2")
    (tmp_path / "b.jsonl").touch()
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "z.parquet")
    [reader] = open_all(read_files(tmp_path), 1, {})
    out: list[Any] = []
    while (records := reader.read(10)) is not None:
        out += records
    assert out == [1, 2, {"name": "Ada"}]
    assert all(position["done"] for position in reader.positions().values())
    assert len(reader.positions()) == 205


def test_a_malformed_line_is_named_by_file_and_offset(tmp_path: Path) -> None:
    good = '{"é": 1}\n'
    (tmp_path / "a.jsonl").write_text(good * 3 + '{"a": }\n' + good, encoding="utf-8")
    with pytest.raises(StorageError, match=f"a.jsonl: the line at byte {3 * len(good.encode())} is not JSON"):
        read_all(read_files(tmp_path))


def test_a_json_value_over_two_lines_is_malformed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a":\n1}\n')
    with pytest.raises(StorageError, match="at byte 0"):
        read_all(read_files(tmp_path))


def test_text_that_is_not_utf8_is_named_by_offset(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xc3\xa9\ncaf\xe9\n")
    with pytest.raises(StorageError, match="byte 9 is not UTF-8"):
        read_all(read_files(tmp_path))
    (tmp_path / "a.jsonl").write_bytes(b'"caf\xe9"\n')
    with pytest.raises(StorageError, match="line at byte 0"):
        read_all(read_files(tmp_path / "a.jsonl"))


@pytest.mark.parametrize("limit", [1, 100])
def test_csv_rows_that_do_not_fit_the_header_are_named_by_offset(tmp_path: Path, limit: int) -> None:
    (tmp_path / "a.csv").write_text('a,b\n1,"x\ny"\n1,2,3\n')
    with pytest.raises(StorageError, match="row at byte 12 has 3 fields and the header 2"):
        read_all(read_files(tmp_path), limit)


def test_a_csv_quote_that_is_never_closed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,b\n1,2\n1,"x\n3,4\n')
    with pytest.raises(StorageError, match="row at byte 8 and never closed"):
        read_all(read_files(tmp_path))


def test_a_quote_in_the_middle_of_an_unquoted_field_is_just_a_character(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('what,n\n5" pipe,1\nhose,2\n')
    assert read_all(read_files(tmp_path)) == [{"what": '5" pipe', "n": "1"}, {"what": "hose", "n": "2"}]


def test_a_csv_header_with_a_name_twice_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,a\n1,2\n")
    with pytest.raises(StorageError, match="same name twice"):
        read_all(read_files(tmp_path))


def test_csv_fields_may_be_long(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n" + "x" * 500_000 + "\n")
    assert [len(r["a"]) for r in read_all(read_files(tmp_path))] == [500_000]


def test_a_broken_parquet_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(StorageError, match="not a whole Parquet file"):
        read_all(read_files(tmp_path))


def test_the_format_must_be_known(tmp_path: Path) -> None:
    (tmp_path / "a.xyz").write_text("1\n")
    with pytest.raises(StorageError, match=r"'\.xyz' is not one of .* Say format="):
        read_all(read_files(tmp_path))
    assert read_all(read_files(tmp_path, format="text")) == ["1"]
    with pytest.raises(InvalidArgument, match="format"):
        read_files(tmp_path, format="xml")  # type: ignore[arg-type]
    assert formats.format_of("A.CSV") == "csv"


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
    for path in ("s3://bucket/in", "file://host/in", "", "a\0b"):
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


# --- watching ---------------------------------------------------------------------------------


class Watched:
    """A watched folder and its reader, with a clock that is moved by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.source = Files(folder, watch="10s", clock=self.clock)
        [self.reader] = open_all(self.source, 1, {})

    def append(self, name: str, data: str | bytes) -> None:
        with open(self.folder / name, "ab") as file:
            file.write(data.encode() if isinstance(data, str) else data)

    def restart(self) -> None:
        [self.reader] = open_all(self.source, 1, self.reader.positions())

    def later(self) -> list[Any]:
        self.clock.now += 10
        return drain(self.reader)


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


def test_a_lone_carriage_return_in_a_csv_file_is_named_by_offset(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,b\n1,2\n3,\r4\n")
    with pytest.raises(StorageError, match="row at byte 8 is not CSV"):
        read_all(read_files(tmp_path))
