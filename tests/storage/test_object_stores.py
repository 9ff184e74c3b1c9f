"""The contract of stores on a real S3 server, and what is particular to buckets."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading

import obstore
import pytest
from real_servers import SECRET, S3Server, free_port, s3_server  # noqa: F401

import moorline as mo
from moorline.errors import BlobMissing, InvalidArgument, StorageError
from moorline.storage.blobs import BlobStore
from moorline.storage.stores.object_store import ObjectStore
from moorline.storage.stores.open import open_for_history, open_store, remember_options
from moorline.testing.contracts.store import BlobStoreContract


@pytest.fixture
def bucket(s3_server: S3Server) -> str:  # noqa: F811
    """The URL of a new bucket, which can be opened by it."""
    url = f"s3://{s3_server.new_bucket()}"
    remember_options(url, s3_server.options)
    return url


class TestS3(BlobStoreContract):
    @pytest.fixture
    def store(self, bucket: str) -> BlobStore:
        return open_store(f"{bucket}/jobs/average")


def test_a_bucket_without_a_prefix_is_a_store_too(bucket: str) -> None:
    store = open_store(bucket)
    store.put("data/a", b"x")
    assert [b.path for b in store.list()] == ["data/a"]
    assert open_store(f"{bucket}/data").get("a") == b"x"


def test_what_others_put_beside_our_files_is_not_listed(bucket: str) -> None:
    store = ObjectStore(bucket, options := _options(bucket))
    store.put("data/a", b"x")
    obstore.put(ObjectStore(bucket, options)._store, "data/a note.txt", b"y")
    assert [b.path for b in store.list()] == ["data/a"]


def test_a_bucket_that_is_not_there_is_told_by_name(s3_server: S3Server) -> None:  # noqa: F811
    store = ObjectStore("s3://no-such-bucket/x", s3_server.options)
    with pytest.raises(StorageError, match="NoSuchBucket"):
        store.put("data/a", b"x")
    with pytest.raises(StorageError, match="no-such-bucket") as caught:
        store.get("data/a")
    assert not isinstance(caught.value, BlobMissing), "a missing bucket is no missing file"


def test_when_a_file_was_written_can_be_asked(bucket: str) -> None:
    store = ObjectStore(bucket, _options(bucket))
    store.put("data/a", b"x")
    store.put("data/b", b"x")
    assert 0 < store.modified_ms("data/a") <= store.modified_ms("data/b")


# --- whose put was it? ----------------------------------------------------------------------------


class LossyProxy:
    """Stands before the server and cuts the line after each of the next ``losses`` answers to a PUT, unsent."""

    def __init__(self, server: S3Server) -> None:
        self._server_port = int(server.endpoint.rpartition(":")[2])
        self.port, self.losses, self.lost = free_port(), 0, 0
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._server_port))
        asked: list[bytes] = []
        threading.Thread(target=self._forward, args=(client, server, asked), daemon=True).start()
        with client, server, contextlib.suppress(OSError):
            while answer := server.recv(1 << 16):
                if self.losses and asked[-1] == b"PUT":
                    self.losses, self.lost = self.losses - 1, self.lost + 1
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(answer)

    def _forward(self, client: socket.socket, server: socket.socket, asked: list[bytes]) -> None:
        with contextlib.suppress(OSError):
            while request := client.recv(1 << 16):
                if (method := request.partition(b" ")[0]) in (b"PUT", b"GET", b"HEAD", b"POST", b"DELETE"):
                    asked.append(method)
                server.sendall(request)

    def close(self) -> None:
        self._listener.close()


def test_a_put_whose_answer_got_lost_and_was_repeated_is_known_to_be_ours(bucket: str, s3_server: S3Server) -> None:  # noqa: F811
    proxy = LossyProxy(s3_server)
    try:
        store = ObjectStore(bucket, {**s3_server.options, "endpoint": f"http://127.0.0.1:{proxy.port}"})
        proxy.losses = 1
        assert store.put_if_absent("history/0000000001.json", b"ours") is True
        assert proxy.lost == 1
        proxy.losses = 1
        assert store.put_if_absent("history/0000000001.json", b"ours") is False
    finally:
        proxy.close()


def test_a_server_that_does_not_honour_the_condition_is_refused_for_a_history(bucket: str, monkeypatch) -> None:
    assert open_for_history(bucket, allow_unfenced=False).list() == []
    honest = obstore.put
    monkeypatch.setattr(obstore, "put", lambda *a, mode, **k: honest(*a, **k))
    with pytest.raises(StorageError, match="If-None-Match"):
        open_for_history(bucket, allow_unfenced=False)


# --- credentials -------------------------------------------------------------------------------


def _options(bucket: str) -> dict[str, object]:
    from moorline.storage.stores.open import _options_of  # noqa: PLC0415

    return _options_of(bucket)


def test_options_are_found_for_everything_in_the_same_bucket(s3_server: S3Server) -> None:  # noqa: F811
    name = s3_server.new_bucket()
    remember_options(f"s3://{name}/checkpoints/", s3_server.options)
    open_store(f"s3://{name}/checkpoints/average").put("data/a", b"x")
    open_store(f"s3://{name}/savepoints/one").put("data/a", b"x")
    remember_options(f"s3://{name}/checkpoints", None)
    assert _options(f"s3://{name}/checkpoints/average") == {}


def test_credentials_come_from_the_environment(s3_server: S3Server, monkeypatch) -> None:  # noqa: F811
    for name, value in {"ENDPOINT": s3_server.endpoint, "ALLOW_HTTP": "true", "REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    store = ObjectStore(f"s3://{s3_server.new_bucket()}")
    store.put("data/a", b"x")
    assert store.get("data/a") == b"x"


def test_credentials_are_never_shown(s3_server: S3Server, caplog) -> None:  # noqa: F811
    config = mo.Checkpoints("s3://bucket/x", storage_options=s3_server.options)
    with caplog.at_level(logging.DEBUG):
        store = ObjectStore("s3://no-such-bucket/x", s3_server.options)
        with pytest.raises(StorageError) as caught:
            store.put("data/a", b"x")
        with pytest.raises(InvalidArgument) as refused:
            ObjectStore("s3://bucket/x", {"secret_acces_key": SECRET})
    told = [repr(config), repr(store), str(caught.value), repr(caught.value), str(refused.value), caplog.text]
    assert not [text for text in told if SECRET in text]
    assert "secret_acces_key" in str(refused.value)
