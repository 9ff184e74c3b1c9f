"""An Iceberg table as a sink: what it promises, what it refuses, and what a half-dead driver cannot do."""

from __future__ import annotations

import decimal
import logging
import multiprocessing
import os
import uuid
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IntegerType
from thoroughness import examples
from waiting import PATIENCE

import moorline as mo
from moorline.api.sinks import CommitterContext, SinkContext
from moorline.connectors.iceberg.sink import _without_retries
from moorline.connectors.row_tables import UnfitRecord
from moorline.errors import InvalidArgument, StorageError
from moorline.testing.contracts.sink import SinkContract

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string())])
LINE = "ab" * 16
MARK = f"moorline/job/out/{LINE}"


def options(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/tables"}


def sink_into(folder: Path, **declared: Any) -> Any:
    (folder / "tables").mkdir(exist_ok=True)
    return mo.write_iceberg("shop.numbers", catalog_options=options(folder), **{"schema": SCHEMA, **declared})


def made(folder: Path, **declared: Any) -> Any:
    sink = sink_into(folder, **declared)
    sink.check()
    return sink


def table_of(folder: Path) -> Table:
    return load_catalog("default", **options(folder)).load_table("shop.numbers")


def rows(folder: Path) -> list[dict[str, Any]]:
    return table_of(folder).scan().to_arrow().to_pylist()


def data_files(folder: Path) -> list[Path]:
    return sorted((folder / "tables").rglob("part-*.parquet"))


def writer(sink: Any, attempt: int = 1, subtask: int = 0) -> Any:
    return sink.open(SinkContext("job", "out", subtask, 2, attempt, lineage=LINE))


def committer(sink: Any, attempt: int = 1) -> Any:
    return sink.open_committer(CommitterContext("job", "out", attempt, LINE))


def stage(sink: Any, records: list[Any], checkpoint: int = 1) -> list[Any]:
    open_writer = writer(sink)
    open_writer.write(records)
    staged = open_writer.prepare(checkpoint)
    open_writer.close()
    return staged


class TestIceberg(SinkContract):
    crash_seeds = examples(5)

    @pytest.fixture
    def sink(self, tmp_path):
        return made(tmp_path)

    @pytest.fixture
    def visible(self, tmp_path):
        return lambda: rows(tmp_path)


class TestPartitioned(SinkContract):
    crash_seeds = examples(5)

    @pytest.fixture
    def sink(self, tmp_path):
        schema = SCHEMA.append(pa.field("at", pa.timestamp("us")))
        return made(tmp_path, schema=schema, partition_by=["day(at)", "bucket(2, number)"])

    @pytest.fixture
    def visible(self, tmp_path):
        return lambda: rows(tmp_path)

    def record(self, number):
        at = datetime(2026, 11, 1 + number % 2)
        return {"number": number, "text": f"record {number}", "at": at}


# --- commits ---


def test_a_checkpoint_is_one_snapshot_of_the_table(tmp_path):
    sink = made(tmp_path)
    first, second = writer(sink), writer(sink, subtask=1)
    first.write([{"number": 1, "text": "a"}])
    second.write([{"number": 2, "text": "b"}])
    committer(sink).commit(LINE, 4, [*first.prepare(4), *second.prepare(4)])
    (snapshot,) = table_of(tmp_path).snapshots()
    assert snapshot.summary["moorline.checkpoint"] == "4"
    assert (snapshot.summary["added-data-files"], snapshot.summary["added-records"]) == ("2", "2")
    assert table_of(tmp_path).properties[MARK] == "4"


def test_the_mark_outlives_expired_snapshots(tmp_path):
    sink = made(tmp_path)
    staged = {n: stage(sink, [{"number": n}], n) for n in (1, 2, 3)}
    for checkpoint, files in staged.items():
        committer(sink).commit(LINE, checkpoint, files)
    table = table_of(tmp_path)
    table.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in table.snapshots()[:-1]]).commit()
    assert len(table_of(tmp_path).snapshots()) == 1
    for checkpoint, files in staged.items():
        committer(sink).commit(LINE, checkpoint, files)
    assert sorted(row["number"] for row in rows(tmp_path)) == [1, 2, 3]


