"""read_files with a schema: blocks of lines as columns, with the results and positions of reading record by record."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import moorline as mo
from moorline.api.columns.streams import ColumnStream
from moorline.api.sinks import SinkContext
from moorline.api.sources import SourceContext
from moorline.api.streams import Stream
from moorline.connectors.columns.csv import CsvColumns
from moorline.errors import InvalidArgument, UnreadableRecord
from moorline.model.columns import ColumnBatch

BROKEN = mo.OutputTag("broken")
DDL = "user string, cents bigint, ratio double, paid boolean"
SCHEMA = pa.schema([("user", pa.string()), ("cents", pa.int64()), ("ratio", pa.float64()), ("paid", pa.bool_())])


def reader_of(path, schema=DDL, positions=None, **options):
    source = mo.read_files(str(path), schema=schema, **options)
    return source.open(SourceContext("files", 0, 1, 1, positions=positions or {}))


def drained(reader, limit=2048):
    rows, beside, read = [], [], []
    while read is not None:
        read = reader.read(limit)
        assert not read or isinstance(read, ColumnBatch)
        rows += read or []
        beside += (reader.side_outputs or {}).get("broken", [])
    return rows, [(one.position, one.content) for one in beside]


def write(sink, rows):
    writer = sink.open(SinkContext(job="job", uid="out", subtask=0, parallelism=1, attempt=1))
    writer.write(rows)
    sink.commit(writer.prepare(1))
    writer.close()


# --- JSON ---------------------------------------------------------------------------------------------


def objects(count):
    return [{"user": f"u{n}", "cents": n, "ratio": n / 3, "paid": n % 2 == 0} for n in range(count)]


def as_lines(rows, end="\n"):
    return "".join(json.dumps(row, ensure_ascii=False) + end for row in rows).encode()


@pytest.mark.parametrize("end", ["\n", "\r\n", " \n\n"])
@pytest.mark.parametrize(
    "pack, name", [(bytes, "a.jsonl"), (gzip.compress, "a.jsonl.gz"), (bz2.compress, "a.json.bz2")]
)
def test_lines_of_json_are_read_by_the_block(tmp_path, end, pack, name):
    rows = [*objects(3000), {"user": "é\n", "more": [1]}]
    (tmp_path / name).write_bytes(pack(as_lines(rows, end).rstrip()))
    read, broken = drained(reader_of(tmp_path))
    assert read == [{name: row.get(name) for name in SCHEMA.names} for row in rows]
    assert not broken


def test_a_stream_with_the_schema_begins_at_the_source(tmp_path):
    rows = mo.Job("totals").source(mo.read_files(tmp_path, schema=DDL), uid="in")
    assert isinstance(rows, ColumnStream)
    assert rows.schema.equals(SCHEMA)
    assert type(mo.Job("totals").source(mo.read_files(tmp_path), uid="in")) is Stream


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("name, broken", [("a.jsonl", b'{"cents":"x"}\n'), ("a.csv", b"a,b\n")])
def test_it_goes_on_exactly_after_any_read(tmp_path, compress, name, broken):
    header = b"" if name == "a.jsonl" else b"user,cents,ratio,paid\n"
    lines = as_lines(objects(700)) if name == "a.jsonl" else b"".join(b"u%d,%d,0.5,true\n" % (n, n) for n in range(700))
    data = header + lines[: len(lines) // 2] + b"\n" + broken + b"\n" + lines[len(lines) // 2 :]
    path = tmp_path / (name + ".gz" * compress)
    path.write_bytes(gzip.compress(data) if compress else data)
    options = {"on_error": "skip"}
    whole, _ = drained(reader_of(tmp_path, **options))
    assert len(whole) in (699, 700), "a line that was cut in two is broken as well"
    for limit in (1, 3, 7):
        rows, positions = [], {}
        for _ in range(60):
            reader = reader_of(tmp_path, positions=positions, **options)
            read = reader.read(limit)
            rows += read or []
            positions = reader.positions()
            reader.close()
            if read is None:
                break
        assert rows == whole[: len(rows)]
        rest, _ = drained(reader_of(tmp_path, positions=positions, **options))
        assert rows + rest == whole


def test_a_file_begun_by_records_is_read_on_in_columns(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(as_lines(objects(100)))
    records = mo.read_files(tmp_path).open(SourceContext("files", 0, 1, 1))
    assert len(records.read(33)) == 33
    rest, _ = drained(reader_of(tmp_path, positions=records.positions()))
    assert rest == objects(100)[33:]


def test_lines_that_do_not_fit_are_broken_one_by_one(tmp_path):
    lines = [json.dumps(row).encode() for row in objects(400)]
    wrong = {
        7: b"{",
        20: b'{"cents":1.5}',
        21: b'{"user":"a"}{"user":"b"}',
        90: b"[]",
        300: b'{"user":"\xff"}',
        301: b'{"cents":9223372036854775808}',
        302: b'{"ratio":NaN}',
        399: b'{"paid":1}',
    }
    for place, line in wrong.items():
        lines[place] = line
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    rows, broken = drained(reader_of(tmp_path, on_error=BROKEN))
    assert rows == [row for row in objects(400) if row["cents"] not in wrong]
    starts = [sum(len(line) + 1 for line in lines[:place]) for place in wrong]
    assert [position for position, _ in broken] == starts
    with pytest.raises(UnreadableRecord, match="the line at byte"):
        drained(reader_of(tmp_path))


def test_a_value_that_must_be_there_is_missing(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(as_lines([{"user": "ada", "cents": 1}] * 300 + [{"user": "bob"}]))
    schema = "user string, cents bigint not null"
    rows, broken = drained(reader_of(tmp_path, schema, on_error=BROKEN))
    assert len(rows) == 300
    assert [content for _, content in broken] == [b'{"user": "bob"}\n']


TYPED = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("ms")),
        ("day", pa.date32()),
        ("price", pa.decimal128(8, 2)),
        ("small", pa.int8()),
        ("single", pa.float32()),
    ]
)
TYPED_ROW = {
    "at": datetime(2026, 1, 2, 3, 4, 5, 600, UTC),
    "local": datetime(2026, 1, 2, 3, 4),
    "day": date(2026, 1, 2),
    "price": Decimal("12.50"),
    "small": -5,
    "single": 0.25,
}
TYPED_TEXTS = {
    "at": "2026-01-02T04:04:05.000600+01:00",
    "local": "2026-01-02 03:04:00",
    "day": "2026-01-02",
    "price": "12.5",
    "small": -5,
    "single": 0.25,
}


@pytest.mark.parametrize("count", [1, 1000])
def test_moments_dates_and_decimals_come_from_texts(tmp_path, count):
    (tmp_path / "a.jsonl").write_bytes(as_lines([TYPED_TEXTS] * count))
    text = io.StringIO()
    writer = csv.DictWriter(text, list(TYPED_TEXTS))
    writer.writeheader()
    writer.writerows([TYPED_TEXTS] * count)
    (tmp_path / "b.csv").write_text(text.getvalue())
    rows, _ = drained(reader_of(tmp_path, TYPED))
    assert rows == [TYPED_ROW] * (2 * count)


def test_what_sinks_write_is_read_back_by_a_schema(tmp_path):
    row = {**TYPED_ROW, "data": b"\x00\xff", "tags": ["a", "b"], "where": {"x": 1, "y": None}}
    schema = pa.schema(
        [
            *TYPED,
            ("data", pa.binary()),
            ("tags", pa.list_(pa.string())),
            ("where", pa.struct([("x", pa.int64()), ("y", pa.int64())])),
        ]
    )
    write(mo.write_files(tmp_path, format="jsonl"), [row] * 300)
    rows, _ = drained(reader_of(tmp_path, schema))
    assert rows == [row] * 300


texts = st.text(st.characters(codec="utf-8"), max_size=4)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | texts
    | st.sampled_from(["2026-01-01", "2026-01-01T00:00:00Z", "12.5", "x}", "{"])
)
values = scalars | st.lists(scalars, max_size=2) | st.dictionaries(texts, scalars, max_size=2)
names = st.sampled_from(["user", "cents", "ratio", "paid", "other", "price", "at", "small", "single"])
pieces = st.sampled_from(["{", "}", "\n", "{}", '{"user":', '"}', " ", "\r\n", "NaN", '{"cents":1}', ",", "\\", "\0"])
json_lines = st.lists(st.dictionaries(names, values, max_size=4).map(json.dumps) | pieces, max_size=6)
ANY = pa.schema([*SCHEMA, TYPED.field("price"), TYPED.field("at"), TYPED.field("small"), TYPED.field("single")])


@settings(max_examples=200)
@given(json_lines, st.integers(1, 4))
def test_files_of_json_are_read_as_records_are(lines, limit):
    """The same lines as dicts, each brought into the schema by plain Python."""
    data = "\n".join(lines).encode()
    rows, broken = _in_memory("a.jsonl", data, ANY, limit)
    records, broken_records = _records_of("a.jsonl", data)
    expected = []
    for record in records:
        if not isinstance(record, dict):
            broken_records += 1
        elif (row := fitting(record)) is not None:
            expected.append(repr(row))
        else:
            broken_records += 1
    assert [repr(row) for row in rows] == expected
    assert len(broken) == broken_records


def fitting(record):
    """The record in the columns of ANY, or None."""
    row = {}
    for field in ANY:
        value = row[field.name] = record.get(field.name)
        if value is None:
            continue
        kind = {"user": str, "at": str, "cents": int, "small": int, "paid": bool}.get(field.name)
        if kind is not None and type(value) is not kind:
            return None
        if kind is None and type(value) not in (int, float, *([str] if field.name == "price" else [])):
            return None
        try:
            if field.name == "at":
                row["at"] = pa.array([value]).cast(field.type)[0].as_py()
            elif field.name == "price":
                row["price"] = pa.scalar(Decimal(repr(value) if type(value) is float else value), field.type).as_py()
            elif field.name == "single":
                row["single"] = float(np.float32(value))
            elif field.name == "ratio":
                row["ratio"] = float(value)
            else:
                pa.scalar(value, field.type)
        except (pa.ArrowException, OverflowError, ArithmeticError, ValueError):
            return None
    return row


def _in_memory(name: str, data: bytes, schema: Any, limit: int) -> tuple[list[Any], list[Any]]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(data)
        return drained(reader_of(folder, schema, on_error=BROKEN), limit)


# --- CSV ----------------------------------------------------------------------------------------------


def test_columns_of_csv_are_chosen_by_the_header(tmp_path):
    (tmp_path / "a.csv").write_text('\ufeffcents,name,user\n5,x,"Ada, ""A"""\n,y,\n 7 ,z,"two\nlines"\n\n1,a,b\n')
    rows, _ = drained(reader_of(tmp_path, "user string, cents bigint"))
    assert rows == [
        {"user": 'Ada, "A"', "cents": 5},
        {"user": "", "cents": None},
        {"user": "two\nlines", "cents": 7},
        {"user": "b", "cents": 1},
    ]


