"""What rocksdict does in its own way does not reach the backend."""

import gc
import threading

import pytest

from moorline.errors import SnapshotCorrupt, StorageError
from moorline.state.rocksdb.store import Store, new_batch

MEMORY = 8 << 20


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "db", MEMORY)
    yield store
    store.close()


def put(store, **rows):
    batch = new_batch()
    for row, value in rows.items():
        batch[row.encode()] = value.encode()
    store.write(batch)


def fill(store, count):
    batch = new_batch()
    for n in range(count):
        batch[b"%06d" % n] = bytes([n % 251]) * 100
    store.write(batch)


def damage(folder, at):
    """Flip some bits of the largest file."""
    path = max(folder.glob("*.sst"), key=lambda p: p.stat().st_size)
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 255
    path.write_bytes(data)


def test_a_scan_that_meets_a_damaged_block_says_so_instead_of_ending(tmp_path):
    store = Store(tmp_path / "db", MEMORY)
    fill(store, 20_000)
    store.checkpoint(tmp_path / "copy")
    store.close()
    damage(tmp_path / "copy", 0.5)
    again = Store(tmp_path / "copy", MEMORY, must_exist=True)
    with pytest.raises(SnapshotCorrupt, match="checksum"):
        list(again.scan(b"0", b"9"))
    with pytest.raises(SnapshotCorrupt, match="checksum"):
        again.multi_get([b"%06d" % n for n in range(20_000)])
    again.close()


def test_the_end_of_a_scan_is_right_though_nobody_else_keeps_it(store):
    fill(store, 200)
    for n in range(2000):
        first = n % 150
        scan = store.scan(b"%06d" % first, b"%06d" % (first + 5))
        junk = [b"%06d" % (j % 10) for j in range(50)]  # takes the place of what is freed
        assert len(list(scan)) == 5, junk
    views = [store.view(b"%06d" % n, b"%06d" % (n + 7)) for n in range(100)]
    gc.collect()
    assert [len(list(view.rows())) for view in views] == [7] * 100


def test_a_scan_shows_the_rows_of_the_moment_it_began(store):
    put(store, a="1", b="1")
    scan = store.scan(b"a", b"z")
    put(store, a="2", b="2", c="2")
    assert list(scan) == [(b"a", b"1"), (b"b", b"1")]


def test_a_view_shows_the_rows_of_its_moment_to_another_thread(store):
    put(store, a="1", b="1")
    view = store.view(b"a", b"z")
    put(store, a="2", c="2")
    store.flush()
    found = []
    thread = threading.Thread(target=lambda: found.extend(view.rows()))
    thread.start()
    thread.join()
    assert found == [(b"a", b"1"), (b"b", b"1")]
    assert (view.first(b"b", b"z"), view.last(b"a", b"z"), view.first(b"c", b"z")) == (b"b", b"b", None)


def test_a_checkpoint_holds_what_was_written_without_a_log(store, tmp_path):
    put(store, a="1")
    names = store.checkpoint(tmp_path / "copy")
    put(store, a="2")
    assert {n.rstrip("0123456789") for n in names if not n.endswith(".sst")} == {"CURRENT", "MANIFEST-"}
    for path in (tmp_path / "copy").iterdir():
        if path.name not in names:
            path.unlink()
    again = Store(tmp_path / "copy", MEMORY, must_exist=True)
    assert again.get(b"a") == b"1"
    again.close()


def test_a_folder_that_cannot_be_written_is_the_operators_business(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError) as caught:
        Store(tmp_path / "file" / "db", MEMORY)
    assert caught.value.operation == "open"


def test_a_restored_database_without_its_files_is_corrupt(tmp_path):
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "CURRENT").write_text("MANIFEST-000005\n")
    with pytest.raises(SnapshotCorrupt):
        Store(tmp_path / "db", MEMORY, must_exist=True)


def test_closing_twice_is_harmless(store):
    store.close()
    store.close()