def test_what_the_sink_rests_on_the_catalog_lets_one_of_two(tmp_path):
    """PyIceberg would repeat the refused commit on top of the other, with both files in the table."""
    made(tmp_path)
    one, other = table_of(tmp_path), table_of(tmp_path)
    for table in (one, other):
        _without_retries(table)
    rows_of = {"number": [1], "text": ["x"]}
    one.append(pa.table(rows_of, SCHEMA))
    with pytest.raises(CommitFailedException):
        other.append(pa.table(rows_of, SCHEMA))
    assert len(rows(tmp_path)) == 1
    assert "commit.retry.num-retries" not in table_of(tmp_path).properties, "other writers keep their settings"


def _commit_in_another_process(folder: Path, staged: dict[int, Any], start: Any) -> None:
    sink = sink_into(folder)
    start.wait()
    for checkpoint, files in staged.items():
        committer(sink).commit(LINE, checkpoint, files)


def test_processes_that_commit_the_same_at_the_same_moment_add_it_once(tmp_path):
    sink = made(tmp_path)
    staged = {n: stage(sink, [{"number": n, "text": "x"}], n) for n in range(1, 7)}
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(3)
    drivers = [context.Process(target=_commit_in_another_process, args=(tmp_path, staged, start)) for _ in range(3)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(PATIENCE)
        assert driver.exitcode == 0
    assert sorted(row["number"] for row in rows(tmp_path)) == [1, 2, 3, 4, 5, 6]
    assert [s.summary["moorline.checkpoint"] for s in table_of(tmp_path).snapshots()] == list("123456")


def _die_in_the_middle_of_a_commit(folder: Path, files: list[Any], where: str) -> None:
    sink = sink_into(folder)

    def die(*_: Any, **__: Any) -> None:
        os._exit(9)

    original = Table._do_commit

    def commit_and_die(self: Table, *args: Any, **named: Any) -> None:
        original(self, *args, **named)
        os._exit(9)

    Table._do_commit = die if where == "before" else commit_and_die
    committer(sink).commit(LINE, 1, files)


@pytest.mark.parametrize(("where", "visible_then"), [("before", 0), ("after", 2)])
def test_a_driver_that_dies_in_a_commit_is_made_good_by_the_next(tmp_path, where, visible_then):
    sink = made(tmp_path)
    staged = stage(sink, [{"number": 1}, {"number": 2}])
    context = multiprocessing.get_context("spawn")
    driver = context.Process(target=_die_in_the_middle_of_a_commit, args=(tmp_path, staged, where))
    driver.start()
    driver.join(PATIENCE)
    assert driver.exitcode == 9
    assert len(rows(tmp_path)) == visible_then
    sink.roll_back("job", "out", 1)
    committer(sink, attempt=2).commit(LINE, 1, staged)
    assert sorted(row["number"] for row in rows(tmp_path)) == [1, 2]


def test_another_writer_in_between_is_no_obstacle(tmp_path):
    sink = made(tmp_path)
    committer(sink).commit(LINE, 1, stage(sink, [{"number": 1}], 1))
    table_of(tmp_path).append(pa.table({"number": [100], "text": ["other"]}, SCHEMA))
    committer(sink).commit(LINE, 2, stage(sink, [{"number": 2}], 2))
    assert sorted(row["number"] for row in rows(tmp_path)) == [1, 2, 100]
    sink.roll_back("job", "out", 1)
    assert sorted(row["number"] for row in rows(tmp_path)) == [1, 100]


def test_a_catalog_that_is_away_is_waited_for_and_then_named(tmp_path):
    sink = made(tmp_path, patience=0.2)
    staged = stage(sink, [{"number": 1}])
    (tmp_path / "catalog.db").rename(tmp_path / "away.db")
    (tmp_path / "catalog.db").mkdir()
    with pytest.raises(StorageError, match="OperationalError") as caught:
        committer(sink).commit(LINE, 1, staged)
    assert caught.value.can_pass
    (tmp_path / "catalog.db").rmdir()
    (tmp_path / "away.db").rename(tmp_path / "catalog.db")
    committer(sink).commit(LINE, 1, staged)
    assert len(rows(tmp_path)) == 1


# --- partitions and columns ---


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (pa.string(), ["a b/c=d", "ü%", "", None]),
        (pa.int32(), [1, -7, None]),
        (pa.bool_(), [True, False, None]),
        (pa.date32(), [date(2026, 1, 2), None]),
        (pa.time64("us"), [time(1, 2, 3), None]),
        (pa.timestamp("us"), [datetime(2026, 1, 2, 3), None]),
        (pa.timestamp("us", "UTC"), [datetime.fromisoformat("2026-01-02T03:04:05.678901+00:00"), None]),
        (pa.decimal128(9, 2), [decimal.Decimal("12.50"), decimal.Decimal("-0.01"), None]),
        (pa.binary(), [b"\x00\xff", b"", None]),
        (pa.uuid(), [uuid.UUID(int=7), None]),
    ],
)
def test_partitions_by_values_of_every_sort(tmp_path, type, values):
    schema = pa.schema([("number", pa.int64()), ("part", type)])
    sink = made(tmp_path, schema=schema, partition_by=["part"])
    staged = stage(sink, [{"number": n, "part": value} for n, value in enumerate(values)])
    assert len(staged) == len(values)
    committer(sink).commit(LINE, 1, staged)
    found = sorted(rows(tmp_path), key=lambda row: row["number"])
    assert [row["part"] for row in found] == values
    sink.roll_back("job", "out", 0)
    assert rows(tmp_path) == []


