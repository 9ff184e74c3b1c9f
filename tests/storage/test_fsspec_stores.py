"""The contract of stores on filesystems of fsspec's, and which of them may carry a history."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from real_servers import SECRET, S3Server, s3_server, s3fs_packages  # noqa: F401

from moorline.errors import InvalidArgument, StorageError
from moorline.storage.blobs import BlobStore
from moorline.storage.stores.fsspec import FsspecStore
from moorline.storage.stores.open import open_for_history, open_store
from moorline.testing.contracts.store import BlobStoreContract


class TestFsspecMemory(BlobStoreContract):
    @pytest.fixture
    def store(self) -> BlobStore:
        return open_store(f"fsspec+memory://{uuid.uuid4().hex}/jobs")


class TestFsspecLocal(BlobStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:
        return open_store(f"fsspec+file://{tmp_path}/jobs")


def test_nothing_is_left_aside(tmp_path: Path) -> None:
    store = FsspecStore(f"fsspec+file://{tmp_path}")
    store.put("data/a", b"x")
    assert not store.put_if_absent("data/a", b"y")
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["a"]


@pytest.mark.parametrize("protocol", ["memory", "file"])
def test_a_history_is_refused_where_nothing_holds_a_second_driver_back(protocol: str, tmp_path: Path) -> None:
    url = f"fsspec+{protocol}://{tmp_path}"
    with pytest.raises(InvalidArgument, match="allow_unfenced=True"):
        open_for_history(url, allow_unfenced=False)
    assert open_for_history(url, allow_unfenced=True).url == url


def test_a_protocol_that_fsspec_does_not_know_is_told() -> None:
    with pytest.raises(InvalidArgument, match="no protocol 'carrier-pigeon'"):
        FsspecStore("fsspec+carrier-pigeon://x")


def test_a_filesystem_that_cannot_be_opened_is_an_error_of_storage() -> None:
    store = open_store("sftp://127.0.0.1:1/x")
    with pytest.raises((StorageError, InvalidArgument)):
        store.get("data/a")


def test_credentials_are_not_shown_by_a_store() -> None:
    store = FsspecStore("fsspec+memory://x", {"password": SECRET})
    assert SECRET not in repr(store) + store.url


def test_s3fs_keeps_the_whole_contract_and_may_carry_a_history(s3_server: S3Server, tmp_path: Path) -> None:  # noqa: F811
    """In a process of its own: s3fs pins versions that the rest of the tests should be free of."""
    suite = tmp_path / "test_s3fs_contract.py"
    suite.write_text(_S3FS.format(endpoint=s3_server.endpoint, bucket=s3_server.new_bucket(), secret=SECRET))
    here = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([here, s3fs_packages()])}
    # What is refused by its name alone never gets as far as s3fs.
    selected = ["-k", "not a_path_that_is_not_ours", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", "-q", *selected, str(suite)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


_S3FS = """
import uuid
import pytest
from moorline.storage.stores.open import open_for_history, open_store, remember_options
from moorline.testing.contracts.store import BlobStoreContract

remember_options("fsspec+s3://{bucket}", dict(key="testing", secret="{secret}", endpoint_url="{endpoint}"))

first = open_for_history("fsspec+s3://{bucket}/first", allow_unfenced=False)
assert first.is_fenced

class TestS3fs(BlobStoreContract):
    @pytest.fixture
    def store(self):
        name = uuid.uuid4().hex
        store = open_store("fsspec+s3://{bucket}/" + name)
        # Opening one takes s3fs a second, so all folders share what the first one has opened.
        store._opened = (first._opened[0], "{bucket}/" + name)
        return store
"""
