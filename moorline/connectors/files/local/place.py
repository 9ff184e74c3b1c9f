"""A sink's folder on a local or mounted disk.

    <path>/part-….parquet                                                      published: readers see these
    <path>/.moorline-staging/<job>-<sink>/open-<subtask>-<attempt>-<unique>    being written
    <path>/.moorline-staging/<job>-<sink>/part-….parquet                       prepared: whole, synced, waiting

Publishing is one hard link: the file appears whole or not at all, nothing is ever overwritten, and a second attempt at
the same link finds that it was done. The order is

    prepare     write, sync the file, give it its final name in the staging folder, sync that folder
    commit      link every file, sync the folders, only then remove the staged names

so after a crash at any point each file that was promised is found under one name or the other.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from typing import IO, Any
from uuid import uuid4

from moorline.api.sinks import SinkCommitter, SinkContext
from moorline.connectors.files.local.paths import sync_folder
from moorline.connectors.files.part_names import STAGING, Committable, is_after, sink_tag, staging_folder
from moorline.errors import StorageError
from moorline.failpoints import failpoint

_BUFFER = 1024 * 1024
#: The file system has no hard links, or none here.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


class LocalPlace:
    """See :class:`SinkPlace`."""

    largest: int | None = None
    is_remote = False

    def __init__(self, path: str) -> None:
        self.path = path

    def check(self) -> None:
        """Write a file into the staging folder and remove it again."""
        staging = os.path.join(self.path, STAGING)
        trial = os.path.join(staging, f"trial-{uuid4().hex}")
        with naming(self.path, "stage files in"):
            os.makedirs(staging, exist_ok=True)
            try:
                with open(trial, "xb") as file:
                    file.write(b"x")
                os.unlink(trial)
            finally:
                with contextlib.suppress(OSError):
                    os.rmdir(staging)

    def open(self, ctx: SinkContext) -> _LocalArea:
        return _LocalArea(self, ctx)

    def committer(self, ctx: SinkContext | None) -> SinkCommitter:
        return _Links(self)

    def roll_back(self, job: str, uid: str, checkpoint: int, lineages: tuple[str, ...]) -> None:
        tag = sink_tag(job, uid)
        with naming(self.path, "roll back"):
            # Staged names first: after that, an attempt that is still alive has nothing to publish any more.
            for folder in (os.path.join(self.path, staging_folder(job, uid)), *_partitions(self.path)):
                removed = False
                for name in names(folder):
                    if is_after(name, tag, checkpoint, lineages):
                        with contextlib.suppress(FileNotFoundError):
                            os.unlink(os.path.join(folder, name))
                        removed = True
                if removed:
                    sync_folder(folder)

    def clean_up(self, job: str, uid: str) -> None:
        """Remove this sink's staging folder, and the common one if no other sink uses it."""
        shutil.rmtree(os.path.join(self.path, staging_folder(job, uid)), ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(self.path, STAGING))


class _LocalArea:
    def __init__(self, place: LocalPlace, ctx: SinkContext) -> None:
        self._place, self._ctx = place, ctx
        self._folder = os.path.join(place.path, staging_folder(ctx.job, ctx.uid))
        with naming(place.path, "stage files in"):
            os.makedirs(self._folder, exist_ok=True)
            sync_folder(os.path.dirname(self._folder))
            sync_folder(place.path)
            self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        # What an older attempt of this subtask did not get to prepare belongs to no checkpoint and never will.
        for name in names(self._folder):
            match = re.fullmatch(r"open-([0-9]+)-([0-9]+)-[0-9a-f]+", name)
            if match and int(match[1]) == self._ctx.subtask and int(match[2]) < self._ctx.attempt:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._folder, name))

    def create(self, unique: str) -> tuple[str, IO[bytes]]:
        path = os.path.join(self._folder, f"open-{self._ctx.subtask:05}-{self._ctx.attempt}-{unique}")
        return path, open(path, "xb", buffering=_BUFFER)

    def finish(self, path: str, file: IO[bytes]) -> int:
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
        file.close()
        return size

    def stage(self, files: list[tuple[str, Committable]]) -> None:
        for path, file in files:
            os.rename(path, os.path.join(self._place.path, file.staged))
        if files:
            sync_folder(self._folder)

    def discard(self, path: str) -> None:
        # Given up: neither a full disk nor a folder that is gone matters any more.
        with contextlib.suppress(OSError):
            os.unlink(path)

    def close(self) -> None:
        pass


class _Links(SinkCommitter):
    def __init__(self, place: LocalPlace) -> None:
        self._path = place.path

    def commit(self, committables: list[Any]) -> None:
        files: list[Committable] = committables
        if not files:
            return
        failpoint("sink.commit.before")
        with naming(self._path, "publish files in"):
            folders = self._make_partitions({os.path.dirname(file.final) for file in files})
            for number, file in enumerate(files):
                self._publish(file)
                if number == 0:
                    failpoint("sink.commit.middle")
            for folder in folders:
                sync_folder(folder)
            for file in files:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._path, file.staged))
        failpoint("sink.commit.after")

    def _make_partitions(self, partitions: set[str]) -> list[str]:
        """The folders that get files, and those that got folders. All of them lie inside the sink's own."""
        folders = {self._path}
        for partition in sorted(partitions):
            folder = self._path
            for part in partition.split("/") if partition else ():
                folder = os.path.join(folder, part)
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder)
                if not stat.S_ISDIR(os.lstat(folder).st_mode):
                    cause = "it is not a folder but a link or a file, and no partition of this sink"
                    raise StorageError(folder, "publish files in", cause, can_pass=False)
                folders.add(folder)
        return sorted(folders)

    def _publish(self, file: Committable) -> None:
        staged, final = os.path.join(self._path, file.staged), os.path.join(self._path, file.final)
        try:
            status = os.lstat(staged)
            if not stat.S_ISREG(status.st_mode) or status.st_size != file.size:
                raise damaged(staged, file, status.st_size)
            try:
                os.link(staged, final, follow_symlinks=False)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                # As atomic as a link, and names are unique, so nothing can be overwritten.
                os.rename(staged, final)
        except (FileNotFoundError, FileExistsError):
            # Published before, or just now by another attempt.
            try:
                size: int | None = os.lstat(final).st_size
            except FileNotFoundError:
                size = None
            check_published(final, file, size)


def damaged(path: str, file: Committable, size: int) -> StorageError:
    """The error for a staged file that is not as long as it was."""
    cause = f"it was staged with {file.size} bytes and has {size} now: it was damaged"
    return StorageError(path, "publish", cause)


def check_published(path: str, file: Committable, size: int | None) -> None:
    """Raise if a file is not published as it was staged. ``size``: of what is there under its final name, if any is."""
    if size is None:
        raise StorageError(
            path,
            "publish",
            f"its {file.size} bytes are lost: it is neither published nor staged as {file.staged}. "
            f"Put it back if it was moved away after it was published",
        )
    if size != file.size:
        raise StorageError(path, "publish", f"it is there with {size} bytes instead of {file.size}")


def names(folder: str) -> list[str]:
    """The names in a folder, if there is one."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _partitions(folder: str) -> Iterator[str]:
    """A folder, and the folders of partitions below it."""
    yield folder
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if "=" in entry.name and entry.is_dir(follow_symlinks=False):
                yield from _partitions(entry.path)


@contextlib.contextmanager
def naming(path: str, operation: str) -> Iterator[None]:
    """Name the path and the operation when the file system refuses."""
    try:
        yield
    except OSError as error:
        raise StorageError.of(path, operation, error) from error