@pytest.mark.parametrize(
    ("partition", "partitions"),
    [
        ("year(at)", ["56", "55", "None"]),
        ("month(at)", ["672", "671", "None"]),
        ("day(at)", ["2026-01-01", "2025-12-31", "None"]),
        ("hour(at)", ["490896", "490895", "None"]),
        ("bucket(16, number)", ["3", "4"]),  # Iceberg's format says that 34 hashes to 2017239379
        ("truncate(2, text)", ["ab", "xy", "None"]),
    ],
)
def test_partitions_by_transforms_have_the_values_that_the_format_says(tmp_path, partition, partitions):
    schema = SCHEMA.append(pa.field("at", pa.timestamp("us", "UTC")))
    sink = made(tmp_path, schema=schema, partition_by=partition)
    records = [
        {"number": 34, "text": "abc", "at": datetime(2026, 1, 1, 0, 30, tzinfo=UTC)},
        {"number": 2, "text": "xyz", "at": datetime(2025, 12, 31, 23, 59, tzinfo=UTC)},
        {"number": 1, "text": None, "at": None},
    ]
    committer(sink).commit(LINE, 1, stage(sink, records))
    (field,) = table_of(tmp_path).spec().fields
    found = table_of(tmp_path).inspect.partitions().to_pylist()
    assert {str(row["partition"][field.name]) for row in found} == set(partitions)
    table = table_of(tmp_path)
    read = table.scan(row_filter="number = 2").to_arrow().to_pylist()
    assert [row["number"] for row in read] == [2]
    if partition.startswith(("year", "month", "day", "hour")):
        old = table.scan(row_filter="at < '2026-01-01T00:00:00+00:00'")
        assert [row["number"] for row in old.to_arrow().to_pylist()] == [2]
        assert len(list(old.plan_files())) == 1, "the other partitions are left out"
    sink.roll_back("job", "out", 0)
    assert rows(tmp_path) == []


