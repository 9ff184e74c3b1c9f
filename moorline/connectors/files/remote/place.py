"""A sink's folder in a bucket or on another machine.

    a folder for temporary files of this machine                              being written
    <url>/.moorline-staging/<job>-<sink>/part-….parquet                       staged: uploaded whole
    <url>/.moorline-staging/<job>-<sink>/reached-<checkpoint>-<unique>        a commit of this checkpoint has begun
    <url>/part-….parquet                                                      published: readers see these

Publishing is one step of the service: a copy in a bucket, a rename elsewhere. Every name is used for one content only.
So a commit that is repeated, also by a half-dead attempt at the same moment, changes nothing; one that finds the file
published does not even copy. The order is

    prepare     upload every file
    commit      mark the checkpoint as reached, publish every file, only then remove the staged ones

The mark spares a restore the listing of all output: if no mark is above the checkpoint that is restored, nothing was
published that has to be taken back. A committer removes its own mark when it has written a higher one.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import socket
import tempfile
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import IO, Any, TypeVar
from uuid import uuid4

from moorline.api.sinks import SinkCommitter, SinkContext, is_meant
from moorline.connectors import retry
from moorline.connectors.files.local.place import check_published, damaged, naming
from moorline.connectors.files.part_names import (
    STAGING,
    Committable,
    checkpoint_in,
    is_after,
    lineage_in,
    sink_tag,
    staging_folder,
)
from moorline.connectors.files.remote.location import Location, is_transient
from moorline.errors import StorageError
from moorline.failpoints import failpoint

T = TypeVar("T")

_BUFFER = 1024 * 1024
#: Requests at a time.
_LINES = 8
#: What S3 copies in one request is not larger than 5 GB.
_LARGEST = 4 << 30
_REACHED = re.compile(r"reached-([0-9]{10,20})-([0-9a-f]{32})")


class RemotePlace:
    """See :class:`SinkPlace`."""

    largest: int | None = _LARGEST
    is_remote = True

    def __init__(self, location: Location, patience: float) -> None:
        self.location, self.patience = location, patience
        self.path = location.url

    def check(self) -> None:
        """Do once what a commit does, inside the staging folder."""
        trial = [f"{STAGING}/trial-{uuid4().hex}-{step}" for step in ("staged", "published")]
        files = self.location.files
        try:
            self.tried(lambda: files.upload(io.BytesIO(b"trial"), trial[0]))
            self.tried(lambda: files.publish(*trial))
        finally:
            with contextlib.suppress(StorageError):
                files.delete(trial)
            files.remove_folder(STAGING)

    def open(self, ctx: SinkContext) -> _RemoteArea:
        return _RemoteArea(self, ctx)

    def committer(self, ctx: SinkContext | None) -> SinkCommitter:
        return _Copies(self, ctx)

    def roll_back(self, job: str, uid: str, checkpoint: int, lineages: tuple[str, ...]) -> None:
        folder, tag = staging_folder(job, uid), sink_tag(job, uid)
        files = self.location.files
        names = [object.path.rpartition("/")[2] for object in self.tried(lambda: files.list(folder))]
        # Staged names first: after that, an attempt that is still alive has nothing to publish any more.
        staged = [name for name in names if is_after(name, tag, checkpoint, lineages)]
        self.tried(lambda: files.delete([f"{folder}/{name}" for name in staged]))
        marks = [name for name in names if (found := _REACHED.fullmatch(name)) and is_meant(found[2], lineages)]
        if any(_reached(mark) > checkpoint for mark in marks):
            self._take_back(tag, checkpoint, lineages)
        self.tried(lambda: files.delete([f"{folder}/{mark}" for mark in marks]))

    def _take_back(self, tag: str, checkpoint: int, lineages: tuple[str, ...]) -> None:
        """Remove published files of later checkpoints, among all that there are."""
        files = self.location.files
        found = [object.path for object in self.tried(files.list)]
        later = [path for path in found if is_after(path.rpartition("/")[2], tag, checkpoint, lineages)]
        self.tried(lambda: files.delete([path for path in later if not path.startswith(f"{STAGING}/")]))

    def clean_up(self, job: str, uid: str) -> None:
        files, folder = self.location.files, staging_folder(job, uid)
        with contextlib.suppress(StorageError):
            files.delete([object.path for object in files.list(folder)])
        for emptied in (folder, STAGING):
            files.remove_folder(emptied)

    def tried(self, work: Callable[[], T], outage: Callable[[str | None], None] = lambda cause: None) -> T:
        """The result of ``work``, which is repeated while the place is away."""
        return retry.call(work, is_transient, self.patience, outage)


def _for_each(items: list[T], work: Callable[[T], None]) -> None:
    """``work`` for each of the items, some at a time."""
    with ThreadPoolExecutor(min(_LINES, len(items)) or 1) as lines:
        for done in [lines.submit(work, item) for item in items]:
            done.result()


def _reached(mark: str) -> int:
    return int(mark.split("-")[1])


class _RemoteArea:
    def __init__(self, place: RemotePlace, ctx: SinkContext) -> None:
        self._place, self._ctx = place, ctx
        with naming(tempfile.gettempdir(), "keep files in"):
            self._folder = _scratch_folder()
        # Also for a writer that is never closed.
        self._remove_folder = weakref.finalize(self, _remove, self._folder, os.getpid())

    def create(self, unique: str) -> tuple[str, IO[bytes]]:
        path = os.path.join(self._folder, unique)
        return path, open(path, "xb", buffering=_BUFFER)

    def finish(self, path: str, file: IO[bytes]) -> int:
        file.flush()
        size = file.tell()
        file.close()
        return size

    def stage(self, files: list[tuple[str, Committable]]) -> None:
        _for_each(files, lambda file: self._place.tried(lambda: self._upload(*file), self._ctx.outage))
        for path, _ in files:
            os.unlink(path)

    def _upload(self, path: str, file: Committable) -> None:
        with open(path, "rb") as content:
            self._place.location.files.upload(content, file.staged)

    def discard(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(path)

    def close(self) -> None:
        self._remove_folder()


class _Copies(SinkCommitter):
    def __init__(self, place: RemotePlace, ctx: SinkContext | None) -> None:
        self._place, self._files = place, place.location.files
        self._outage: Callable[[str | None], None] = (lambda cause: None) if ctx is None else ctx.outage
        #: The highest checkpoint that this committer has marked, and the mark, by how the lineage begins.
        self._marks: dict[str, tuple[int, str]] = {}

    def commit(self, committables: list[Any]) -> None:
        files: list[Committable] = committables
        if not files:
            return
        folder = files[0].staged.rpartition("/")[0]
        for lineage, of_it in groupby(sorted(files, key=lineage_in), key=lineage_in):
            self._mark_checkpoint(lineage, max(map(checkpoint_in, of_it)), folder)
        self._publish(files[0])
        failpoint("sink.commit.middle")
        _for_each(files[1:], self._publish)
        self._tried(lambda: self._files.delete([file.staged for file in files]))

    def _mark_checkpoint(self, lineage: str, checkpoint: int, folder: str) -> None:
        reached, before = self._marks.get(lineage, (0, ""))
        if checkpoint <= reached:
            return
        mark = f"{folder}/reached-{checkpoint:010}-{(lineage + uuid4().hex)[:32]}"
        self._tried(lambda: self._files.upload(io.BytesIO(b"reached"), mark))
        self._marks[lineage] = checkpoint, mark
        if before:
            self._tried(lambda: self._files.delete([before]))

    def _publish(self, file: Committable) -> None:
        published = self._tried(lambda: self._files.find(file.final))
        if published is None:
            staged = self._tried(lambda: self._files.find(file.staged))
            if staged is not None and staged.size != file.size:
                raise damaged(self._place.location.shown(file.staged), file, staged.size)
            if staged is not None and self._tried(lambda: self._is_moved(file)):
                return
            # Published by another attempt meanwhile, or lost.
            published = self._tried(lambda: self._files.find(file.final))
        size = None if published is None else published.size
        check_published(self._place.location.shown(file.final), file, size)

    def _is_moved(self, file: Committable) -> bool:
        """Publish a file. False if it is not staged any more."""
        try:
            self._files.publish(file.staged, file.final)
        except FileNotFoundError:
            return False
        return True

    def _tried(self, work: Callable[[], T]) -> T:
        return self._place.tried(work, self._outage)


def _scratch_folder() -> str:
    """A new folder on a disk of this machine. Those of processes that were killed are removed.

    Named as the folders that subtasks keep their state in, so that whichever comes next removes both.
    """
    where = tempfile.gettempdir()
    host = re.sub(r"[^A-Za-z0-9]", "_", socket.gethostname()) or "host"
    for name in os.listdir(where):
        owner = re.match(rf"moorline-{host}-(\d+)-", name)
        if owner and not _is_alive(int(owner[1])):
            shutil.rmtree(os.path.join(where, name), ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"moorline-{host}-{os.getpid()}-files-")


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # and not a process that was forked from it
        shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
