"""Snapshots from somebody who wishes us ill: what they hold never runs, and what it gets is a typed error.

All checksums fit: whoever can write to the bucket can make them fit. A bomb writes a file if it ever goes off.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from pathlib import Path

import cloudpickle
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import moorline as mo
from moorline.errors import RestoreError, SnapshotCorrupt, StorageError
from moorline.model import keys
from moorline.model.ids import Attempt, SubtaskId
from moorline.model.manifest import (
    ElementsHandle,
    Manifest,
    OperatorEntry,
    OperatorHandles,
    RowsHandle,
    Segment,
    SnapshotFile,
)
from moorline.model.type_tree.tree import INT, StateType
from moorline.model.wire.deployment import Deployment, ElementsSlice, OperatorRestore
from moorline.protocol.lowering import lower
from moorline.state.types import plain
from moorline.storage import entries
from moorline.storage import segments as snapshots
from moorline.storage.history import History
from moorline.storage.stores.local import LocalStore
from moorline.storage.stores.memory import MemoryStore
from moorline.subtask.environment import Environment
from moorline.subtask.output import Output
from moorline.subtask.restore.chain import open_chain


class Bomb:
    """Goes off when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


@pytest.fixture
def marker(tmp_path: Path):
    """Where bombs leave their mark. Nothing may be there in the end."""
    path = tmp_path / "boom"
    yield path
    assert not path.exists(), "a snapshot has run code"


@pytest.fixture
def bombs(marker: Path) -> list[bytes]:
    made = [pickle.dumps(Bomb(marker), protocol) for protocol in (0, 2, 5)]
    return [*made, cloudpickle.dumps(Bomb(marker))]


def test_the_bomb_is_live(tmp_path: Path):
    with pytest.raises(FileExistsError):
        for _ in range(2):
            pickle.loads(pickle.dumps(Bomb(tmp_path / "here")))
    assert (tmp_path / "here").exists()


# --- a job to restore into ----------------------------------------------------------------------


class Keeps(mo.KeyedProcessFunction):
    """One state of each kind of declaration."""

    anything = mo.ValueState()
    number = mo.ValueState(int)
    several = mo.ListState(tuple[int, str])
    table = mo.MapState(str, int)

    def process_element(self, value, ctx):
        yield value


def job(sink: mo.Sink | None = None) -> mo.Job:
    made = mo.Job("target")
    made.source(mo.from_items([1]), uid="source").key_by(lambda n: n).process(Keeps(), uid="keeps").sink(
        sink or mo.collect("out"), uid="books"
    )
    return made


def restore_into(store: MemoryStore, sink: mo.Sink | None = None, **restores: OperatorRestore) -> None:
    """Open the chain of the operator with these restores, as a worker does."""
    plan = lower(job(sink).graph())
    vertex = 0 if "source" in restores else 1
    deployment = Deployment(plan, Attempt(2), restores={SubtaskId(vertex, 0): restores})
    environment = Environment(lambda: 0.0, lambda report: None, lambda work, done: None, store)
    open_chain(deployment, SubtaskId(vertex, 0), environment, Output(2, 4, lambda: 0.0))


def elements(state: str, *encoded: bytes) -> OperatorRestore:
    handle = ElementsHandle(state, "split", len(encoded), inline=list(encoded))
    return OperatorRestore(elements={state: (ElementsSlice(handle, 0, len(encoded)),)})


def keyed(store: MemoryStore, state: str, kind: str, stored_type: StateType, table: pa.Table) -> OperatorRestore:
    path = f"data/chk-1/keeps/{state}-0-1-{'a' * 8}.parquet"
    file = snapshots.write_rows(store, path, table)
    return OperatorRestore((RowsHandle(state, kind, stored_type, 0, 128, table.num_rows, file),))


def rows(key: pa.Array, value: pa.Array, **more: pa.Array) -> pa.Table:
    return pa.table({"key_group": pa.array([3] * len(key), pa.int32()), "key": key, **more, "value": value})


# --- operator state -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["writer", "committables"])
def test_pickles_among_the_elements_of_a_sink_do_not_run(marker, bombs, state):
    for bomb in bombs:
        with pytest.raises(SnapshotCorrupt):
            restore_into(MemoryStore(), books=elements(state, bomb))


