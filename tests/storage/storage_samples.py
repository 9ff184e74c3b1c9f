"""Snapshots, manifests and histories to test with."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from moorline.model.manifest import (
    Claim,
    ElementsHandle,
    Manifest,
    OperatorEntry,
    OperatorHandles,
    RowsHandle,
    SnapshotFile,
)
from moorline.model.type_tree.tree import INT
from moorline.storage.blobs import BlobStore
from moorline.storage.history import History
from moorline.storage.layout import data_path
from moorline.storage.segments import write_elements, write_rows

JOB = "average"


def keyed_table(key_groups: Sequence[int], salt: str = "") -> pa.Table:
    return pa.table(
        {
            "key_group": pa.array(key_groups, pa.int32()),
            "key": pa.array([f"key {i}{salt}" for i in range(len(key_groups))], pa.string()),
            "value": pa.array([i * i for i in range(len(key_groups))], pa.int64()),
        }
    )


def snapshot(store: BlobStore, checkpoint: int, attempt: int, salt: str = "") -> list[SnapshotFile]:
    """The two files of a checkpoint: keyed rows and elements."""
    rows = data_path(checkpoint, "count", "sum", 0, attempt)
    elements = data_path(checkpoint, "numbers", "offsets", 0, attempt)
    table = keyed_table([k for k in range(8) for _ in range(10)], f" of {checkpoint}{salt}")
    return [
        write_rows(store, rows, table, rows_per_group=20),
        write_elements(store, elements, [f"{checkpoint}{salt} {i}".encode() for i in range(5)]),
    ]


def manifest(checkpoint: int, attempt: int, files: Sequence[SnapshotFile] = (), job: str = JOB) -> Manifest:
    keyed = [RowsHandle("sum", "value", INT, 0, 8, 80, f) for f in files[:1]]
    elements = [ElementsHandle("offsets", "split", 5, [], f) for f in files[1:]]
    handles = OperatorHandles("count", keyed, elements)
    return Manifest(job, attempt, checkpoint, 1_000 + checkpoint, [OperatorEntry("count", "Count", 1, 128, [handles])])


def claimed(store: BlobStore, fresh: bool = False) -> History:
    history = History(store, JOB)
    history.claim(fresh, 1)
    return history


def publish(history: History, store: BlobStore, checkpoint: int, going: Sequence[int] = ()) -> list[SnapshotFile]:
    files = snapshot(store, checkpoint, history.attempt)
    history.publish(manifest(checkpoint, history.attempt, files), going)
    return files


def story(store: BlobStore) -> list[str]:
    """The history in short: 3c2 is attempt 2's claim at number 3, 4m2:7 its checkpoint 7 at number 4."""
    told = []
    for r in History(store, JOB).read():
        match r.entry:
            case Claim(attempt=attempt):
                told.append(f"{r.seq}c{attempt}")
            case Manifest(attempt=attempt, checkpoint=checkpoint):
                told.append(f"{r.seq}m{attempt}:{checkpoint}")
            case None:
                told.append(f"{r.seq}damaged")
    return told


def data_files(store: BlobStore) -> list[str]:
    return [b.path for b in store.list("data/")]
