"""A blob store in a folder of a file system: a local disk, or a mount that every machine of the cluster sees.

How the guarantees of ``blobs.py`` are kept:

    whole or not at all    the bytes go to a file without a name (O_TMPFILE); link(2) names it when they are on disk.
                           A process killed half-way leaves nothing, the kernel frees a file without a name.
    exactly one wins       link(2) fails if the name is taken.
    durable                fsync of the file before the link, of the folder after it, and of every folder's parent
                           when a folder is made.
    for its owner alone    folders are made 0700 and files 0600, unless the store is shared; then the umask says. What
                           was there before is left as it is.
    nothing outside        every path passes check_path, and every part of it is opened relative to the one before
                           and without following links. Only the root itself may be a link: the user chose it.

Where the file system has no O_TMPFILE (NFS, macOS), the temporary file has a name that no path of ours can have, and a
kill can leave it behind. All OSErrors become StorageError here.
"""

from __future__ import annotations

import builtins
import errno
import os
import re
import stat
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from moorline.errors import BlobMissing, StorageError
from moorline.failpoints import failpoint
from moorline.storage.blobs import Blob
from moorline.storage.layout import DATA, check_path

#: ``~`` is not allowed in a path of ours, so these can neither be asked for nor be listed.
_TEMPORARY = ".~"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO that was planted must not hang.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: How often a write makes its folder again before it gives up.
_PATIENCE = 50
_NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)


