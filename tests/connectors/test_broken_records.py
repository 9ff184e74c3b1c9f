"""read_files: lines and rows that cannot be decoded fail the job, are skipped, or come out of a side output."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import moorline as mo
from moorline.api.sources import SourceContext, SourceReader
from moorline.connectors.files.source import read_files
from moorline.errors import InvalidArgument, UnreadableRecord
from moorline.subtask.failure_report import describe_failure

BROKEN = mo.OutputTag("broken")


def damaged_parquet() -> bytes:
    buffer = io.BytesIO()
    pq.write_table(
        pa.table({"n": list(range(30))}), buffer, row_group_size=10, compression="none", use_dictionary=False
    )
    data = bytearray(buffer.getvalue())
    group = pq.ParquetFile(buffer).metadata.row_group(1).column(0)
    data[group.data_page_offset : group.data_page_offset + 20] = b"\xff" * 20
    return bytes(data)


#: File, content, the good records, and where the broken ones stand.
CASES: list[tuple[str, bytes, list[Any], list[int]]] = [
    ("a.jsonl", b'1\n{"a": }\n2\n\n{\n\xff\n3\n', [1, 2, 3], [2, 13, 15]),
    ("a.txt", b"one\ncaf\xe9\ntwo\n", ["one", "two"], [4]),
    ("a.csv", b"a,b\n1,2\n3\n4,5,6\n7,8\n", [("1", "2"), ("7", "8")], [8, 10]),
    ("b.csv", b'a,b\n1,"x\ny"\n\xff,2\n3,4\n', [("1", "x\ny"), ("3", "4")], [12]),
    ("c.csv", b'a,b\n1,2\n3,"4\n5,6\n7,8\n', [("1", "2"), ("5", "6"), ("7", "8")], [8]),
    ("d.csv", b"a,b\n1,2\n3,\r4\n5,6\n", [("1", "2"), ("5", "6")], [8]),
    ("a.parquet", damaged_parquet(), [*range(10), *range(20, 30)], [10]),
]
WHOLE_FILES: list[tuple[str, bytes]] = [
    ("x.parquet", b"no Parquet at all"),
    ("x.csv", b"a,a\n1,2\n"),
    ("x2.csv", b'"a,b\n1,2\n'),
    ("x3.csv", b"a,\xff\n1,2\n"),
]


def opened(source: mo.Source) -> tuple[SourceReader, SourceContext, list[tuple[str, str]]]:
    notices: list[tuple[str, str]] = []
    ctx = SourceContext("in", 0, 1, 1, notice=lambda kind, text: notices.append((kind, text)))
    return source.open(ctx), ctx, notices


def plain(record: Any) -> Any:
    if isinstance(record, dict):
        return record["n"] if "n" in record else (record["a"], record["b"])
    return record


def drained(reader: SourceReader, limit: int = 1000) -> tuple[list[Any], list[Any]]:
    records: list[Any] = []
    beside: list[Any] = []
    while True:
        batch = reader.read(limit)
        for tag, values in (reader.side_outputs or {}).items():
            assert tag == "broken"
            beside += values
        if batch is None:
            return [plain(r) for r in records], beside
        records += batch


@pytest.mark.parametrize("limit", [1, 2, 1000])
@pytest.mark.parametrize("name, content, good, broken", CASES, ids=[case[0] for case in CASES])
def test_a_broken_record_goes_to_a_side_output(
    tmp_path: Path, name: str, content: bytes, good: list[Any], broken: list[int], limit: int
) -> None:
    (tmp_path / name).write_bytes(content)
    reader, ctx, notices = opened(read_files(tmp_path, on_error=BROKEN))
    records, beside = drained(reader, limit)
    assert records == good
    assert [b.position for b in beside] == broken
    assert {b.file for b in beside} == {str(tmp_path / name)}
    if not name.endswith("parquet"):
        assert all(b.content and content[b.position :].startswith(b.content) for b in beside)
        assert ctx.counters == {"broken_records": len(broken)}
    else:
        assert ctx.counters == {"broken_records": 10}
    [(kind, text)] = notices
    assert kind == "broken_records"
    assert str(tmp_path / name) in text


@pytest.mark.parametrize("name, content, good, broken", CASES, ids=[case[0] for case in CASES])
def test_a_broken_record_is_skipped(
    tmp_path: Path, name: str, content: bytes, good: list[Any], broken: list[int]
) -> None:
    (tmp_path / name).write_bytes(content)
    reader, ctx, notices = opened(read_files(tmp_path, on_error="skip"))
    assert drained(reader) == (good, [])
    assert len(notices) == 1
    assert ctx.counters["broken_records"] >= len(broken)


@pytest.mark.parametrize("name, content, good, broken", CASES, ids=[case[0] for case in CASES])
def test_a_broken_record_fails_the_job_and_is_known_by_its_place(
    tmp_path: Path, name: str, content: bytes, good: list[Any], broken: list[int]
) -> None:
    (tmp_path / name).write_bytes(content)
    reader, _, _ = opened(read_files(tmp_path))
    with pytest.raises(UnreadableRecord) as failed:
        drained(reader, 1)
    assert failed.value.position == broken[0]
    told = describe_failure(failed.value)
    assert (told.can_pass, told.record) == (False, f"{tmp_path / name} at {broken[0]}")


@pytest.mark.parametrize("name, content", WHOLE_FILES)
def test_a_file_of_which_nothing_can_be_read_is_passed_over(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "y.txt").write_text("good\n")
    reader, ctx, _notices = opened(read_files(tmp_path, on_error=BROKEN))
    records, beside = drained(reader)
    assert records == ["good"]
    assert beside[-1].file == str(tmp_path / name)
    assert ctx.counters["broken_records"] == len(beside)
    again, _, _ = opened(read_files(tmp_path))
    with pytest.raises(UnreadableRecord):
        drained(again)


def test_positions_stand_behind_what_was_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n{\n2\n{\n3\n")
    source = read_files(tmp_path, on_error=BROKEN)
    reader, _, _ = opened(source)
    out, beside = [], []
    while True:
        batch = reader.read(1)
        beside += (reader.side_outputs or {}).get("broken", [])
        if batch is None:
            break
        out += batch
        reader = source.open(SourceContext("in", 0, 1, 1, positions=reader.positions()))
    assert (out, [b.position for b in beside]) == ([1, 2, 3], [2, 6])


@pytest.mark.parametrize("wrong", ["ignore", None, 3])
def test_only_three_ways_are_known(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="on_error"):
        read_files(tmp_path, on_error=wrong)
