"""Files on any filesystem that fsspec knows: HDFS, SFTP, SMB, memory, s3fs, gcsfs and more. Needs the extra fsspec.

What the filesystem says about a file's version is taken: an entity tag, a generation, a checksum, or the time of the
last change. fsspec cannot read on condition, so the version is compared after each read of a few megabytes. Publishing
is one step: the rename of a filesystem, or the copy of an object store. One that has neither cannot be written to
exactly once, and is refused.

Made in the process that uses it: fsspec's threads do not survive a fork.
"""

from __future__ import annotations

import builtins
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import IO, Any

import fsspec
from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem

from moorline.connectors.files.remote.location import Exchanged, RemoteObject, is_path, translated
from moorline.errors import InvalidArgument, StorageError

#: Under which names filesystems tell a version, the most exact first.
_VERSIONS = (
    *("ETag", "etag", "e_tag", "generation", "md5Hash", "content_md5", "checksum"),
    *("mtime", "LastModified", "last_modified", "modified", "created"),
)
_LASTING = (PermissionError, NotImplementedError, NotADirectoryError, IsADirectoryError, ValueError, TypeError)
_COPY_BUFFER = 1 << 20


def check_protocol(protocol: str, what: str, url: str) -> None:
    """Raises InvalidArgument if fsspec does not know the protocol, or lacks a package for it."""
    try:
        fsspec.get_filesystem_class(protocol)
    except ValueError:
        raise InvalidArgument(what, url, f"fsspec knows no protocol {protocol!r}.") from None
    except ImportError as error:
        raise InvalidArgument(what, url, f"fsspec needs a package for it: {error}.") from None


class FsspecFiles:
    """See :class:`RemoteFiles`."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._url = url
        with self._translated("", "open"):
            self._fs, root = fsspec.core.url_to_fs(
                url,
                # No instance that an earlier use, or the process we were forked from, has left, and no old listings.
                skip_instance_cache=True,
                use_listings_cache=False,
                **options,
            )
            self._root = str(root).rstrip("/")

    def list(self, folder: str = "") -> builtins.list[RemoteObject]:
        with self._translated(folder, "list"):
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self._at(folder) or "/", detail=True)
            except FileNotFoundError:
                return []
        below = f"{self._root}/".lstrip("/")
        objects = []
        for name, info in found.items():
            path = name.lstrip("/").removeprefix(below)
            is_file = info.get("type") != "directory" and info["size"]
            if is_file and name.lstrip("/").startswith(below) and is_path(path):
                objects.append(_object(info, path))
        return objects

    def find(self, path: str) -> RemoteObject | None:
        with self._translated(path, "find"):
            self._fs.invalidate_cache()
            try:
                info = self._fs.info(self._at(path))
            except FileNotFoundError:
                return None
            return None if info.get("type") == "directory" else _object(info, path)

    def read(self, path: str, start: int, end: int, version: str) -> bytes:
        with self._translated(path, "read"):
            data = bytes(self._fs.cat_file(self._at(path), start=start, end=end))
        # Afterwards: if it is still the version that was listed, these bytes were of that version.
        object = self.find(path)
        if object is None:
            raise FileNotFoundError(path)
        if object.version != version:
            raise Exchanged("its version is not the one that was listed")
        return data

    def upload(self, file: IO[bytes], path: str) -> None:
        with self._translated(path, "write"):
            file.seek(0)
            self._make_folder(path)
            with self._fs.open(self._at(path), "wb") as target:
                shutil.copyfileobj(file, target, _COPY_BUFFER)
        # What fails in the middle may be left as a shorter file, and not every filesystem says so.
        size, there = file.tell(), self.find(path)
        if there is None or there.size != size:
            cause = f"{0 if there is None else there.size} of its {size} bytes have arrived"
            raise StorageError(f"{self._url}/{path}", "write", cause)

    def publish(self, staged: str, path: str) -> None:
        with self._translated(path, "publish"):
            self._make_folder(path)
            if publishes_by_copy(self._fs):
                self._fs.cp_file(self._at(staged), self._at(path))
            else:
                self._fs.mv(self._at(staged), self._at(path))

    def delete(self, paths: builtins.list[str]) -> None:
        with self._translated("", "delete files of"):
            for path in paths:
                with suppress(FileNotFoundError):
                    self._fs.rm_file(self._at(path))

    def remove_folder(self, path: str) -> None:
        with suppress(Exception):
            self._fs.rmdir(self._at(path))

    def _make_folder(self, path: str) -> None:
        self._fs.makedirs(self._at(path).rpartition("/")[0], exist_ok=True)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    @contextmanager
    def _translated(self, path: str, operation: str) -> Iterator[None]:
        with translated(f"{self._url}/{path}" if path else self._url, operation, _LASTING):
            yield


def publishes_by_copy(fs: Any) -> bool:
    """Is a copy the one step in which a file appears whole? Otherwise it is a rename.

    Raises StorageError for a filesystem that has neither of its own: those of the base classes move bytes through this
    process, and a reader would see a part of a file.
    """
    kind = type(fs)
    if isinstance(fs, AsyncFileSystem):
        if kind._cp_file is not getattr(AsyncFileSystem, "_cp_file", None):
            return True
    elif kind.mv is not AbstractFileSystem.mv:
        return False
    elif kind.cp_file is not AbstractFileSystem.cp_file:
        return True
    cause = f"{kind.__name__} has neither a rename nor a copy of its own, so a reader would see parts of files"
    raise StorageError(f"{fs.protocol}", "write files to", cause, can_pass=False)


def _object(info: Mapping[str, Any], path: str) -> RemoteObject:
    version = next((info[name] for name in _VERSIONS if info.get(name) is not None), "")
    if isinstance(version, datetime):
        version = version.timestamp()
    # A listing and a look at one file may give the same time in two forms.
    shown = f"{version:.6f}" if isinstance(version, float) else str(version)
    return RemoteObject(path, int(info["size"]), shown)