class LocalStore:
    """Files below ``root``, which is made when the first one is written. ``shared``: for others too, as umask says."""

    def __init__(self, root: str | Path, *, shared: bool = False) -> None:
        self._file_mode, self._folder_mode = (0o666, 0o777) if shared else (0o600, 0o700)
        # Absolute, because workers have other working directories.
        self._root = Path(root).absolute()
        self._nameless = hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd")

    @property
    def url(self) -> str:
        return self._root.as_uri()

    def put(self, path: str, data: bytes) -> None:
        if not self._create(path, data):
            raise StorageError(f"{self._root}/{path}", "create", "there is a file of that name already")

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._create(path, data)

    def get(self, path: str) -> bytes:
        with self._translated(path, "read"), self._open(path) as (file, size):
            return _read(file, 0, size)

    def get_range(self, path: str, offset: int, size: int) -> bytes:
        with self._translated(path, "read"), self._open(path) as (file, length):
            # Bounded by the file, so that a size out of a damaged manifest cannot ask for all memory.
            return _read(file, offset, min(size, max(length - offset, 0)))

    def list(self, prefix: str = "") -> builtins.list[Blob]:
        folder = prefix.rpartition("/")[0]
        if folder:
            check_path(folder)
        blobs: builtins.list[Blob] = []
        with (
            self._translated(prefix, "list"),
            suppress(FileNotFoundError),
            self._folder(folder, create=False) as start,
        ):
            blobs.extend(_walk(start, f"{folder}/" if folder else ""))
        return sorted(blob for blob in blobs if blob.path.startswith(prefix))

    def delete(self, paths: Iterable[str]) -> None:
        by_folder: dict[str, builtins.list[str]] = {}
        for path in paths:
            folder, _, name = check_path(path).rpartition("/")
            by_folder.setdefault(folder, []).append(name)
        for folder, names in by_folder.items():
            with self._translated(folder, "delete from"), suppress(FileNotFoundError):
                with self._folder(folder, create=False) as parent:
                    for name in names:
                        with suppress(FileNotFoundError):
                            os.unlink(name, dir_fd=parent)
                    # An entry that comes back after a power cut would name files that are gone.
                    os.fsync(parent)
                self._prune(folder)

    def modified_ms(self, path: str) -> int:
        """The time a file was written, by this machine's clock or that of the file server."""
        with self._translated(path, "read"), self._open(path) as (file, _):
            return os.fstat(file).st_mtime_ns // 1_000_000

    # --- writing ------------------------------------------------------------------------------

    def _create(self, path: str, data: bytes) -> bool:
        folder, _, name = check_path(path).rpartition("/")
        with self._translated(path, "write"):
            for tries in range(1, _PATIENCE + 1):
                try:
                    with self._folder(folder, create=True) as parent:
                        return self._write(parent, name, data, half=path.startswith(DATA))
                except FileNotFoundError:
                    # Another writer's delete() pruned the folder, empty as it still was, under our feet. Make it again,
                    # a little later each time so that several of us do not stay in step.
                    if tries == _PATIENCE:
                        raise
                    time.sleep(0.001 * tries)
            raise AssertionError("unreachable")

    def _write(self, parent: int, name: str, data: bytes, *, half: bool) -> bool:
        """Write ``data`` aside and link it to ``name``. False if the name is taken."""
        file, aside = self._temporary(parent)
        try:
            middle = len(data) // 2
            _write_all(file, memoryview(data)[:middle])
            if half:
                failpoint("ckpt.mid_upload")
            _write_all(file, memoryview(data)[middle:])
            os.fsync(file)
            try:
                if aside is None:
                    os.link(f"/proc/self/fd/{file}", name, dst_dir_fd=parent, follow_symlinks=True)
                else:
                    os.link(aside, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
            except FileExistsError:
                return False
            os.fsync(parent)
            return True
        finally:
            os.close(file)
            if aside is not None:
                with suppress(OSError):
                    os.unlink(aside, dir_fd=parent)

    def _temporary(self, parent: int) -> tuple[int, str | None]:
        """A new file in this folder, and its name if it has one."""
        if self._nameless:
            try:
                return os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, self._file_mode, dir_fd=parent), None
            except OSError as error:
                # In a folder that was removed meanwhile, ext4 says EPERM where one would expect ENOENT.
                if os.fstat(parent).st_nlink == 0:
                    raise FileNotFoundError(errno.ENOENT, "the folder was removed") from error
                if error.errno not in _NO_TMPFILE:
                    raise
                self._nameless = False
        name = f"{_TEMPORARY}{uuid.uuid4().hex}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, self._file_mode, dir_fd=parent), name

    def _prune(self, folder: str) -> None:
        """Remove ``folder`` and its parents, up to the root, as far as they are empty."""
        while folder:
            above, _, name = folder.rpartition("/")
            try:
                with self._folder(above, create=False) as parent:
                    os.rmdir(name, dir_fd=parent)
            except OSError:
                # Not empty, or another was faster: it is only tidying.
                return
            folder = above

    # --- finding the way ----------------------------------------------------------------------

    @contextmanager
    def _folder(self, folder: str, *, create: bool) -> Iterator[int]:
        """A descriptor of a folder below the root, reached without following a link."""
        if create:
            _make_root(self._root, self._folder_mode)
        here = os.open(self._root, _FOLDER)
        try:
            for part in filter(None, folder.split("/")):
                try:
                    below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
                except FileNotFoundError:
                    if not create:
                        raise
                    with suppress(FileExistsError):
                        os.mkdir(part, self._folder_mode, dir_fd=here)
                        os.fsync(here)
                    below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
                os.close(here)
                here = below
            yield here
        finally:
            os.close(here)

    @contextmanager
    def _open(self, path: str) -> Iterator[tuple[int, int]]:
        """A descriptor of a file and its size."""
        folder, _, name = check_path(path).rpartition("/")
        with self._folder(folder, create=False) as parent:
            file = os.open(name, _READ, dir_fd=parent)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            yield file, status.st_size
        finally:
            os.close(file)

    @contextmanager
    def _translated(self, path: str, operation: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            kind = BlobMissing if operation == "read" else StorageError
            raise kind(f"{self._root}/{path}", operation, "there is no such file or folder") from error
        except PermissionError as error:
            cause = f"{error.strerror}. What is stored is for its owner, unless storage_options={{'shared': True}}"
            raise StorageError(f"{self._root}/{path}", operation, cause) from error
        except OSError as error:
            raise StorageError.of(f"{self._root}/{path}", operation, error) from error


def _make_root(root: Path, mode: int) -> None:
    if root.is_dir():
        return
    _make_root(root.parent, mode)
    with suppress(FileExistsError):
        root.mkdir(mode)
        above = os.open(root.parent, _FOLDER)
        try:
            os.fsync(above)
        finally:
            os.close(above)


def _walk(folder: int, prefix: str) -> Iterator[Blob]:
    """Every file of ours below an open folder. What vanishes meanwhile was deleted meanwhile."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not _NAME.fullmatch(entry.name):
                continue
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    below = os.open(entry.name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                    try:
                        yield from _walk(below, f"{prefix}{entry.name}/")
                    finally:
                        os.close(below)
                elif entry.is_file(follow_symlinks=False):
                    yield Blob(prefix + entry.name, entry.stat(follow_symlinks=False).st_size)


def _read(file: int, offset: int, size: int) -> bytes:
    # One pread returns at most 2 GiB.
    parts: list[bytes] = []
    while size > 0 and (part := os.pread(file, size, offset)):
        parts.append(part)
        offset, size = offset + len(part), size - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _write_all(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]