@pytest.mark.parametrize("code", [*range(11), 11, 42, 127, -1, -128])
def test_pickles_in_extension_types_do_not_run(marker, bombs, code):
    for bomb in bombs:
        for inner in (bomb, msgspec.msgpack.encode(bomb), msgspec.msgpack.encode([bomb, bomb])):
            encoded = msgspec.msgpack.encode(msgspec.msgpack.Ext(code, inner))
            try:
                plain.decode(encoded)
            except ValueError:
                with pytest.raises(SnapshotCorrupt):
                    restore_into(MemoryStore(), books=elements("writer", encoded))
            else:
                # A tuple of bytes is a tuple of bytes.
                assert code in range(11)
                restore_into(MemoryStore(), books=elements("writer", encoded))


def test_bytes_that_happen_to_be_a_pickle_stay_bytes(marker, bombs):
    for bomb in bombs:
        restore_into(MemoryStore(), books=elements("writer", plain.encode(bomb)))


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xa2\xff\xfe",
        msgspec.msgpack.encode(msgspec.msgpack.Ext(8, msgspec.msgpack.encode("1e"))),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(3, msgspec.msgpack.encode("9" * 5_000))),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(7, msgspec.msgpack.encode("1h"))),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(1, msgspec.msgpack.encode([[1]]))),
        msgspec.msgpack.encode(msgspec.msgpack.Ext(9, b"\xc4\x03abc")),
        b"",
    ],
    ids=["depth", "list of 4 G", "map of 4 G", "4 GiB", "text", "decimal", "digits", "time", "set", "uuid", "nothing"],
)
def test_plain_data_that_is_none_is_refused(encoded):
    with pytest.raises(SnapshotCorrupt):
        restore_into(MemoryStore(), books=elements("writer", encoded))


@pytest.mark.parametrize("value", [1, "x", [], [1], [[1], 2], {"a": 1}, [1, 2, 3], None, [None, 1]])
def test_positions_and_committables_of_another_shape_are_refused(value):
    for uid, state in (("source", "positions"), ("books", "committables")):
        with pytest.raises(SnapshotCorrupt):
            restore_into(MemoryStore(), **{uid: elements(state, plain.encode(value))})


@pytest.mark.parametrize(
    "committable",
    [
        {"staged": "../../etc/passwd", "final": "passwd", "size": 1},
        {"staged": ".moorline-staging/a/../../../x", "final": "x", "size": 1},
        {"staged": "/etc/passwd", "final": "../passwd", "size": 1},
        {"staged": "a\0b", "final": "a\0b", "size": 1},
        {"staged": "x", "final": "x", "size": -1},
        {"staged": ["x"], "final": {}, "size": "many"},
        "no committable",
    ],
)
def test_the_file_sink_publishes_nothing_that_it_did_not_stage(tmp_path, committable):
    out = tmp_path / "out"
    out.mkdir()
    sink = mo.write_files(out, format="jsonl")
    with pytest.raises(StorageError):
        restore_into(MemoryStore(), sink, books=elements("committables", plain.encode([1, committable])))
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


# --- keyed state --------------------------------------------------------------------------------


def test_pickles_as_values_and_keys_do_not_run(marker, bombs):
    for bomb in bombs:
        store = MemoryStore()
        with pytest.raises((RestoreError, ValueError)):
            key = pa.array([keys.encode(1)], pa.binary())
            value = pa.array([bomb], pa.binary())
            restore_into(store, keeps=keyed(store, "anything", "value", "plain", rows(key, value)))
        store = MemoryStore()
        with pytest.raises((RestoreError, ValueError)):
            key, value = pa.array([bomb], pa.binary()), pa.array([1], pa.int64())
            restore_into(store, keeps=keyed(store, "number", "value", INT, rows(key, value)))


