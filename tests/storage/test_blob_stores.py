"""Every store we ship keeps the contract."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from moorline import failpoints
from moorline.errors import InvalidArgument, StorageError
from moorline.storage.blobs import BlobStore
from moorline.storage.stores.local import LocalStore
from moorline.storage.stores.memory import MemoryStore
from moorline.storage.stores.open import open_for_history, open_store
from moorline.storage.stores.probe import probe
from moorline.testing.contracts.store import BlobStoreContract


class TestMemoryStore(BlobStoreContract):
    @pytest.fixture
    def store(self) -> BlobStore:
        return MemoryStore("test")


class TestLocalStore(BlobStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:
        return LocalStore(tmp_path / "not" / "there yet")


class TestLocalStoreWithoutTmpfile(BlobStoreContract):
    """As on NFS."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:
        store = LocalStore(tmp_path / "root")
        store._nameless = False
        return store


def everything(root: Path) -> list[str]:
    """All names below a folder, hidden ones too."""
    return sorted(str(p.relative_to(root)) for p in root.rglob("*"))


@pytest.fixture(params=[True, False], ids=["nameless", "named"])
def local(tmp_path: Path, request: pytest.FixtureRequest) -> LocalStore:
    store = LocalStore(tmp_path / "root")
    store._nameless = request.param
    return store


@pytest.fixture
def points() -> object:
    yield lambda text: failpoints.arm(failpoints.Plan(text))
    failpoints.arm(failpoints.Plan())


# --- links ------------------------------------------------------------------------------------