def test_files_have_the_ids_of_the_columns_so_that_these_can_be_renamed(tmp_path):
    sink = made(tmp_path, schema=SCHEMA.append(pa.field("tags", pa.list_(pa.struct([("x", pa.int32())])))))
    committer(sink).commit(LINE, 1, stage(sink, [{"number": 1, "text": "a", "tags": [{"x": 5}]}]))
    with table_of(tmp_path).update_schema() as change:
        change.rename_column("text", "words")
        change.add_column("more", IntegerType())
    assert rows(tmp_path) == [{"number": 1, "words": "a", "tags": [{"x": 5}], "more": None}]
    (file,) = data_files(tmp_path)
    ids = [field.metadata[b"PARQUET:field_id"] for field in pq.read_schema(file)]
    assert ids == [str(field.field_id).encode() for field in table_of(tmp_path).schema().fields[:3]]


def test_manifests_say_what_readers_may_leave_out(tmp_path):
    sink = made(tmp_path)
    committer(sink).commit(LINE, 1, stage(sink, [{"number": n, "text": None if n % 2 else "x"} for n in range(60)], 1))
    committer(sink).commit(LINE, 2, stage(sink, [{"number": n, "text": "y"} for n in range(100, 110)], 2))
    planned = list(table_of(tmp_path).scan(row_filter="number >= 100").plan_files())
    assert [task.file.record_count for task in planned] == [10]
    (first, _) = sorted(table_of(tmp_path).inspect.files().to_pylist(), key=lambda row: -row["record_count"])
    metrics = first["readable_metrics"]
    assert (metrics["number"]["lower_bound"], metrics["number"]["upper_bound"]) == (0, 59)
    assert metrics["text"]["null_value_count"] == 30


def test_names_of_columns_may_be_strange(tmp_path):
    schema = pa.schema([("a.b", pa.int64()), ("ü x", pa.string()), ("c", pa.struct([("b", pa.int32())]))])
    sink = made(tmp_path, schema=schema, partition_by="ü x")
    record = {"a.b": 1, "ü x": "y", "c": {"b": 2}}
    committer(sink).commit(LINE, 1, stage(sink, [record]))
    assert rows(tmp_path) == [record]


def test_another_reader_finds_the_same_rows(tmp_path):
    sink = made(tmp_path, partition_by="text")
    for checkpoint in (1, 2):
        numbers = range(10 * checkpoint, 10 * checkpoint + 10)
        records = [{"number": n, "text": f"t {n % 3}"} for n in numbers]
        committer(sink).commit(LINE, checkpoint, stage(sink, records, checkpoint))
    sink.roll_back("job", "out", 1)
    committer(sink).commit(LINE, 3, stage(sink, [{"number": 30, "text": None}], 3))
    reader = duckdb.connect()
    for extension in (duckdb_extension_avro, duckdb_extension_iceberg):
        (file,) = Path(extension.__file__).parent.rglob("*.duckdb_extension")
        reader.execute(f"LOAD '{file}'")
    location = table_of(tmp_path).metadata_location
    found = reader.execute(f"select number, text from iceberg_scan('{location}')").fetchall()
    assert sorted(found) == [*((n, f"t {n % 3}") for n in range(10, 20)), (30, None)]
    some = reader.execute(f"select number from iceberg_scan('{location}') where text = 't 1'").fetchall()
    assert sorted(some) == [(10,), (13,), (16,), (19,)]


