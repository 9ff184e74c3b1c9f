"""Avro and ORC: read once through any restarts, written and read back, watched, and what is damaged in them."""

from __future__ import annotations

import io
import random
import tempfile
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc
import pytest
from files_read import Watched, drain, read_all
from hypothesis import given, settings
from hypothesis import strategies as st
from published_files import open_writer
from test_list_and_generator_sources import open_all, read_with_restarts
from thoroughness import examples

from moorline.api.functions.base import OutputTag
from moorline.api.sources import SourceContext
from moorline.connectors.files.sink import write_files
from moorline.connectors.files.source import read_files
from moorline.connectors.row_tables import UnfitRecord
from moorline.errors import InvalidArgument, RestoreError, SnapshotCorrupt, StorageError

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}, {"name": "t", "type": "string"}]}


def avro(records: list[Any], codec: str = "null", block: int = 40) -> bytes:
    """A file with a few records in each block."""
    buffer = io.BytesIO()
    fastavro.writer(buffer, SCHEMA, records, codec=codec, sync_interval=block)
    return buffer.getvalue()


def orc(rows: list[Any]) -> bytes:
    buffer = io.BytesIO()
    pyarrow.orc.write_table(pa.Table.from_pylist(rows, pa.schema([("n", pa.int64()), ("t", pa.string())])), buffer)
    return buffer.getvalue()


def orc_of_stripes(rows: int) -> bytes:
    """A file with a thousand rows in each stripe."""
    buffer = io.BytesIO()
    writer = pyarrow.orc.ORCWriter(buffer, compression="uncompressed", stripe_size=1, batch_size=1024)
    for first in range(0, rows, 1024):
        writer.write(pa.table({"n": pa.array(range(first, min(first + 1024, rows)), pa.int64())}))
    writer.close()
    assert pyarrow.orc.ORCFile(io.BytesIO(buffer.getvalue())).nstripes >= 3
    return buffer.getvalue()


def rows(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"n": n, "t": "é" * (n % 7)} for n in range(first, first + count)]