def test_a_linked_folder_leads_nowhere(local: LocalStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    local.put("data/a", b"x")
    (tmp_path / "root" / "data" / "link").symlink_to(outside)
    for attempt in (
        lambda: local.get("data/link/secret"),
        lambda: local.get_range("data/link/secret", 0, 1),
        lambda: local.put("data/link/new", b"x"),
        lambda: local.put_if_absent("data/link/new", b"x"),
        lambda: local.delete(["data/link/secret"]),
        lambda: local.list("data/link/"),
    ):
        with pytest.raises(StorageError, match="data/link"):
            attempt()
    assert [b.path for b in local.list()] == ["data/a"]
    assert everything(outside) == ["secret"]


def test_a_linked_file_is_neither_read_nor_listed_nor_written_through(local: LocalStore, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    local.put("data/a", b"x")
    (tmp_path / "root" / "data" / "b").symlink_to(secret)
    with pytest.raises(StorageError, match="data/b"):
        local.get("data/b")
    with pytest.raises(StorageError, match="data/b"):
        local.put("data/b", b"y")
    assert [b.path for b in local.list()] == ["data/a"]
    local.delete(["data/b"])
    assert secret.read_bytes() == b"secret"


def test_a_pipe_in_place_of_a_file_does_not_hang(local: LocalStore, tmp_path: Path) -> None:
    local.put("data/a", b"x")
    os.mkfifo(tmp_path / "root" / "data" / "pipe")
    with pytest.raises(StorageError, match="not a regular file"):
        local.get("data/pipe")
    assert [b.path for b in local.list()] == ["data/a"]


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "real")
    LocalStore(tmp_path / "root").put("data/a", b"x")
    assert (tmp_path / "real" / "data" / "a").read_bytes() == b"x"


# --- failures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("action, error", [("raise", RuntimeError), ("enospc", StorageError)])
def test_a_write_that_fails_half_way_leaves_nothing(
    local: LocalStore, tmp_path: Path, points, action: str, error: type[Exception]
) -> None:
    local.put("data/before", b"x")
    points(f"ckpt.mid_upload:{action}")
    with pytest.raises(error):
        local.put("data/a", b"0123456789")
    assert everything(tmp_path / "root") == ["data", "data/before"]
    local.put("data/a", b"0123456789")


def test_no_space_left_is_told_with_the_path(local: LocalStore, points) -> None:
    points("ckpt.mid_upload:enospc")
    with pytest.raises(StorageError, match=r"could not write .*/data/a: .*no space left"):
        local.put("data/a", b"0123456789")


def test_the_history_has_no_point_of_failure_in_the_middle(local: LocalStore, points) -> None:
    points("ckpt.mid_upload:raise")
    assert local.put_if_absent("history/0000000001.json", b"{}")


def test_a_process_killed_half_way_leaves_nothing(tmp_path: Path) -> None:
    code = (
        f"from moorline.storage.stores.local import LocalStore; LocalStore({str(tmp_path)!r}).put('data/a', b'x' * 100)"
    )
    environment = {**os.environ, "MOORLINE_FAILPOINTS": "ckpt.mid_upload:kill"}
    killed = subprocess.run([sys.executable, "-c", code], env=environment, cwd=Path(__file__).parents[2])
    assert killed.returncode == -9
    assert everything(tmp_path) == ["data"]


def test_losing_a_race_leaves_no_temporary_file(local: LocalStore, tmp_path: Path) -> None:
    local.put("data/a", b"x")
    assert not local.put_if_absent("data/a", b"y")
    assert everything(tmp_path / "root") == ["data", "data/a"]


def test_what_others_put_there_is_not_listed(local: LocalStore, tmp_path: Path) -> None:
    local.put("data/a", b"x")
    (tmp_path / "root" / "data" / ".~left by a kill").write_bytes(b"")
    (tmp_path / "root" / "data" / "a note.txt").write_bytes(b"")
    assert [b.path for b in local.list()] == ["data/a"]


def test_a_file_in_the_way_of_a_folder_is_told(local: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "root").write_bytes(b"")
    with pytest.raises(StorageError, match="root/data/a"):
        local.put("data/a", b"x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_told(local: LocalStore, tmp_path: Path) -> None:
    local.put("data/a", b"x")
    (tmp_path / "root" / "data").chmod(0o500)
    with pytest.raises(StorageError, match="data/b: Permission denied"):
        local.put("data/b", b"x")


def test_a_deleted_root_is_made_again(local: LocalStore, tmp_path: Path) -> None:
    local.put("data/a", b"x")
    local.delete(["data/a"])
    (tmp_path / "root").rmdir()
    assert local.list() == []
    local.put("data/b", b"x")
    assert local.get("data/b") == b"x"


def test_empty_folders_go_with_their_last_file_but_the_root_stays(local: LocalStore, tmp_path: Path) -> None:
    local.put("data/chk-1/u/a", b"x")
    local.put("data/chk-2/u/a", b"x")
    local.delete(["data/chk-1/u/a"])
    assert everything(tmp_path / "root") == ["data", "data/chk-2", "data/chk-2/u", "data/chk-2/u/a"]
    local.delete(["data/chk-2/u/a"])
    assert everything(tmp_path / "root") == []


def test_no_descriptor_is_leaked(local: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path)

    def exercise() -> None:
        local.put_if_absent("data/a/b", b"x")
        local.put_if_absent("data/a/b", b"x")
        local.get("data/a/b"), local.list(), local.delete(["data/a/b"])
        for path in ("data/a/b", "link/x", "data"):
            with pytest.raises(StorageError):
                local.get(path)

    exercise()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        exercise()
    assert len(os.listdir("/proc/self/fd")) == before


# --- opening ----------------------------------------------------------------------------------


def test_a_path_and_its_url_open_the_same_folder(tmp_path: Path) -> None:
    odd = tmp_path / "with space and %41 and ü"
    open_store(str(odd)).put("data/a", b"x")
    assert open_store(open_store(str(odd)).url).get("data/a") == b"x"
    assert open_store(f"file://{tmp_path}/plain").url == f"file://{tmp_path}/plain"
    assert open_store(f"file://localhost{tmp_path}/plain").url == open_store(f"file:{tmp_path}/plain").url


def test_a_relative_path_means_the_same_on_every_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("checkpoints").url == f"file://{tmp_path}/checkpoints"


def test_one_name_in_memory_is_one_store() -> None:
    open_store("memory://one").put("data/a", b"x")
    assert open_store("memory://one").get("data/a") == b"x"
    assert open_store("memory://two").list() == []


@pytest.mark.parametrize("url", ["", "file://data/x", "file:x", "http://x", "nowhere://n/x", "a\0b"])
def test_what_cannot_be_opened_is_refused_with_what_can(url: str) -> None:
    with pytest.raises(InvalidArgument, match="memory://name"):
        open_store(url)


# --- a trial before a job starts ------------------------------------------------------------------


class ForgetfulStore(MemoryStore):
    """Says that it has written, and has not."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return path not in self._files and super().put_if_absent(path, b"")


class StickyStore(MemoryStore):
    """Deletes nothing."""

    def delete(self, paths: Iterable[str]) -> None:
        pass


def test_a_trial_leaves_nothing_behind(local: LocalStore) -> None:
    probe(local)
    assert local.list() == []


@pytest.mark.parametrize("store, cause", [(ForgetfulStore(), "not what is read back"), (StickyStore(), "be deleted")])
def test_a_store_that_does_not_keep_its_word_is_refused(store: MemoryStore, cause: str) -> None:
    with pytest.raises(StorageError, match=cause):
        probe(store)


def test_a_folder_that_cannot_be_made_fails_the_trial_for_good(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="a trial failed") as refused:
        open_for_history(str(tmp_path / "file" / "chk"), allow_unfenced=False)
    assert refused.value.can_pass is False
