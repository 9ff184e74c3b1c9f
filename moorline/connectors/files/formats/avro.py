"""Avro container files as a source: records of one block at a time. Needs the extra avro.

    header    magic "Obj\\x01", metadata (schema, codec), a sync marker of 16 random bytes
    block     number of records, number of bytes (both zigzag varints), the records, the sync marker

Blocks are found here and decoded by fastavro. So it is known where each one lies, a file may grow by blocks while it is
watched, and after a broken one the sync marker says where the next begins.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
from typing import Any

from moorline.connectors.broken import BrokenRecords
from moorline.connectors.files.identity import replaced, shown
from moorline.connectors.files.opened import OpenedFile, Position
from moorline.errors import InvalidArgument, StorageError, UnreadableRecord

_MAGIC = b"Obj\x01"
_SYNC = 16
#: Two varints have no more bytes.
_FRAME = 20
_CHUNK = 1 << 20
#: The modules that fastavro takes for each codec, of which one must be there.
CODECS: dict[str, tuple[str, ...]] = {
    "null": (),
    "deflate": (),
    "bzip2": (),
    "xz": (),
    "snappy": ("cramjam",),
    "zstandard": ("backports.zstd", "compression.zstd"),
    "lz4": ("lz4",),
}


def fastavro() -> Any:
    """The library."""
    try:
        return importlib.import_module("fastavro")
    except ImportError:
        raise InvalidArgument("format", "avro", "Install what it needs: pip install 'moorline[avro]'.") from None


def has_codec(codec: str) -> bool:
    """Can blocks of this codec be read and written here?

    >>> has_codec("deflate"), has_codec("lzo")
    (True, False)
    """
    return codec in CODECS and (not CODECS[codec] or any(map(_is_there, CODECS[codec])))


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


class _Cut(Exception):
    """A block is longer than what is there of it."""


class AvroRecords:
    """The values of a file, mostly dicts. One block is in memory at a time."""

    def __init__(self, file: OpenedFile, position: Position | None, broken: BrokenRecords, *, final: bool) -> None:
        self._file, self._broken, self._final = file, broken, final
        #: Where the block begins that is being read, or comes next. 0: the header is still ahead.
        self._offset = 0 if position is None else int(position["offset"])
        #: How many of its records were returned.
        self._record = 0 if position is None else int(position["record"])
        self._block: bytes = b""
        self._records: list[Any] | None = None
        self._header = b""
        self._feed = io.BytesIO()
        self._decoder: Any = None
        fastavro()  # that it is not there must not look like a broken file
        if self._offset > file.size:
            raise replaced(file.path, f"it has {file.size} bytes, but {self._offset} were read before")
        file.check_same(position)
        file.begin(self._offset)

    @property
    def is_final(self) -> bool:
        return self._final

    def position(self) -> Position:
        return {"offset": self._offset, "record": self._record, **self._file.identity()}

    def read(self, limit: int) -> list[Any] | None:
        if not self._header and not self._read_header():
            return None
        while True:
            if self._records is None:
                if self._offset >= self._file.size:
                    return None
                try:
                    self._read_block()
                except _Cut as cut:
                    if not self._final:
                        return None  # the rest of it is still to come
                    self._give_up_block(str(cut))
                    return []
            if self._records is None:
                return []  # it was broken
            records = self._records[self._record : self._record + limit]
            self._record += len(records)
            if self._record >= len(self._records):
                self._file.add([self._block])
                self._offset, self._record, self._records = self._offset + len(self._block), 0, None
            if records:
                return records

    # --- header and blocks ------------------------------------------------------------------------

    def _read_header(self) -> bool:
        stream = self._file.stream
        stream.seek(0)
        magic = stream.read(len(_MAGIC))
        if not self._final and len(magic) < len(_MAGIC):
            return False
        if magic != _MAGIC:
            raise UnreadableRecord(shown(self._file.path), "read", "it is not an Avro file")
        stream.seek(0)
        try:
            codec = fastavro().block_reader(stream).codec
        except Exception as error:  # whatever a damaged header leads to
            if (fault := self._file.fault(error)) is not None:
                raise fault from error
            if not self._final and stream.tell() >= self._file.size:
                return False
            cause = f"its header cannot be read: {error}"
            raise UnreadableRecord(shown(self._file.path), "read", cause) from error
        if not has_codec(codec):
            cause = f"its blocks are packed by {codec!r:.40}, which cannot be unpacked here"
            advice = ": pip install 'moorline[avro]' has what it takes" if codec in CODECS else ""
            raise StorageError(shown(self._file.path), "read", cause + advice, can_pass=False)
        end = stream.tell()
        stream.seek(0)
        self._header = stream.read(end)
        if self._offset == 0:
            self._offset = end
            self._file.begin(end)
        return True

    def _read_block(self) -> None:
        """Read and decode the block at the offset; a broken one is reported and passed over."""
        stream, offset = self._file.stream, self._offset
        stream.seek(offset)
        start = stream.read(_FRAME)
        count, size, frame = _frame(start)
        end = offset + frame + size + _SYNC
        if count < 0 or size < 0:
            self._give_up_block("its length makes no sense")
            return
        if end > self._file.size:
            raise _Cut(f"the file ends within the block at byte {offset}")
        self._block = start[: frame + size + _SYNC] + stream.read(max(0, frame + size + _SYNC - len(start)))
        if self._block[-_SYNC:] != self._header[-_SYNC:]:
            self._give_up_block("it does not end with the file's sync marker")
            return
        try:
            self._records = self._decoded(self._block)
        except Exception as error:  # whatever damaged data leads a decoder to
            self._decoder = None
            self._give_up_block(f"its records cannot be decoded: {error}", count, end)
            return
        if self._record > len(self._records):
            cause = f"its block at byte {offset} has {len(self._records)} records, but {self._record} were read before"
            raise replaced(self._file.path, cause)

    def _decoded(self, block: bytes) -> list[Any]:
        if self._decoder is None:
            self._feed = io.BytesIO(self._header)
            self._decoder = fastavro().block_reader(self._feed)
        self._feed.seek(0)
        self._feed.write(block)
        self._feed.truncate()
        self._feed.seek(0)
        return list(next(self._decoder))

    def _give_up_block(self, cause: str, count: int = 1, end: int | None = None) -> None:
        at = self._offset
        # First: if the place fails now, all of this is done again, and the block must not be counted twice.
        end = end or self._next_sync(at + 1)
        self._broken.add(self._file.path, at, b"", f"the block at byte {at}: {cause}", max(count - self._record, 1))
        self._offset, self._record, self._records = end, 0, None
        self._file.begin(self._offset)

    def _next_sync(self, offset: int) -> int:
        """The byte after the next sync marker, or the end of the file."""
        sync, stream = self._header[-_SYNC:], self._file.stream
        stream.seek(offset)
        window = b""
        while offset < self._file.size:
            piece = stream.read(_CHUNK)
            if not piece:
                break
            window = window[-_SYNC + 1 :] + piece
            offset += len(piece)
            if (found := window.find(sync)) >= 0:
                return offset - len(window) + found + _SYNC
        return self._file.size

    def close(self) -> None:
        self._file.close()


def _frame(start: bytes) -> tuple[int, int, int]:
    """The number of records and of bytes in a block, and the bytes that these two take; -1 if they are no numbers.

    >>> _frame(bytes([20, 0x80, 0x02]))
    (10, 128, 3)
    """
    values, at = [], 0
    for _ in range(2):
        value = shift = 0
        while True:
            if at == len(start) and at < _FRAME:
                raise _Cut("its beginning is cut off")
            if at == len(start) or shift > 63:
                return -1, -1, at
            byte = start[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        values.append((value >> 1) ^ -(value & 1))
    return values[0], values[1], at
