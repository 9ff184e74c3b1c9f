"""Frames that wait for their turn: in memory up to a budget, then in a temporary file; first in, first out.

A copy of the ones in front can be taken for a snapshot. It costs no reading: what is on disk stays there until
the snapshot's writer reads it, on another thread, while the queue goes on.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import IO

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True)
class FrameCopy:
    """Some frames of a queue, as they were when the copy was taken. Iterate over it once."""

    memory: list[bytes]
    #: A file of our own to read from, where the first frame stands in it, and how many there are.
    file: IO[bytes] | None = None
    start: int = 0
    count: int = 0

    def __iter__(self) -> Iterator[bytes]:
        yield from self.memory
        if self.file is not None:
            at = self.start
            with self.file as file:
                for _ in range(self.count):
                    (length,) = _LENGTH.unpack(os.pread(file.fileno(), _LENGTH.size, at))
                    yield os.pread(file.fileno(), length, at + _LENGTH.size)
                    at += _LENGTH.size + length


class SpillQueue:
    """The frames of one channel that wait."""

    def __init__(self) -> None:
        self._memory: deque[bytes] = deque()
        self._file: IO[bytes] | None = None
        self._written = self._read = 0
        self.memory_bytes = 0
        #: The number of the next frame to come out, and of the next to go in.
        self.first = self.end = 0

    def append(self, frame: bytes, to_disk: bool) -> None:
        self.end += 1
        # Once some frames are on disk, later ones must queue up behind them.
        if not to_disk and self._file is None:
            self._memory.append(frame)
            self.memory_bytes += len(frame)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="moorline-held-")  # noqa: SIM115 (closed when drained)
        self._file.seek(self._written)
        self._file.write(_LENGTH.pack(len(frame)) + frame)
        self._written += _LENGTH.size + len(frame)

    def put_back(self, frame: bytes) -> None:
        """Put the rest of the frame that came out last back in front."""
        self.first -= 1
        self._memory.appendleft(frame)
        self.memory_bytes += len(frame)

    def popleft(self) -> bytes:
        self.first += 1
        if self._memory:
            frame = self._memory.popleft()
            self.memory_bytes -= len(frame)
            return frame
        assert self._file is not None
        self._file.seek(self._read)
        (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
        frame = self._file.read(length)
        self._read += _LENGTH.size + length
        if self._read == self._written:
            self.close()
        return frame

    def copy(self, end: int) -> FrameCopy:
        """The frames from :attr:`first` up to number ``end``."""
        count = end - self.first
        memory = list(islice(self._memory, count))
        if count == len(memory):
            return FrameCopy(memory)
        assert self._file is not None
        self._file.flush()
        # A name of its own for the same file: it stays readable when the queue has closed it.
        file = os.fdopen(os.dup(self._file.fileno()), "rb", buffering=0)
        return FrameCopy(memory, file, self._read, count - len(memory))

    @property
    def disk_bytes(self) -> int:
        return self._written - self._read

    def __bool__(self) -> bool:
        return self.first < self.end

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._written, self._read = None, 0, 0
