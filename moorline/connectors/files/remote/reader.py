"""Files of a remote place: found by the driver, and read by the subtask that owns each of them.

A listing of a bucket takes time and costs money, so one is made for all subtasks, and no file changes once it is there.
So the driver finds files and hands each out once; a reader forgets those that it has read.

    position             {"seen": [size, version]}, and how far it was read, once it was begun
    enumerator           of what was found: all (a bounded source), or 16 bytes for each file that is still there

The bytes are two hashes, of the name and of what the file looks like. A file that is seen again and looks otherwise was
exchanged, and is an error. (So would be two names with the same hash of 64 bits: with a million files, one in thirty
million jobs.)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import xxhash

from moorline.api.sources import EnumeratorContext, Positions, SourceContext, SplitEnumerator
from moorline.connectors import retry
from moorline.connectors.files.identity import replaced
from moorline.connectors.files.opened import Position
from moorline.connectors.files.reader import FilesReader, Reading
from moorline.connectors.files.remote.folder import RemoteFolder
from moorline.connectors.files.remote.location import Exchanged, RemoteObject, is_transient
from moorline.connectors.files.remote.ranges import AHEAD, RangeReadAhead, RemoteFile
from moorline.errors import SnapshotCorrupt, StorageError

_PAIR = struct.Struct("<QQ")


class RemoteListing(SplitEnumerator):
    """The finder of files, on the driver."""

    def __init__(
        self,
        folder: RemoteFolder,
        listing: Callable[[], dict[str, RemoteObject]],
        watch_ms: int | None,
        patience: float,
        ctx: EnumeratorContext,
    ) -> None:
        self._folder, self._listing = folder, listing
        self._watches, self._patience = watch_ms is not None, patience
        if watch_ms is not None:
            self.interval_ms = watch_ms
        #: By the hash of a name, that of what the file looks like. None before the first listing.
        self._known: dict[int, int] | None = _unpacked(ctx.restored)

    def discover(self) -> Positions | None:
        if self._known is not None and not self._watches:
            return None
        found = retry.call(self._listing, is_transient, self._patience)
        known = self._known or {}
        # Whole or not at all: an error on the way leaves the state as it was.
        fresh = {split: object for split, object in found.items() if self._is_new(object, known)}
        self._known = dict(map(_pair, found.values())) if self._watches else {}
        return {split: {"seen": object.seen} for split, object in fresh.items()}

    def _is_new(self, object: RemoteObject, known: Mapping[int, int]) -> bool:
        name, looks = _pair(object)
        if name not in known:
            return True
        if known[name] != looks:
            path = self._folder.location.shown(object.path)
            raise replaced(path, "it does not look as it did when it was found")
        return False

    def snapshot(self) -> bytes | None:
        if self._known is None:
            return None
        return b"".join(_PAIR.pack(*pair) for pair in sorted(self._known.items()))


def _pair(object: RemoteObject) -> tuple[int, int]:
    looks = f"{object.size} {object.version}"
    return xxhash.xxh3_64_intdigest(object.path.encode()), xxhash.xxh3_64_intdigest(looks.encode())


def _unpacked(state: Any) -> dict[int, int] | None:
    if state is None:
        return None
    if not isinstance(state, bytes) or len(state) % _PAIR.size:
        raise SnapshotCorrupt("the manifest", f"{state!r:.80} is not what a listing remembers")
    return dict(_PAIR.iter_unpack(state))


class RemoteReader(FilesReader):
    """See :class:`FilesReader`."""

    # Each is a request or two.
    files_per_read = 4

    def __init__(
        self,
        folder: RemoteFolder,
        watches: bool,
        patience: float,
        reading: Reading,
        ctx: SourceContext,
    ) -> None:
        super().__init__(reading, ctx)
        self._folder, self._watches = folder, watches
        self._outage = retry.Outage(patience, ctx.outage)
        self._ahead = RangeReadAhead(folder.location)
        self._has_all = False

    def add_splits(self, splits: Positions) -> None:
        for split, position in splits.items():
            self._folder.object(str(split), position)  # of a snapshot, or from the driver: it must make sense
            self._positions[split] = position
            self._queue.append(str(split))

    def no_more_splits(self) -> None:
        self._has_all = True

    def _read(self, limit: int) -> Sequence[Any] | None:
        if not self._outage.is_due():
            return []
        try:
            records = super()._read(limit)
        except StorageError as error:
            if not is_transient(error):
                raise
            self._put_back()
            self._outage.failed(error)
            return []
        except Exchanged as error:
            raise replaced(self._folder.shown(self._split), str(error)) from error
        self._outage.over()
        return records

    def _put_back(self) -> None:
        """Go on later from the last record that was returned: an open file may have lost its place."""
        if self._file is not None:
            self._positions[self._split] = self._file.position()
            self._close_file()
        self._queue.appendleft(self._split)
        self._ahead.forget()

    def _open_split(self, split: str) -> tuple[RemoteFile, Position | None]:
        position = self._positions[split]
        object = self._folder.object(split, position)
        is_begun = position.keys() > {"seen"}
        next_ones = [self._folder.object(s, self._positions[s]) for s in islice(self._queue, AHEAD)]
        self._ahead.fetch(next_ones if is_begun else [object, *next_ones])
        return RemoteFile(self._folder.location, object, self._ahead.take(object)), position if is_begun else None

    def _is_gone(self, split: str) -> None:
        if not self._watches:
            cause = "it was there when it was listed, and is gone now"
            raise StorageError(self._folder.shown(split), "read", cause, can_pass=False)
        del self._positions[split]

    def _is_done(self, split: str, position: Position) -> None:
        del self._positions[split]

    def _when_idle(self) -> list[Any] | None:
        return None if self._has_all else []

    def close(self) -> None:
        super().close()
        self._ahead.close()