def test_a_header_without_a_column_is_refused_or_its_file_is_passed_over(tmp_path):
    (tmp_path / "a.csv").write_text("name,cents\na,1\n")
    with pytest.raises(UnreadableRecord, match="no column 'user'"):
        drained(reader_of(tmp_path, "user string, cents bigint"))
    assert drained(reader_of(tmp_path, "user string, cents bigint", on_error="skip")) == ([], [])


def test_rows_that_do_not_fit_are_broken_one_by_one(tmp_path):
    data = b"user,cents\na,1\nb,x\nc\n\xff,3\nd,4\n"
    (tmp_path / "a.csv").write_bytes(data)
    rows, broken = drained(reader_of(tmp_path, "user string, cents bigint", on_error=BROKEN))
    assert [row["user"] for row in rows] == ["a", "d"]
    assert broken == [(15, b"b,x\n"), (19, b"c\n"), (21, b"\xff,3\n")]


CSV_SCHEMA = pa.schema([("s", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("b", pa.bool_())])
csv_pieces = st.sampled_from(
    ["a", "7", " 8", "-1.5", "true", "1", '"', '""', ",", "\n", "\r\n", "\r", "é", "nan", "0x1F", "\0", '"a"', "", " "]
)
good_rows = st.tuples(texts, st.integers(-5, 5), st.floats(allow_nan=False), st.booleans())


@settings(max_examples=150)
@given(st.lists(csv_pieces, max_size=24).map("".join) | st.lists(good_rows, max_size=5), st.integers(1, 3))
def test_files_of_csv_are_read_as_records_are(body, limit):
    if isinstance(body, list):
        text = io.StringIO(newline="")
        quoting = csv.QUOTE_ALL if any("\r" in row[0] for row in body) else csv.QUOTE_MINIMAL
        csv.writer(text, lineterminator="\n", quoting=quoting).writerows(body)
        body = text.getvalue()
    data = f"s,n,x,b\n{body}".encode()
    rows, broken = _in_memory("a.csv", data, CSV_SCHEMA, limit)
    records, broken_records = _records_of("a.csv", data)
    columns = CsvColumns(CSV_SCHEMA, CSV_SCHEMA.names)
    expected = []
    for record in records:
        try:
            expected += map(repr, columns.rows([list(record.values())]).to_pylist())  # so nan equals nan
        except ValueError:
            broken_records += 1
    assert [repr(row) for row in rows] == expected
    assert len(broken) == broken_records


def _records_of(name: str, data: bytes) -> tuple[list[Any], int]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(data)
        reader = mo.read_files(folder, on_error="skip").open(context := SourceContext("files", 0, 1, 1))
        rows = []
        while (read := reader.read(1000)) is not None:
            rows += read
        return rows, context.counters.get("broken_records", 0)


# --- other formats, and folders -----------------------------------------------------------------------


def test_parquet_orc_and_avro_are_chosen_from_by_name(tmp_path):
    table = pa.table({"more": ["x"] * 20, "cents": pa.array(range(20), pa.int32()), "user": ["ada"] * 20})
    pq.write_table(table, tmp_path / "a.parquet")
    pyarrow.orc.write_table(table, tmp_path / "b.orc")
    write(mo.write_files(tmp_path, format="avro", schema=table.schema), table.to_pylist())
    rows, _ = drained(reader_of(tmp_path, "user string, cents bigint"), 7)
    assert rows == [{"user": "ada", "cents": n} for n in range(20)] * 3
    for schema, wrong in [("user string, page string", "no column 'page'"), ("user bigint", "does not fit")]:
        for pattern in ("*.parquet", "*.orc", "*.avro"):
            with pytest.raises(UnreadableRecord, match=wrong):
                drained(reader_of(tmp_path, schema, pattern=pattern))


def test_folders_say_columns_of_the_schema(tmp_path):
    for day in ("1", "2"):
        (tmp_path / f"day={day}" / "shop=a").mkdir(parents=True)
        (tmp_path / f"day={day}" / "shop=a" / "a.csv").write_text("cents\n5\n6\n")
    rows, _ = drained(reader_of(tmp_path, "day int, cents bigint", partitions=True))
    assert rows == [{"day": day, "cents": cents} for day in (1, 2) for cents in (5, 6)]
    with pytest.raises(UnreadableRecord, match="what its folders say"):
        drained(reader_of(tmp_path, "shop int, cents bigint", partitions=True))
    with pytest.raises(UnreadableRecord, match="its folders say all columns"):
        drained(reader_of(tmp_path, "shop string", partitions=True))
    table = pq.ParquetWriter(tmp_path / "day=1" / "b.parquet", pa.schema([("n", pa.int64())]))
    table.write_table(pa.table({"n": [1]}))
    table.close()
    source = mo.read_files(tmp_path, partitions=pa.schema([("day", pa.int64())]), pattern="*.parquet")
    read = source.open(SourceContext("files", 0, 1, 1)).read(10)
    assert isinstance(read, ColumnBatch)
    assert read == [{"n": 1, "day": 1}]


def test_lines_of_text_and_types_of_folders_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    with pytest.raises(InvalidArgument, match="no columns"):
        mo.read_files(tmp_path, format="text", schema="line string")
    with pytest.raises(InvalidArgument, match="no columns"):
        mo.read_files(tmp_path, schema="line string").check()
    with pytest.raises(InvalidArgument, match="partitions=True"):
        mo.read_files(tmp_path, schema="n int", partitions=pa.schema([("day", pa.string())]))


def test_a_watched_file_grows_by_whole_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"user":"a"}\n{"user":')
    source = mo.read_files(tmp_path, schema="user string", watch="1ms")
    reader = source.open(SourceContext("files", 0, 1, 1))
    assert reader.read(10) == [{"user": "a"}]
    assert not reader.read(10)
    with path.open("ab") as file:
        file.write(b'"b"}\n')
    rows = []
    while not rows:
        rows = list(reader.read(10))
    assert rows == [{"user": "b"}]
