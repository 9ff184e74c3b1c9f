"""Records in files: which become rows or lines, and which are refused with what to do."""

import dataclasses
import enum
import pickle
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files_read import read_all
from published_files import open_writer, published

from moorline.api.sinks import Sink
from moorline.connectors.files.formats import table_files as tables
from moorline.connectors.files.sink import STAGING, write_files
from moorline.connectors.files.source import read_files
from moorline.connectors.row_tables import UnfitRecord
from moorline.errors import InvalidArgument, StorageError
from moorline.subtask.failure_report import describe_failure


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out"


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Address:
    street: str


@dataclasses.dataclass
class Person:
    name: str
    age: int | None
    address: Address | None = None


class Click(msgspec.Struct):
    user: str
    at: float


class Point(NamedTuple):
    x: int
    y: int


def write_all(sink: Sink, *batches: list[Any]) -> None:
    writer = open_writer(sink)
    for batch in batches:
        writer.write(batch)
    sink.commit(writer.prepare(1))


@pytest.mark.parametrize(
    ("records", "rows"),
    [
        ([{"a": 1}, {"b": "x"}], [{"a": 1, "b": None}, {"a": None, "b": "x"}]),
        ([Click("u", 1.5)], [{"user": "u", "at": 1.5}]),
        ([Point(1, 2)], [{"x": 1, "y": 2}]),
        (
            [Person("Ada", 36, Address("here")), Person("Bob", None)],
            [{"name": "Ada", "age": 36, "address": {"street": "here"}}, {"name": "Bob", "age": None, "address": None}],
        ),
        ([{"c": Colour.RED, "p": [Point(1, 2)]}], [{"c": "red", "p": [{"x": 1, "y": 2}]}]),
        ([{"n": 1}, {"n": 2.5}], [{"n": 1.0}, {"n": 2.5}]),
    ],
)
def test_records_with_names_become_rows(folder: Path, records: list[Any], rows: list[Any]) -> None:
    write_all(write_files(folder), records)
    assert published(folder) == rows
    assert read_all(read_files(folder)) == rows


@pytest.mark.parametrize("record", [(1, 2), 7, "text", [1], None])
def test_records_without_names_are_refused_with_advice(folder: Path, record: Any) -> None:
    with pytest.raises(UnfitRecord, match=r"has no column names\. Map the records to dicts.* schema="):
        write_all(write_files(folder), [record])


def test_a_schema_gives_names_to_tuples_and_to_single_values(folder: Path) -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.string())])
    write_all(write_files(folder, schema=schema), [(1, "x"), {"b": "y"}])
    assert published(folder) == [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]
    with pytest.raises(UnfitRecord, match="it has 3 values and the schema the 2 columns"):
        write_all(write_files(folder, schema=schema), [(1, "x", 3)])
    write_all(write_files(folder / "one", schema=pa.schema([("word", pa.string())])), ["to", "be"])
    assert published(folder / "one") == [{"word": "to"}, {"word": "be"}]


@pytest.mark.parametrize(
    ("late", "text"),
    [
        ({"a": "x"}, "its column 'a' is not int64"),
        ({"a": 1.5}, "its column 'a' is not int64"),
        ({"a": 2**70}, "its column 'a' is not int64"),
        ({"a": Decimal("0.5")}, "0.5 is not a whole number"),
        ({"d": datetime(2026, 1, 1, 12)}, "a datetime has a time of day too"),
        ({"l": [{"t": 1}, {"t": 0.5}]}, "0.5 is not a whole number"),
        ({"a": 1, "b": 2, "z": 3}, "the file has no column 'b', 'z'"),
        ({"s": {"t": 1, "u": 2}}, "its column 's' is not struct<t: int64>: it has no field 'u'"),
        ({"l": [{"t": 1}, {"v": 2}]}, "it has no field 'v'"),
        ({"n": 1}, "its column 'n' is not null"),
    ],
)
def test_a_later_record_that_does_not_fit_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, late: dict[str, Any], text: str
) -> None:
    monkeypatch.setattr(tables, "_GROUP", 2)
    first = {"a": 1, "s": {"t": 1}, "l": [{"t": 1}], "n": None, "d": date(2026, 1, 1)}
    with pytest.raises(UnfitRecord) as caught:
        write_all(write_files(folder), [first] * 2, [{"a": 2}, late])
    assert text in str(caught.value)
    assert f"the record {late!r}" in str(caught.value)
    assert "gave it the columns (a: int64, s: struct<t: int64>" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert published(folder) == []


