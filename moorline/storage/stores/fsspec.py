"""A blob store on any filesystem that fsspec knows: HDFS, SFTP, SMB, s3fs, gcsfs and more. Needs the extra fsspec.

fsspec promises less than ``blobs.py`` asks for. What is kept, and where:

    exactly one wins       s3fs and gcsfs send the condition with the write, so there it holds for everybody. All other
                           filesystems are asked whether the path is free and then written to: between the two
                           another process can come. :attr:`is_fenced` tells which kind this is, and a history of
                           checkpoints is not kept on the second kind unless the user says ``allow_unfenced=True``.
    whole or not at all    where there is a rename (HDFS, SFTP, SMB, a disk) the bytes go to a name aside first. On
                           others a file is what its service makes of one write, which for object stores is the whole.
    durable                as far as the filesystem goes. For a disk, a plain path is better: it is synchronised.

Made in the process that uses it: fsspec's threads do not survive a fork. ``open.py`` chooses it.
"""

from __future__ import annotations

import builtins
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import fsspec

from moorline.errors import BlobMissing, InvalidArgument, StorageError
from moorline.storage.blobs import Blob
from moorline.storage.layout import check_path, is_path

PREFIX = "fsspec+"
#: Packages whose filesystems create a file on the condition that there is none.
_CONDITIONAL = ("s3fs", "gcsfs")
#: Filesystems on which a rename is one step.
_RENAMES = frozenset({"file", "local", "hdfs", "arrow_hdfs", "sftp", "ssh", "smb"})
#: Looking and writing are two steps: at least this process does them together.
_one_at_a_time = threading.Lock()


class FsspecStore:
    """Files below a URL of fsspec's: ``fsspec+sftp://host/folder``, ``hdfs://…``."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self._url = url.rstrip("/")
        self._options = dict(options or {})
        if (protocol := self._protocol) not in fsspec.available_protocols():
            raise InvalidArgument("storage location", url, f"fsspec knows no protocol {protocol!r}.")

    @property
    def url(self) -> str:
        return self._url

    @property
    def is_fenced(self) -> bool:
        """Is put_if_absent atomic between processes?"""
        return type(self._opened[0]).__module__.split(".")[0] in _CONDITIONAL

    def __repr__(self) -> str:
        return f"FsspecStore({self._url!r})"

    def put(self, path: str, data: bytes) -> None:
        if not self.put_if_absent(path, data):
            raise StorageError(f"{self._url}/{path}", "create", "there is a file of that name already")

    def put_if_absent(self, path: str, data: bytes) -> bool:
        check_path(path)
        with self._translated(path, "write"):
            fs, full = self._at(path)
            if self.is_fenced:
                try:
                    fs.pipe_file(full, data, mode="create")
                except FileExistsError:
                    return False
                return True
            with _one_at_a_time:
                if fs.exists(full):
                    return False
                self._write(fs, full, data)
            return True

    def get(self, path: str) -> bytes:
        check_path(path)
        with self._translated(path, "read"):
            fs, full = self._at(path)
            return bytes(fs.cat_file(full))

    def get_range(self, path: str, offset: int, size: int) -> bytes:
        check_path(path)
        with self._translated(path, "read"):
            fs, full = self._at(path)
            # Bounded by the file: filesystems differ in what they make of a range that goes beyond it.
            end = min(offset + size, int(fs.info(full)["size"]))
            return bytes(fs.cat_file(full, start=offset, end=end)) if offset < end else b""

    def list(self, prefix: str = "") -> builtins.list[Blob]:
        folder = prefix.rpartition("/")[0]
        if folder:
            check_path(folder)
        files: dict[str, dict[str, Any]] = {}
        with self._translated(prefix, "list"), suppress(FileNotFoundError):
            fs, full = self._at(folder)
            fs.invalidate_cache()
            files = fs.find(full, detail=True)
        root = f"{self._opened[1].strip('/')}/"
        blobs = [Blob(name.strip("/").removeprefix(root), int(info["size"])) for name, info in files.items()]
        return sorted(blob for blob in blobs if blob.path.startswith(prefix) and is_path(blob.path))

    def delete(self, paths: Iterable[str]) -> None:
        for path in [check_path(path) for path in paths]:
            with self._translated(path, "delete"), suppress(FileNotFoundError):
                fs, full = self._at(path)
                fs.rm_file(full)

    def modified_ms(self, path: str) -> int:
        """The time a file was written, by the filesystem's clock."""
        check_path(path)
        with self._translated(path, "read"):
            fs, full = self._at(path)
            return int(fs.modified(full).timestamp() * 1000)

    # --- inside -------------------------------------------------------------------------------

    @property
    def _protocol(self) -> str:
        return self._url.removeprefix(PREFIX).partition("://")[0]

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        """The filesystem and our folder in it. When it is first used: some connect at once."""
        with self._translated("", "open"):
            fs, root = fsspec.core.url_to_fs(
                self._url.removeprefix(PREFIX),
                # No instance that an earlier use, or the process we were forked from, has left, and no old listings.
                skip_instance_cache=True,
                use_listings_cache=False,
                **self._options,
            )
            return fs, str(root)

    def _at(self, path: str) -> tuple[Any, str]:
        fs, root = self._opened
        return fs, f"{root.rstrip('/')}/{path}" if path else root

    def _write(self, fs: Any, full: str, data: bytes) -> None:
        if self._protocol not in _RENAMES:
            fs.pipe_file(full, data)
            return
        folder, _, name = full.rpartition("/")
        fs.makedirs(folder, exist_ok=True)
        # ~ is in no path of ours, so this is never listed or asked for.
        aside = f"{folder}/.~{name}.{uuid.uuid4().hex}"
        try:
            fs.pipe_file(aside, data)
            fs.mv(aside, full)
        except BaseException:
            with suppress(Exception):
                fs.rm_file(aside)
            raise

    @contextmanager
    def _translated(self, path: str, operation: str) -> Iterator[None]:
        where = f"{self._url}/{path}"
        try:
            yield
        except (StorageError, InvalidArgument):
            raise
        except FileNotFoundError as error:
            if operation in ("list", "delete"):
                raise
            kind = BlobMissing if operation == "read" else StorageError
            raise kind(where, operation, "there is no such file or folder") from error
        except OSError as error:
            raise StorageError.of(where, operation, error) from error
        except Exception as error:  # filesystems raise whatever their client libraries do
            raise StorageError(where, operation, f"{type(error).__name__}: {error}") from error
