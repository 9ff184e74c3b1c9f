"""What is different between two snapshots."""

from __future__ import annotations

import uuid

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from snapshot_samples import BACKENDS, everything, state_config

import moorline as mo
from moorline.model.manifest import ElementsHandle, OperatorEntry, OperatorHandles
from moorline.snapshots.tables import diff as diffing
from moorline.snapshots.tables.diff import Change, diff
from moorline.snapshots.tables.reader import SnapshotReader
from moorline.state.types import plain
from moorline.storage.stores.memory import MemoryStore

COUNT = mo.ValueStateDescriptor("count", int)


def reader(*states, job: str = "j", max_parallelism: int = 128) -> SnapshotReader:
    url = f"memory://{uuid.uuid4().hex}"
    writer = mo.SnapshotWriter(url, job=job, max_parallelism=max_parallelism)
    for uid, descriptor, rows in states:
        options = {"map_key": "m"} if descriptor.kind == "map" else {}
        writer.keyed(uid, descriptor, rows, key="k", **options)
    writer.write()
    return SnapshotReader.open(url)


def rows(values: dict) -> list:
    return [{"k": k, "value": v} for k, v in values.items()]


def test_rows_are_added_removed_and_changed_by_key():
    a, b = reader(("op", COUNT, rows({"x": 1, "y": 2, "z": 3}))), reader(("op", COUNT, rows({"x": 1, "y": 9, "w": 4})))
    changes = sorted(map(str, diff(a, b)))
    assert changes == [
        "added: 'op' 'count' key 'w': 4",
        "changed: 'op' 'count' key 'y': 2 -> 9",
        "removed: 'op' 'count' key 'z': 3",
    ]
    assert list(diff(a, a)) == []


def test_states_come_and_go_and_change_their_type():
    a = reader(("op", COUNT, rows({1: 1})), ("old", COUNT, rows({1: 1})))
    b = reader(("op", mo.ValueStateDescriptor("count", float), rows({1: 1.0})), ("new", COUNT, rows({1: 1})))
    said = "value of int in 128 key groups"
    assert list(diff(a, b)) == [
        Change("changed", "op", "count", before=said, after="value of float in 128 key groups"),
        Change("removed", "old", "count", before=said),
        Change("added", "new", "count", after=said),
    ]


def test_another_number_of_key_groups_is_a_change_of_the_state():
    a, b = (reader(("op", COUNT, rows({1: 1})), max_parallelism=n) for n in (128, 64))
    (change,) = diff(a, b)
    assert (change.what, change.after) == ("changed", "value of int in 64 key groups")


def test_entries_of_a_map_are_told_one_by_one_and_lists_as_a_whole():
    basket, tags = mo.MapStateDescriptor("basket", str, int), mo.ListStateDescriptor("tags", str)
    one = [{"k": "a", "m": "tea", "value": 1}, {"k": "a", "m": "salt", "value": 2}]
    other = [{"k": "a", "m": "tea", "value": 5}]
    a = reader(("op", basket, one), ("op", tags, [{"k": "a", "value": "x"}]))
    b = reader(("op", basket, other), ("op", tags, [{"k": "a", "value": "x"}, {"k": "a", "value": "y"}]))
    assert sorted(map(str, diff(a, b))) == [
        "changed: 'op' 'basket' key 'a' entry 'tea': 1 -> 5",
        "changed: 'op' 'tags' key 'a': ['x'] -> ['x', 'y']",
        "removed: 'op' 'basket' key 'a' entry 'salt': 2",
    ]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("other", BACKENDS)
def test_backends_and_parallelism_make_no_difference(backend, other, tmp_path):
    found = []
    for name, parallelism, extra in ((backend, 1, []), (other, 3, [(7, 70), (8, -1)])):
        harness = everything(parallelism, state_config(name, tmp_path))
        for change in [(n, n) for n in range(40)] + extra:
            harness.process(change)
        snapshot = harness.snapshot()
        found.append(SnapshotReader(snapshot.manifest, snapshot.store))
        harness.close()
    changes = list(diff(*found))
    assert {(c.what, c.key) for c in changes if c.state == "value"} == {("changed", 7), ("removed", 8)}
    timers = [c for c in changes if c.state == "timers:processing"]
    assert [(c.key, c.before, c.after) for c in timers] == [(7, [1_000_007], [1_000_007, 1_000_070])]
    assert {c.key for c in changes} == {7, 8}


class CountedStore(MemoryStore):
    reads = 0

    def get_range(self, path, offset, size):
        CountedStore.reads += 1
        return super().get_range(path, offset, size)


