"""Partitioned folders, written and read, and files that are cut by size, time and inactivity."""

from __future__ import annotations

import dataclasses
import enum
import json
import os
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from files_read import read_all
from hypothesis import given
from hypothesis import strategies as st
from published_files import open_writer
from test_list_and_generator_sources import Clock

from moorline.api.sinks import Sink, SinkContext
from moorline.connectors.files import parts
from moorline.connectors.files.formats import table_files as tables
from moorline.connectors.files.part_names import STAGING
from moorline.connectors.files.partition_folders import NoPartition, columns_of, folder_of
from moorline.connectors.files.sink import FileSink, write_files
from moorline.connectors.files.source import read_files
from moorline.connectors.row_tables import UnfitRecord
from moorline.errors import InvalidArgument, StorageError, UnreadableRecord
from moorline.testing.contracts.sink import SinkContract, Visible


def published(folder: Path) -> dict[str, list[Any]]:
    """The lines below a folder, by the folder they are in."""
    found: dict[str, list[Any]] = {}
    for file in sorted(folder.rglob("part-*")):
        if STAGING not in file.parts:
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            found.setdefault(str(file.parent.relative_to(folder)), []).extend(lines)
    return found


def write_all(sink: Sink, *batches: list[Any]) -> list[Any]:
    writer = open_writer(sink)
    for batch in batches:
        writer.write(batch)
    staged = writer.prepare(1)
    sink.commit(staged)
    writer.close()
    return staged


class TestPartitionedLocally(SinkContract):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> Sink:
        return write_files(tmp_path / "out", format="jsonl", partition_by=["kind", "half"])

    @pytest.fixture
    def visible(self, tmp_path: Path) -> Visible:
        return lambda: read_all(read_files(tmp_path / "out", partitions=True)) if (tmp_path / "out").exists() else []

    def record(self, number: int) -> Any:
        return {"number": number, "kind": f"k={number % 3}", "half": None if number % 2 else "yes"}


# --- folders ------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "r/ed"


@dataclasses.dataclass
class Order:
    day: date
    cents: int


def test_values_become_folders_and_leave_the_files(tmp_path: Path) -> None:
    sink = write_files(tmp_path, format="jsonl", partition_by=["day", "shop"])
    write_all(
        sink,
        [{"day": date(2026, 1, 2), "shop": "a/b", "n": 1}, {"day": date(2026, 1, 2), "n": 2}],
        [{"shop": "a/b", "n": 3, "day": date(2026, 1, 2)}, {"day": date(2026, 1, 3), "shop": "%", "n": 4}],
    )
    assert published(tmp_path) == {
        "day=2026-01-02/shop=__HIVE_DEFAULT_PARTITION__": [{"n": 2}],
        "day=2026-01-02/shop=a%2Fb": [{"n": 1}, {"n": 3}],
        "day=2026-01-03/shop=%25": [{"n": 4}],
    }


def test_records_with_names_of_all_kinds_can_be_partitioned(tmp_path: Path) -> None:
    write_all(write_files(tmp_path, format="jsonl", partition_by="day"), [Order(date(2026, 1, 2), 5)])
    assert published(tmp_path) == {"day=2026-01-02": [{"cents": 5}]}


def test_equal_values_of_other_types_are_other_folders(tmp_path: Path) -> None:
    write_all(write_files(tmp_path, format="jsonl", partition_by="v"), [{"v": v} for v in (1, True, 1.0, "1")])
    assert set(published(tmp_path)) == {"v=1", "v=true", "v=1.0"}


