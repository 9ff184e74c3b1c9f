"""Files that are not on a disk here: objects in a bucket, files of another machine. What is asked of such a place.

    object_store.py    buckets of S3, Google Cloud Storage and Azure, by obstore
    fsspec_files.py    every filesystem that fsspec knows
    ranges.py          one of their files, opened to be read

A file there is written once and never grows. What it looked like is its size and its version: the entity tag of an
object, the time of the last change elsewhere. Both stand in a listing, and in every position of its reader:

    {"offset": 120, "seen": [4096, '"9b2cf535…"']}

so a file that was exchanged under its name is found out, also between two reads of a part of it where the place can
read on condition (buckets can).
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from moorline.errors import InvalidArgument, SnapshotCorrupt, StorageError

#: Schemes of buckets. The same URLs and options lead to the same places for checkpoints.
BUCKETS = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")
#: What makes a URL one of fsspec's, also where there is another way.
FSSPEC = "fsspec+"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
#: Addresses are signed by their query string in Azure, and errors quote them.
_QUERY = re.compile(r"\?\S+")


@dataclass(frozen=True)
class RemoteObject:
    """A file at such a place: its name below the place, and what it looks like."""

    path: str
    size: int
    version: str

    @property
    def seen(self) -> list[int | str]:
        """The part of a position that is about it."""
        return [self.size, self.version]


class Exchanged(Exception):
    """A file is not the one that was asked for any more."""


class RemoteFiles(Protocol):
    """The files below a URL. Paths are relative to it; ``""`` is what lies at the URL itself.

    FileNotFoundError says that a file is not there. Any other failure is a StorageError that says whether it can pass.
    """

    def list(self, folder: str = "") -> list[RemoteObject]:
        """All files below a folder, at any depth, that have any bytes; by their paths below the URL."""

    def find(self, path: str) -> RemoteObject | None:
        """The file at ``path``, if there is one."""

    def read(self, path: str, start: int, end: int, version: str) -> bytes:
        """The bytes [start, end). Raises :class:`Exchanged` if it is seen that the file has another version."""

    def upload(self, file: IO[bytes], path: str) -> None:
        """Write all of ``file`` to a new file. It may be partly there until this has succeeded."""

    def publish(self, staged: str, path: str) -> None:
        """Have the content of ``staged`` at ``path`` in one step, whole. It may also go on to be at ``staged``."""

    def delete(self, paths: builtins.list[str]) -> None:
        """Remove files; such that are not there are no error."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder that is empty, where there is such a thing. It does not matter if that fails."""


@dataclass(frozen=True)
class Location:
    """A URL, and what it takes to get there. Opened in the process that uses it: threads do not survive a fork."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # there may be passwords in them

    @property
    def files(self) -> RemoteFiles:
        """The files there."""
        opened = self.__dict__.get("_opened")
        if opened is None or opened[0] != os.getpid():
            opened = (os.getpid(), _open(self.url, self.options))
            self.__dict__["_opened"] = opened
        files: RemoteFiles = opened[1]
        return files

    def shown(self, path: str) -> str:
        """A file for people."""
        return f"{self.url}/{path}" if path else self.url

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Does a path lead elsewhere than to a disk here?

    >>> is_remote("s3://bucket/in"), is_remote("/data/in"), is_remote("file:///data/in")
    (True, False, False)
    """
    match = _SCHEME.match(path) if isinstance(path, str) else None
    return match is not None and match[1] != "file"


def checked_location(url: str, options: Mapping[str, Any] | None, what: str) -> Location:
    """The place that a URL names. Raises InvalidArgument if it names none, or if what it takes is not installed."""
    match = _SCHEME.match(url)
    rest = url[match.end() :] if match else ""
    parts = rest.rstrip("/").split("/")
    if match is None or "\0" in url or ".." in parts or "." in parts or "" in parts[1:]:
        raise InvalidArgument(what, url, "Give a URL such as s3://bucket/folder, without . and .. in it.")
    scheme = match[1]
    if scheme not in BUCKETS:
        _fsspec(what, url).check_protocol(scheme.removeprefix(FSSPEC), what, url)
    else:
        _extra("moorline.connectors.files.remote.object_store", "object-store", what, url)
    return Location(url.rstrip("/"), dict(options or {}))


def _open(url: str, options: Mapping[str, Any]) -> RemoteFiles:
    scheme = url.partition("://")[0]
    if scheme in BUCKETS:
        bucket: RemoteFiles = _extra(
            "moorline.connectors.files.remote.object_store", "object-store", "path", url
        ).ObjectStoreFiles(url, options)
        return bucket
    files: RemoteFiles = _fsspec("path", url).FsspecFiles(url.removeprefix(FSSPEC), options)
    return files


def _fsspec(what: str, url: str) -> Any:
    return _extra("moorline.connectors.files.remote.fsspec_files", "fsspec", what, url)


def _extra(module: str, extra: str, what: str, url: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name and error.name.partition(".")[0] not in ("fsspec", "obstore"):
            raise
        raise InvalidArgument(what, url, f"Install what it needs: pip install 'moorline[{extra}]'.") from None


def is_path(path: str) -> bool:
    """Does a relative path stay below its place? Those in snapshots are data, and data must not reach out.

    >>> is_path("day=1/a.jsonl"), is_path("../a"), is_path("/a"), is_path("a//b")
    (True, False, False, False)
    """
    return isinstance(path, str) and "\0" not in path and not {"", ".", ".."} & set(path.split("/"))


def in_short(error: Exception) -> str:
    """The words of a library, without the pages that some append, and without what may be secret."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {_QUERY.sub('?…', lines[0] if lines else '')}"[:600]


@contextlib.contextmanager
def translated(where: str, operation: str, lasting: tuple[type[BaseException], ...]) -> Iterator[None]:
    """Foreign exceptions as StorageErrors; ``lasting`` are those that waiting does not help against."""
    try:
        yield
    except (StorageError, InvalidArgument, FileNotFoundError, Exchanged):
        raise
    except Exception as error:  # filesystems raise whatever their client libraries do
        raise StorageError(where, operation, in_short(error), not isinstance(error, lasting)) from error


def is_transient(error: Exception) -> bool:
    """Can an error of :class:`RemoteFiles` pass?"""
    return isinstance(error, StorageError) and bool(error.can_pass)


def seen_in(split: str, position: Any) -> RemoteObject:
    """The object that a position is about. Raises SnapshotCorrupt if it is none."""
    match position:
        case {"seen": [int(size), str(version)]} if size >= 0 and is_path(split):
            return RemoteObject(split, size, version)
    raise SnapshotCorrupt("the snapshot", f"{split!r:.80}: {position!r:.80} is not a position in a file")
