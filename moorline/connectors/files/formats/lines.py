"""Text files line by line, with the exact byte offset of each: the ground under the text, JSON and CSV formats.

Lines end with ``\\n`` and keep it, so a line's length is the way from its offset to the next. The last line of a
file may lack its end. If the file is *final* (a bounded source) it counts as a line; if it may still grow (a
watched folder) it is not there yet.
"""

from __future__ import annotations

import codecs
import os

from moorline.connectors.files.identity import replaced
from moorline.connectors.files.opened import OpenedFile, Position

#: Bytes read at a time: a few milliseconds' worth of records.
CHUNK = 256 * 1024
#: Bytes read at a time where whole blocks are decoded at once.
BLOCK = 1 << 20


class Lines:
    """The lines of one file from an offset on: look at some, then say how many were used."""

    def __init__(self, file: OpenedFile, position: Position | None, *, final: bool) -> None:
        self.file, self.path, self.final = file, file.path, final
        #: Where the first line stands that was not used yet.
        self.offset = 0 if position is None else int(position["offset"])
        self._lines: list[bytes] = []
        self._used = 0
        if self.offset > file.size:
            raise replaced(file.path, f"it has {file.size} bytes, but {self.offset} were read before")
        file.check_same(position)
        file.begin(self.offset)
        file.stream.seek(self.offset)

    @property
    def is_over(self) -> bool:
        """Was everything used that was there when the file was opened?"""
        return self.offset >= self.file.size

    @property
    def is_final(self) -> bool:
        """Once there are no more lines: will there never be?"""
        return self.final

    def position(self) -> Position:
        """The position of the first line that was not used yet, and a print of the file."""
        return {"offset": self.offset, **self.file.identity()}

    def from_the_start(self) -> Lines:
        """The same lines once more, from the first one on."""
        return Lines(self.file.reopened(), None, final=self.final)

    def look(self, limit: int, *, more: bool = False) -> list[bytes]:
        """Up to ``limit`` lines from :attr:`offset` on. Nothing means that there is nothing (yet).

        ``more`` reads on if there are some, but not as many, for a record that goes over several.
        """
        unused = len(self._lines) - self._used
        if unused == 0 or (more and unused < limit):
            self._fill()
        return self._lines[self._used : self._used + limit]

    def use(self, lines: list[bytes]) -> None:
        """``lines``, the first of those looked at, are done with."""
        self._used += len(lines)
        self.offset += sum(map(len, lines))
        self.file.add(lines)

    def raw(self) -> bytes:
        """The bytes that come next, some hundred thousand of them; none at the end (for now)."""
        if self._used < len(self._lines):
            rest, self._lines, self._used = b"".join(self._lines[self._used :]), [], 0
            return rest
        return self.file.stream.read(BLOCK)

    def unread(self, data: bytes) -> None:
        """Give bytes back that :meth:`raw` has returned and that are not used: the last of them."""
        lines = cut(data)
        if lines and not lines[-1].endswith(b"\n"):
            self._unread_piece(lines.pop())
        self._lines, self._used = lines, 0

    def _unread_piece(self, piece: bytes) -> None:
        self.file.stream.seek(-len(piece), os.SEEK_CUR)

    def use_raw(self, data: bytes) -> None:
        """``data``, the first of what :meth:`raw` has returned and was not used, is done with."""
        self.offset += len(data)
        self.file.add([data])

    def _fill(self) -> None:
        stream = self.file.stream
        fresh = stream.readlines(CHUNK)
        if fresh and not self.final and not fresh[-1].endswith(b"\n"):
            stream.seek(-len(fresh.pop()), os.SEEK_CUR)
        self._lines = self._lines[self._used :] + fresh
        self._used = 0

    def close(self) -> None:
        """Give the file back."""
        self.file.close()


def cut(data: bytes) -> list[bytes]:
    """The lines of some bytes, which end with ``\\n`` and nothing else."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def decoded(lines: list[bytes], offset: int) -> tuple[list[str], bool]:
    """The lines as text, each with its ``\\n``, and whether all of it is UTF-8; ``offset``: where the first one stands.

    Bytes that are not UTF-8 come as lone surrogates (``is_utf8`` finds them). The byte order mark that some programs
    put at the start of a file is not part of the text.
    """
    if not lines:
        return [], True
    whole = True
    try:
        # At once: one decode of a block is several times faster than one per line.
        text = b"".join(lines).decode()
    except UnicodeDecodeError:
        text, whole = b"".join(lines).decode(errors="surrogateescape"), False
    if offset == 0:
        text = text.removeprefix("\ufeff")
    split = text.split("\n")
    last = split.pop()
    texts = [line + "\n" for line in split]
    if last or len(texts) < len(lines):
        texts.append(last)
    return texts, whole


def is_utf8(text: str) -> bool:
    """Did the bytes of ``text`` make sense as UTF-8?

    >>> is_utf8("café"), is_utf8(b"caf\\xe9".decode(errors="surrogateescape"))
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def not_utf8(content: bytes, offset: int) -> str:
    """The place of the first byte that is not UTF-8, for people; the line begins at ``offset``."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return f"byte {offset + error.start} is not UTF-8 ({error.reason})"
    return "it is not UTF-8"


def without_mark(lines: list[bytes], offset: int) -> list[bytes]:
    """The lines without the byte order mark, if these are the first of the file."""
    if offset == 0 and lines and lines[0].startswith(codecs.BOM_UTF8):
        return [lines[0].removeprefix(codecs.BOM_UTF8), *lines[1:]]
    return lines
