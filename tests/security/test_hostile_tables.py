"""Tables of a snapshot from somebody who wishes us ill: all checksums fit, and what it gets is a typed error."""

from __future__ import annotations

import os
import pickle

import msgspec
import pyarrow as pa
import pytest

import moorline as mo
from moorline.errors import InvalidArgument, MoorlineError, SnapshotCorrupt
from moorline.model.manifest import (
    ElementsHandle,
    KeyedHandle,
    Manifest,
    NativeFile,
    NativeHandle,
    OperatorEntry,
    OperatorHandles,
    RowsHandle,
    SnapshotFile,
    StoredState,
)
from moorline.model.type_tree.tree import BYTES, INT, PLAIN, Map, Pickle, StateType, Tuple, Word
from moorline.snapshots.tables.diff import diff
from moorline.snapshots.tables.reader import SnapshotReader
from moorline.snapshots.tables.snapshot import Snapshot
from moorline.storage import segments as snapshots
from moorline.storage.stores.memory import MemoryStore

PATH = "data/chk-1/op/s-0-1-abc.parquet"


def reader(store: MemoryStore, *keyed: KeyedHandle, elements=(), max_parallelism: int = 128) -> SnapshotReader:
    handles = OperatorHandles("op", list(keyed), list(elements))
    return SnapshotReader(Manifest("j", 1, 1, 0, [OperatorEntry("op", "op", 1, max_parallelism, [handles])]), store)


def rows(**columns) -> pa.Table:
    found = {"key_group": pa.array([3], pa.int32()), "key": ["a"], "value": [1]} | columns
    return pa.table({name: column for name, column in found.items() if column is not None})


def handle(
    store: MemoryStore, table: pa.Table, kind: str = "value", stored_type: StateType = INT, **more
) -> KeyedHandle:
    file = snapshots.write_rows(store, PATH, table)
    return msgspec.structs.replace(RowsHandle("s", kind, stored_type, 0, 128, table.num_rows, file), **more)


@pytest.mark.parametrize(
    ("table", "kind", "stored_type"),
    [
        (rows(value=["text"]), "value", INT),
        (rows(value=None), "value", INT),
        (rows(key=None), "value", INT),
        (rows(key=[1.5]), "value", INT),
        (rows(), "map", Map(BYTES, INT)),
        (rows(map_key=["a"]), "map", INT),
        (rows(namespace=[7]), "value", INT),
        (rows(gone=["yes"]), "value", INT),
        (rows(extra=[1]), "value", INT),
        (rows(last_access=["yesterday"], ttl=[1]), "value", INT),
        (
            pa.table([pa.array([3], pa.int32()), ["a"], [1], [2]], names=["key_group", "key", "value", "value"]),
            "value",
            INT,
        ),
    ],
)
def test_columns_that_are_not_what_the_manifest_says_are_refused(table, kind, stored_type):
    store = MemoryStore()
    with pytest.raises(SnapshotCorrupt):
        Snapshot(reader(store, handle(store, table, kind, stored_type))).keyed("op", "s")


def test_a_chain_that_cannot_be_is_refused():
    store = MemoryStore()
    whole = handle(store, rows())
    for one in (
        msgspec.structs.replace(whole, file=None),
        msgspec.structs.replace(whole, file=None, increment=True),
        msgspec.structs.replace(whole, file=SnapshotFile(PATH, 10**15, whole.file.segments)),
    ):
        with pytest.raises(SnapshotCorrupt):
            Snapshot(reader(store, one)).keyed("op", "s")


@pytest.mark.parametrize(("first", "end"), [(-5, 1), (200, 300), (90, 10), (-(1 << 60), 1 << 60)])
def test_key_groups_that_cannot_be_are_cut_to_those_that_can(first, end):
    store = MemoryStore()
    found = Snapshot(reader(store, handle(store, rows(), first=first, end=end))).keyed("op", "s")
    assert found.num_rows == (1 if first <= 3 < end else 0)


@pytest.mark.parametrize("key_groups", [0, -1, 1 << 40])
def test_a_number_of_key_groups_that_cannot_be_is_refused(key_groups):
    store = MemoryStore()
    with pytest.raises(SnapshotCorrupt, match="key groups"):
        Snapshot(reader(store, handle(store, rows()), max_parallelism=key_groups)).keyed("op", "s")


def test_native_files_that_are_no_database_are_refused(tmp_path):
    store = MemoryStore()
    source = tmp_path / "source"
    source.write_bytes(b"MANIFEST-000001\n")
    file = snapshots.write_file(store, "data/chk-1/op/native-0-1-abc.bin", source)
    native = NativeHandle(0, 128, "rocksdb", [NativeFile("CURRENT", file)], [StoredState("s", "value", INT)])
    with pytest.raises(MoorlineError):
        Snapshot(reader(store, native)).keyed("op", "s")


class Bomb:
    def __init__(self, marker) -> None:
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def test_pickles_stay_bytes_in_every_table(tmp_path):
    marker, store = tmp_path / "boom", MemoryStore()
    bomb = pickle.dumps(Bomb(marker))
    pickled = Pickle(("posix.mkdir",))
    keyed = handle(store, rows(value=pa.array([bomb], pa.binary())), "value", pickled)
    packed = msgspec.msgpack.encode(bomb)
    elements = [
        ElementsHandle("l", "split", 1, inline=[packed], type=pickled),
        ElementsHandle(
            "b", "broadcast", 1, inline=[msgspec.msgpack.encode(["k", bomb])], type=Tuple((Word("str"), pickled))
        ),
    ]
    found = reader(store, keyed, elements=elements)
    tables = Snapshot(found)
    assert tables.keyed("op", "s")["value"].to_pylist() == [bomb]
    assert tables.operator_state("op", "l")["value"].to_pylist() == [bomb]
    assert tables.broadcast_state("op", "b")["value"].to_pylist() == [bomb]
    bare = Snapshot(reader(store, elements=[ElementsHandle("p", "split", 1, inline=[bomb])]))
    with pytest.raises(SnapshotCorrupt, match="cannot be read"):
        bare.operator_state("op", "p")
    assert list(diff(found, found)) == []
    mo.SnapshotWriter(f"memory://{tmp_path.name}-bomb").from_reader(found).write()
    assert not marker.exists()


@pytest.mark.parametrize(
    ("mode", "element_type", "encoded", "count"),
    [
        ("split", INT, b"\xa1x", 1),
        ("split", INT, b"\x01", 2),
        ("broadcast", INT, b"\x01", 1),
        ("broadcast", Tuple((INT, INT)), b"\x93\x01\x02\x03", 1),
        ("split", PLAIN, b"\xc1", 1),
        ("split", Word("date"), b"\xa3abc", 1),
    ],
)
def test_elements_that_are_not_of_their_type_are_refused(mode, element_type, encoded, count):
    elements = [ElementsHandle("e", mode, count, inline=[encoded], type=element_type)]
    tables = Snapshot(reader(MemoryStore(), elements=elements))
    with pytest.raises(SnapshotCorrupt):
        tables.broadcast_state("op", "e") if mode == "broadcast" else tables.operator_state("op", "e")


def test_an_operator_that_is_there_twice_shows_its_first_and_does_no_harm():
    store = MemoryStore()
    found = reader(store, handle(store, rows()))
    twice = msgspec.structs.replace(found.manifest, operators=found.manifest.operators * 2)
    assert Snapshot(SnapshotReader(twice, store)).keyed("op", "s").num_rows == 1
    with pytest.raises(InvalidArgument):
        Snapshot(SnapshotReader(twice, store)).keyed("op", "other")
