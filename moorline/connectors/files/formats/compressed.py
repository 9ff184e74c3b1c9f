"""Lines of files that are compressed as a whole: ``.gz``, ``.bz2``, ``.xz``, ``.zst``.

A position counts the bytes of the text, not those of the file. There is no way into the middle of such a file: to go on
reading is to unpack it from its beginning again, and to throw away what was read before. A restore costs as much time
as it took to get there; a file of some hundred megabytes is fine, one of many gigabytes is better cut up.

In a watched folder a file that ends in the middle is one that is still being written. What is appended to a file that
was whole is read too, as the tools that made it would.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
import os
from collections.abc import Callable
from typing import IO, Any, Literal

from moorline.connectors.files.formats.lines import BLOCK, CHUNK, Lines
from moorline.connectors.files.identity import replaced, shown
from moorline.connectors.files.opened import OpenedFile, Position
from moorline.errors import InvalidArgument, UnreadableRecord

LineCompression = Literal["gzip", "bzip2", "xz", "zstd"]

EXTENSIONS: dict[str, LineCompression] = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
_MODULES = ("compression.zstd", "backports.zstd")


def compression_of(path: str) -> LineCompression | None:
    """The compression that goes with the end of a file's name.

    >>> compression_of("/data/clicks.jsonl.gz"), compression_of("/data/clicks.jsonl")
    ('gzip', None)
    """
    return EXTENSIONS.get(os.path.splitext(path)[1].lower())


def open_compressed(compression: LineCompression, file: IO[bytes], mode: Literal["rb", "wb"]) -> Any:
    """A stream that unpacks what is in ``file``, or packs what is to be in it. Closing it leaves ``file`` open."""
    openers: dict[str, Callable[[], Any]] = {
        # The time would make two files of the same content differ.
        "gzip": lambda: gzip.GzipFile(fileobj=file, mode=mode, mtime=0),
        "bzip2": lambda: bz2.BZ2File(file, mode),
        "xz": lambda: lzma.LZMAFile(file, mode),  # noqa: SIM115
        "zstd": lambda: zstd().ZstdFile(file, mode),
    }
    return openers[compression]()


def zstd() -> Any:
    """Python's module for Zstandard, which has come with 3.14."""
    for name in _MODULES:
        try:
            return importlib.import_module(name)
        except ImportError:
            pass
    raise InvalidArgument("compression", "zstd", "Install what it needs: pip install 'moorline[zstd]'.")


class CompressedLines(Lines):
    """The lines of one compressed file from an offset on."""

    def __init__(
        self, file: OpenedFile, position: Position | None, compression: LineCompression, *, final: bool
    ) -> None:
        self.file, self.path, self.final = file, file.path, final
        self.offset = 0
        self._compression = compression
        self._lines: list[bytes] = []
        self._used = 0
        #: The beginning of a line whose end was not unpacked yet.
        self._rest = b""
        self._has_ended = False
        file.check_same(position)
        file.begin(file.size)
        self._unpacked = open_compressed(compression, file.stream, "rb")
        if position is not None:
            self._skip(int(position["unpacked"]))

    @property
    def is_over(self) -> bool:
        return self._has_ended and self._used == len(self._lines) and not self._rest

    def position(self) -> Position:
        return {"unpacked": self.offset, **self.file.identity()}

    def from_the_start(self) -> CompressedLines:
        return CompressedLines(self.file.reopened(), None, self._compression, final=self.final)

    def use(self, lines: list[bytes]) -> None:
        # The print is one of the file as it is on the disk, all of it.
        self._used += len(lines)
        self.offset += sum(map(len, lines))

    def raw(self) -> bytes:
        data = b"".join(self._lines[self._used :]) + self._rest
        self._lines, self._used, self._rest = [], 0, b""
        return data or (b"" if self._has_ended else self._piece(BLOCK))

    def _unread_piece(self, piece: bytes) -> None:
        self._rest = piece

    def use_raw(self, data: bytes) -> None:
        self.offset += len(data)

    def _skip(self, offset: int) -> None:
        while self.offset < offset:
            piece = self._piece(min(CHUNK, offset - self.offset))
            if not piece:
                raise replaced(self.path, f"it holds {self.offset} bytes, but {offset} were read before")
            self.offset += len(piece)

    def _fill(self) -> None:
        pieces = [self._rest]
        while not self._has_ended:
            pieces.append(self._piece(CHUNK))
            if b"\n" in pieces[-1]:
                break
        lines = [line + b"\n" for line in b"".join(pieces).split(b"\n")]
        self._rest = lines.pop().removesuffix(b"\n")
        if self._has_ended and self.final and self._rest:
            lines.append(self._rest)
            self._rest = b""
        self._lines = self._lines[self._used :] + lines
        self._used = 0

    def _piece(self, size: int) -> bytes:
        """Some bytes of the text; none at its end, or at the end of what is there so far."""
        try:
            # Not read(): of a file that is cut off, it would not return the last bytes that there are.
            piece: bytes = self._unpacked.read1(size)
        except EOFError:
            if self.final:
                raise self._broken("it ends in the middle") from None
            piece = b""
        except Exception as error:  # each of the libraries has an exception of its own
            if (fault := self.file.fault(error)) is not None:
                raise fault from error
            raise self._broken(f"it cannot be unpacked: {error}") from error
        self._has_ended = not piece
        return piece

    def _broken(self, cause: str) -> UnreadableRecord:
        at = self.offset + sum(map(len, self._lines[self._used :]))
        return UnreadableRecord(shown(self.path), "read", f"{cause}, after {at} bytes of text", position=at)

    def close(self) -> None:
        self._unpacked.close()
        self.file.close()
