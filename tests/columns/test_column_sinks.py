"""Sinks that take batches of columns: what they write is what they write for the same rows."""

from __future__ import annotations

import gzip
from datetime import UTC, date, datetime
from decimal import Decimal

import deltalake
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import moorline as mo
from moorline.api.sinks import CommitterContext, SinkContext
from moorline.connectors.formats.choosing import format_for_writing
from moorline.connectors.kafka.writing.messages import MessageMaker
from moorline.connectors.row_tables import RowTables, UnfitRecord
from moorline.model.columns import ColumnBatch, values_of

BATCH = pa.RecordBatch.from_pydict(
    {
        "user": ["ada", 'b"ö\n', None],
        "cents": [5, None, -(2**63)],
        "ratio": [0.1, 1.0, float("nan")],
        "at": pa.array(
            [datetime(2026, 1, 2, tzinfo=UTC), None, datetime(1, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")
        ),
        "day": [date(2026, 1, 2)] * 3,
        "price": [Decimal("1.50"), None, Decimal("-2.00")],
        "data": [b"\x00", b"", None],
        "tags": [["a"], [], None],
    }
)
CONTEXT = SinkContext(job="job", uid="out", subtask=0, parallelism=1, attempt=1, lineage="ab12")


def written(sink, folder, records):
    writer = sink.open(CONTEXT)
    for batch in records:
        writer.write(batch)
    sink.commit(writer.prepare(1))
    writer.close()
    unpack = gzip.decompress if "gzip" in repr(sink.contents) else bytes
    return b"".join(sorted(unpack(path.read_bytes()) for path in folder.rglob("part-*")))


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_lines_of_json_are_those_of_rows(tmp_path, compression):
    batch = ColumnBatch(BATCH)
    sinks = [mo.write_files(tmp_path / name, format="jsonl", compression=compression) for name in "ab"]
    in_columns = written(sinks[0], tmp_path / "a", [batch, batch])
    assert batch._rows is None, "rows were made"
    assert in_columns == written(sinks[1], tmp_path / "b", [BATCH.to_pylist(), BATCH.to_pylist()])


def test_a_value_that_json_does_not_have_is_shown_with_its_row(tmp_path):
    batch = pa.RecordBatch.from_arrays([pa.array([[(1, 2)]], pa.map_(pa.int64(), pa.int64()))], names=["m"])
    assert written(mo.write_files(tmp_path, format="jsonl"), tmp_path, [ColumnBatch(batch)]) == b'{"m":[[1,2]]}\n'


moments = st.datetimes(timezones=st.just(UTC)) | st.none()


@given(
    st.lists(moments, max_size=4), st.sampled_from(["s", "ms", "us"]), st.sampled_from([None, "UTC", "Europe/Vienna"])
)
def test_moments_become_those_of_python(moments, unit, zone):
    column = pa.array(moments, pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, zone), safe=False)
    try:
        expected = column.to_pylist()
    except (OverflowError, ValueError):
        return
    assert list(map(repr, values_of(column))) == list(map(repr, expected))


@pytest.mark.parametrize("key", [None, "user", "cents"])
@pytest.mark.parametrize("by_function", [False, True])
def test_messages_of_kafka_are_those_of_rows(key, by_function):
    key_format = None if key != "cents" else format_for_writing("json")
    chosen = (lambda row: row[key]) if by_function and key else key
    maker = MessageMaker("orders", format_for_writing("json"), key=chosen, key_format=key_format)
    batch = ColumnBatch(BATCH)
    [(topic, messages, size)] = maker.make(batch)
    assert (batch._rows is None) is (not callable(chosen))
    assert [(topic, messages, size)] == maker.make(BATCH.to_pylist())
    assert [message["value"] for message in messages] == list(map(msgspec.json.encode, BATCH.to_pylist()))


def test_a_key_that_is_no_column_is_refused():
    maker = MessageMaker("orders", format_for_writing("json"), key="customer")
    for records in (ColumnBatch(BATCH), BATCH.to_pylist(), [1]):
        with pytest.raises(UnfitRecord, match="its key is 'customer'"):
            maker.make(records)
    with pytest.raises(UnfitRecord, match="key_format"):
        MessageMaker("orders", format_for_writing("json"), key="cents").make(ColumnBatch(BATCH))


@pytest.mark.parametrize("partition_by", [None, ["user"]])
def test_a_table_of_delta_has_the_rows_in_their_order(tmp_path, partition_by):
    table = BATCH.select(["user", "cents", "at", "price"])
    sink = mo.write_delta(str(tmp_path / "t"), schema=table.schema, partition_by=partition_by)
    sink.check()
    writer = sink.open(CONTEXT)
    batch = ColumnBatch(table)
    for records in (batch, table.to_pylist(), batch):
        writer.write(records)
    staged = writer.prepare(1)
    assert batch._rows is None, "rows were made"
    sink.open_committer(CommitterContext("job", "out", 1, CONTEXT.lineage)).commit(CONTEXT.lineage, 1, staged)
    found = deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist() if partition_by is None else None
    files = list((tmp_path / "t").rglob("part-*.parquet"))
    assert sum(pq.ParquetFile(path).metadata.num_rows for path in files) == 9
    if found is not None:
        assert found == table.to_pylist() * 3


@pytest.mark.parametrize(
    "has, wants",
    [
        (pa.array(["5"]), pa.int64()),
        (pa.array([5]), pa.string()),
        (pa.array([1.5]), pa.int64()),
        (pa.array([True]), pa.string()),
        (pa.array([datetime(2026, 1, 1, 12)]), pa.date32()),
        (pa.array([2**40]), pa.int32()),
    ],
)
def test_a_column_of_another_kind_is_refused_as_its_values_are(has, wants):
    batch = pa.RecordBatch.from_arrays([has], names=["c"])
    for records in (batch, None):
        tables = RowTables("t", pa.schema([("c", wants)]), "write_files")
        with pytest.raises(UnfitRecord):
            tables.table(batch.to_pylist()) if records is None else tables.columns(records)
