"""Handles in a file: every shape there and back, in the fields that every version of the format has."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from type_trees import types

from moorline.model.manifest import (
    FORMAT,
    ROW_KINDS,
    KeyedHandle,
    Manifest,
    NativeFile,
    NativeHandle,
    OperatorEntry,
    OperatorHandles,
    RawHandle,
    RowsHandle,
    SnapshotFile,
    StoredState,
    StoreHandle,
)
from moorline.model.type_tree.tree import INT, PLAIN, Array, Map, Word
from moorline.storage import entries

FILE = SnapshotFile("data/chk-1/op/s-0-1-abc.parquet", 0, [])
COMMON = {"first": 2, "end": 6, "increment": False, "backend": "", "files": [], "states": []}


def manifest(*keyed: KeyedHandle) -> Manifest:
    return Manifest("job", 1, 1, 0, [OperatorEntry("op", "Op", 1, 8, [OperatorHandles("op", list(keyed))])])


def written(handle: KeyedHandle) -> dict[str, object]:
    data = msgspec.json.decode(entries.encode(manifest(handle), "w", ""))
    return data["entry"]["operators"][0]["subtasks"][0]["keyed"][0]


def test_what_is_written_has_the_same_fields_whatever_its_shape():
    of_int = {"is": "word", "word": "int"}
    file = {"path": FILE.path, "size": 0, "segments": []}
    rows = {"state": "s", "type": of_int, "rows": 5, "file": file} | COMMON
    assert written(RowsHandle("s", "value", INT, 2, 6, 5, FILE)) == rows | {"kind": "value"}
    of_map = {"kind": "map", "type": {"is": "map", "key": of_int, "value": of_int}, "increment": True}
    assert written(RowsHandle("s", "map", Map(INT, INT), 2, 6, 5, FILE, True)) == rows | of_map
    assert written(RawHandle("s", INT, 2, 6, 5, FILE)) == rows | {"kind": "raw"}
    assert written(StoreHandle("s", INT, 2, 6, 5, FILE)) == rows | {"kind": "store"}
    native = NativeHandle(2, 6, "rocksdb", [NativeFile("CURRENT", FILE)], [StoredState("s", "value", INT)])
    assert written(native) == COMMON | {
        "state": "",
        "kind": "native",
        "type": None,
        "rows": 0,
        "file": None,
        "backend": "rocksdb",
        "files": [{"name": "CURRENT", "file": file}],
        "states": [["s", "value", of_int]],
    }


def test_the_fields_stand_in_the_order_that_they_always_had():
    data = msgspec.json.decode(entries.encode(manifest(RowsHandle("s", "value", INT, 2, 6, 5, FILE)), "w", ""))["entry"]
    assert list(data) == ["kind", "job", "attempt", "checkpoint", "created_ms", "operators", "format", "lineage"]
    (operator,) = data["operators"]
    assert list(operator) == ["uid", "name", "parallelism", "max_parallelism", "subtasks", "rekeyed"]
    assert list(operator["subtasks"][0]) == ["uid", "keyed", "elements", "in_flight", "keys"]
    fields = "state kind type first end rows file increment backend files states"
    assert list(operator["subtasks"][0]["keyed"][0]) == fields.split()


name, count = st.text(max_size=5), st.integers(0, 9)
kinds_and_types = st.tuples(st.sampled_from([k for k in ROW_KINDS if k != "map"]), types) | st.builds(
    lambda key, value: ("map", Map(key, value)), types, types
)
bounds = st.tuples(st.integers(0, 4), st.integers(4, 8))
names = st.lists(st.from_regex(r"[0-9]{1,6}\.sst", fullmatch=True), unique=True, max_size=3)
shapes = st.one_of(
    st.builds(
        lambda s, k, b, n, i: RowsHandle(s, *k, *b, n, FILE, i),
        *(name, kinds_and_types, bounds, count, st.booleans()),
    ),
    st.builds(lambda s, t, b, n: RawHandle(s, t, *b, n, FILE), name, types, bounds, count),
    st.builds(lambda s, t, b, n: StoreHandle(s, t, *b, n, FILE), name, types, bounds, count),
    st.builds(
        lambda b, found, states: NativeHandle(*b, "rocksdb", [NativeFile(n, FILE) for n in found], states),
        *(bounds, names, st.lists(st.builds(lambda s, k: StoredState(s, *k), name, kinds_and_types), max_size=2)),
    ),
)


@given(st.lists(shapes, max_size=4))
def test_every_shape_comes_back_as_it_was(keyed):
    entry = manifest(*keyed)
    assert entries.decode(entries.encode(entry, "w", ""), "job", 1) == entry


def test_a_handle_of_the_first_format_has_no_more_than_it_needs():
    body = msgspec.json.encode(
        {
            "kind": "checkpoint",
            "job": "job",
            "attempt": 1,
            "checkpoint": 1,
            "created_ms": 0,
            "format": 1,
            "operators": [
                {
                    "uid": "op",
                    "name": "Op",
                    "parallelism": 1,
                    "max_parallelism": 8,
                    "subtasks": [
                        {
                            "uid": "op",
                            "keyed": [
                                {
                                    **{"state": "s", "kind": "value", "type": "int", "first": 2, "end": 6, "rows": 5},
                                    "file": {"path": FILE.path, "size": 0, "segments": []},
                                }
                            ],
                        }
                    ],
                }
            ],
        }
    )
    data = b'{"xxh3": "%s", "entry": %s}' % (entries.digest(body).encode(), body)
    found = entries.decode(data, "job", 1)
    expected = msgspec.structs.replace(manifest(RowsHandle("s", "value", INT, 2, 6, 5, FILE)), format=1)
    assert found == expected
    again = entries.decode(entries.encode(found, "w", ""), "job", 1)
    assert again == msgspec.structs.replace(expected, format=FORMAT), "it is written as today's are"


@pytest.mark.parametrize("format", [1, 2, 3])
def test_types_of_older_formats_are_texts_and_come_back_as_trees(format):
    texts = {"value": "Basket(owner: str, sizes: list[int])", "map": "str to np.ndarray[np.float32]"}
    common = {"first": 0, "end": 8, "rows": 1, "file": {"path": FILE.path, "size": 0, "segments": []}}
    keyed = [{"state": kind, "kind": kind, "type": text} | common for kind, text in texts.items()]
    states = [[kind, kind, text] for kind, text in texts.items()]
    keyed.append({"state": "", "kind": "native", "type": "", "first": 0, "end": 8, "rows": 0, "backend": "rocksdb"})
    keyed[-1] |= {"files": [], "states": states}
    elements = [
        {"state": "e", "mode": "split", "count": 0, "type": "date"},
        {"state": "p", "mode": "split", "count": 0},
    ]
    operator = {"uid": "op", "name": "Op", "parallelism": 1, "max_parallelism": 8}
    operator |= {"subtasks": [{"uid": "op", "keyed": keyed, "elements": elements}]}
    head = {"kind": "checkpoint", "job": "job", "attempt": 1, "checkpoint": 1, "created_ms": 0, "format": format}
    body = msgspec.json.encode(head | {"operators": [operator]})
    found = entries.decode(b'{"xxh3": "%s", "entry": %s}' % (entries.digest(body).encode(), body), "job", 1)
    ((value, mapped, native),) = (s.keyed for o in found.operators for s in o.subtasks)
    assert [str(value.type), str(mapped.type)] == list(texts.values())
    assert mapped.type == Map(Word("str"), Array("np.float32"))
    assert [s.type for s in native.states] == [value.type, mapped.type]
    assert [e.type for e in found.operators[0].subtasks[0].elements] == [Word("date"), PLAIN]
