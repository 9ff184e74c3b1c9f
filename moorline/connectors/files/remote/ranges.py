"""A remote file, opened to be read: its bytes are fetched in blocks, and the beginnings of the next files ahead."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from moorline.connectors.files.opened import OpenedFile, Position
from moorline.connectors.files.remote.location import Exchanged, Location, RemoteFiles, RemoteObject

#: Bytes that are fetched at once, at least: a tenth of a second's worth on a slow line.
BLOCK = 4 << 20
#: Files whose beginning is fetched while the one before is read.
AHEAD = 4
_BUFFER = 256 * 1024


class RangeReadAhead:
    """The beginnings of files that come next. Most places answer late, and several requests at once.

    Small files would cost a wait each without it.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._begun: dict[RemoteObject, Future[bytes]] = {}
        self._lines: ThreadPoolExecutor | None = None

    def fetch(self, objects: Iterable[RemoteObject]) -> None:
        """Begin to fetch these, unless that was done."""
        files = self._location.files
        if self._lines is None:
            self._lines = ThreadPoolExecutor(AHEAD, "moorline-read-ahead")
        for object in objects:
            if object not in self._begun:
                end = min(object.size, BLOCK)
                self._begun[object] = self._lines.submit(files.read, object.path, 0, end, object.version)

    def take(self, object: RemoteObject) -> Future[bytes] | None:
        """The beginning of a file, if it was asked for."""
        return self._begun.pop(object, None)

    def forget(self) -> None:
        """Drop what was fetched while the place was away."""
        self._begun.clear()

    def close(self) -> None:
        """Give everything up."""
        self.forget()
        if self._lines is not None:
            self._lines.shutdown(wait=False, cancel_futures=True)


class RangeStream(io.RawIOBase):
    """The bytes of a remote file, fetched in blocks where they are read."""

    def __init__(self, files: RemoteFiles, object: RemoteObject, beginning: Future[bytes] | None) -> None:
        self._files, self._object, self._beginning = files, object, beginning
        self._at = 0
        #: Where the block begins that is at hand.
        self._start, self._block = 0, b""
        #: The last failure of the place. Decoders bury it under words of their own.
        self.failure: Exception | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._object.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def size(self) -> int:
        """As Arrow asks for it."""
        return self._object.size

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        wanted = min(len(view), max(0, self._object.size - self._at))
        done = 0
        while done < wanted:
            piece = self._piece(wanted - done)
            view[done : done + len(piece)] = piece
            done += len(piece)
            self._at += len(piece)
        return done

    def _piece(self, size: int) -> bytes:
        """Up to ``size`` bytes from where we are, at least one."""
        inside = self._at - self._start
        if not 0 <= inside < len(self._block):
            try:
                self._start, self._block = self._fetched(size)
            except Exception as error:
                self.failure = error
                raise
            inside = self._at - self._start
        return self._block[inside : inside + size]

    def _fetched(self, size: int) -> tuple[int, bytes]:
        """A block with the byte where we are, and where it begins."""
        start, end = self._at, min(self._object.size, self._at + max(size, BLOCK))
        if self._beginning is not None and start < BLOCK:
            start, end = 0, min(self._object.size, BLOCK)
            block = self._beginning.result()
        else:
            block = self._files.read(self._object.path, start, end, self._object.version)
        if len(block) != end - start:
            raise Exchanged(f"it has fewer bytes than the {self._object.size} that were listed")
        return start, block


class RemoteFile(OpenedFile):
    """See :class:`OpenedFile`. Its position says what the listing said about it."""

    def __init__(self, location: Location, object: RemoteObject, beginning: Future[bytes] | None = None) -> None:
        self.path = location.shown(object.path)
        self.size = object.size
        self._location, self._object = location, object
        self._ranges = RangeStream(location.files, object, beginning)
        self.stream = io.BufferedReader(self._ranges, _BUFFER)

    def check_same(self, position: Position | None) -> None:
        pass  # it is read as what its position says it is, and every read finds out if it is another

    def begin(self, end: int) -> None:
        pass

    def add(self, pieces: list[bytes]) -> None:
        pass

    def identity(self) -> Position:
        return {"seen": self._object.seen}

    def fault(self, error: Exception) -> Exception | None:
        return self._ranges.failure

    def reopened(self) -> RemoteFile:
        return RemoteFile(self._location, self._object)

    @property
    def arrow(self) -> Any:
        # Not through the buffer: Arrow reads what it needs in large pieces.
        return self._ranges
