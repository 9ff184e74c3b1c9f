"""Formats of files: what is a record in each of them, and what is malformed."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files_read import read_all
from test_list_and_generator_sources import open_all

from moorline.connectors.files.formats import choosing as formats
from moorline.connectors.files.source import read_files
from moorline.errors import InvalidArgument, StorageError

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


# --- watching ---------------------------------------------------------------------------------


def test_a_lone_carriage_return_in_a_csv_file_is_named_by_offset(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,b\n1,2\n3,\r4\n")
    with pytest.raises(StorageError, match="row at byte 8 is not CSV"):
        read_all(read_files(tmp_path))