HOSTILE_TABLES = {
    "no value": lambda: rows(pa.array([1]), pa.array([1])).drop_columns(["value"]),
    "no key": lambda: rows(pa.array([1]), pa.array([1])).drop_columns(["key"]),
    "key is a list": lambda: rows(pa.array([[1]]), pa.array([1])),
    "key is no encoding": lambda: rows(pa.array([b"\xff\x00"], pa.binary()), pa.array([1])),
    "key is cut short": lambda: rows(pa.array([keys.encode((1, 2))[:-3]], pa.binary()), pa.array([1])),
    "key is nothing": lambda: rows(pa.array([None], pa.binary()), pa.array([1])),
    "key is nested": lambda: rows(pa.array([_nested(3_000)], pa.binary()), pa.array([1])),
}


def _nested(depth: int) -> bytes:
    encoded = keys.encode(1)
    for _ in range(depth):
        encoded = b"(" + len(encoded).to_bytes(4, "big") + encoded
    return encoded


@pytest.mark.parametrize("table", HOSTILE_TABLES.values(), ids=HOSTILE_TABLES.keys())
def test_rows_of_another_shape_are_refused(table):
    store = MemoryStore()
    with pytest.raises(RestoreError):
        restore_into(store, keeps=keyed(store, "number", "value", INT, table()))


@pytest.mark.parametrize("value", ["text", {"x": 1}, [1]])
def test_a_column_of_another_type_than_its_handle_says_is_refused(value):
    store = MemoryStore()
    with pytest.raises(RestoreError):
        restore_into(store, keeps=keyed(store, "number", "value", INT, rows(pa.array([1]), pa.array([value]))))


def test_a_class_named_by_a_key_is_not_looked_up(marker):
    """An Enum or a dataclass waits under its encoding until a record brings the object along."""
    for encoded in (b"eos.system\0RED", b"D" + b"os.system", b"e\xff\xfe", b"D"):
        store = MemoryStore()
        table = rows(pa.array([encoded], pa.binary()), pa.array([1], pa.int64()))
        with contextlib.suppress(SnapshotCorrupt):  # some of them are no keys at all
            restore_into(store, keeps=keyed(store, "number", "value", INT, table))


def test_an_extension_type_in_parquet_stays_data(marker, bombs):
    """What reading Parquet did before pyarrow 14.0.1: CVE-2023-47248."""
    for bomb in bombs:
        for name in (b"arrow.py_extension_type", b"moorline.pickle"):
            metadata = {b"ARROW:extension:name": name, b"ARROW:extension:metadata": bomb}
            schema = pa.schema(
                [
                    pa.field("key_group", pa.int32()),
                    pa.field("key", pa.int64()),
                    pa.field("value", pa.int64(), metadata=metadata),
                ],
                metadata={b"pandas": bomb, b"moorline": bomb},
            )
            store = MemoryStore()
            table = pa.Table.from_arrays([pa.array([3], pa.int32()), pa.array([1]), pa.array([7])], schema=schema)
            restore = keyed(store, "number", "value", INT, table)
            stored = pq.read_schema(pa.BufferReader(store.get(restore.keyed[0].file.path)))
            assert bomb in stored.metadata.values(), "the bomb is in the file"
            restore_into(store, keeps=restore)


# --- manifests ----------------------------------------------------------------------------------


PATHS = [
    "../other/data.parquet",
    "data/../../x.parquet",
    "/etc/passwd",
    "C:\\windows\\system32",
    "data/chk-1/\0.parquet",
    "data/" + "x" * 300,
    "data/./x",
    "file:///etc/passwd",
    "s3://bucket/x",
    "data/chk-1/\u2024\u2024/x",
    "data//x",
    "data/x/",
    "~/x",
    "",
    "a/b/c/d/e/f/g/h/i",
]


def published(store: MemoryStore | LocalStore, path: str) -> None:
    """A history whose newest checkpoint names ``path``. Encoded by hand: our writer would not."""
    history = History(store, "target")
    history.claim(False, 1)
    file = SnapshotFile(path, 10, [Segment(0, 0, 0, 10, "0" * 16)])
    handles = OperatorHandles("keeps", [RowsHandle("number", "value", INT, 0, 128, 1, file)])
    manifest = Manifest("target", 1, 1, 1, [OperatorEntry("keeps", "Keeps", 1, 128, [handles])])
    store.put("history/0000000002.json", entries.encode(manifest, "mallory", ""))