@pytest.mark.parametrize("format", ["parquet", "orc", "avro", "csv"])
def test_a_schema_says_the_types_of_folders_too(tmp_path: Path, format: Any) -> None:
    schema = pa.schema([("day", pa.date32()), ("n", pa.int64()), ("_k", pa.int8())])
    sink = write_files(tmp_path, format=format, schema=schema, partition_by=["day", "_k"])
    rows = [{"day": date(2026, 1, 2), "n": 1, "_k": 7}, {"day": None, "n": 2, "_k": 7}]
    write_all(sink, rows)
    found = read_all(read_files(tmp_path, partitions=pa.schema([("day", pa.date32()), ("_k", pa.int8())])))
    expected = [{**row, "n": str(row["n"])} for row in rows] if format == "csv" else rows
    assert sorted(found, key=lambda row: row["n"]) == expected
    with pytest.raises(UnfitRecord, match="its column 'day' is not date32"):
        write_all(sink, [{"day": "tomorrow", "n": 1, "_k": 7}])


def test_an_avro_schema_names_the_partitioned_columns_too(tmp_path: Path) -> None:
    fields = [{"name": "day", "type": "string"}, {"name": "n", "type": "long"}]
    schema = {"type": "record", "name": "R", "fields": fields}
    write_all(write_files(tmp_path, format="avro", schema=schema, partition_by="day"), [{"day": "mon", "n": 1}])
    assert read_all(read_files(tmp_path, partitions=True)) == [{"n": 1, "day": "mon"}]


def test_others_read_what_is_written(tmp_path: Path) -> None:
    """Arrow knows nothing of us."""
    texts = ["plain", "a/b", "50%", "x=y", "ü", " ", "a'\"#:?\\{[]^*"]
    write_all(write_files(tmp_path, partition_by="t"), [{"t": text, "n": n} for n, text in enumerate(texts)])
    partitioning = pyarrow.dataset.partitioning(pa.schema([("t", pa.string())]), flavor="hive")
    rows = pyarrow.dataset.dataset(tmp_path, partitioning=partitioning, format="parquet").to_table().to_pylist()
    assert sorted((row["n"], row["t"]) for row in rows) == list(enumerate(texts))


names_and_values = st.text(st.sampled_from("ab/=%:\"'#?*\\{}[]^ .\0\n\x7fé漢🚲\ud800"), min_size=1, max_size=8)


@given(st.dictionaries(names_and_values, names_and_values | st.none(), max_size=3))
def test_what_a_folder_says_is_what_was_written(columns: dict[str, str | None]) -> None:
    try:
        folders = [folder_of(column, value) for column, value in columns.items()]
    except NoPartition as error:
        assert "not Unicode" in str(error)
        return
    assert all("/" not in folder and "\0" not in folder for folder in folders)
    assert columns_of("/".join([*folders, "part-0.csv"]), None) == columns


def test_times_and_enums_become_folders() -> None:
    assert folder_of("at", datetime(2026, 1, 2, 3, 4)) == "at=2026-01-02 03%3A04%3A00.000000"
    assert folder_of("colour", Colour.RED) == "colour=r%2Fed"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "would be read as no value"),
        ("__HIVE_DEFAULT_PARTITION__", "would be read as no value"),
        ([1], "is a list"),
        (b"x", "is a bytes"),
        ("x" * 260, "too long"),
        ("\ud800", "not Unicode"),
    ],
    ids=lambda value: repr(value)[:12],
)
def test_what_is_no_name_of_a_folder_is_refused_by_name(tmp_path: Path, value: Any, text: str) -> None:
    with pytest.raises(UnfitRecord, match=text) as refused:
        write_all(write_files(tmp_path, format="jsonl", partition_by="v"), [{"v": "good"}, {"v": value, "n": 1}])
    assert refused.value.record.startswith("{'v':")
    assert published(tmp_path) == {}


def test_records_without_columns_cannot_be_partitioned(tmp_path: Path) -> None:
    with pytest.raises(UnfitRecord, match="a int has no columns, and files are partitioned by v"):
        write_all(write_files(tmp_path, format="jsonl", partition_by="v"), [7])


