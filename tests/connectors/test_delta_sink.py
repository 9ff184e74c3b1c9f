"""A Delta table as a sink: what it promises, what it refuses, and what a half-dead driver cannot do."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import CommitProperties, Transaction

import moorline as mo
from moorline.api.sinks import CommitterContext, SinkContext
from moorline.connectors.row_tables import UnfitRecord
from moorline.errors import InvalidArgument, StorageError
from moorline.testing.contracts.sink import SinkContract

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string())])
LINE = "ab" * 16


def rows(folder: Path) -> list[dict[str, Any]]:
    return DeltaTable(str(folder)).to_pyarrow_table().select(["number", "text"]).to_pylist()


class TestDelta(SinkContract):
    @pytest.fixture
    def sink(self, tmp_path):
        sink = mo.write_delta(tmp_path / "table", schema=SCHEMA)
        sink.check()
        return sink

    @pytest.fixture
    def visible(self, tmp_path):
        return lambda: rows(tmp_path / "table")


class TestPartitioned(SinkContract):
    @pytest.fixture
    def sink(self, tmp_path):
        schema = SCHEMA.append(pa.field("day", pa.date32()))
        sink = mo.write_delta(tmp_path / "table", schema=schema, partition_by="day")
        sink.check()
        return sink

    @pytest.fixture
    def visible(self, tmp_path):
        def read():
            found = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
            return [{name: row[name] for name in ("number", "text", "day")} for row in found]

        return read

    def record(self, number):
        return {"number": number, "text": f"record {number}", "day": date(2026, 11, 1 + number % 3)}


def made(folder: Path, **options: Any) -> Any:
    sink = mo.write_delta(folder, **{"schema": SCHEMA, **options})
    sink.check()
    return sink


def writer(sink: Any, attempt: int = 1) -> Any:
    return sink.open(SinkContext("job", "out", 0, 1, attempt, lineage=LINE))


def committer(sink: Any, attempt: int = 1) -> Any:
    return sink.open_committer(CommitterContext("job", "out", attempt, LINE))


def test_a_checkpoint_is_one_version_of_the_table(tmp_path):
    sink = made(tmp_path)
    first, second = writer(sink), sink.open(SinkContext("job", "out", 1, 2, 1, lineage=LINE))
    first.write([{"number": 1, "text": "a"}])
    second.write([{"number": 2, "text": "b"}])
    committer(sink).commit(LINE, 4, [*first.prepare(4), *second.prepare(4)])
    table = DeltaTable(str(tmp_path))
    assert table.version() == 1
    assert table.transaction_version(f"moorline/job/out/{LINE}") == 4
    assert table.history(1)[0]["moorline.checkpoint"] == "4"


def test_the_log_says_what_readers_may_leave_out(tmp_path):
    sink = made(tmp_path)
    open_writer = writer(sink)
    open_writer.write([{"number": n, "text": None if n % 2 else "x" * n} for n in range(1, 60)])
    committer(sink).commit(LINE, 1, open_writer.prepare(1))
    (added,) = pa.table(DeltaTable(str(tmp_path)).get_add_actions(flatten=True)).to_pylist()
    assert added["num_records"] == 59
    assert (added["min.number"], added["max.number"]) == (1, 59)
    assert added["null_count.text"] == 30
    assert added.get("max.text") is None, "a text that would have to be cut"


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (pa.string(), ["a b/c=d", "ü%", ""]),
        (pa.int32(), [1, -7, None]),
        (pa.bool_(), [True, False, None]),
        (pa.date32(), [date(2026, 1, 2), None]),
        (pa.timestamp("us", "UTC"), [datetime.fromisoformat("2026-01-02T03:04:05.678901+00:00"), None]),
    ],
)
def test_partitions_by_values_of_every_sort(tmp_path, type, values):
    schema = pa.schema([("n", pa.int64()), ("part", type)])
    sink = made(tmp_path, schema=schema, partition_by=["part"])
    open_writer = writer(sink)
    open_writer.write([{"n": n, "part": value} for n, value in enumerate(values)])
    committer(sink).commit(LINE, 1, open_writer.prepare(1))
    found = DeltaTable(str(tmp_path)).to_pyarrow_table().sort_by("n").to_pylist()
    # An empty text is no value for Delta, whoever writes it.
    assert [row["part"] for row in found] == [None if value == "" else value for value in values]
    sink.roll_back("job", "out", 0)
    assert DeltaTable(str(tmp_path)).to_pyarrow_table().num_rows == 0


def test_a_table_that_is_not_there_needs_a_schema(tmp_path):
    with pytest.raises(InvalidArgument, match="There is no table"):
        mo.write_delta(tmp_path / "none").check()


def test_a_table_that_is_there_gives_the_schema(tmp_path):
    made(tmp_path)
    sink = mo.write_delta(tmp_path)
    sink.check()
    open_writer = writer(sink)
    open_writer.write([{"number": 1}])
    committer(sink).commit(LINE, 1, open_writer.prepare(1))
    assert rows(tmp_path) == [{"number": 1, "text": None}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema": pa.schema([("number", pa.string())])}, "column 'number' is int64"),
        ({"schema": pa.schema([("other", pa.string())])}, "has the columns"),
        ({"partition_by": ["text"]}, "is partitioned by nothing"),
    ],
)
def test_a_table_that_is_another_is_refused_before_the_start(tmp_path, options, message):
    made(tmp_path)
    with pytest.raises(InvalidArgument, match=message):
        made(tmp_path, **options)


def test_a_record_that_does_not_fit_is_named(tmp_path):
    open_writer = writer(made(tmp_path))
    open_writer.write([{"number": "seven", "text": "x"}])
    with pytest.raises(UnfitRecord, match="seven"):
        open_writer.prepare(1)


def test_names_from_a_snapshot_do_not_reach_out_of_the_table(tmp_path):
    sink = made(tmp_path)
    open_writer = writer(sink)
    open_writer.write([{"number": 1, "text": "x"}])
    (staged,) = open_writer.prepare(1)
    for path in ("../elsewhere.parquet", f"../{staged['path']}", f"/{staged['path']}", "part-1.parquet"):
        with pytest.raises(StorageError, match="not a file that was staged here"):
            committer(sink).commit(LINE, 1, [{**staged, "path": path}])
    with pytest.raises(StorageError, match="not staged for checkpoint 2"):
        committer(sink).commit(LINE, 2, [staged])
    assert rows(tmp_path) == []


def test_cleaning_up_leaves_files_that_older_versions_of_the_table_name(tmp_path):
    sink = made(tmp_path)
    open_writer = writer(sink)
    open_writer.write([{"number": 1, "text": "x"}])
    committer(sink).commit(LINE, 1, open_writer.prepare(1))
    DeltaTable(str(tmp_path)).delete()
    open_writer.write([{"number": 2, "text": "never committed"}])
    open_writer.prepare(2)
    sink.clean_up("job", "out")
    assert DeltaTable(str(tmp_path), version=1).to_pyarrow_table().num_rows == 1
    assert len(list(tmp_path.glob("part-*.parquet"))) == 1


def test_passwords_are_not_shown(tmp_path):
    sink = mo.write_delta("s3://bucket/table", schema=SCHEMA, storage_options={"aws_secret_access_key": "hush"})
    assert "hush" not in repr(sink) + repr(sink.location)


def test_the_log_lets_one_of_two_that_move_the_same_mark(tmp_path):
    """What the sink rests on."""
    sink = made(tmp_path)
    one, other = DeltaTable(str(tmp_path)), DeltaTable(str(tmp_path))
    for number, table in enumerate((one, other)):
        properties = CommitProperties(app_transactions=[Transaction("app", 7)])
        if number == 0:
            table.create_write_transaction([], "append", table.schema(), commit_properties=properties)
        else:
            with pytest.raises(CommitFailedError):
                table.create_write_transaction([], "append", table.schema(), commit_properties=properties)
    assert sink.commits_on_driver