@pytest.mark.parametrize("path", PATHS)
def test_a_manifest_that_points_elsewhere_is_refused_as_a_whole(tmp_path, path):
    outside = tmp_path / "other"
    outside.mkdir()
    (outside / "data.parquet").write_bytes(b"0123456789")
    store = LocalStore(tmp_path / "job")
    published(store, path)
    damage = [r.damage for r in History(store, "target").read()]
    assert damage[0] is None
    assert "no file of ours can have this path" in damage[1]
    file = SnapshotFile(path, 10, [Segment(0, 0, 0, 10, "0" * 16)])
    with pytest.raises(SnapshotCorrupt):
        snapshots.verify(store, file)
    assert (outside / "data.parquet").read_bytes() == b"0123456789"


def test_a_link_that_leads_out_of_the_folder_is_not_followed(tmp_path):
    (tmp_path / "secret").write_bytes(b"0123456789")
    store = LocalStore(tmp_path / "job")
    folder = tmp_path / "job" / "data" / "chk-1" / "keeps"
    folder.mkdir(parents=True)
    (folder / "number-0-1-aa.parquet").symlink_to(tmp_path / "secret")
    with pytest.raises((StorageError, SnapshotCorrupt)):
        store.get("data/chk-1/keeps/number-0-1-aa.parquet")


HOSTILE_ENTRIES = {
    "pickle": lambda bomb: bomb,
    "depth": lambda bomb: b"[" * 1_000_000,
    "depth of objects": lambda bomb: b'{"entry":' * 100_000,
    "not an object": lambda bomb: b"[]",
    "no entry": lambda bomb: b"{}",
    "text": lambda bomb: b'{"xxh3": "\xff\xfe", "entry": {}}',
    "nothing": lambda bomb: b"",
    "numbers": lambda bomb: _enveloped({"kind": "claim", "job": "target", "attempt": 10**400, "created_ms": 0}),
    "attempt": lambda bomb: _enveloped(
        {"kind": "claim", "job": "target", "attempt": 10**9, "created_ms": 0, "fresh": True, "format": 1}
    ),
    "class": lambda bomb: _enveloped(
        {"kind": "os.system", "__class__": "os.system", "job": "target", "attempt": 1, "format": 1}
    ),
    "future": lambda bomb: _enveloped({"kind": "claim", "job": "target", "format": 10**6, "attempt": 1}),
    "twice": lambda bomb: b'{"xxh3": "a", "xxh3": "b", "entry": {"job": "a", "job": "target"}, "entry": 1}',
}


def _enveloped(entry: dict) -> bytes:
    body = json.dumps(entry).encode()
    return b'{"xxh3": "%s", "entry": %s}' % (entries.digest(body).encode(), body)


@pytest.mark.parametrize("make", HOSTILE_ENTRIES.values(), ids=HOSTILE_ENTRIES.keys())
def test_an_entry_that_is_none_is_damage_and_nothing_else(marker, bombs, make):
    for bomb in bombs:
        store = MemoryStore()
        history = History(store, "target")
        history.claim(False, 1)
        store.put("history/0000000002.json", make(bomb))
        (_, record) = History(store, "target").read()
        assert record.entry is None
        assert record.damage


def test_segments_that_lie_about_their_file_are_refused():
    store = MemoryStore()
    table = rows(pa.array([1]), pa.array([1], pa.int64()))
    file = snapshots.write_rows(store, "data/chk-1/keeps/number-0-1-aa.parquet", table)
    first, *rest = file.segments
    lies = [
        SnapshotFile(file.path, 1 << 60, [first, *rest]),
        SnapshotFile(file.path, 1 << 60, [Segment(0, 128, 0, 1 << 60, first.xxh3)]),
        SnapshotFile(file.path, file.size, rest),
        SnapshotFile(file.path, file.size, []),
        SnapshotFile(file.path, -1, [first, *rest]),
        SnapshotFile(file.path, file.size, [first, Segment(0, 0, first.size, -5, "")]),
        SnapshotFile(file.path, file.size, [Segment(0, 128, -10, first.size, first.xxh3), *rest]),
    ]
    for lie in lies:
        handle = RowsHandle("number", "value", INT, 0, 128, 1, lie)
        with pytest.raises(SnapshotCorrupt):
            restore_into(store, keeps=OperatorRestore((handle,)))
