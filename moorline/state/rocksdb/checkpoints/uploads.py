"""Snapshots that are files of RocksDB, and which of them are in storage already.

A snapshot is a checkpoint of RocksDB: hard links to its files, of which those that storage has are named and the rest
uploaded. A name means one content only within one database: another one, or an earlier one with the same start, has
other files of the same names. So names are looked up in what *this* database has uploaded or was opened with, and in
nothing else.

    what                               while
    files of checkpoint ``completed``  it is the newest complete one, as the barrier says; the driver keeps it
    nothing                            ``completed`` is 0: all of it is to be uploaded, whatever storage has
    files that were restored           no checkpoint of this database is complete yet; then they are not kept for us

Files of checkpoints that were given up are deleted, so they are never looked at.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

from moorline.model.manifest import KeyedHandle, NativeFile, NativeHandle
from moorline.state.backend import Files, KeyedSnapshot
from moorline.state.rocksdb.database import Database


@dataclass(frozen=True)
class StoredFile:
    """The files of this database that storage has, at one moment of it."""

    handles: list[KeyedHandle] = field(default_factory=list)
    #: By name.
    files: dict[str, NativeFile] = field(default_factory=dict)
    #: The database's version that the handles show, if they show it whole.
    version: int = -1

    def known(self, paths: Mapping[str, Path]) -> dict[str, NativeFile]:
        """Those of some files that are in storage. Only the sorted files never change."""
        return {
            name: self.files[name]
            for name, path in paths.items()
            if name.endswith(".sst") and name in self.files and self.files[name].file.size == path.stat().st_size
        }


class Uploads:
    """The snapshots of one database, from its opening on."""

    def __init__(self) -> None:
        self._restored = StoredFile()
        self._stored: dict[int, StoredFile] = {}
        self._first_completed: int | None = None
        #: Numbers the folders of snapshots: a checkpoint may be taken twice.
        self._folders = count()

    def opened_with(self, handles: Sequence[KeyedHandle], files: dict[str, NativeFile], version: int) -> None:
        """The database was restored."""
        self._restored = StoredFile(list(handles), files, version)

    def snapshot(self, database: Database, checkpoint: int, completed: int) -> KeyedSnapshot:
        """A snapshot of all that is written, as files. Nothing is uploaded if nothing has been written since."""
        store, registry = database.store, database.registry
        registry.describe(database.key_groups, database.sequence.last)
        base, version = self._base(completed), store.version()
        if base.version == version:
            # Nothing has been written since: the old handles say it all.
            return KeyedSnapshot(reused=base.handles, done=partial(self._done, checkpoint, version, None))
        folder = database.folder / f"checkpoint-{checkpoint}-{next(self._folders)}"
        paths = store.checkpoint(folder)
        known = base.known(paths)
        new = {name: path for name, path in paths.items() if name not in known}
        done = partial(self._done, checkpoint, version, folder)
        return KeyedSnapshot(parts=[Files(registry.states(), new, known)], done=done)

    def _base(self, completed: int) -> StoredFile:
        """The files that a checkpoint may build on."""
        if self._first_completed is None:
            self._first_completed = completed
        if not completed:
            return StoredFile()
        self._stored = {n: stored for n, stored in self._stored.items() if n >= completed}
        if completed in self._stored:
            return self._stored[completed]
        return self._restored if completed == self._first_completed else StoredFile()

    def _done(self, checkpoint: int, version: int, folder: Path | None, handles: list[KeyedHandle] | None) -> None:
        """The files of a checkpoint are durable, or (None) never will be. Its folder is of no more use."""
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        if handles:
            files = {f.name: f for handle in handles if isinstance(handle, NativeHandle) for f in handle.files}
            self._stored[checkpoint] = StoredFile(handles, files, version)