# --- reading ------------------------------------------------------------------------------------


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(0, 20), max_size=4), st.integers(1, 200), st.randoms(use_true_random=False))
def test_avro_records_come_once(counts: list[int], block: int, chance: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for n, count in enumerate(counts):
            Path(folder, f"{n}.avro").write_bytes(avro(rows(count, 100 * n), block=block))
        out = read_with_restarts(read_files(folder), chance)
    expected = [row["n"] for n, count in enumerate(counts) for row in rows(count, 100 * n)]
    assert sorted(row["n"] for row in out) == expected


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"])
def test_blocks_may_be_packed(tmp_path: Path, codec: str) -> None:
    (tmp_path / "a.avro").write_bytes(avro(rows(50), codec, 300))
    assert read_all(read_files(tmp_path), 7) == rows(50)


def test_a_codec_that_is_not_there_is_said_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.avro").write_bytes(avro(rows(3)).replace(b"\x08null", b"\x08lzo9"))
    with pytest.raises(StorageError, match=r"packed by 'lzo9', which cannot be unpacked here$") as refused:
        read_all(read_files(tmp_path))
    assert refused.value.can_pass is False
    (tmp_path / "a.avro").write_bytes(avro(rows(3), "snappy"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(StorageError, match=r"packed by 'snappy'.*pip install 'moorline\[avro\]'"):
        read_all(read_files(tmp_path, on_error="skip"))


@pytest.mark.parametrize("seed", range(3))
def test_orc_rows_come_once(tmp_path: Path, seed: int) -> None:
    (tmp_path / "a.orc").write_bytes(orc_of_stripes(8_000))
    (tmp_path / "b.orc").write_bytes(orc(rows(30)))
    (tmp_path / "empty.orc").write_bytes(orc([]))
    chance = random.Random(seed)
    found: list[int] = []
    positions: dict[Any, Any] = {}
    for _ in range(4):
        readers = open_all(read_files(tmp_path), 2, positions)
        for reader in readers:
            for _ in range(chance.randrange(3, 12)):
                found += [row["n"] for row in reader.read(chance.randrange(1, 1_500)) or []]
        positions = {split: p for reader in readers for split, p in reader.positions().items()}
        for reader in readers:
            reader.close()
    for reader in open_all(read_files(tmp_path), 3, positions):
        found += [row["n"] for row in drain(reader, 1_500)]
    assert sorted(found) == sorted([*range(8_000), *range(30)])


def test_times_in_orc_are_those_of_python(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 6)
    table = pa.table({"at": [moment], "in": [[{"at": moment}]], "ns": pa.array([1], pa.timestamp("ns"))})
    pyarrow.orc.write_table(table.select(["at", "in"]), tmp_path / "a.orc")
    [row] = read_all(read_files(tmp_path))
    assert row == {"at": moment, "in": [{"at": moment}]}
    assert type(row["at"]) is datetime
    pyarrow.orc.write_table(table, tmp_path / "a.orc")
    [row] = read_all(read_files(tmp_path))
    assert row["ns"].value == 1, "nanoseconds that matter are kept"


@pytest.mark.parametrize(
    "position",
    [
        {"offset": -1, "record": 0},
        {"offset": "4", "record": 0},
        {"offset": True, "record": 0},
        {"offset": 0, "record": None},
        {"offset": 0, "record": 1.5},
    ],
    ids=str,
)
def test_positions_that_are_none_are_refused(tmp_path: Path, position: dict[str, Any]) -> None:
    (tmp_path / "a.avro").write_bytes(avro(rows(5)))
    with pytest.raises(SnapshotCorrupt, match="is not a position in"):
        drain(open_all(read_files(tmp_path), 1, {"a.avro": position})[0])


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("a.avro", {"offset": 10**6, "record": 0}),
        ("a.orc", {"stripe": 9, "row": 0}),
        ("a.orc", {"stripe": 1, "row": 3}),
    ],
)
def test_a_position_beyond_the_end_says_that_the_file_was_replaced(tmp_path: Path, name: str, position: Any) -> None:
    (tmp_path / name).write_bytes(avro(rows(5)) if name == "a.avro" else orc(rows(5)))
    with pytest.raises(StorageError, match="was it replaced"):
        drain(open_all(read_files(tmp_path), 1, {name: position})[0])


def test_a_record_beyond_its_block_says_that_the_file_was_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(avro(rows(5), block=1))
    [reader] = open_all(read_files(tmp_path), 1, {})
    assert len(reader.read(1) or []) == 1
    position = {**reader.positions()["a.avro"], "record": 2}
    with pytest.raises(StorageError, match="has 1 records, but 2 were read before"):
        drain(open_all(read_files(tmp_path), 1, {"a.avro": position})[0])


def test_a_position_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(avro(rows(5)))
    for position in ({"offset": 4}, {"row": 1}, {"stripe": 0, "row": 1}, {"unpacked": 3}):
        with pytest.raises(RestoreError, match="another format"):
            drain(open_all(read_files(tmp_path), 1, {"a.avro": position})[0])


def test_files_that_were_rewritten_are_an_error(tmp_path: Path) -> None:
    for name, before, after in (("a.avro", avro(rows(9)), avro(rows(9))), ("b.orc", orc(rows(9)), orc(rows(9, 50)))):
        (tmp_path / name).write_bytes(before)
        [reader] = open_all(read_files(tmp_path / name), 1, {})
        assert reader.read(5)
        (tmp_path / name).write_bytes(after)  # an Avro file with another sync marker
        with pytest.raises(StorageError, match="was it replaced"):
            drain(open_all(read_files(tmp_path / name), 1, reader.positions())[0])


# --- watched folders ----------------------------------------------------------------------------


def test_a_watched_avro_file_grows_by_blocks(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    data = avro(rows(30), block=60)
    chance = random.Random(5)
    found: list[Any] = []
    at = 0
    while at < len(data):
        step = chance.randrange(1, 90)
        watched.append("a.avro", data[at : at + step])
        at += step
        found += watched.later()
        if chance.random() < 0.3:
            watched.restart()
    assert found == rows(30)
    buffer = io.BytesIO(data)
    buffer.seek(0, io.SEEK_END)
    fastavro.writer(buffer, None, rows(5, 30))
    watched.append("a.avro", buffer.getvalue()[len(data) :])
    assert watched.later() == rows(5, 30)


def test_a_watched_orc_file_counts_when_its_footer_is_there(tmp_path: Path) -> None:
    watched, data = Watched(tmp_path), orc(rows(4))
    watched.append("a.orc", b"")
    for part in (data[:2], data[2:10], data[10:-1]):
        watched.append("a.orc", part)
        assert watched.later() == []
    watched.append("a.orc", data[-1:])
    assert watched.later() == rows(4)
    watched.restart()
    assert watched.later() == []
    (tmp_path / "a.orc").rename(tmp_path / "b.orc")
    assert watched.later() == []


# --- damage -------------------------------------------------------------------------------------


def test_after_a_broken_block_the_next_one_is_read(tmp_path: Path) -> None:
    data = avro([{"n": n, "t": "x" * 30} for n in range(6)], "deflate", block=1)
    offsets = [block.offset for block in fastavro.block_reader(io.BytesIO(data))]
    damaged = bytearray(data)
    damaged[offsets[1] + 4] ^= 0xFF  # what is packed
    damaged[offsets[3] + 1] -= 4  # the length: two bytes too short
    damaged[offsets[4] - 1] ^= 0xFF  # the sync marker behind it, so that block 4 cannot be found either
    (tmp_path / "a.avro").write_bytes(bytes(damaged))
    reader = read_files(tmp_path, on_error=OutputTag("broken")).open(SourceContext("in", 0, 1, 1))
    found, broken = [], []
    while (records := reader.read(10)) is not None:
        found += [record["n"] for record in records]
        broken += [record.position for record in (reader.side_outputs or {}).get("broken", [])]
    assert (found, broken) == ([0, 2, 5], [offsets[1], offsets[3]])
    with pytest.raises(StorageError, match=f"the block at byte {offsets[1]}: its records cannot be decoded"):
        read_all(read_files(tmp_path))


@pytest.mark.parametrize("cut", [1, 17, 20])
def test_a_file_that_ends_in_the_middle_is_broken_there(tmp_path: Path, cut: int) -> None:
    data = avro([{"n": n, "t": "x" * 30} for n in range(3)], block=1)
    (tmp_path / "a.avro").write_bytes(data[:-cut])
    assert [r["n"] for r in read_all(read_files(tmp_path, on_error="skip"))] == [0, 1]
    with pytest.raises(StorageError, match="the file ends within the block"):
        read_all(read_files(tmp_path))


@pytest.mark.parametrize(("name", "content"), [("a.avro", b"Obj\x01"), ("a.avro", b"no Avro"), ("a.orc", b"ORC none")])
def test_a_file_of_which_nothing_can_be_read_is_an_error(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StorageError, match=r"not an Avro file|header cannot be read|not a whole ORC file"):
        read_all(read_files(tmp_path))
    assert read_all(read_files(tmp_path, on_error="skip")) == []


def test_a_broken_stripe_is_passed_over(tmp_path: Path) -> None:
    data = bytearray(orc_of_stripes(8_000))
    first = pyarrow.orc.ORCFile(io.BytesIO(bytes(data))).read_stripe(0).num_rows
    data[3:43] = b"\xff" * 40
    (tmp_path / "a.orc").write_bytes(bytes(data))
    assert [r["n"] for r in read_all(read_files(tmp_path, on_error="skip"), 9_000)] == list(range(first, 8_000))
    with pytest.raises(StorageError, match="stripe 0 cannot be read"):
        read_all(read_files(tmp_path))


# --- writing ------------------------------------------------------------------------------------

TYPES = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False),
        ("small", pa.int16()),
        ("x", pa.float64()),
        ("yes", pa.bool_()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("money", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us")),
        ("zoned", pa.timestamp("us", "UTC")),
        ("many", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())]))),
    ]
)
VALUES: dict[str, Any] = {
    "n": 1,
    "small": -3,
    "x": 0.5,
    "yes": True,
    "text": "é",
    "raw": b"\0\xff",
    "day": date(2026, 1, 2),
    "money": Decimal("12.30"),
    "at": datetime(2026, 1, 2, 3, 4, 5, 6),
    "zoned": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "many": [{"a": 1, "b": None}, None],
}