def test_first_records_that_do_not_go_together_are_named(folder: Path) -> None:
    with pytest.raises(UnfitRecord, match=r"the record \{'a': 'x'\}.*column 'a' does not go with those before it"):
        write_all(write_files(folder), [{"a": 1}, {"a": 2}, {"a": "x"}, {"a": 3}])


@pytest.mark.parametrize(("record", "text"), [({}, "no columns"), ({1: 2}, "column name 1 is not a text")])
def test_records_that_no_table_can_hold_are_refused(folder: Path, record: Any, text: str) -> None:
    with pytest.raises(UnfitRecord, match=text):
        write_all(write_files(folder), [record])


def test_a_given_schema_is_kept_to(folder: Path) -> None:
    schema = pa.schema([pa.field("a", pa.int32(), nullable=False), ("s", pa.struct([("t", pa.int64())]))])
    write_all(write_files(folder, schema=schema), [{"a": 1, "s": {"t": 1}}])
    [file] = folder.glob("*.parquet")
    assert pq.read_schema(file) == schema
    for wrong in ({"a": 2**40}, {"a": 1, "b": 1}, {"a": 1, "s": {"u": 1}}, {"s": None}):
        with pytest.raises(UnfitRecord, match="The schema has the columns"):
            write_all(write_files(folder, schema=schema), [{"a": 1}, wrong])


def test_many_rows_become_several_row_groups(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_GROUP", 10)
    write_all(write_files(folder), *[[{"i": 4 * n + k} for k in range(4)] for n in range(10)])
    [file] = folder.glob("*.parquet")
    assert pq.ParquetFile(file).metadata.num_row_groups == 4
    assert read_all(read_files(folder)) == [{"i": i} for i in range(40)]


def test_json_lines_take_whatever_json_can_express(folder: Path) -> None:
    records = [1, "é\n", (1, 2), None, {"a": [1.5]}, Person("Ada", 36), Point(1, 2), Click("u", 1.0), Colour.RED]
    write_all(write_files(folder, format="jsonl"), records)
    ada = {"name": "Ada", "age": 36, "address": None}
    expected = [1, "é\n", [1, 2], None, {"a": [1.5]}, ada, [1, 2], {"user": "u", "at": 1.0}, "red"]
    assert read_all(read_files(folder)) == expected


@pytest.mark.parametrize("record", [object(), {"a": object()}, "\ud800", {(1, 2): 3}])
def test_what_json_cannot_express_is_named(folder: Path, record: Any) -> None:
    with pytest.raises(UnfitRecord) as caught:
        write_all(write_files(folder, format="jsonl"), [1, record, 2])
    assert caught.value.record == repr(record)


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": "xml"},
        {"schema": "a int"},
        {"schema": pa.schema([])},
        {"schema": pa.schema([("a", pa.int8()), ("a", pa.int8())])},
        {"schema": pa.schema([("a", pa.int8())]), "format": "jsonl"},
        {"path": "nope://x/y"},
    ],
)
def test_arguments_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        write_files(**{"path": "/tmp/out", **wrong})


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(StorageError, match="could not stage files in"):
        open_writer(write_files(tmp_path / "out"))
    with pytest.raises(StorageError, match="could not stage files in") as refused:
        write_files(tmp_path / "out").check()
    assert refused.value.can_pass is False


def test_a_check_writes_for_a_trial_and_leaves_what_others_have_staged(tmp_path: Path) -> None:
    write_files(tmp_path / "out").check()
    assert list((tmp_path / "out").iterdir()) == []
    staged = tmp_path / "out" / STAGING / "job-sink"
    staged.mkdir(parents=True)
    write_files(tmp_path / "out").check()
    assert list((tmp_path / "out").rglob("*")) == [staged.parent, staged]


def test_a_record_that_the_format_cannot_express_does_not_pass_by_itself(tmp_path: Path) -> None:
    writer = open_writer(write_files(tmp_path / "out", format="jsonl"))
    with pytest.raises(UnfitRecord) as refused:
        writer.write([object()])
    assert describe_failure(refused.value).can_pass is False
