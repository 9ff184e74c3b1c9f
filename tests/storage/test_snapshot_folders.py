"""A snapshot is found by its URL: a savepoint, a job's newest checkpoint, a named one; no damage is believed."""

from __future__ import annotations

import pytest
from storage_samples import JOB, claimed, publish

from moorline.errors import SnapshotCorrupt, SnapshotNotFound, StorageError
from moorline.model.manifest import (
    Manifest,
    NativeHandle,
    OperatorEntry,
    OperatorHandles,
    RowsHandle,
    Segment,
    SnapshotFile,
)
from moorline.model.type_tree.tree import INT
from moorline.snapshots.folders import MANIFEST, has_savepoint, open_snapshot, write_savepoint
from moorline.storage import entries
from moorline.storage.history import History
from moorline.storage.layout import entry_path
from moorline.storage.stores.open import open_store


@pytest.fixture(params=["file", "memory"])
def url(request, tmp_path):
    return tmp_path.as_uri() if request.param == "file" else f"memory://{tmp_path.name}-{id(request)}"


def savepoint(checkpoint: int = 7, attempt: int = 3) -> Manifest:
    return Manifest(JOB, attempt, checkpoint, 1_000, [])


def test_a_savepoint_is_found_by_its_folder(url):
    store = open_store(url)
    assert not has_savepoint(store)
    write_savepoint(store, savepoint())
    assert has_savepoint(store)
    found, where = open_snapshot(url)
    assert (found.job, found.checkpoint, where.url) == (JOB, 7, store.url)
    assert open_snapshot(url, 7)[0] == found
    with pytest.raises(SnapshotNotFound, match="is a savepoint, of checkpoint 7"):
        open_snapshot(url, 8)


def test_a_savepoint_has_a_history_of_its_own_whatever_the_attempt(url):
    write_savepoint(open_store(url), savepoint(attempt=40))
    assert open_snapshot(url)[0].attempt == 1


def test_a_savepoint_is_written_once(url):
    write_savepoint(open_store(url), savepoint())
    with pytest.raises(StorageError, match="there is one already"):
        write_savepoint(open_store(url), savepoint(8))
    assert open_snapshot(url)[0].checkpoint == 7


def test_increments_and_native_files_are_no_savepoint(url):
    file = SnapshotFile("data/chk-1/a/b-0-1-c.parquet", 0, [Segment(0, 0, 0, 0, "")])
    for handle in (
        RowsHandle("s", "value", INT, 0, 1, 1, file, increment=True),
        NativeHandle(0, 1, backend="rocksdb"),
        RowsHandle("s", "value", INT, 0, 1, 1, SnapshotFile("history/x.parquet", 0, [])),
    ):
        entry = OperatorEntry("a", "a", 1, 128, [OperatorHandles("a", [handle])])
        with pytest.raises(ValueError, match="savepoint"):
            write_savepoint(open_store(url), Manifest(JOB, 1, 1, 0, [entry]))
    assert not has_savepoint(open_store(url))


def test_the_newest_checkpoint_of_a_job_is_read_without_claiming_anything(url):
    store = open_store(url)
    history = claimed(store)
    for checkpoint in (1, 2, 3):
        publish(history, store, checkpoint)
    before = store.list()
    assert open_snapshot(url)[0].checkpoint == 3
    assert open_snapshot(url, 2)[0].checkpoint == 2
    with pytest.raises(SnapshotNotFound, match="it has 1, 2, 3"):
        open_snapshot(url, 9)
    assert store.list() == before


def test_a_checkpoint_that_was_given_up_is_passed_over_unless_it_is_named(url):
    store = open_store(url)
    history = claimed(store)
    for checkpoint in (1, 2):
        publish(history, store, checkpoint)
    history.give_up([2], 0)
    assert open_snapshot(url)[0].checkpoint == 1
    assert open_snapshot(url, 2)[0].checkpoint == 2


def test_checkpoints_before_a_fresh_start_are_not_of_this_run(url):
    store = open_store(url)
    publish(claimed(store), store, 1)
    History(store, JOB).claim(fresh=True, now_ms=0)
    with pytest.raises(SnapshotNotFound, match="no complete checkpoint yet"):
        open_snapshot(url)
    assert open_snapshot(url, 1)[0].checkpoint == 1


def test_an_empty_folder_says_where_checkpoints_are(url):
    with pytest.raises(SnapshotNotFound, match="neither a manifest"):
        open_snapshot(url)


def test_a_damaged_newest_entry_is_passed_over_and_if_all_are_it_is_said(url):
    store = open_store(url)
    history = claimed(store)
    publish(history, store, 1)
    publish(history, store, 2)
    store.delete([entry_path(3)])
    store.put(entry_path(3), b"{")
    assert open_snapshot(url)[0].checkpoint == 1
    store.delete([entry_path(2)])
    store.put(entry_path(2), b"nonsense")
    with pytest.raises(SnapshotCorrupt):
        open_snapshot(url)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-10],
        lambda data: data.replace(b'"checkpoint": 7', b'"checkpoint": 8'),
        lambda data: b"",
        lambda data: b"\xff" * 100,
        lambda data: entries.encode(Manifest(JOB, 1, 7, 0, [], format=99), "w", ""),
        lambda data: b"[" * 100_000,
    ],
)
def test_a_damaged_manifest_is_refused(url, damage):
    write_savepoint(open_store(url), savepoint())
    data = open_store(url).get(MANIFEST)
    open_store(url).delete([MANIFEST])
    open_store(url).put(MANIFEST, damage(data))
    with pytest.raises(SnapshotCorrupt, match=MANIFEST):
        open_snapshot(url)


def test_a_manifest_whose_files_lie_elsewhere_is_refused(url):
    evil = SnapshotFile("../../etc/passwd", 1, [Segment(0, 0, 0, 1, "")])
    entry = OperatorEntry("a", "a", 1, 128, [OperatorHandles("a", [RowsHandle("s", "value", INT, 0, 1, 1, evil)])])
    open_store(url).put(MANIFEST, entries.encode(Manifest(JOB, 1, 1, 0, [entry]), "w", ""))
    with pytest.raises(SnapshotCorrupt, match="no file of ours can have this path"):
        open_snapshot(url)
