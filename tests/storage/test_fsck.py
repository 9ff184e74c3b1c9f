"""Every way in which a snapshot can be not what it was, and what lies beside it that nobody needs."""

from __future__ import annotations

import pyarrow as pa
import pytest

import moorline as mo
from moorline.errors import SnapshotNotFound
from moorline.model.manifest import (
    ElementsHandle,
    Manifest,
    NativeFile,
    NativeHandle,
    OperatorEntry,
    OperatorHandles,
    RowsHandle,
)
from moorline.model.type_tree.tree import INT
from moorline.snapshots.folders import write_savepoint
from moorline.snapshots.inspection import Kind, Progress, Verdict, check, sweep
from moorline.storage import segments as snapshots
from moorline.storage.blobs import BlobStore
from moorline.storage.history import History
from moorline.storage.layout import data_path
from moorline.storage.stores.memory import MemoryStore
from moorline.storage.stores.open import open_store

JOB = "orders"
#: So late that everything is old.
LATE = 1 << 60


def manifest_of(store: BlobStore, checkpoint: int, attempt: int, tmp_path, native: bool = True) -> Manifest:
    """A checkpoint with a file of each kind."""
    columns = {"key_group": pa.array([0, 0, 3, 7], pa.int32()), "key": [b"a", b"b", b"c", b"d"], "value": [1, 2, 3, 4]}
    rows = pa.table(columns)
    keyed = snapshots.write_rows(store, data_path(checkpoint, "count", "sum", 0, attempt), rows, rows_per_group=2)
    elements = snapshots.write_elements(store, data_path(checkpoint, "count", "seen", 0, attempt), [b"1", b"22"])
    handles = [RowsHandle("sum", "value", INT, 0, 8, 4, keyed)]
    if native:
        (tmp_path / "sst").write_bytes(b"\0" * 5000)
        path = data_path(checkpoint, "count", "native", 0, attempt, suffix="bin")
        file = NativeFile("1.sst", snapshots.write_file(store, path, tmp_path / "sst"))
        handles.append(NativeHandle(0, 8, backend="rocksdb", files=[file]))
    part = OperatorHandles("count", handles, [ElementsHandle("seen", "split", 2, file=elements)])
    return Manifest(JOB, attempt, checkpoint, 0, [OperatorEntry("count", "count", 1, 128, [part])])


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("fsck")


@pytest.fixture
def history(store, tmp_path) -> History:
    """A job with the checkpoints 1 and 2."""
    history = History(store, JOB)
    history.claim(fresh=True, now_ms=0)
    for checkpoint in (1, 2):
        history.publish(manifest_of(store, checkpoint, 1, tmp_path))
    return history


def newest(store: BlobStore, ends: str) -> str:
    return next(b.path for b in store.list("data/chk-2/") if b.path.endswith(ends))


def replace(store: BlobStore, path: str, data: bytes) -> None:
    store.delete([path])
    store.put(path, data)


def test_a_job_whose_files_are_all_there_is_sound(store, history):
    seen: list[Progress] = []
    report = check(store, LATE, progress=seen.append)
    assert report.verdict is Verdict.SOUND
    assert [(s.checkpoint, s.files, s.is_whole) for s in report.snapshots] == [(1, 3, True), (2, 3, True)]
    assert [p.files for p in seen] == [1, 2, 3, 4, 5, 6]
    assert seen[-1].size == seen[-1].of_size == sum(s.size for s in report.snapshots)


@pytest.mark.parametrize("suffix", [".parquet", ".bin"])
@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        (Kind.SIZE, lambda data: data[: len(data) // 2]),
        (Kind.SIZE, lambda data: data + b"x"),
        (Kind.DIGEST, lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:]),
        (Kind.DIGEST, lambda data: data[:-1] + bytes([data[-1] ^ 1])),
    ],
    ids=["cut short", "longer", "a bit", "the last bit"],
)
def test_a_file_that_is_not_what_was_written_is_told_with_who_needs_it(store, history, suffix, kind, damage):
    path = newest(store, suffix)
    replace(store, path, damage(store.get(path)))
    report = check(store, LATE)
    assert [(p.path, p.kind, p.needed_by) for p in report.problems] == [(path, kind, (2,))]
    assert report.verdict is Verdict.DAMAGED
    assert report.newest_whole == 1
    assert "NOT WHOLE" in str(report)


def test_a_file_that_is_missing_is_told(store, history):
    store.delete([path := newest(store, ".bin")])
    (problem,) = check(store, LATE).problems
    assert (problem.path, problem.kind) == (path, Kind.MISSING)


def test_a_file_that_was_replaced_by_another_of_ours_is_wrong(store, history):
    files = [b.path for b in store.list("data/chk-2/") if "/sum-" in b.path]
    other = next(b.path for b in store.list("data/chk-1/") if "/seen-" in b.path)
    replace(store, files[0], store.get(other).ljust(len(store.get(files[0])), b"\0")[: len(store.get(files[0]))])
    assert [p.kind for p in check(store, LATE).problems] == [Kind.DIGEST]


