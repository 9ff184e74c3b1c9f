"""Handles from somebody who wishes us ill: refused when the manifest is decoded, before anything is fetched."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from moorline.errors import SnapshotCorrupt
from moorline.model.manifest import (
    FORMAT,
    Manifest,
    NativeFile,
    NativeHandle,
    OperatorEntry,
    OperatorHandles,
    Segment,
    SnapshotFile,
    StoredState,
)
from moorline.model.type_tree import tree
from moorline.model.type_tree.tree import INT
from moorline.storage import entries
from moorline.storage.stored_handles import StoredHandle

FILE = SnapshotFile("data/chk-1/op/s-0-1-abc.parquet", 4, [Segment(0, 0, 0, 4, "0" * 16)])
ROWS = StoredHandle("s", "value", INT, 0, 8, 1, FILE)
NATIVE = StoredHandle("", "native", None, 0, 8, 0, backend="rocksdb", files=[NativeFile("CURRENT", FILE)])


def decoded(*keyed: StoredHandle, elements: Sequence[dict[str, object]] = (), format: int = FORMAT) -> Manifest:
    """What becomes of a manifest that has these handles, as it is decoded from its file."""
    handles = {"uid": "op", "keyed": msgspec.to_builtins(list(keyed)), "elements": elements}
    operator = {"uid": "op", "name": "op", "parallelism": 1, "max_parallelism": 8, "subtasks": [handles]}
    head = {"kind": "checkpoint", "job": "job", "attempt": 1, "checkpoint": 1, "created_ms": 0, "format": format}
    body = msgspec.json.encode(head | {"operators": [operator]})
    data = b'{"xxh3": "%s", "entry": %s}' % (entries.digest(body).encode(), body)
    entry = entries.decode(data, "job", 1)
    assert isinstance(entry, Manifest)
    return entry


def changed(handle: StoredHandle, **fields: object) -> StoredHandle:
    return msgspec.structs.replace(handle, **fields)


def test_what_is_as_it_should_be_passes():
    found = decoded(ROWS, NATIVE)
    ((rows, native),) = (s.keyed for o in found.operators for s in o.subtasks)
    assert (rows.states, rows.all_files()) == ([StoredState("s", "value", INT)], [FILE])
    assert native == NativeHandle(0, 8, "rocksdb", NATIVE.files, [])


NAMES = ["../evil", "../../x", "/etc/passwd", "a/b", "..", ".", "", "a\\b", "x.so", "LOCK", "OPTIONS-000007"]


@pytest.mark.parametrize("name", [*NAMES, "000001.sst\n", "٣.sst", "000012.sst/../../x"], ids=repr)
def test_native_files_of_other_names_never_become_paths(name):
    with pytest.raises(SnapshotCorrupt, match="no name for a file"):
        decoded(changed(NATIVE, files=[*NATIVE.files, NativeFile(name, FILE)]))


def test_two_native_files_of_one_name_are_refused():
    with pytest.raises(SnapshotCorrupt, match="by one name"):
        decoded(changed(NATIVE, files=2 * NATIVE.files))


@pytest.mark.parametrize("backend", ["", "other", "../rocksdb"])
def test_files_of_a_backend_that_there_is_not_are_refused(backend):
    with pytest.raises(SnapshotCorrupt, match="which there is not"):
        decoded(changed(NATIVE, backend=backend))


@pytest.mark.parametrize("path", ["../other-job/data/x", "/etc/passwd", "data/../../x", "", "data/a b"])
@pytest.mark.parametrize("is_native", [False, True])
def test_paths_that_leave_the_folder_are_refused(path, is_native):
    evil = msgspec.structs.replace(FILE, path=path)
    handle = changed(NATIVE, files=[NativeFile("CURRENT", evil)]) if is_native else changed(ROWS, file=evil)
    with pytest.raises(SnapshotCorrupt, match="no file of ours can have this path"):
        decoded(handle)


@pytest.mark.parametrize(
    ("handle", "cause"),
    [
        (changed(ROWS, kind="native-ish"), "does not know"),
        (changed(ROWS, file=None), "has no file"),
        (changed(ROWS, file=None, increment=True), "has no file"),
        (changed(ROWS, kind="raw", increment=True), "no increments"),
        (changed(ROWS, kind="store", increment=True), "no increments"),
        (changed(ROWS, files=NATIVE.files), "in rows and in files"),
        (changed(ROWS, states=[("s", "value", INT)]), "in rows and in files"),
        (changed(NATIVE, file=FILE), "rows as well"),
        (changed(NATIVE, increment=True), "rows as well"),
        (changed(NATIVE, first=-1), "rows of key groups"),
        (changed(NATIVE, end=9), "rows of key groups"),
        (changed(ROWS, first=5, end=4), "rows of key groups"),
        (changed(ROWS, rows=-1), "rows of key groups"),
    ],
)
def test_a_handle_that_contradicts_itself_is_refused(handle, cause):
    with pytest.raises(SnapshotCorrupt, match=cause):
        decoded(ROWS, handle)


def nested(depth: int) -> tree.Type:
    made: tree.Type = INT
    for _ in range(depth):
        made = tree.List.of(list, made)
    return made


TEXTS = ["os.system", "__import__('os').mkdir('x')", "int; import os", "pickle", "", "int to int", "list[" * 100]
TREES = [None, "int", nested(61), tree.Map(INT, INT), tree.Pickle(("C" * 100_001,))]


@pytest.mark.parametrize(
    ("format", "hostile"),
    [*((3, text) for text in TEXTS), (3, INT), *((FORMAT, made) for made in TREES)],
    ids=lambda t: f"{t!s:.20}",
)
def test_the_type_in_a_manifest_is_data_and_no_path_to_code(format, hostile):
    element = {"state": "s", "mode": "split", "count": 0, "type": msgspec.to_builtins(hostile)}
    native = changed(NATIVE, states=[("s", "value", hostile)])
    refused = r"state 's' of operator 'op' has no type|it cannot be read"
    with pytest.raises(SnapshotCorrupt, match=refused):
        decoded(changed(ROWS, type=hostile), format=format)
    with pytest.raises(SnapshotCorrupt, match=refused):
        decoded(native, format=format)
    with pytest.raises(SnapshotCorrupt, match=refused):
        decoded(elements=[element], format=format)


def test_a_map_state_has_the_type_of_one():
    decoded(changed(ROWS, kind="map", type=tree.Map(INT, INT)))
    for format, hostile in ((FORMAT, INT), (3, "int")):
        with pytest.raises(SnapshotCorrupt, match="has no type"):
            decoded(changed(ROWS, kind="map", type=hostile), format=format)


@pytest.mark.parametrize("levels", [100, 5_000, 1_000_000])
def test_a_type_of_too_many_levels_is_refused_whatever_the_number(levels):
    body = b'{"is":"list","build":"list","item":' * levels + b'{"is":"word","word":"int"}' + b"}" * levels
    head = msgspec.json.encode(decoded(ROWS))
    whole = head.replace(b'"type":{"is":"word","word":"int"}', b'"type":' + body)
    whole = whole.replace(b'"shape":"rows",', b"")
    assert whole != head
    data = b'{"xxh3": "%s", "entry": %s}' % (entries.digest(whole).encode(), whole)
    with pytest.raises(SnapshotCorrupt, match=r"nested too deeply|cannot be read"):
        entries.decode(data, "job", 1)


def test_parts_of_another_number_of_subtasks_are_refused():
    operator = OperatorEntry("op", "op", 2, 8, [OperatorHandles("op")])
    with pytest.raises(SnapshotCorrupt, match="parallelism 2 and 1 subtasks"):
        entries.decode(entries.encode(Manifest("job", 1, 1, 0, [operator]), "w", ""), "job", 1)
