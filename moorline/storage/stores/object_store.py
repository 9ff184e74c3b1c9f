"""A blob store in a bucket: S3 and what speaks its language, Google Cloud Storage, Azure. Needs the extra object-store.

How the guarantees of ``blobs.py`` are kept, by obstore (the object_store crate):

    whole or not at all    one PUT of the whole object; an object appears when the last byte has arrived.
    exactly one wins       the PUT has the condition that nothing is there: If-None-Match on S3 and Azure,
                           ifGenerationMatch on Google's. A server that ignores it is found out by ``probe.py``.
    durable, no stale      what these services promise since 2020.

**Whose put was it?** A request whose answer got lost is repeated by the client below us, and the second one meets the
object of the first. Taken at its word it would say that another was there. So every put carries a random word
in the object's metadata, and a writer that finds the path taken looks whose word it is.

Credentials come from the environment as each service's own tools take them, or from ``storage_options``. They are in
no URL, no message and no repr of ours. Opened in the process that uses it: its threads do not survive a fork.
"""

from __future__ import annotations

import builtins
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError

from moorline.errors import BlobMissing, StorageError
from moorline.model.config.buckets import LASTING, open_bucket
from moorline.storage.blobs import Blob
from moorline.storage.layout import check_path, is_path

#: A single PUT takes up to 5 GB. What is larger goes up in parts, and then the condition is a look beforehand.
LARGEST_PUT = 4 << 30
#: Under which name a put leaves its word in the metadata.
WORD = "moorline-put"
#: Azure signs by a query string, and errors quote the address.
_QUERY = re.compile(r"\?\S+")


class ObjectStore:
    """Objects below a prefix of a bucket: ``s3://bucket/prefix``, ``gs://…``, ``az://…``."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self._url = url.rstrip("/")
        # Below the timeout of any checkpoint, so that a store which is away is noticed by those who wait for it.
        self._store = open_bucket(self._url, options or {}, _in_short, "storage location", retries=6, seconds=30)

    @property
    def url(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"ObjectStore({self._url!r})"

    def put(self, path: str, data: bytes) -> None:
        if not self.put_if_absent(path, data):
            raise StorageError(f"{self._url}/{path}", "create", "there is a file of that name already")

    def put_if_absent(self, path: str, data: bytes) -> bool:
        check_path(path)
        with self._translated(path, "write"):
            if len(data) > LARGEST_PUT:
                return self._put_in_parts(path, data)
            word = uuid.uuid4().hex
            try:
                obstore.put(self._store, path, data, mode="create", use_multipart=False, attributes={WORD: word})
            except AlreadyExistsError:
                return self._word_at(path) == word
            return True

    def get(self, path: str) -> bytes:
        check_path(path)
        with self._translated(path, "read"):
            return bytes(obstore.get(self._store, path).bytes())

    def get_range(self, path: str, offset: int, size: int) -> bytes:
        check_path(path)
        with self._translated(path, "read"):
            try:
                if size > 0:
                    return bytes(obstore.get_range(self._store, path, start=offset, length=size))
            except BaseError:
                # Services answer with an error when a range begins where the object ends.
                if offset < self._size(path):
                    raise
            # Of no bytes there is nothing to fetch, but the file has to be there.
            self._size(path)
            return b""

    def list(self, prefix: str = "") -> builtins.list[Blob]:
        # Services take a prefix by whole parts of a path.
        folder = prefix.rpartition("/")[0]
        if folder:
            check_path(folder)
        with self._translated(prefix, "list"):
            metas = [meta for page in obstore.list(self._store, prefix=folder or None) for meta in page]
        return sorted(
            Blob(meta["path"], meta["size"])
            for meta in metas
            if meta["path"].startswith(prefix) and is_path(meta["path"])
        )

    def delete(self, paths: Iterable[str]) -> None:
        wanted = [check_path(path) for path in paths]
        with self._translated(wanted[0] if wanted else "", "delete"):
            try:
                if wanted:
                    obstore.delete(self._store, wanted)
            except FileNotFoundError:
                # S3 does not mind; where a service does, one by one, so that the rest goes too.
                for path in wanted:
                    with suppress(FileNotFoundError):
                        obstore.delete(self._store, path)

    def modified_ms(self, path: str) -> int:
        """The time a file was written, by the service's clock."""
        check_path(path)
        with self._translated(path, "read"):
            return int(obstore.head(self._store, path)["last_modified"].timestamp() * 1000)

    # --- inside -------------------------------------------------------------------------------

    def _put_in_parts(self, path: str, data: bytes) -> bool:
        with suppress(FileNotFoundError):
            self._size(path)
            return False
        obstore.put(self._store, path, data, use_multipart=True, chunk_size=64 << 20)
        return True

    def _word_at(self, path: str) -> str | None:
        """The word of the put that is there."""
        try:
            word = obstore.get(self._store, path, options={"head": True}).attributes.get(WORD)
        except FileNotFoundError as error:
            # S3 answers so, too, when a delete and a put meet: then neither has won.
            raise StorageError(f"{self._url}/{path}", "write", "a conflict, and nothing is there") from error
        return None if word is None else str(word)

    def _size(self, path: str) -> int:
        return int(obstore.head(self._store, path)["size"])

    @contextmanager
    def _translated(self, path: str, operation: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            where = f"{self._url}/{path}"
            if operation == "read" and "NoSuchBucket" not in str(error):
                raise BlobMissing(where, operation, "there is no such object") from None
            raise StorageError(where, operation, _in_short(error), can_pass=False) from None
        except (BaseError, OSError, ValueError, NotImplementedError) as error:
            can_pass = not isinstance(error, LASTING)
            raise StorageError(f"{self._url}/{path}", operation, _in_short(error), can_pass) from None


def _in_short(error: Exception) -> str:
    """The error in words, without the Rust side's own account of it and without what signs an address."""
    text = str(error).partition("\n\nDebug source")[0].strip()
    return _QUERY.sub("?...", " ".join(text.split()))[:600]