def test_manifests_are_merged_if_the_table_wants_it(tmp_path):
    sink = made(tmp_path)
    with table_of(tmp_path).transaction() as change:
        change.set_properties({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
    for checkpoint in range(1, 6):
        committer(sink).commit(LINE, checkpoint, stage(sink, [{"number": checkpoint}], checkpoint))
    table = table_of(tmp_path)
    assert len(table.current_snapshot().manifests(table.io)) < 5
    assert sorted(row["number"] for row in rows(tmp_path)) == [1, 2, 3, 4, 5]
    sink.roll_back("job", "out", 3)
    assert sorted(row["number"] for row in rows(tmp_path)) == [1, 2, 3]


# --- refusals ---


def test_a_table_that_is_not_there_needs_a_schema(tmp_path):
    with pytest.raises(InvalidArgument, match=r"There is no table default\.shop\.numbers"):
        made(tmp_path, schema=None)


def test_a_table_that_is_there_gives_the_schema(tmp_path):
    made(tmp_path)
    sink = made(tmp_path, schema=None)
    committer(sink).commit(LINE, 1, stage(sink, [{"number": 1}]))
    assert rows(tmp_path) == [{"number": 1, "text": None}]


def test_tuples_go_by_the_declared_order(tmp_path):
    made(tmp_path)
    sink = made(tmp_path, schema=pa.schema([("text", pa.string()), ("number", pa.int64())]))
    committer(sink).commit(LINE, 1, stage(sink, [("a", 1)]))
    assert rows(tmp_path) == [{"number": 1, "text": "a"}]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"schema": pa.schema([("number", pa.string())])}, "column 'number' is int64"),
        ({"schema": pa.schema([("other", pa.string())])}, "has the columns"),
        ({"schema": pa.schema([("number", pa.duration("s"))])}, "An Iceberg table cannot have it"),
        ({"partition_by": ["text"]}, "is partitioned by nothing"),
    ],
)
def test_a_table_that_is_another_is_refused_before_the_start(tmp_path, declared, message):
    made(tmp_path)
    with pytest.raises(InvalidArgument, match=message):
        made(tmp_path, **declared)


def test_a_table_with_another_partitioning_is_refused(tmp_path):
    made(tmp_path, partition_by=["bucket(4, number)"])
    made(tmp_path, partition_by=None)
    with pytest.raises(InvalidArgument, match=r"is partitioned by \['bucket\[4\]\(number\)'\]"):
        made(tmp_path, partition_by=["bucket(8, number)"])


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"partition_by": "day(number)"}, "day cannot transform long values"),
        ({"partition_by": "week(number)"}, "Give a column c or one of year"),
        ({"partition_by": "bucket(number)"}, "Give a column c or one of year"),
        ({"partition_by": "none"}, "The schema has the columns number, text"),
    ],
)
def test_a_partitioning_that_cannot_be_is_refused(tmp_path, declared, message):
    with pytest.raises(InvalidArgument, match=message):
        made(tmp_path, **declared)


def test_what_cannot_be_written_here_is_refused_by_name(tmp_path):
    schema = pa.schema([("number", pa.int64()), ("inner", pa.struct([("x", pa.int32())]))])
    made(tmp_path, schema=schema)
    with table_of(tmp_path).update_spec() as spec:
        spec.add_field("inner.x", BucketTransform(4), "x_bucket")
    with pytest.raises(InvalidArgument, match=r"inner\.x.*nested column"):
        made(tmp_path, schema=schema)
    with pytest.raises(InvalidArgument, match="Workers are other processes"):
        mo.write_iceberg("a.b", catalog_options={"type": "in-memory"}, schema=SCHEMA).check()
    with pytest.raises(InvalidArgument, match="with its namespace"):
        mo.write_iceberg("numbers", schema=SCHEMA)


def test_a_record_that_does_not_fit_is_named(tmp_path):
    sink = made(tmp_path, schema=pa.schema([pa.field("number", pa.int64(), nullable=False), ("text", pa.string())]))
    with pytest.raises(UnfitRecord, match="seven"):
        stage(sink, [{"number": "seven", "text": "x"}])
    with pytest.raises(UnfitRecord, match="'number' must not be null"):
        stage(sink, [{"text": "x"}])


def test_names_from_a_snapshot_do_not_reach_out_of_the_table(tmp_path):
    sink = made(tmp_path)
    (staged,) = stage(sink, [{"number": 1, "text": "x"}])
    for path in ("../elsewhere.parquet", f"../{staged['path']}", f"/{staged['path']}", "part-1.parquet"):
        with pytest.raises(StorageError, match="not a file that was staged here"):
            committer(sink).commit(LINE, 1, [{**staged, "path": path}])
    with pytest.raises(StorageError, match="not staged for checkpoint 2"):
        committer(sink).commit(LINE, 2, [staged])
    for strange in ({**staged, "partition": [b"x"]}, {**staged, "rows": "many"}, {"path": staged["path"]}):
        with pytest.raises(StorageError) as caught:
            committer(sink).commit(LINE, 1, [strange])
        assert caught.value.can_pass is False
    assert rows(tmp_path) == []


