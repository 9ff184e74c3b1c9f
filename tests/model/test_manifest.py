"""Manifests: JSON there and back, and what they answer about themselves."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from type_trees import state_types, types

from moorline.model.manifest import (
    FORMAT,
    Claim,
    ElementsHandle,
    Entry,
    Manifest,
    NativeFile,
    NativeHandle,
    OperatorEntry,
    OperatorHandles,
    RawHandle,
    RowsHandle,
    Segment,
    SnapshotFile,
    StoredState,
    StoreHandle,
)
from moorline.model.type_tree.tree import INT

number, name = st.integers(0, 2**40), st.text(max_size=8)
segments = st.builds(Segment, number, number, number, number, st.text("0123456789abcdef", min_size=16, max_size=16))
files = st.builds(SnapshotFile, name, number, st.lists(segments, max_size=3))
states = st.lists(st.builds(StoredState, name, name, state_types), max_size=2)
native = st.builds(
    NativeHandle,
    number,
    number,
    name,
    st.lists(st.builds(NativeFile, name, files)),
    states,
)
keyed = st.one_of(
    st.builds(RowsHandle, name, st.sampled_from(["value", "list", "map"]), state_types, number, number, number, files),
    st.builds(RawHandle, name, types, number, number, number, files),
    st.builds(StoreHandle, name, types, number, number, number, files),
    native,
)
inline = st.lists(st.binary(max_size=9), max_size=3)
operator_state = st.builds(
    ElementsHandle, name, st.sampled_from(["split", "union"]), number, inline, st.none() | files, types
)
handles = st.builds(OperatorHandles, name, st.lists(keyed, max_size=2), st.lists(operator_state, max_size=2))
operators = st.builds(OperatorEntry, name, name, number, number, st.lists(handles, max_size=2))
manifests = st.builds(Manifest, name, number, number, number, st.lists(operators, max_size=2))
claims = st.builds(Claim, name, number, number, st.booleans())


@given(st.one_of(manifests, claims))
def test_an_entry_survives_json(entry):
    assert msgspec.json.decode(msgspec.json.encode(entry), type=Entry) == entry


def test_the_kind_tells_a_manifest_from_a_claim():
    claim = msgspec.json.decode(msgspec.json.encode(Claim("j", 2, 5, True)))
    assert claim == {
        "kind": "claim",
        "job": "j",
        "attempt": 2,
        "created_ms": 5,
        "fresh": True,
        "next_checkpoint": 1,
        "given_up": [],
        "format": FORMAT,
        "savepoint": "",
        "stopped_at": 0,
        "run": "",
        "term": 0,
        "given_up_entries": [],
        "emptied": False,
        "ended": "",
        "process": "",
    }
    manifest = msgspec.json.decode(msgspec.json.encode(Manifest("j", 2, 7, 5, [])))
    assert manifest["kind"] == "checkpoint"
    assert manifest["format"] == FORMAT == 4


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", '{"kind": "sabotage"}', '{"kind": "claim"}', '{"kind": "checkpoint", "job": 3}', "{"],
)
def test_anything_else_is_no_entry(text):
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(text.encode(), type=Entry)


def file(path: str, size: int) -> SnapshotFile:
    return SnapshotFile(path, size, [])


def test_a_manifest_knows_all_of_its_files_and_their_size():
    one = OperatorHandles("a", [RowsHandle("s", "value", INT, 0, 64, 3, file("k1", 10))], [])
    two = OperatorHandles(
        "a",
        [RowsHandle("s", "value", INT, 64, 128, 3, file("k2", 20))],
        [ElementsHandle("e", "split", 2, file=file("e2", 5)), ElementsHandle("i", "split", 1, inline=[b"x"])],
    )
    manifest = Manifest("j", 1, 1, 0, [OperatorEntry("a", "A", 2, 128, [one, two])])
    assert [f.path for f in manifest.files()] == ["k1", "k2", "e2"]
    assert manifest.size == 35
