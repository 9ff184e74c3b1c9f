"""The guarantees of ``storage/blobs.py`` as tests, for every store: ours and yours.

    class TestMyStore(BlobStoreContract):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(tmp_path)

Needs pytest. Each test gets an empty store.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from moorline.errors import BlobMissing, SnapshotCorrupt, StorageError
from moorline.storage.blobs import Blob, BlobStore

#: Paths that a hostile manifest may name.
HOSTILE_PATHS = [
    "",
    ".",
    "..",
    "../x",
    "data/../../x",
    "data/./x",
    "/etc/passwd",
    "data//x",
    "data/",
    "data\\..\\x",
    "C:\\x",
    "file:///etc/passwd",
    "s3://bucket/x",
    "data/x\0.parquet",
    "data/x\n",
    "data/a b",
    "data/~root",
    "data/\u2024\u2024/x",  # ONE DOT LEADER twice: looks like ..
    "d\u0430ta/x",  # a Cyrillic a
    "data/\uff0e\uff0e/x",  # FULLWIDTH FULL STOP twice
    "x" * 300,
    "data/" + "x" * 201,
    "/".join("abcdefgh"),
]


class BlobStoreContract:
    """One test per guarantee and per way to miss it. Override ``store``."""

    @pytest.fixture
    def store(self) -> BlobStore:
        raise NotImplementedError("override this fixture with one that returns an empty store")

    # --- put and get --------------------------------------------------------------------------

    @pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 5000], ids=["empty", "byte", "megabyte"])
    def test_what_was_put_is_what_is_got(self, store: BlobStore, data: bytes) -> None:
        store.put("data/chk-1/a", data)
        assert store.get("data/chk-1/a") == data
        assert store.list() == [Blob("data/chk-1/a", len(data))]

    def test_a_file_that_is_not_there_is_missing_by_name(self, store: BlobStore) -> None:
        store.put("data/here", b"x")
        for path in ("data/other", "other/here", "other"):
            with pytest.raises(BlobMissing, match=path):
                store.get(path)
            with pytest.raises(BlobMissing, match=path):
                store.get_range(path, 0, 1)

    def test_a_name_is_never_used_twice(self, store: BlobStore) -> None:
        store.put("data/a", b"first")
        with pytest.raises(StorageError, match="data/a"):
            store.put("data/a", b"second")
        assert store.get("data/a") == b"first"

    def test_putting_the_very_same_bytes_again_is_still_a_second_put(self, store: BlobStore) -> None:
        data = b"the same object"
        store.put("data/a", data)
        with pytest.raises(StorageError):
            store.put("data/a", data)
        assert store.put_if_absent("data/a", data) is False

    def test_a_range_is_cut_off_where_the_file_ends(self, store: BlobStore) -> None:
        store.put("data/a", b"0123456789")
        assert store.get_range("data/a", 2, 3) == b"234"
        assert store.get_range("data/a", 0, 10) == b"0123456789"
        assert store.get_range("data/a", 8, 1 << 60) == b"89"
        assert store.get_range("data/a", 10, 1) == b""
        assert store.get_range("data/a", 1 << 40, 1) == b""
        assert store.get_range("data/a", 3, 0) == b""

    # --- put_if_absent ------------------------------------------------------------------------

    def test_the_second_put_if_absent_changes_nothing(self, store: BlobStore) -> None:
        assert store.put_if_absent("history/0000000001.json", b"first") is True
        assert store.put_if_absent("history/0000000001.json", b"second") is False
        assert store.get("history/0000000001.json") == b"first"

    def test_put_and_put_if_absent_respect_each_other(self, store: BlobStore) -> None:
        store.put("data/a", b"first")
        assert store.put_if_absent("data/a", b"second") is False
        assert store.put_if_absent("data/b", b"first") is True
        with pytest.raises(StorageError):
            store.put("data/b", b"second")

    def test_of_many_concurrent_callers_exactly_one_wins(self, store: BlobStore) -> None:
        callers, rounds = 8, 10
        start = threading.Barrier(callers)

        def race(caller: int) -> list[bool]:
            won = []
            for n in range(rounds):
                start.wait()
                won.append(store.put_if_absent(f"history/{n}", b"%d" % caller))
            return won

        with ThreadPoolExecutor(callers) as pool:
            outcomes = list(pool.map(race, range(callers)))
        for n in range(rounds):
            winners = [caller for caller in range(callers) if outcomes[caller][n]]
            assert len(winners) == 1
            assert store.get(f"history/{n}") == b"%d" % winners[0]

    def test_a_file_is_seen_whole_or_not_at_all(self, store: BlobStore) -> None:
        data = b"0123456789abcdef" * (1 << 16)
        done = threading.Event()

        def write() -> None:
            for n in range(10):
                store.put(f"data/chk-1/{n}", data)
                store.put_if_absent(f"data/chk-2/{n}", data)
            done.set()

        writer = threading.Thread(target=write)
        writer.start()
        seen: set[str] = set()
        while not done.is_set() or len(seen) < 20:
            for blob in store.list("data/"):
                assert blob.size == len(data)
                if blob.path not in seen:
                    assert store.get(blob.path) == data
                    seen.add(blob.path)
        writer.join()

    # --- list and delete ----------------------------------------------------------------------

    def test_a_listing_is_sorted_deep_and_by_prefix(self, store: BlobStore) -> None:
        paths = ["data/chk-1/u/a", "data/chk-1/v/b", "data/chk-10/u/c", "data/x", "history/0000000001.json", "top"]
        for path in reversed(paths):
            store.put(path, path.encode())
        assert store.list() == [Blob(path, len(path)) for path in paths]
        assert [b.path for b in store.list("data/chk-1/")] == paths[:2]
        assert [b.path for b in store.list("data/chk-1")] == paths[:3]
        assert [b.path for b in store.list("history/")] == paths[4:5]
        assert store.list("nothing/here/") == []

    def test_an_empty_store_lists_nothing(self, store: BlobStore) -> None:
        assert store.list() == []
        assert store.list("history/") == []

    def test_what_was_deleted_is_gone_and_the_rest_stays(self, store: BlobStore) -> None:
        for name in "abc":
            store.put(f"data/chk-1/{name}", b"x")
        store.delete(["data/chk-1/a", "data/chk-1/c"])
        assert [b.path for b in store.list()] == ["data/chk-1/b"]
        with pytest.raises(BlobMissing):
            store.get("data/chk-1/a")

    def test_deleting_what_is_not_there_is_no_problem(self, store: BlobStore) -> None:
        store.delete([])
        store.delete(["data/never", "nowhere/never"])
        store.put("data/a", b"x")
        store.delete(["data/never", "data/a", "data/a"])
        assert store.list() == []

    def test_writers_and_deleters_do_not_disturb_each_other(self, store: BlobStore) -> None:
        def churn(worker: int) -> None:
            for n in range(20):
                path = f"data/chk-{n % 2}/u/{worker}-{n}"
                store.put(path, b"x")
                assert store.get(path) == b"x"
                store.delete([path])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(churn, range(4)))
        assert store.list() == []

    # --- paths --------------------------------------------------------------------------------

    @pytest.mark.parametrize("path", HOSTILE_PATHS, ids=ascii)
    def test_a_path_that_is_not_ours_is_refused_by_every_method(self, store: BlobStore, path: str) -> None:
        for attempt in (
            lambda: store.put(path, b"x"),
            lambda: store.put_if_absent(path, b"x"),
            lambda: store.get(path),
            lambda: store.get_range(path, 0, 1),
            lambda: store.delete([path]),
        ):
            with pytest.raises(SnapshotCorrupt, match="no file of ours"):
                attempt()
        assert store.list() == []

    def test_the_url_is_text_that_can_travel(self, store: BlobStore) -> None:
        assert "://" in store.url