def write_all(folder: Path, records: list[Any], **options: Any) -> None:
    sink = write_files(folder, **options)
    writer = open_writer(sink)
    writer.write(records)
    sink.commit(writer.prepare(1))


@pytest.mark.parametrize("format", ["avro", "orc", "parquet"])
def test_values_of_all_types_come_back(tmp_path: Path, format: Any) -> None:
    none = dict.fromkeys(VALUES)
    write_all(tmp_path, [VALUES, {**none, "n": 2}], format=format, schema=TYPES)
    assert read_all(read_files(tmp_path)) == [VALUES, {**none, "n": 2}]


@pytest.mark.parametrize("format", ["avro", "orc"])
def test_without_a_schema_it_follows_from_the_records(tmp_path: Path, format: Any) -> None:
    records = [{"n": 1, "t": "x", "when": time(1, 2)}, {"n": 2}]
    if format == "orc":
        with pytest.raises(UnfitRecord, match=r"it or one of the 2 with it: .*time64"):
            write_all(tmp_path, records, format=format)
        records = [{"n": 1, "t": "x"}, {"n": 2}]
    write_all(tmp_path, records, format=format)
    [first, second] = read_all(read_files(tmp_path))
    assert (first, second["t"]) == (records[0], None)


def test_an_avro_schema_is_kept_to(tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "Click",
        "namespace": "shop",
        "fields": [
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["view", "buy"]}},
            {"name": "tags", "type": {"type": "map", "values": "int"}, "default": {}},
        ],
    }
    write_all(tmp_path, [{"kind": "buy", "tags": {"a": 1}}, {"kind": "view"}], format="avro", schema=schema)
    assert read_all(read_files(tmp_path)) == [{"kind": "buy", "tags": {"a": 1}}, {"kind": "view", "tags": {}}]
    [file] = tmp_path.glob("*.avro")
    with file.open("rb") as opened:
        assert fastavro.reader(opened).writer_schema["name"] == "shop.Click"  # type: ignore[call-overload,index]
    for wrong in ({"kind": "sell"}, {"kind": "buy", "more": 1}, {"tags": {}}, 7):
        with pytest.raises(UnfitRecord, match="Map the records to the Avro schema"):
            write_all(tmp_path, [wrong], format="avro", schema=schema)


