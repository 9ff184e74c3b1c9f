"""The Parquet files of a snapshot: written in segments, and verified before a byte of them is interpreted.

A restore after a rescale wants some key groups of a file, not all of it, and must not trust what it reads. So a file
is cut into segments that can be fetched and verified one by one:

    offset 0                                                                          size
    | "PAR1"  row group 0 | row group 1 |  ...  | row group n-1 | Parquet footer "PAR1" |
    | segment 0           | segment 1   |  ...  | segment n-1   | segment n             |
    | [first,end)         | [first,end) |       | [first,end)   | empty range           |

A row group holds whole key groups, so a range of key groups is a run of segments. The manifest carries each segment's
range, place and xxh3; ``read_rows`` is the one gate through which rows come back: it fetches the footer and the
segments it needs, verifies their sizes and checksums, and that they decode to no more than the manifest declares
(``parquet_bounds.py``), and only then lets Parquet see them. Whatever does not fit is SnapshotCorrupt with the file's
path, so that recovery can turn to an older checkpoint.

Called by ``subtask/snapshot/writer.py`` and ``subtask/restore/chain.py``, and by all that read savepoints.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from moorline.errors import BlobMissing, SnapshotCorrupt, StorageError
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import Segment, SnapshotFile
from moorline.storage import parquet_bounds
from moorline.storage.blobs import BlobStore

#: A row group is closed at the first change of key group after this many rows, or about so many bytes: after a rescale
#: those at the ends of a subtask's range are read by its neighbour too.
ROWS_PER_GROUP, GROUP_BYTES = 16_384, 1 << 20

#: What is read at a time of a file that is streamed.
READ_BYTES = 32 << 20
#: What is decoded at a time of a file that is only looked through.
BATCH_ROWS = 4096

KEY_GROUP = "key_group"
ELEMENT = "element"


# --- writing ----------------------------------------------------------------------------------


def write_rows(store: BlobStore, path: str, table: pa.Table, rows_per_group: int = ROWS_PER_GROUP) -> SnapshotFile:
    """Write the rows of one keyed state, which are sorted by their ``key_group`` column already."""
    row_bytes = max(1, table.nbytes // max(1, table.num_rows))
    groups = _row_groups(table, min(rows_per_group, max(1, GROUP_BYTES // row_bytes)))
    tables = [table.slice(start, stop - start) for start, stop, _ in groups]
    # Keys and values hardly ever repeat within a row group, so a dictionary of them would be work for nothing.
    data = _parquet(table.schema, tables, dictionary=[KEY_GROUP])
    return _store(store, path, data, table.schema, [key_groups for _, _, key_groups in groups])


def write_elements(store: BlobStore, path: str, elements: Sequence[bytes]) -> SnapshotFile:
    """Write the elements of one operator state, in their order."""
    # large_binary: all elements of a row group together may be more than 2 GiB.
    table = pa.table({ELEMENT: pa.array(elements, pa.large_binary())})
    data = _parquet(table.schema, [table] if elements else [], dictionary=False)
    return _store(store, path, data, table.schema, [KeyGroupRange(0, 0)] if elements else [])


def _row_groups(table: pa.Table, rows_per_group: int) -> list[tuple[int, int, KeyGroupRange]]:
    """Rows ``[start,stop)`` of each row group, and the key groups in it."""
    runs = pc.run_end_encode(table[KEY_GROUP].combine_chunks())
    ends, key_groups = runs.run_ends.to_pylist(), runs.values.to_pylist()
    if None in key_groups or any(b <= a for a, b in pairwise(key_groups)):
        raise ValueError("rows of a snapshot are sorted by key group, and each row has one")
    groups: list[tuple[int, int, KeyGroupRange]] = []
    start, first = 0, 0
    for i, (stop, key_group) in enumerate(zip(ends, key_groups)):
        if stop - start >= rows_per_group or stop == len(table):
            groups.append((start, stop, KeyGroupRange(key_groups[first], key_group + 1)))
            start, first = stop, i + 1
    return groups


def _parquet(schema: pa.Schema, tables: list[pa.Table], dictionary: list[str] | bool) -> bytes:
    """A Parquet file with one row group per table."""
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(out, schema, compression="lz4", use_dictionary=dictionary) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=len(table))
    data: bytes = out.getvalue().to_pybytes()
    return data


@lru_cache(256)
def _column_forms(schema: pa.Schema) -> tuple[parquet_bounds.ColumnForm, ...]:
    """The forms of the columns that a table of this schema is written as: snapshots have few schemas."""
    data = _parquet(schema, [], dictionary=False)
    return parquet_bounds.column_forms(pq.read_metadata(pa.BufferReader(data)))


def _store(store: BlobStore, path: str, data: bytes, schema: pa.Schema, ranges: list[KeyGroupRange]) -> SnapshotFile:
    metadata = pq.read_metadata(pa.BufferReader(data))
    assert metadata.num_row_groups == len(ranges)
    # Segment 0 begins at byte 0 and not after the magic, so that no byte of the file goes unchecked.
    starts = [0] + [_bounds(metadata.row_group(i))[0] for i in range(1, len(ranges))]
    stop = _bounds(metadata.row_group(len(ranges) - 1))[1] if ranges else 0
    cuts = [*starts, stop, len(data)] if ranges else [0, len(data)]
    view = memoryview(data)
    spans = list(pairwise(cuts))
    forms = _column_forms(schema)
    decoded = [parquet_bounds.bound(view, metadata, forms, i, *spans[i], KEY_GROUP) for i in range(len(ranges))]
    segments = [
        Segment(key_groups.first, key_groups.end, a, b - a, xxhash.xxh3_64_hexdigest(view[a:b]), size)
        for (a, b), key_groups, size in zip(spans, [*ranges, KeyGroupRange(0, 0)], [*decoded, 0], strict=True)
    ]
    store.put(path, data)
    return SnapshotFile(path=path, size=len(data), segments=segments)


def _bounds(row_group: pq.RowGroupMetaData) -> tuple[int, int]:
    """The first byte of a row group and the end of its last."""
    columns = [row_group.column(i) for i in range(row_group.num_columns)]
    # A column chunk begins with its dictionary, if it has one.
    starts = [c.dictionary_page_offset or c.data_page_offset for c in columns]
    return min(starts), max(start + c.total_compressed_size for start, c in zip(starts, columns))


# --- reading ----------------------------------------------------------------------------------


def read_rows(store: BlobStore, file: SnapshotFile, key_groups: KeyGroupRange) -> pa.Table:
    """The rows of ``key_groups``, in the order they were written. Fetches the footer and what overlaps."""
    wanted = [i for i, s in enumerate(file.segments[:-1]) if s.first < key_groups.end and key_groups.first < s.end]
    table = _read(store, file, wanted)
    if all(file.segments[i].first in key_groups and file.segments[i].end <= key_groups.end for i in wanted):
        return table
    try:
        column = table[KEY_GROUP]
    except KeyError as error:
        raise SnapshotCorrupt(file.path, "it has no key_group column") from error
    return table.filter(pc.and_(pc.greater_equal(column, key_groups.first), pc.less(column, key_groups.end)))


def iterate_rows(store: BlobStore, file: SnapshotFile, key_groups: KeyGroupRange) -> Iterator[pa.Table]:
    """The rows of ``key_groups`` in tables of bounded size."""
    inside = [s for s in file.segments[:-1] if s.first < key_groups.end and key_groups.first < s.end]
    if not inside:  # there is still a file to be verified
        yield read_rows(store, file, key_groups)
    first, size = key_groups.first, 0
    for number, segment in enumerate(inside):
        size += max(segment.size, segment.decoded // 4)
        last = number + 1 == len(inside)
        if last or (size >= READ_BYTES and inside[number + 1].first >= segment.end):
            end = key_groups.end if last else min(segment.end, key_groups.end)
            yield read_rows(store, file, KeyGroupRange(first, end))
            first, size = end, 0


def write_file(store: BlobStore, path: str, source: Path) -> SnapshotFile:
    """Store a file as it is, in segments that can be verified one by one."""
    data = source.read_bytes()
    view = memoryview(data)
    segments = []
    for offset in range(0, max(1, len(data)), READ_BYTES):
        piece = view[offset : offset + READ_BYTES]
        segments.append(Segment(0, 0, offset, len(piece), xxhash.xxh3_64_hexdigest(piece)))
    store.put(path, data)
    return SnapshotFile(path, len(data), segments)


def verified_bytes(store: BlobStore, file: SnapshotFile) -> Iterator[memoryview]:
    """All bytes of a file, verified piece by piece. Raises SnapshotCorrupt."""
    _check_cover(file)
    for segment in file.segments:
        for _, data in _verified(store, file, [segment] if segment.size else []):
            yield data


def fetch_file(store: BlobStore, file: SnapshotFile, target: Path) -> None:
    """Bring a file back, verified piece by piece before it gets its name. Raises SnapshotCorrupt."""
    partial = target.with_name(target.name + ".partial")
    try:
        with partial.open("wb") as out:
            for data in verified_bytes(store, file):
                out.write(data)
        partial.rename(target)
    except OSError as error:
        raise StorageError.of(str(target), "write", error) from error


def read_elements(store: BlobStore, file: SnapshotFile) -> list[bytes]:
    """The elements of one operator state, in the order they were written."""
    table = _read(store, file, list(range(len(file.segments) - 1)))
    if ELEMENT not in table.column_names:
        raise SnapshotCorrupt(file.path, "it has no element column")
    elements: list[bytes] = table[ELEMENT].to_pylist()
    return elements


def verify(store: BlobStore, file: SnapshotFile) -> None:
    """Check everything the manifest says about a file, one segment in memory at a time. Raises SnapshotCorrupt."""
    _check_cover(file)
    for segment in file.segments:
        for _ in _verified(store, file, [segment]):
            pass
    if store.get_range(file.path, file.size, 1):
        raise SnapshotCorrupt(file.path, f"it is longer than the {file.size:,} bytes its manifest says")


def read_through(store: BlobStore, file: SnapshotFile) -> tuple[pa.Schema, int]:
    """Check every byte as :func:`verify` does, and decode every row, a few in memory at a time.

    Returns what the file says of itself: its columns, and how many rows there are.
    """
    _check_cover(file)
    schema, rows, groups = pa.schema([]), 0, list[int]()
    for number, segment in enumerate(file.segments):
        is_footer = number + 1 == len(file.segments)
        groups += [] if is_footer else [number]
        if is_footer or segment.offset + segment.size - file.segments[groups[0]].offset >= READ_BYTES:
            with _opened(store, file, groups) as parquet:
                schema = parquet.schema_arrow
                for batch in parquet.iter_batches(BATCH_ROWS, row_groups=groups, use_threads=False):
                    rows += batch.num_rows
            groups = []
    if store.get_range(file.path, file.size, 1):
        raise SnapshotCorrupt(file.path, f"it is longer than the {file.size:,} bytes its manifest says")
    return schema, rows


def _read(store: BlobStore, file: SnapshotFile, row_groups: list[int]) -> pa.Table:
    with _opened(store, file, row_groups) as parquet:
        # No threads: a worker has one core, and Spark forks it.
        return parquet.read_row_groups(row_groups, use_threads=False)


@contextmanager
def _opened(store: BlobStore, file: SnapshotFile, row_groups: list[int]) -> Iterator[pq.ParquetFile]:
    """The file with these row groups in it, verified, and bounded in what they decode to."""
    _check_cover(file)
    wanted = [file.segments[i] for i in row_groups] + [file.segments[-1]]
    parts = list(_verified(store, file, wanted))
    # The file as Parquet sees it: what was not fetched is a hole. Pages of an anonymous map that are never touched
    # take no memory, so this costs what was fetched, not what the file measures.
    sparse = mmap.mmap(-1, file.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset, data in parts:
        sparse[offset : offset + len(data)] = data
    del parts
    try:
        parquet = pq.ParquetFile(pa.BufferReader(pa.py_buffer(sparse)))
        if parquet.metadata.num_row_groups != len(file.segments) - 1:
            raise SnapshotCorrupt(file.path, "its row groups are not the ones its manifest lists")
        forms = parquet_bounds.column_forms(parquet.metadata)
        for number in row_groups:
            _check_bound(file, number, sparse, parquet.metadata, forms)
        yield parquet
    except (pa.ArrowException, OSError) as error:
        # The checksums fit, so this is a file that no version of ours wrote.
        raise SnapshotCorrupt(file.path, f"Parquet cannot read it: {error}") from error


def _check_bound(
    file: SnapshotFile,
    number: int,
    data: mmap.mmap,
    metadata: pq.FileMetaData,
    forms: Sequence[parquet_bounds.ColumnForm],
) -> None:
    segment = file.segments[number]
    try:
        needs = parquet_bounds.bound(
            data, metadata, forms, number, segment.offset, segment.offset + segment.size, dictionary=KEY_GROUP
        )
    except parquet_bounds.Unbounded as error:
        raise SnapshotCorrupt(file.path, f"row group {number} is not read: {error}") from error
    limit = parquet_bounds.allowed(segment.decoded, segment.size)
    if needs > limit:
        cause = (
            f"row group {number} of {segment.size:,} bytes would take {needs:,} in memory, and {limit:,} are declared"
        )
        raise SnapshotCorrupt(file.path, cause)


def _check_cover(file: SnapshotFile) -> None:
    """The segments cover ``[0,size)`` without a gap or an overlap: no byte of the file escapes its checksum."""
    end = 0
    for segment in file.segments:
        if segment.offset != end or segment.size < 0 or (segment.size == 0 and file.size):
            raise SnapshotCorrupt(file.path, f"its manifest leaves a gap or an overlap at byte {end:,}")
        end += segment.size
    if end != file.size or not file.segments:
        raise SnapshotCorrupt(file.path, f"its segments cover {end:,} of {file.size:,} bytes")


def _verified(store: BlobStore, file: SnapshotFile, segments: list[Segment]) -> Iterator[tuple[int, memoryview]]:
    """Offset and bytes of each run of adjacent segments, after each segment was found to be what it should be."""
    for run in _runs(segments):
        offset, size = run[0].offset, sum(s.size for s in run)
        try:
            data = memoryview(store.get_range(file.path, offset, size))
        except BlobMissing as error:
            raise SnapshotCorrupt(file.path, "the file is missing") from error
        if len(data) != size:
            raise SnapshotCorrupt(file.path, f"it ends at byte {offset + len(data):,} of {file.size:,}")
        for segment in run:
            at = segment.offset - offset
            if xxhash.xxh3_64_hexdigest(data[at : at + segment.size]) != segment.xxh3:
                where = f"bytes {segment.offset:,} to {segment.offset + segment.size:,}"
                raise SnapshotCorrupt(file.path, f"{where} are not what was written (checksum)")
        yield offset, data


def _runs(segments: list[Segment]) -> Iterator[list[Segment]]:
    """Adjacent segments together, because each call to an object store costs a round trip."""
    run: list[Segment] = []
    for segment in segments:
        if run and run[-1].offset + run[-1].size != segment.offset:
            yield run
            run = []
        run.append(segment)
    if run:
        yield run
