"""Files of a few kilobytes that would take all memory: refused before they are decoded, whatever their footer says."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

import moorline as mo
from moorline.errors import SnapshotCorrupt
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import (
    ElementsHandle,
    Manifest,
    OperatorEntry,
    OperatorHandles,
    RowsHandle,
    Segment,
    SnapshotFile,
)
from moorline.model.type_tree.tree import Word
from moorline.snapshots.folders import write_savepoint
from moorline.storage import entries, parquet_bounds
from moorline.storage import segments as snapshots
from moorline.storage.stores.memory import MemoryStore
from moorline.storage.stores.open import open_store

PATH = "data/chk-1/count/seen-0-1-aaaaaaaa.parquet"


def table(value: pa.Array) -> pa.Table:
    count = len(value)
    return pa.table({"key_group": pa.array([3] * count, pa.int32()), "key": [0] * count, "value": value})


def parquet(rows: pa.Table, **options) -> bytes:
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(out, rows.schema, **({"compression": "lz4"} | options)) as writer:
        writer.write_table(rows, row_group_size=len(rows))
    return out.getvalue().to_pybytes()


def stored(store, data: bytes, declared: int = 0) -> SnapshotFile:
    """A file with one row group, and the segments that a manifest would have for it: all checksums fit."""
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    cuts = [(0, footer), (footer, len(data))]
    digests = [xxhash.xxh3_64_hexdigest(data[a:b]) for a, b in cuts]
    segments = [Segment(3, 4, 0, footer, digests[0], declared), Segment(0, 0, footer, len(data) - footer, digests[1])]
    store.put(PATH, data)
    return SnapshotFile(PATH, len(data), segments)


def varint(number: int) -> bytes:
    """Thrift's: zigzag, seven bits in a byte."""
    number, out = number << 1, b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def with_a_lying_footer(data: bytes) -> bytes:
    """The same, but its footer says of every column that it unpacks to next to nothing."""
    metadata = pq.read_metadata(pa.BufferReader(data))
    at = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    body, footer = data[:at], data[at:]
    group = metadata.row_group(0)
    for size in {group.total_byte_size, *(group.column(i).total_uncompressed_size for i in range(group.num_columns))}:
        told = varint(size)
        footer = footer.replace(
            told, bytes([told[0] & 1 | 128] + [128] * (len(told) - 2) + [1]) if len(told) > 1 else told
        )
    lying = body + footer
    assert pq.read_metadata(pa.BufferReader(lying)).row_group(0).total_byte_size < group.total_byte_size
    return lying