def test_what_two_checkpoints_share_is_not_read():
    harness = everything(1, state_config("increments", ""))
    harness._store.__class__ = CountedStore
    for n in range(300):
        harness.process((n, n))
    one = harness.snapshot()
    harness.confirm()
    two = harness.snapshot()
    CountedStore.reads = 0
    assert list(diff(SnapshotReader(one.manifest, one.store), SnapshotReader(two.manifest, two.store))) == []
    assert CountedStore.reads == 0


def test_operator_state_is_compared_as_a_bag_and_broadcast_state_by_entry():
    limits, buffer = mo.MapStateDescriptor("limits", str, int), mo.ListStateDescriptor("buffer", int)
    found = []
    for entries, elements in (({"a": 1, "b": 2}, [1, 1, 2]), ({"a": 1, "b": 3, "c": 4}, [2, 1, 5])):
        url = f"memory://{uuid.uuid4().hex}"
        writer = mo.SnapshotWriter(url, job="j")
        writer.broadcast_state("op", limits, [{"map_key": k, "value": v} for k, v in entries.items()])
        writer.operator_state("op", buffer, [{"value": v} for v in elements]).write()
        found.append(SnapshotReader.open(url))
    assert sorted(map(str, diff(*found))) == [
        "added: 'op' 'buffer': 5",
        "added: 'op' 'limits' entry 'c': 4",
        "changed: 'op' 'limits' entry 'b': 2 -> 3",
        "removed: 'op' 'buffer': 1",
    ]


def with_positions(snapshot: SnapshotReader, *subtasks: list) -> SnapshotReader:
    """The snapshot of a job whose source comes first, as sources do, with the positions of each of its subtasks."""
    parts = [
        OperatorHandles("lines", elements=[ElementsHandle("positions", "union", len(p), [plain.encode(e) for e in p])])
        for p in subtasks
    ]
    source = OperatorEntry("lines", "read_files", len(subtasks), 128, parts)
    manifest = msgspec.structs.replace(snapshot.manifest, operators=[source, *snapshot.manifest.operators])
    return SnapshotReader(manifest, snapshot.store)


def test_what_has_a_key_comes_first_and_positions_are_told_split_by_split():
    before = with_positions(reader(("op", COUNT, rows({"x": 1}))), [["a.txt", {"line": 7}], ["b.txt", {"line": 2}]])
    # Read at another parallelism meanwhile: which subtask has a split is no difference.
    after = with_positions(
        reader(("op", COUNT, rows({"x": 2}))),
        [["b.txt", {"line": 2}], ["c.txt", {"line": 1}]],
        [["a.txt", {"line": 9}]],
    )
    assert list(map(str, diff(before, after))) == [
        "changed: 'op' 'count' key 'x': 1 -> 2",
        "changed: 'lines' 'positions' entry 'a.txt': {'line': 7} -> {'line': 9}",
        "added: 'lines' 'positions' entry 'c.txt': {'line': 1}",
    ]


def test_values_without_a_declared_type_are_shown_as_values():
    anything, several = mo.ValueStateDescriptor("anything"), mo.ListStateDescriptor("several")
    a, b = (reader(("op", anything, rows({"x": {"n": n}})), ("op", several, rows({"x": f"v{n}"}))) for n in (1, 2))
    assert list(map(str, diff(a, b))) == [
        "changed: 'op' 'anything' key 'x': {'n': 1} -> {'n': 2}",
        "changed: 'op' 'several' key 'x': ['v1'] -> ['v2']",
    ]


def test_positions_that_are_no_positions_are_shown_as_they_are():
    a, b = (with_positions(reader(("op", COUNT, rows({"x": 1}))), elements) for elements in ([["a", 1], 3], [4]))
    assert sorted(map(str, diff(a, b))) == [
        "added: 'lines' 'positions': 4",
        "removed: 'lines' 'positions': 3",
        "removed: 'lines' 'positions': ['a', 1]",
    ]


ENTRIES = st.dictionaries(st.integers(0, 40), st.integers(0, 3), min_size=1)


@given(ENTRIES, ENTRIES, st.integers(1, 40))
def test_the_changes_are_what_makes_one_of_the_other(before, after, piece_rows):
    a, b = reader(("op", COUNT, rows(before))), reader(("op", COUNT, rows(after)))
    old, diffing.PIECE_ROWS = diffing.PIECE_ROWS, piece_rows
    try:
        changes = list(diff(a, b))
    finally:
        diffing.PIECE_ROWS = old
    made = dict(before)
    for change in changes:
        assert made.get(change.key) == change.before
        if change.what == "removed":
            del made[change.key]
        else:
            made[change.key] = change.after
    assert made == after
    assert len({c.key for c in changes}) == len(changes)