@pytest.mark.parametrize(
    "options",
    [
        {"format": "text", "partition_by": "a"},
        {"partition_by": ["a", "a"]},
        {"partition_by": [""]},
        {"partition_by": [".a"]},
        {"partition_by": [3]},
        {"schema": pa.schema([("a", pa.int8())]), "partition_by": "b"},
        {"schema": pa.schema([("a", pa.int8())]), "partition_by": "a"},
        {"roll_size": 0},
        {"roll_size": "many"},
        {"roll_interval": 0},
        {"roll_inactivity": "soon"},
    ],
    ids=str,
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        write_files("/tmp/out", **options)


def test_a_link_in_the_place_of_a_partition_is_not_followed(tmp_path: Path) -> None:
    sink = write_files(tmp_path / "out", format="jsonl", partition_by="day")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "out" / "day=1")
    with pytest.raises(StorageError, match="not a folder but a link or a file"):
        write_all(sink, [{"day": 1, "n": 1}])
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_rolling_back_finds_files_in_all_partitions(tmp_path: Path) -> None:
    sink = write_files(tmp_path, format="jsonl", partition_by=["a", "b"])
    writer = open_writer(sink)
    for checkpoint in (1, 2, 3):
        writer.write([{"a": n, "b": checkpoint, "n": checkpoint} for n in range(2)])
        sink.commit(writer.prepare(checkpoint))
    (tmp_path / "a=0" / "other.txt").write_text("not ours")
    sink.roll_back("job", "out", 1)
    assert {path for path, lines in published(tmp_path).items() if lines} == {"a=0/b=1", "a=1/b=1"}
    assert (tmp_path / "a=0" / "other.txt").exists()


# --- reading ------------------------------------------------------------------------------------


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_folders_are_columns_if_that_is_asked_for(tmp_path: Path) -> None:
    put(tmp_path / "day=2026-01-02" / "shop=a%2Fb" / "x.jsonl", '{"n": 1, "day": "other"}\n')
    put(tmp_path / "day=2026-01-03" / "shop=__HIVE_DEFAULT_PARTITION__" / "x.csv", "n\n2\n")
    put(tmp_path / "plain" / "x.jsonl", '{"n": 3}\n')
    assert read_all(read_files(tmp_path)) == [{"n": 1, "day": "other"}, {"n": "2"}, {"n": 3}]
    assert read_all(read_files(tmp_path, partitions=True)) == [
        {"n": 1, "day": "2026-01-02", "shop": "a/b"},
        {"n": "2", "day": "2026-01-03", "shop": None},
        {"n": 3},
    ]
    found = read_all(read_files(f"{tmp_path}/day=*", partitions=pa.schema([("day", pa.date32())])))
    assert found == [{"n": 1, "day": date(2026, 1, 2)}, {"n": "2", "day": date(2026, 1, 3)}]


def test_folders_that_do_not_say_what_was_promised_are_an_error(tmp_path: Path) -> None:
    put(tmp_path / "day=soon" / "x.jsonl", '{"n": 1}\n')
    put(tmp_path / "x.jsonl", '{"n": 2}\n')
    put(tmp_path / "day=2026-01-02" / "x.jsonl", '{"n": 3}\n')
    schema = pa.schema([("day", pa.date32())])
    with pytest.raises(UnreadableRecord, match="day=soon is not date32"):
        read_all(read_files(tmp_path, partitions=schema))
    with pytest.raises(UnreadableRecord, match="no folder of it says what 'day' is"):
        read_all(read_files(tmp_path / "x.jsonl", partitions=schema))
    assert read_all(read_files(tmp_path, partitions=schema, on_error="skip")) == [{"n": 3, "day": date(2026, 1, 2)}]


def test_records_without_columns_get_none(tmp_path: Path) -> None:
    put(tmp_path / "day=1" / "x.jsonl", "7\n")
    with pytest.raises(UnreadableRecord, match="records without columns, and its folders say day"):
        read_all(read_files(tmp_path, partitions=True))
    with pytest.raises(InvalidArgument, match="partitions"):
        read_files(tmp_path, format="text", partitions=True)
    with pytest.raises(InvalidArgument, match="partitions"):
        read_files(tmp_path, partitions="day")  # type: ignore[arg-type]


