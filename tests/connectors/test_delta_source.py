"""A Delta table as a source: all of it, then what further versions add, each row once."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import moorline as mo
from moorline.api.sinks import CommitterContext, SinkContext
from moorline.api.sources import SourceContext
from moorline.connectors.delta.log import files_of
from moorline.errors import InvalidArgument, StorageError
from moorline.model.columns import ColumnBatch
from moorline.testing import OperatorHarness
from moorline.testing.contracts.source import SourceContract


def rows(first: int, end: int) -> list[dict[str, Any]]:
    return [{"number": n, "text": f"row {n}"} for n in range(first, end)]


def append(folder: Path, first: int, end: int, **options: Any) -> None:
    write_deltalake(folder, pa.Table.from_pylist(rows(first, end)), mode="append", **options)


class TestAll(SourceContract):
    @pytest.fixture
    def source(self, tmp_path):
        for first in range(0, 120, 20):
            append(tmp_path, first, first + 20)
        return mo.read_delta(tmp_path)

    @pytest.fixture
    def expected(self):
        return rows(0, 120)


class TestFollowed(SourceContract):
    @pytest.fixture
    def source(self, tmp_path):
        for first in range(0, 120, 20):
            append(tmp_path, first, first + 20)
        return mo.read_delta(tmp_path, follow=True)

    @pytest.fixture
    def expected(self):
        return rows(0, 120)


class TestPartitioned(SourceContract):
    @pytest.fixture
    def source(self, tmp_path):
        schema = pa.schema([("n", pa.int32()), ("day", pa.date32()), ("s", pa.string())])
        table = pa.Table.from_pylist(self.rows(), schema)
        write_deltalake(tmp_path, table, partition_by=["day", "s"])
        return mo.read_delta(tmp_path)

    @pytest.fixture
    def expected(self):
        return self.rows()

    def rows(self):
        texts = ["a b", "ü/=%", None, "x"]
        return [{"n": n, "day": date(2026, 1, 1 + n % 3) if n % 5 else None, "s": texts[n % 4]} for n in range(60)]


def reading(source: mo.Source, snapshot: Any = None, parallelism: int = 1) -> OperatorHarness:
    return OperatorHarness.of(
        lambda job: job.source(source, uid="table"), inputs=0, parallelism=parallelism, snapshot=snapshot
    )


def numbers(records: list[dict[str, Any]]) -> list[int]:
    return sorted(record["number"] for record in records)


def test_what_versions_add_is_read_when_they_are_there(tmp_path):
    append(tmp_path, 0, 5)
    with reading(mo.read_delta(tmp_path, follow=True, interval="1s")) as source:
        assert numbers(source.read(5)) == [0, 1, 2, 3, 4]
        append(tmp_path, 5, 7)
        append(tmp_path, 7, 8)
        assert source.read(0) == []
        source.advance_clock(1_000)
        assert numbers(source.read(3)) == [5, 6, 7]


def test_it_goes_on_from_a_snapshot_in_the_middle_of_a_file(tmp_path):
    append(tmp_path, 0, 20_000)
    source = mo.read_delta(tmp_path, follow=True)
    with reading(source) as harness:
        found = numbers(harness.read(9_000))
        snapshot = harness.snapshot()
    assert 9_000 <= len(found) < 20_000
    append(tmp_path, 20_000, 20_010)
    with reading(source, snapshot, parallelism=3) as again:
        found += numbers(again.read(20_010 - len(found)))
    assert found == list(range(20_010))


def test_rows_are_columns_also_those_of_partitions_and_of_later_columns(tmp_path):
    write_deltalake(tmp_path, pa.table({"n": pa.array([1, 2], pa.int32()), "day": ["a", "a"]}), partition_by=["day"])
    more = pa.table({"n": pa.array([3], pa.int32()), "day": pa.array([None], pa.string()), "late": [0.5]})
    write_deltalake(tmp_path, more, mode="append", schema_mode="merge")
    schema = pa.schema([("n", pa.int32()), ("day", pa.string()), ("late", pa.float64())])
    source = mo.read_delta(tmp_path)
    reader = source.open(SourceContext(uid="table", subtask=0, parallelism=1, attempt=1))
    reader.add_splits({file.path: [0, file.partition] for file in files_of(DeltaTable(tmp_path))})
    batches = [rows for rows in (reader.read(1) for _ in range(5)) if rows]
    assert [(type(rows), rows.batch.schema) for rows in batches] == [(ColumnBatch, schema)] * 3
    found = sorted((row for rows in batches for row in rows), key=lambda row: row["n"])
    assert [tuple(row.values()) for row in found] == [(1, "a", None), (2, "a", None), (3, None, 0.5)]
    with reading(mo.read_delta(tmp_path, columns=["late", "n"])) as harness:
        assert {tuple(row) for row in harness.read(3)} == {("late", "n")}


def test_from_the_latest_on(tmp_path):
    append(tmp_path, 0, 5)
    with reading(mo.read_delta(tmp_path, follow=True, start="latest", interval="1s")) as source:
        assert source.read(0) == []
        append(tmp_path, 5, 7)
        source.advance_clock(1_000)
        assert numbers(source.read(2)) == [5, 6]


def test_a_rewrite_that_changes_no_data_is_passed_over(tmp_path):
    for first in range(0, 10, 2):
        append(tmp_path, first, first + 2)
    with reading(mo.read_delta(tmp_path, follow=True, interval="1s")) as source:
        source.read(10)
        assert DeltaTable(tmp_path).optimize.compact()["numFilesRemoved"] == 5
        append(tmp_path, 10, 11)
        source.advance_clock(1_000)
        assert numbers(source.read(1)) == [10]
        assert source.read(0) == []


def test_a_version_that_takes_rows_away_ends_it_unless_asked_otherwise(tmp_path):
    append(tmp_path, 0, 4)
    with (
        reading(mo.read_delta(tmp_path, follow=True, interval="1s")) as strict,
        reading(mo.read_delta(tmp_path, follow=True, interval="1s", on_removal="ignore")) as lenient,
    ):
        strict.read(4)
        lenient.read(4)
        DeltaTable(tmp_path).delete("number = 1")
        append(tmp_path, 4, 5)
        strict.advance_clock(1_000)
        with pytest.raises(StorageError, match="version 1 takes rows of 1 files away") as caught:
            strict.read(1)
        assert caught.value.can_pass is False
        lenient.advance_clock(1_000)
        assert numbers(lenient.read(4)) == [0, 2, 3, 4], "the file that the delete has rewritten comes once more"


def test_versions_that_are_gone_from_the_log_are_told(tmp_path):
    append(tmp_path, 0, 4)
    with reading(mo.read_delta(tmp_path, follow=True, interval="1s")) as source:
        source.read(4)
        append(tmp_path, 4, 5)
        append(tmp_path, 5, 6)
        # As Delta's own cleaning does it: what is older than a checkpoint of the log may go.
        DeltaTable(tmp_path).create_checkpoint()
        for number in (0, 1):
            (tmp_path / "_delta_log" / f"{number:020}.json").unlink()
        source.advance_clock(1_000)
        with pytest.raises(StorageError, match="version 1 is not in its log any more"):
            source.read(1)


def test_a_file_that_was_vacuumed_is_told(tmp_path):
    append(tmp_path, 0, 4)
    source = mo.read_delta(tmp_path, follow=True)
    with reading(source) as harness:
        harness.read(0)
        snapshot = harness.snapshot()
    for file in tmp_path.glob("*.parquet"):
        file.unlink()
    with reading(source, snapshot) as again, pytest.raises(Exception, match="is gone: it was vacuumed"):
        again.read(5)


def test_columns_that_came_later_are_null_in_old_files_and_others_can_be_left_out(tmp_path):
    append(tmp_path, 0, 1)
    wider = pa.table({"number": [1], "text": ["x"], "more": [2.5]})
    write_deltalake(tmp_path, wider, mode="append", schema_mode="merge")
    with reading(mo.read_delta(tmp_path, columns=["more", "number"])) as source:
        found = sorted(source.read(2), key=lambda row: row["number"])
    assert found == [{"more": None, "number": 0}, {"more": 2.5, "number": 1}]


def test_mistakes_are_refused_before_the_start(tmp_path):
    with pytest.raises(StorageError, match="open the table"):
        mo.read_delta(tmp_path / "none").check()
    append(tmp_path, 0, 1)
    with pytest.raises(InvalidArgument, match="has the columns number, text"):
        mo.read_delta(tmp_path, columns=["nummer"]).check()
    with pytest.raises(InvalidArgument, match="follow=True"):
        mo.read_delta(tmp_path, start="latest")
    with pytest.raises(InvalidArgument, match="list of names"):
        mo.read_delta(tmp_path, columns="number")
    for patience in (-1, "60", float("nan"), True):
        with pytest.raises(InvalidArgument, match="patience"):
            mo.read_delta(tmp_path, patience=patience)


def test_what_a_sink_of_ours_commits_is_read_once(tmp_path):
    sink = mo.write_delta(tmp_path, schema=pa.schema([("number", pa.int64()), ("text", pa.string())]))
    sink.check()
    writer = sink.open(SinkContext("job", "out", 0, 1, 1, lineage="ab" * 16))
    committer = sink.open_committer(CommitterContext("job", "out", 1, "ab" * 16))
    with reading(mo.read_delta(tmp_path, follow=True, interval="1s")) as source:
        assert source.read(0) == []
        for checkpoint in (1, 2):
            writer.write(rows(10 * checkpoint, 10 * checkpoint + 3))
            staged = writer.prepare(checkpoint)
            for _ in range(2):
                committer.commit("ab" * 16, checkpoint, staged)
            source.advance_clock(1_000)
            assert numbers(source.read(3)) == [10 * checkpoint, 10 * checkpoint + 1, 10 * checkpoint + 2]
        sink.roll_back("job", "out", 1)
        source.advance_clock(1_000)
        with pytest.raises(StorageError, match="takes rows"):
            source.read(1)
