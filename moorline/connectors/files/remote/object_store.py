"""Files in buckets of S3 and what speaks its language, Google Cloud Storage and Azure, by obstore. Needs an extra.

``storage_options`` are those of checkpoints. An object appears when all of it has arrived, and is read on the condition
that it is still the version that was listed. Publishing is a copy by the service itself, which is one step; S3 copies
objects of up to 5 GB that way.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any

import obstore
from obstore.exceptions import GenericError, PreconditionError

from moorline.connectors.files.remote.location import Exchanged, RemoteObject, in_short, translated
from moorline.errors import StorageError
from moorline.model.config.buckets import LASTING, open_bucket

_STATUS = re.compile(r"status code: (\d{3})")
#: Answers that ask for another try.
_TRY_AGAIN = ("408", "425", "429")


class ObjectStoreFiles:
    """See :class:`RemoteFiles`."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        scheme, _, rest = url.partition("://")
        bucket, _, self._prefix = rest.partition("/")
        self._url = url
        # We repeat ourselves, and say so meanwhile.
        self._store = open_bucket(f"{scheme}://{bucket}", options, in_short, "path", retries=1, seconds=2)

    def list(self, folder: str = "") -> builtins.list[RemoteObject]:
        with self._translated(folder, "list"):
            metas = [meta for page in obstore.list(self._store, prefix=self._at(folder) or None) for meta in page]
        below = f"{self._prefix}/" if self._prefix else ""
        found = [_object(meta, meta["path"].removeprefix(below)) for meta in metas if meta["path"].startswith(below)]
        # What tools make to show a folder has no bytes, and a name that it cannot be read by.
        return [object for object in found if object.size]

    def find(self, path: str) -> RemoteObject | None:
        if not self._at(path):
            return None
        with self._translated(path, "find"):
            try:
                return _object(obstore.head(self._store, self._at(path)), path)
            except FileNotFoundError:
                return None

    def read(self, path: str, start: int, end: int, version: str) -> bytes:
        with self._translated(path, "read"):
            try:
                options: Any = {"range": (start, end), "if_match": version or None}
                return bytes(obstore.get(self._store, self._at(path), options=options).bytes())
            except PreconditionError:
                raise Exchanged("its version is not the one that was listed") from None

    def upload(self, file: IO[bytes], path: str) -> None:
        with self._translated(path, "write"):
            file.seek(0)
            upload: Any = obstore.put  # its types do not know that any file will do
            try:
                upload(self._store, self._at(path), file)
            except FileNotFoundError as error:
                raise StorageError(self._url, "write to", in_short(error), can_pass=False) from error

    def publish(self, staged: str, path: str) -> None:
        with self._translated(path, "publish"):
            obstore.copy(self._store, self._at(staged), self._at(path))

    def delete(self, paths: builtins.list[str]) -> None:
        with self._translated("", "delete files of"):
            try:
                if paths:
                    obstore.delete(self._store, [self._at(path) for path in paths])
            except FileNotFoundError:
                # S3 does not mind; where a service does, one by one, so that the rest goes too.
                for path in paths:
                    with suppress(FileNotFoundError):
                        obstore.delete(self._store, self._at(path))

    def remove_folder(self, path: str) -> None:
        pass

    def _at(self, path: str) -> str:
        return f"{self._prefix}/{path}" if self._prefix and path else self._prefix or path

    @contextmanager
    def _translated(self, path: str, operation: str) -> Iterator[None]:
        where = f"{self._url}/{path}" if path else self._url
        with translated(where, operation, LASTING):
            try:
                yield
            except GenericError as error:
                status = _STATUS.search(str(error))
                if status is None or not status[1].startswith("4") or status[1] in _TRY_AGAIN:
                    raise
                # The bucket is not there, or the request makes no sense: that does not pass.
                raise StorageError(where, operation, in_short(error), can_pass=False) from error


def _object(meta: Any, path: str) -> RemoteObject:
    version = meta["e_tag"] or meta["version"] or meta["last_modified"].isoformat()
    return RemoteObject(path, meta["size"], str(version))
