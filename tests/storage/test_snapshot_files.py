"""Rows and elements come back as they were written, and only what is asked for is fetched."""

from __future__ import annotations

import gc
import io
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_samples import keyed_table
from wrapped_stores import WrappedStore

from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import SnapshotFile
from moorline.storage.segments import read_elements, read_rows, verify, write_elements, write_rows
from moorline.storage.stores.memory import MemoryStore

PATH = "data/chk-1/count/sum-0-1-a.parquet"
ALL = KeyGroupRange(0, 1 << 15)


def assert_covered(store: MemoryStore, file: SnapshotFile) -> None:
    assert file.size == len(store.get(file.path))
    assert file.segments[0].offset == 0
    assert all(a.offset + a.size == b.offset for a, b in pairwise(file.segments))
    assert file.segments[-1].offset + file.segments[-1].size == file.size
    assert (file.segments[-1].first, file.segments[-1].end) == (0, 0)


@given(
    key_groups=st.lists(st.integers(0, 60), max_size=80).map(sorted),
    rows_per_group=st.integers(1, 20),
    first=st.integers(0, 61),
    length=st.integers(0, 61),
)
def test_a_range_is_a_filter_of_the_whole(key_groups: list[int], rows_per_group: int, first: int, length: int) -> None:
    store, table, wanted = MemoryStore(), keyed_table(key_groups), KeyGroupRange(first, first + length)
    file = write_rows(store, PATH, table, rows_per_group)
    assert_covered(store, file)
    verify(store, file)
    assert read_rows(store, file, ALL).equals(table)
    assert read_rows(store, file, wanted).equals(table.filter(pa.array([k in wanted for k in key_groups], pa.bool_())))


@given(key_groups=st.lists(st.integers(0, 200), max_size=300).map(sorted), rows_per_group=st.integers(1, 50))
def test_row_groups_are_runs_of_whole_key_groups(key_groups: list[int], rows_per_group: int) -> None:
    store = MemoryStore()
    file = write_rows(store, PATH, keyed_table(key_groups), rows_per_group)
    parquet = pq.ParquetFile(io.BytesIO(store.get(PATH)))
    groups = [parquet.read_row_group(i)["key_group"].to_pylist() for i in range(parquet.num_row_groups)]
    assert [(g[0], g[-1] + 1) for g in groups] == [(s.first, s.end) for s in file.segments[:-1]]
    assert all(a[-1] < b[0] for a, b in pairwise(groups))
    # No row group is closed early, and none runs on after it is full.
    assert all(len(g) >= rows_per_group for g in groups[:-1])
    assert all(len([k for k in g if k != g[-1]]) < rows_per_group for g in groups)


def test_only_the_footer_and_what_overlaps_is_fetched() -> None:
    store = WrappedStore(MemoryStore())
    table = keyed_table([k for k in range(100) for _ in range(20)])
    file = write_rows(store, PATH, table, rows_per_group=100)
    assert len(file.segments) == 21
    footer = file.segments[-1]

    rows = read_rows(store, file, KeyGroupRange(10, 20))
    assert set(rows["key_group"].to_pylist()) == set(range(10, 20))
    a, b = file.segments[2], file.segments[3]
    # Key groups 10 to 19 are two adjacent row groups: one call, and one for the footer.
    assert store.ranges == [(PATH, a.offset, a.size + b.size), (PATH, footer.offset, footer.size)]

    store.ranges.clear()
    read_rows(store, file, KeyGroupRange(99, 100))
    # The last row group and the footer are neighbours.
    last = file.segments[-2]
    assert store.ranges == [(PATH, last.offset, last.size + footer.size)]

    store.ranges.clear()
    assert len(read_rows(store, file, KeyGroupRange(100, 200))) == 0
    assert store.ranges == [(PATH, footer.offset, footer.size)]

    store.ranges.clear()
    read_rows(store, file, ALL)
    assert store.ranges == [(PATH, 0, file.size)]


def test_an_empty_state_is_a_file_that_still_has_its_schema() -> None:
    store, table = MemoryStore(), keyed_table([])
    file = write_rows(store, PATH, table)
    assert len(file.segments) == 1
    assert read_rows(store, file, ALL).equals(table)
    verify(store, file)


def test_one_key_group_is_never_split() -> None:
    store = MemoryStore()
    file = write_rows(store, PATH, keyed_table([5] * 1000), rows_per_group=10)
    assert [(s.first, s.end) for s in file.segments] == [(5, 6), (0, 0)]


@pytest.mark.parametrize("key_groups", [[2, 1], [1, 2, 1], [1, None], [None]])
def test_rows_out_of_order_are_refused_before_anything_is_written(key_groups: list[int | None]) -> None:
    store = MemoryStore()
    with pytest.raises(ValueError, match="sorted by key group"):
        write_rows(store, PATH, pa.table({"key_group": pa.array(key_groups, pa.int16())}))
    assert store.list() == []


def test_a_table_in_many_chunks_is_as_good_as_in_one() -> None:
    store = MemoryStore()
    table = pa.concat_tables([keyed_table([0, 1]), keyed_table([1, 1, 2]), keyed_table([]), keyed_table([3])])
    file = write_rows(store, PATH, table, rows_per_group=1)
    assert [(s.first, s.end) for s in file.segments[:-1]] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert read_rows(store, file, KeyGroupRange(1, 3)).equals(table.slice(1, 4).combine_chunks())


def test_types_come_back_as_they_were() -> None:
    nested = pa.struct([("n", pa.int64()), ("of", pa.list_(pa.string()))])
    table = pa.table(
        {
            "key_group": pa.array([1, 2], pa.int16()),
            "key": pa.array([b"a", b"b"], pa.large_binary()),
            "value": pa.array([{"n": 1, "of": ["x"]}, None], nested),
            "at": pa.array([0, 1], pa.timestamp("us", "UTC")),
            "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int8())),
        }
    )
    store = MemoryStore()
    assert read_rows(store, write_rows(store, PATH, table), ALL).equals(table)


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_elements_come_back_in_their_order(elements: list[bytes]) -> None:
    store = MemoryStore()
    file = write_elements(store, PATH, elements)
    assert_covered(store, file)
    assert len(file.segments) == (2 if elements else 1)
    assert read_elements(store, file) == elements
    verify(store, file)


def test_anybody_who_reads_parquet_can_read_a_snapshot() -> None:
    store, table = MemoryStore(), keyed_table([0, 0, 1, 7])
    write_rows(store, PATH, table, rows_per_group=1)
    assert pq.read_table(io.BytesIO(store.get(PATH))).equals(table)


def test_writing_leaves_nothing_for_the_collector_of_cycles() -> None:
    # Native memory hung on cycles that Python collects rarely: 10 kB for every file of every checkpoint.
    store, rows = MemoryStore("files"), keyed_table([0, 1, 2])
    write_rows(store, "data/0", rows)
    gc.collect()
    gc.freeze()  # what other tests have left behind
    gc.disable()
    try:
        for n in range(1, 20):
            write_rows(store, f"data/{n}", rows)
        assert gc.collect() == 0
    finally:
        gc.enable()
        gc.unfreeze()
