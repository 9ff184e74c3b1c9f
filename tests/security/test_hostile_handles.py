"""Handles from somebody who wishes us ill: refused when the manifest is decoded, before anything is fetched."""

from __future__ import annotations

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
from moorline.model.type_tree.tree import INT
from moorline.storage import entries
from moorline.storage.stored_handles import StoredHandle

FILE = SnapshotFile("data/chk-1/op/s-0-1-abc.parquet", 4, [Segment(0, 0, 0, 4, "0" * 16)])
ROWS = StoredHandle("s", "value", "int", 0, 8, 1, FILE)
NATIVE = StoredHandle("", "native", "", 0, 8, 0, backend="rocksdb", files=[NativeFile("CURRENT", FILE)])


def decoded(*keyed: StoredHandle) -> Manifest:
    """What becomes of a manifest that has these handles, as it is decoded from its file."""
    handles = {"uid": "op", "keyed": msgspec.to_builtins(list(keyed))}
    operator = {"uid": "op", "name": "op", "parallelism": 1, "max_parallelism": 8, "subtasks": [handles]}
    head = {"kind": "checkpoint", "job": "job", "attempt": 1, "checkpoint": 1, "created_ms": 0, "format": FORMAT}
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
        (changed(ROWS, states=[("s", "value", "int")]), "in rows and in files"),
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


@pytest.mark.parametrize(
    "text", ["os.system", "__import__('os').mkdir('x')", "int; import os", "pickle", "", "int to int"]
)
def test_the_type_in_a_manifest_is_data_and_no_path_to_code(text):
    for handle in (changed(ROWS, type=text), changed(NATIVE, states=[("s", "value", text)])):
        with pytest.raises(SnapshotCorrupt, match="state 's' of operator 'op' has no type"):
            decoded(handle)


def test_parts_of_another_number_of_subtasks_are_refused():
    operator = OperatorEntry("op", "op", 2, 8, [OperatorHandles("op")])
    with pytest.raises(SnapshotCorrupt, match="parallelism 2 and 1 subtasks"):
        entries.decode(entries.encode(Manifest("job", 1, 1, 0, [operator]), "w", ""), "job", 1)
