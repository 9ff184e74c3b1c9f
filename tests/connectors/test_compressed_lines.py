"""Files on lines that are compressed as a whole, and CSV and text as they are written."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from files_read import Watched, drain, read_all
from published_files import open_writer
from test_list_and_generator_sources import open_all, read_with_restarts

from moorline.connectors.files.formats import lines
from moorline.connectors.files.formats.compressed import zstd
from moorline.connectors.files.sink import write_files
from moorline.connectors.files.source import read_files
from moorline.connectors.row_tables import UnfitRecord
from moorline.errors import StorageError

PACK: dict[str, Any] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd().compress}


@pytest.mark.parametrize("end", PACK)
@pytest.mark.parametrize("ended", [True, False])
def test_lines_of_a_packed_file_come_once_and_in_order(
    tmp_path: Path, end: str, ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "CHUNK", 64)
    monkeypatch.setattr("moorline.connectors.files.formats.compressed.CHUNK", 64)
    texts = [f"{n}" + "é" * (n % 90) for n in range(200)]
    data = "\n".join(texts) + ("\n" if ended else "")
    (tmp_path / f"a.txt.{end}").write_bytes(PACK[end](data.encode()))
    for seed in range(3):
        assert read_with_restarts(read_files(tmp_path), random.Random(seed)) == texts


def test_all_formats_on_lines_may_be_packed(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b'n,t\n1,"x\ny"\n2,z\n'))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"n": 3}\n') + gzip.compress(b'{"n": 4}\n'))
    (tmp_path / "c.LOG.GZ").write_bytes(gzip.compress(b"5\n"))
    expected = [{"n": "1", "t": "x\ny"}, {"n": "2", "t": "z"}, {"n": 3}, {"n": 4}, "5"]
    assert read_all(read_files(tmp_path), 1) == expected
    for seed in range(3):
        assert read_with_restarts(read_files(tmp_path / "a.csv.gz"), random.Random(seed)) == expected[:2]
    (tmp_path / "d.parquet.gz").write_bytes(b"")
    with pytest.raises(StorageError, match="tell the format of"):
        read_all(read_files(tmp_path))


def test_a_packed_file_that_is_still_written_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    chance = random.Random(2)
    texts = [f"{n} {chance.random()}" for n in range(2000)]
    data = gzip.compress("\n".join(texts[:1500]).encode() + b"\n") + gzip.compress("\n".join(texts[1500:]).encode())
    found: list[Any] = []
    watched.append("a.txt.gz", b"")
    for at in range(0, len(data), 4000):
        watched.append("a.txt.gz", data[at : at + 4000])
        found += watched.later()
        if at % 8000:
            watched.restart()
    assert found == texts[:-1], "the last line has no end"
    watched.append("a.txt.gz", gzip.compress(b"\nmore\n"))
    assert watched.later() == [texts[-1], "more"]
    (tmp_path / "a.txt.gz").rename(tmp_path / "b.txt.gz")
    assert watched.later() == []


@pytest.mark.parametrize("end", PACK)
def test_a_packed_file_that_is_cut_off_is_broken_there(tmp_path: Path, end: str) -> None:
    chance = random.Random(1)
    texts = [f"{n} {chance.random()}" for n in range(20_000)]
    (tmp_path / f"a.txt.{end}").write_bytes(PACK[end]("\n".join(texts).encode())[:-40])
    (tmp_path / "b.txt").write_text("whole\n")
    with pytest.raises(StorageError, match=r"it ends in the middle, after \d+ bytes of text"):
        read_all(read_files(tmp_path))
    found = read_all(read_files(tmp_path, on_error="skip"))
    assert found[-1] == "whole"
    assert found[:-1] == texts[: len(found) - 1]


@pytest.mark.parametrize("end", ["gz", "bz2", "xz", "zst"])
def test_a_file_that_is_not_packed_at_all_is_an_error(tmp_path: Path, end: str) -> None:
    (tmp_path / f"a.txt.{end}").write_bytes(b"just text, and some more of it\n" * 10)
    with pytest.raises(StorageError, match="cannot be unpacked"):
        read_all(read_files(tmp_path))
    assert read_all(read_files(tmp_path, on_error="skip")) == []


def test_a_packed_file_that_was_rewritten_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"1\n2\n3\n"))
    [reader] = open_all(read_files(tmp_path), 1, {})
    assert reader.read(1) == ["1"]
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"4\n5\n6\n"))
    with pytest.raises(StorageError, match="was it replaced"):
        drain(open_all(read_files(tmp_path), 1, reader.positions())[0])


def test_a_position_beyond_the_text_says_that_the_file_was_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"1\n2\n3\n"))
    with pytest.raises(StorageError, match="it holds 6 bytes, but 60 were read before"):
        drain(open_all(read_files(tmp_path), 1, {"a.txt.gz": {"unpacked": 60}})[0])


# --- writing ------------------------------------------------------------------------------------


def write_all(folder: Path, records: list[Any], **options: Any) -> None:
    sink = write_files(folder, **options)
    writer = open_writer(sink)
    writer.write(records[:1])
    writer.write(records[1:])
    sink.commit(writer.prepare(1))


@pytest.mark.parametrize("compression", ["none", "gzip", "bzip2", "xz", "zstd"])
@pytest.mark.parametrize("format", ["jsonl", "csv", "text"])
def test_packed_lines_are_read_back(tmp_path: Path, format: Any, compression: Any) -> None:
    records: list[Any] = ["a", "b", "c"] if format == "text" else [{"t": "a"}, {"t": "b"}]
    write_all(tmp_path, records, format=format, compression=compression)
    assert read_all(read_files(tmp_path)) == records
    [name] = [file.name for file in tmp_path.iterdir() if file.is_file()]
    assert name.endswith({"none": format, "gzip": ".gz", "bzip2": ".bz2", "xz": ".xz", "zstd": ".zst"}[compression])


def test_csv_has_a_header_and_tells_an_empty_text_from_none(tmp_path: Path) -> None:
    write_all(tmp_path, [{"t": 'a "b",\nc', "n": 1, "d": date(2026, 1, 2)}, {"t": ""}, {"n": 3}], format="csv")
    [file] = tmp_path.glob("*.csv")
    assert file.read_text() == '"t","n","d"\n"a ""b"",\nc",1,2026-01-02\n"",,\n,3,\n'
    with pytest.raises(UnfitRecord, match="list"):
        write_all(tmp_path, [{"t": [1]}], format="csv")
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    write_all(tmp_path / "tuples", [(1, "x"), (2, "y")], format="csv", schema=schema)
    assert read_all(read_files(tmp_path / "tuples")) == [{"a": "1", "b": "x"}, {"a": "2", "b": "y"}]


@pytest.mark.parametrize(
    ("record", "text"), [(7, "is a int"), ("a\nb", "line end"), ("a\r", "line end"), ("\ud800", "not Unicode")]
)
def test_what_is_not_a_line_of_text_is_refused(tmp_path: Path, record: Any, text: str) -> None:
    with pytest.raises(UnfitRecord, match=text) as refused:
        write_all(tmp_path, ["good", "also", record, "after"], format="text")
    assert refused.value.record == repr(record)


def test_text_comes_back_as_it_was(tmp_path: Path) -> None:
    texts = ["", "é", " blank ", "", "a\rb", "last"]
    write_all(tmp_path, texts, format="text")
    assert read_all(read_files(tmp_path)) == texts