@pytest.mark.parametrize(
    ("format", "compression"),
    [("avro", c) for c in ("none", "deflate", "snappy", "zstd", "bzip2", "xz")]
    + [("orc", c) for c in ("none", "zstd", "snappy", "gzip", "lz4")]
    + [("parquet", c) for c in ("none", "zstd", "snappy", "gzip", "lz4", "brotli")],
)
def test_each_compression_of_a_format_is_read_back(tmp_path: Path, format: Any, compression: Any) -> None:
    write_all(tmp_path, rows(20), format=format, compression=compression)
    assert read_all(read_files(tmp_path)) == rows(20)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"format": "avro", "schema": {"type": "nothing"}}, "not an Avro schema"),
        ({"format": "avro", "schema": {"type": "array", "items": "int"}}, "Avro schema of a record"),
        ({"format": "avro", "schema": pa.schema([("a b", pa.int8())])}, "letters, digits and _, and 'a b' is none"),
        ({"format": "avro", "schema": pa.schema([("n", pa.uint64())])}, "Avro has no uint64, and 'n' is one"),
        ({"format": "avro", "schema": pa.schema([("n", pa.timestamp("ns"))])}, "Avro has no timestamp"),
        ({"format": "orc", "schema": pa.schema([("n", pa.uint8())])}, "'orc'.*uint8"),
        ({"format": "csv", "schema": pa.schema([("n", pa.list_(pa.int8()))])}, "'csv'.*list"),
        ({"format": "parquet", "schema": {"type": "record"}}, "Give a pyarrow.Schema"),
        ({"format": "orc", "compression": "brotli"}, "For orc it is one of zstd, snappy"),
        ({"format": "text", "compression": "snappy"}, "For text it is one of none, gzip"),
        ({"format": "text", "schema": pa.schema([("n", pa.int8())])}, "have no columns"),
    ],
    ids=lambda value: value.get("format") if isinstance(value, dict) else None,
)
def test_what_a_format_cannot_hold_is_known_where_the_job_is_built(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        write_files("/tmp/out", **options)