LONG = pa.array(["x" * 30_000] * 4_000)
NUMBERS = pa.array(range(40_000))
DICTIONARY = parquet(table(LONG), use_dictionary=True)
BOMBS = {
    "a long value in a dictionary": DICTIONARY,
    "the same, and the footer lies": with_a_lying_footer(DICTIONARY),
    "a codec that packs too well": parquet(table(LONG.slice(0, 400)), compression="zstd", use_dictionary=False),
    "deltas": parquet(table(NUMBERS), use_dictionary=False, column_encoding={"value": "DELTA_BINARY_PACKED"}),
    "pages of another version": parquet(table(NUMBERS), data_page_version="2.0", use_dictionary=False),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
@pytest.mark.parametrize("declared", [0, 1 << 60], ids=["undeclared", "declared"])
def test_a_form_whose_size_is_not_known_beforehand_is_not_decoded(bomb, declared):
    store = MemoryStore()
    file = stored(store, bomb, declared)
    for read in (
        lambda: snapshots.read_rows(store, file, KeyGroupRange(0, 8)),
        lambda: list(snapshots.iterate_rows(store, file, KeyGroupRange(0, 8))),
        lambda: snapshots.read_elements(store, file),
        lambda: snapshots.read_through(store, file),
    ):
        with pytest.raises(SnapshotCorrupt, match="is not read: "):
            read()


def test_rows_that_are_nothing_but_null_count_too():
    store = MemoryStore()
    data = parquet(table(pa.nulls(2_000_000, pa.int64())), use_dictionary=["key_group"])
    assert len(data) < 200_000
    with pytest.raises(SnapshotCorrupt, match=r"would take .* in memory, and .* are declared"):
        snapshots.read_rows(store, stored(store, data), KeyGroupRange(0, 8))


def test_a_file_takes_no_more_than_its_manifest_declares():
    store = MemoryStore()
    rows = table(pa.array(["abc"] * 1000))
    file = snapshots.write_rows(store, PATH, rows)
    assert snapshots.read_rows(store, file, KeyGroupRange(0, 8)).equals(rows)
    assert all(segment.decoded > 0 for segment in file.segments[:-1])
    first, *rest = file.segments
    less = msgspec.structs.replace(first, decoded=first.decoded - 1)
    with pytest.raises(SnapshotCorrupt, match="are declared"):
        snapshots.read_rows(store, SnapshotFile(file.path, file.size, [less, *rest]), KeyGroupRange(0, 8))


def test_what_older_versions_wrote_is_read_as_it_was():
    """Their manifests do not say how much a file decodes to."""
    store = MemoryStore()
    samples = [pa.array([True, None, False]), pa.array([[1], [], None]), LONG[:100]]
    for number, rows in enumerate(map(table, samples)):
        file = snapshots.write_rows(store, PATH.replace("aaaa", f"{number:04}"), rows)
        older = [msgspec.structs.replace(segment, decoded=0) for segment in file.segments]
        found = snapshots.read_rows(store, SnapshotFile(file.path, file.size, older), KeyGroupRange(0, 8))
        assert found.equals(rows)


TYPES = [
    pa.array([1, None], pa.int8()),
    pa.array([1.5, None], pa.float32()),
    pa.array([True, None]),
    pa.array([b"12", None], pa.binary(2)),
    pa.array(["x", None], pa.large_string()),
    pa.array([{"a": 1, "b": ["x"]}, None]),
    pa.array([[[1], []], None]),
    pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    pa.array([1, None], pa.timestamp("us", "UTC")),
    pa.array([None, None], pa.decimal128(10, 2)),
]


@pytest.mark.parametrize("value", TYPES, ids=lambda value: str(value.type))
def test_the_bound_is_never_below_what_the_rows_take(value):
    store = MemoryStore()
    rows = table(pa.concat_arrays([value] * 500))
    file = snapshots.write_rows(store, PATH, rows)
    found = snapshots.read_rows(store, file, KeyGroupRange(0, 8))
    assert found.equals(rows)
    assert sum(segment.decoded for segment in file.segments) >= found.nbytes


def test_mutants_of_a_file_are_read_or_refused():
    """Checksums made to fit: whatever the headers of pages say, nothing but SnapshotCorrupt comes out."""
    data = parquet(table(pa.array(["abc", "d"] * 20)), use_dictionary=["key_group"])
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    metadata = pq.read_metadata(pa.BufferReader(data))
    forms = parquet_bounds.column_forms(metadata)
    for at in range(4, footer):
        for flip in (1, 16, 128, 255):
            mutant = bytearray(data)
            mutant[at] ^= flip
            try:
                found = parquet_bounds.bound(bytes(mutant), metadata, forms, 0, 0, footer, "key_group")
            except parquet_bounds.Unbounded:
                continue
            assert 0 < found < 1 << 62


# --- fsck -------------------------------------------------------------------------------------------


def savepoint(url: str, file: SnapshotFile, **changed) -> None:
    handle = RowsHandle("seen", "value", Word("str"), 0, 8, 4_000, file)
    parts = [OperatorHandles("count", [msgspec.structs.replace(handle, **changed)])]
    write_savepoint(open_store(url), Manifest("job", 1, 1, 0, [OperatorEntry("count", "count", 1, 128, parts)]))


def test_fsck_finds_the_bomb_and_takes_hardly_any_memory_for_it(tmp_path):
    """In a process of its own: the memory that fsck has taken at most, beside that for a sound snapshot."""
    for name in ("sound", "bomb"):
        store = open_store(str(tmp_path / name))
        if name == "bomb":
            savepoint(str(tmp_path / name), stored(store, DICTIONARY))
        else:
            rows = table(pa.array([str(n) for n in range(4_000)]))
            savepoint(str(tmp_path / name), snapshots.write_rows(store, PATH, rows))
    script = """
        import json, resource, sys
        import moorline as mo
        report = mo.fsck(sys.argv[1])
        told = {"verdict": report.verdict.value, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
        print(json.dumps(told))
    """
    found = {}
    for name in ("sound", "bomb"):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / name)],
            capture_output=True,
            text=True,
            check=True,
        )
        found[name] = json.loads(done.stdout)
    assert (found["sound"]["verdict"], found["bomb"]["verdict"]) == ("sound", "lost")
    assert found["bomb"]["peak"] < 1.25 * found["sound"]["peak"]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"rows": 3_999}, "it has 4,000 rows, and its handle says 3,999"),
        ({"type": "int"}, "its column 'value' is string"),
        ({"kind": "map", "type": "str to str"}, "it has the columns"),
        ({"type": "nonsense"}, "is of type nonsense"),
    ],
)
def test_fsck_compares_files_with_their_handles(changed, told):
    url = f"memory://compared-{told}"
    rows = table(pa.array([str(n) for n in range(4_000)]))
    savepoint(url, snapshots.write_rows(open_store(url), PATH, rows), **changed)
    report = mo.fsck(url)
    assert report.verdict.value == "lost"
    assert told in str(report)


def test_fsck_counts_elements():
    url = "memory://counted"
    file = snapshots.write_elements(open_store(url), PATH, [b"a", b"b"])
    for count, verdict in ((2, "sound"), (3, "lost")):
        parts = [OperatorHandles("count", elements=[ElementsHandle("offsets", "split", count, file=file)])]
        open_store(url).delete(["manifest.json"])
        write_savepoint(open_store(url), Manifest("job", 1, 1, 0, [OperatorEntry("count", "count", 1, 128, parts)]))
        assert mo.fsck(url).verdict.value == verdict


@pytest.mark.parametrize(
    ("parallelism", "handle"),
    [
        (2, RowsHandle("seen", "value", Word("str"), 0, 8, 1)),
        (0, RowsHandle("seen", "value", Word("str"), 0, 8, 1)),
        (1, RowsHandle("seen", "value", Word("str"), 0, 129, 1)),
        (1, RowsHandle("seen", "value", Word("str"), -1, 8, 1)),
        (1, RowsHandle("seen", "value", Word("str"), 9, 8, 1)),
        (1, RowsHandle("seen", "value", Word("str"), 0, 8, -1)),
    ],
)
def test_a_manifest_that_contradicts_itself_is_damage(parallelism, handle):
    operator = OperatorEntry("count", "count", parallelism, 128, [OperatorHandles("count", [handle])])
    with pytest.raises(SnapshotCorrupt, match=r"subtasks|rows of key groups"):
        entries.decode(entries.encode(Manifest("job", 1, 1, 0, [operator]), "w", ""), "job", 1)