def test_files_that_were_staged_for_a_table_that_was_made_anew_do_not_become_part_of_it(tmp_path):
    """Columns have numbers, which mean others in another table."""
    sink = made(tmp_path)
    staged = stage(sink, [{"number": 1, "text": "x"}])
    load_catalog("default", **options(tmp_path)).drop_table("shop.numbers")
    made(tmp_path)
    with pytest.raises(StorageError, match="the table was removed and made anew") as caught:
        committer(sink).commit(LINE, 1, staged)
    assert caught.value.can_pass is False
    assert rows(tmp_path) == []


def test_values_of_a_column_that_was_dropped_are_told(tmp_path, caplog):
    sink = made(tmp_path)
    staged = stage(sink, [{"number": 1, "text": "x"}])
    with table_of(tmp_path).update_schema() as update:
        update.delete_column("text")
        update.add_column("more", IntegerType())
    with caplog.at_level(logging.WARNING, "moorline"):
        committer(sink).commit(LINE, 1, staged)
    assert "columns were dropped, and their values in files that are committed now cannot be read: text" in caplog.text
    assert rows(tmp_path) == [{"number": 1, "more": None}]


def test_a_staged_file_that_is_gone_does_not_become_part_of_the_table(tmp_path):
    sink = made(tmp_path)
    staged = stage(sink, [{"number": 1}])
    data_files(tmp_path)[0].unlink()
    with pytest.raises(StorageError, match="is gone") as caught:
        committer(sink).commit(LINE, 1, staged)
    assert caught.value.can_pass is False
    assert rows(tmp_path) == []


def test_files_staged_for_another_partitioning_wait_for_the_old_one(tmp_path):
    sink = made(tmp_path)
    staged = stage(sink, [{"number": 1, "text": "x"}])
    with table_of(tmp_path).update_spec() as spec:
        spec.add_identity("text")
    with pytest.raises(StorageError, match="partitioned in another way"):
        committer(sink).commit(LINE, 1, staged)
    with table_of(tmp_path).update_spec() as spec:
        spec.remove_field("text")
    committer(sink).commit(LINE, 1, staged)
    assert rows(tmp_path) == [{"number": 1, "text": "x"}]


def test_only_what_was_never_committed_is_cleaned_up(tmp_path):
    sink = made(tmp_path)
    committer(sink).commit(LINE, 1, stage(sink, [{"number": 1}], 1))
    committer(sink).commit(LINE, 2, stage(sink, [{"number": 2}], 2))
    before = table_of(tmp_path).current_snapshot().snapshot_id
    sink.roll_back("job", "out", 1)
    stage(sink, [{"number": 3}], 3)
    killed = writer(sink)
    killed.write([{"number": n} for n in range(40_000)])  # never closed
    (unfinished,) = (tmp_path / "tables").rglob("_moorline/*")
    sink.clean_up("job", "out")
    assert len(data_files(tmp_path)) == 2 and not unfinished.exists()
    assert table_of(tmp_path).scan(snapshot_id=before).to_arrow().num_rows == 2
    killed.close()


def test_passwords_are_not_shown(tmp_path):
    secret = {"type": "rest", "uri": "http://user:hush@127.0.0.1:1", "token": "t0ken", "s3.secret-access-key": "hush"}
    sink = mo.write_iceberg("a.b", catalog_options=secret, schema=SCHEMA, patience=0)
    assert "hush" not in repr(sink) + repr(sink.address) + str(sink.address)
    with pytest.raises(StorageError) as caught:
        sink.check()
    assert "hush" not in str(caught.value) and "t0ken" not in str(caught.value)
    with pytest.raises(InvalidArgument) as refused:
        mo.write_iceberg("a.b", catalog="x", catalog_options={"password": "hush"}, schema=SCHEMA).check()
    assert "hush" not in str(refused.value)
