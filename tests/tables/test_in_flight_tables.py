"""Records in flight as a table, and in savepoints that are made of others."""

from __future__ import annotations

import uuid

import msgspec
import pytest

import moorline as mo
from moorline.errors import SnapshotCorrupt
from moorline.model.manifest import InFlightHandle, Manifest, OperatorEntry, OperatorHandles
from moorline.snapshots.tables.reader import SnapshotReader
from moorline.state.types import plain
from moorline.storage import entries
from moorline.storage import segments as snapshots
from moorline.storage.layout import entry_path
from moorline.storage.stores.open import open_store

RUNS = [plain.encode([[10, 20], [("a", 1), ("b", 2)]]), plain.encode([None, [("a", 3)]])]


def handle(**changes):
    whole = InFlightHandle("numbers", None, 0, "hash", 0, 8, records=3, count=2, inline=RUNS)
    return msgspec.structs.replace(whole, **changes)


def saved(first, second=None):
    url = f"memory://{uuid.uuid4().hex}"
    store = open_store(url)
    if second is not None:
        file = snapshots.write_elements(store, "data/chk-1/count/in-flight-1-1-x.parquet", RUNS)
        second = msgspec.structs.replace(second, file=file, inline=[])
    parts = [OperatorHandles("count", in_flight=[h]) for h in (first, second) if h is not None]
    manifest = Manifest("counting", 1, 1, 0, [OperatorEntry("count", "Count", len(parts), 8, parts)])
    store.put_if_absent(entry_path(1), entries.encode(manifest, "w", ""))
    return url


def test_each_record_is_a_row_with_its_time_and_where_it_came_from():
    table = mo.read_snapshot(saved(handle(), handle(side=1, tag="late"))).in_flight("count")
    rows = table.to_pylist()
    assert [(r["subtask"], r["timestamp"], plain.decode(r["record"])) for r in rows[:3]] == [
        (0, 10, ("a", 1)),
        (0, 20, ("b", 2)),
        (0, None, ("a", 3)),
    ]
    assert {(r["subtask"], r["upstream"], r["tag"], r["side"]) for r in rows} == {
        (0, "numbers", None, 0),
        (1, "numbers", "late", 1),
    }
    assert rows[0]["shown"] == "('a', 1)"


def test_the_metadata_counts_them():
    (info,) = SnapshotReader.open(saved(handle(), handle())).states
    assert (info.table, info.kind, info.rows, info.files) == ("in_flight", "plain", 6, 1)


def test_pickles_are_counted_and_not_looked_into():
    rows = mo.read_snapshot(saved(handle(pickled=True, inline=[b"cos\nsystem\n"]))).in_flight("count").to_pylist()
    assert [(r["record"], r["shown"]) for r in rows] == [(None, None)] * 3


@pytest.mark.parametrize("damage", [{"records": 4}, {"inline": [b"\xc1"]}, {"inline": [plain.encode([[1], []])]}])
def test_what_does_not_fit_is_damage(damage):
    with pytest.raises(SnapshotCorrupt, match="in flight"):
        mo.read_snapshot(saved(handle(**damage))).in_flight("count")