def test_a_file_whose_checksums_fit_but_which_is_no_parquet_is_unreadable(store, tmp_path):
    (tmp_path / "x").write_bytes(b"PAR1 this is none" * 10)
    history = History(store, JOB)
    history.claim(fresh=True, now_ms=0)
    file = snapshots.write_file(store, data_path(1, "count", "sum", 0, 1), tmp_path / "x")
    part = OperatorHandles("count", [RowsHandle("sum", "value", INT, 0, 8, 1, file)])
    history.publish(Manifest(JOB, 1, 1, 0, [OperatorEntry("count", "count", 1, 128, [part])]))
    report = check(store, LATE)
    assert [p.kind for p in report.problems] == [Kind.UNREADABLE]
    assert report.verdict is Verdict.LOST


def test_names_and_sizes_alone_do_not_tell_a_flipped_bit(store, history):
    path = newest(store, ".bin")
    replace(store, path, b"\1" + store.get(path)[1:])
    assert check(store, LATE, contents=False).verdict is Verdict.SOUND
    store.delete([path])
    assert check(store, LATE, contents=False).verdict is Verdict.DAMAGED


def test_a_damaged_entry_of_the_history_is_told_and_what_it_may_name_is_not_swept(store, history):
    (entry,) = [b.path for b in store.list("history/") if b.path.endswith("3.json")]
    replace(store, entry, store.get(entry)[:-40])
    report = check(store, LATE)
    assert [(p.path, p.kind) for p in report.problems] == [(entry, Kind.ENTRY)]
    assert [s.checkpoint for s in report.snapshots] == [1]
    assert len(report.leftovers) == 3
    assert not report.unreferenced
    assert sweep(store, LATE, grace_ms=0) == []


def test_what_nobody_needs_is_told_after_the_grace_time(store, history, tmp_path):
    store.put(left := data_path(1, "count", "late", 0, 1), b"an upload that came too late")
    written = store.modified_ms(left)
    assert check(store, written + 999, grace_ms=1000).verdict is Verdict.SOUND
    report = check(store, written + 1000, grace_ms=1000)
    assert report.verdict is Verdict.UNTIDY
    assert [f.path for f in report.unreferenced] == [left]


def test_a_sweep_deletes_what_nobody_will_name_and_nothing_that_an_upload_may_want(store, history, tmp_path):
    store.put(late := data_path(1, "count", "late", 0, 1), b"of a checkpoint before the newest")
    store.put(pending := data_path(3, "count", "soon", 0, 1), b"of a checkpoint in flight")
    store.put("data/notes.txt", b"not ours")
    assert [f.path for f in sweep(store, LATE, grace_ms=0)] == [late]
    paths = {b.path for b in store.list("data/")}
    assert pending in paths
    assert "data/notes.txt" in paths
    assert check(store, LATE).verdict is Verdict.SOUND
    # When another attempt has taken over, nobody will ever name what the first one left.
    History(store, JOB).claim(fresh=False, now_ms=0)
    assert [f.path for f in sweep(store, LATE, grace_ms=0)] == [pending]
    assert check(store, LATE).verdict is Verdict.SOUND


def test_a_sweep_leaves_young_files_alone(store, history):
    store.put(late := data_path(1, "count", "late", 0, 1), b"x")
    assert sweep(store, store.modified_ms(late) + 10, grace_ms=1000) == []


class Busy(MemoryStore):
    """A job goes on while somebody looks: when files are read it has removed its oldest checkpoint."""

    history: History | None = None

    def get_range(self, path: str, offset: int, size: int) -> bytes:
        if path.startswith("data/") and self.history is not None:
            history, self.history = self.history, None
            history.remove([1])
        return super().get_range(path, offset, size)


def test_what_a_running_job_removes_meanwhile_is_no_damage(tmp_path):
    store = Busy("busy")
    history = History(store, JOB)
    history.claim(fresh=True, now_ms=0)
    for checkpoint in (1, 2):
        history.publish(manifest_of(store, checkpoint, 1, tmp_path))
    store.history = history
    report = check(store, LATE)
    assert report.verdict is Verdict.SOUND
    assert [s.checkpoint for s in report.snapshots] == [2]


def test_a_savepoint_is_checked_and_swept_too(tmp_path):
    store = open_store(f"file://{tmp_path}/savepoint")
    manifest = manifest_of(store, 7, 1, tmp_path, native=False)
    with pytest.raises(SnapshotNotFound, match="2 files of a savepoint that is being written or was given up"):
        mo.fsck(f"{tmp_path}/savepoint")
    write_savepoint(store, manifest)
    report = mo.fsck(f"{tmp_path}/savepoint")
    assert (report.kind, report.verdict) == ("savepoint", Verdict.SOUND)
    store.put(data_path(7, "count", "late", 0, 1), b"of a worker that had not noticed")
    assert mo.fsck(f"{tmp_path}/savepoint", grace=0).verdict is Verdict.UNTIDY
    assert len(mo.sweep(f"{tmp_path}/savepoint", grace=0)) == 1
    assert mo.sweep(f"{tmp_path}/savepoint", grace=0) == []
    manifest_path = tmp_path / "savepoint" / "manifest.json"
    manifest_path.write_bytes(manifest_path.read_bytes().replace(b"orders", b"ordres"))
    report = mo.fsck(f"{tmp_path}/savepoint")
    assert report.verdict is Verdict.LOST
    assert [p.path for p in report.problems] == ["manifest.json"]


def test_where_there_is_nothing_there_is_nothing_to_check(tmp_path):
    with pytest.raises(SnapshotNotFound, match="neither"):
        mo.fsck(str(tmp_path))