# --- cutting ------------------------------------------------------------------------------------


def names(staged: list[Any]) -> int:
    return len({file["final"] for file in staged})


def test_files_are_cut_when_they_are_large(tmp_path: Path) -> None:
    sink = write_files(tmp_path, format="jsonl", roll_size="1KB")
    records = [{"n": n, "text": "x" * 90} for n in range(100)]
    staged = write_all(sink, *[records[n : n + 5] for n in range(0, 100, 5)])
    assert names(staged) == 10  # of ten records, in two batches of five
    assert all(1024 <= file["size"] < 2048 for file in staged[:-1])
    assert sorted(record["n"] for record in read_all(read_files(tmp_path))) == list(range(100))


def test_files_with_columns_are_cut_at_the_end_of_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_GROUP", 10)
    sink = write_files(tmp_path, roll_size=1)
    staged = write_all(sink, *[[{"n": n}] for n in range(35)])
    assert names(staged) == 4
    assert sorted(record["n"] for record in read_all(read_files(tmp_path))) == list(range(35))


def rolling(tmp_path: Path, clock: Clock, **options: Any) -> FileSink:
    sink = write_files(tmp_path, format="jsonl", partition_by="k", **options)
    assert isinstance(sink, FileSink)
    sink.rolling = parts.Rolling(sink.rolling.size, sink.rolling.interval, sink.rolling.inactivity, clock)
    return sink


def test_files_are_cut_when_they_are_old(tmp_path: Path) -> None:
    clock = Clock()
    sink = rolling(tmp_path, clock, roll_interval="10m")
    writer = open_writer(sink)
    for n in range(25):
        writer.write([{"k": 1, "n": n}])
        clock.now += 60
    staged = writer.prepare(1)
    sink.commit(staged)
    assert names(staged) == 3
    assert sorted(r["n"] for r in published(tmp_path)["k=1"]) == list(range(25))


def test_files_that_no_record_goes_to_are_closed(tmp_path: Path) -> None:
    clock = Clock()
    sink = rolling(tmp_path, clock, roll_inactivity="1m")
    writer = open_writer(sink)
    assert isinstance(writer, parts.PartsWriter)
    writer.write([{"k": 1, "n": 1}, {"k": 2, "n": 2}])
    clock.now += 40
    writer.write([{"k": 1, "n": 3}])
    clock.now += 40
    writer.write([{"k": 1, "n": 4}])
    assert [part.partition for part in writer.finished] == ["k=2/"]
    staged = writer.prepare(1)
    sink.commit(staged)
    assert names(staged) == 2
    assert published(tmp_path) == {"k=1": [{"n": 1}, {"n": 3}, {"n": 4}], "k=2": [{"n": 2}]}


def test_no_more_files_are_open_than_a_process_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MOST_OPEN", 5)
    sink = write_files(tmp_path, format="jsonl", partition_by="k")
    writer = open_writer(sink)
    assert isinstance(writer, parts.PartsWriter)
    for n in range(60):
        writer.write([{"k": n % 12, "n": n}])
        assert len(writer.open) <= 5
    writer.write([{"k": 11, "n": 60}])
    sink.commit(writer.prepare(1))
    assert sorted(r["n"] for lines in published(tmp_path).values() for r in lines) == list(range(61))


def test_what_was_cut_and_not_prepared_is_given_up(tmp_path: Path) -> None:
    sink = write_files(tmp_path, format="jsonl", roll_size=1)
    writer = sink.open(SinkContext("job", "out", 0, 1, 1))
    writer.write([1])
    writer.write([2])
    writer.close()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    again = sink.open(SinkContext("job", "out", 0, 1, 2))
    again.write([1, 2])
    sink.commit(again.prepare(1))
    assert published(tmp_path) == {".": [1, 2]}
