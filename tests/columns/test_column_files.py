"""Parquet as columns: read without making rows, and written as they come."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import moorline as mo
from moorline.api.sinks import SinkContext
from moorline.api.sources import SourceContext
from moorline.connectors.row_tables import UnfitRecord
from moorline.model.columns import ColumnBatch

TABLE = pa.table({"user": ["ada", "bob", None], "cents": [5, 7, 9]})


def reader_of(path):
    return mo.read_files(str(path)).open(SourceContext(uid="files", subtask=0, parallelism=1, attempt=1))


def test_a_parquet_file_is_read_as_columns_that_are_rows_too(tmp_path):
    pq.write_table(TABLE, tmp_path / "a.parquet")
    read = reader_of(tmp_path).read(2)
    assert isinstance(read, ColumnBatch)
    assert read.batch.schema.names == ["user", "cents"]
    assert read == [{"user": "ada", "cents": 5}, {"user": "bob", "cents": 7}]


def test_a_text_that_is_none_is_found_when_it_is_read(tmp_path):
    broken = pa.StringArray.from_buffers(1, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe"))
    pq.write_table(pa.table({"user": broken}), tmp_path / "a.parquet")
    with pytest.raises(mo.MoorlineError, match="cannot be read"):
        reader_of(tmp_path).read(2)


def written(tmp_path, batches, **options):
    sink = mo.write_files(str(tmp_path), format="parquet", **options)
    context = SinkContext(job="job", uid="out", subtask=0, parallelism=1, attempt=1)
    writer = sink.open(context)
    for batch in batches:
        writer.write(batch)
    sink.commit(writer.prepare(1))
    writer.close()
    return pa.concat_tables(pq.read_table(path) for path in tmp_path.glob("part-*.parquet"))


def test_columns_are_written_as_they_come(tmp_path):
    batch = ColumnBatch(TABLE.to_batches()[0])
    assert written(tmp_path, [batch, batch]).equals(pa.concat_tables([TABLE, TABLE]))
    assert batch._rows is None, "rows were made"


def test_columns_and_rows_may_follow_each_other(tmp_path):
    batch, rows = ColumnBatch(TABLE.to_batches()[0]), TABLE.to_pylist()
    assert written(tmp_path, [rows, batch, rows]).to_pylist() == rows * 3


def test_columns_fit_a_schema_or_are_refused(tmp_path):
    schema = pa.schema([("user", pa.string()), ("cents", pa.float64()), ("page", pa.string())])
    table = written(tmp_path / "a", [ColumnBatch(TABLE.to_batches()[0])], schema=schema)
    assert table.schema.equals(schema)
    assert table["page"].null_count == 3
    narrow = pa.schema([("user", pa.string())])
    with pytest.raises(UnfitRecord, match="no column 'cents'"):
        written(tmp_path / "b", [ColumnBatch(TABLE.to_batches()[0])], schema=narrow)


def test_a_sink_that_does_not_say_that_it_takes_columns_gets_a_list(tmp_path):
    assert mo.Sink.takes_columns is False
    assert mo.collect("out").takes_columns is False
