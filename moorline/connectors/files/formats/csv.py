"""CSV: rows of columns by their header, also where a quoted field goes over several lines."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import Any

from moorline.connectors.broken import BrokenRecords
from moorline.connectors.files.formats.line_records import LineRecords
from moorline.connectors.files.formats.lines import Lines, decoded, is_utf8, not_utf8
from moorline.connectors.files.identity import shown
from moorline.errors import UnreadableRecord


class _Incomplete(Exception):
    """The CSV parser wants another line for the record it is in, and there is none."""


class _Feed(Iterator[str]):
    """Gives lines to the CSV parser and notices when it asks for more than there are."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.given = 0

    def __next__(self) -> str:
        if self.given == len(self.texts):
            raise _Incomplete
        self.given += 1
        return self.texts[self.given - 1]


def _unquoted(texts: list[str]) -> list[list[str]] | None:
    """The rows of lines without any quote, each of which is a row: several times faster than one by one."""
    if '"' in "".join(texts):
        return None
    try:
        return list(csv.reader(texts))
    except csv.Error:
        return None  # the careful way finds out where


class CsvRecords(LineRecords):
    """A dict per row, by the names in the first row. A quoted field may hold line ends, so a row several lines."""

    def __init__(self, lines: Lines, broken: BrokenRecords) -> None:
        super().__init__(lines, broken)
        # The module's limit of 128 KiB per field guards against a lost quote; ours leaves room for documents.
        csv.field_size_limit(max(csv.field_size_limit(), 16 * 1024 * 1024))
        self._header: list[str] | None = None
        #: Where the rows begin that were read last, their lines, and how many of these each row reaches to.
        self._last: tuple[int, list[bytes], Sequence[int]] = (0, [], [])
        #: Are the rows that were read last all UTF-8?
        self._whole = True
        #: Were there rows that could not be read?
        self._has_passed_over = False
        if lines.offset > 0:
            self._reread_header()

    def _reread_header(self) -> None:
        first = self._lines.from_the_start()
        try:
            again = CsvRecords(first, self._broken)
            again._read_header()
            # Not if only blank lines were used so far: then it is still ahead.
            if first.offset <= self._lines.offset:
                self._header = again._header
        finally:
            first.close()

    def _read_header(self) -> None:
        rows = self._rows(1)
        while rows == [[]]:  # blank lines before the header
            rows = self._rows(1)
        if self._has_passed_over or not self._whole:
            raise UnreadableRecord(shown(self._lines.path), "read", "its header cannot be read")
        if not rows:
            return
        header = rows[0]
        if len(set(header)) < len(header):
            cause = f"its header has the same name twice: {header}"
            raise UnreadableRecord(shown(self._lines.path), "read", cause)
        self._header = header

    def read(self, limit: int) -> Sequence[Any] | None:
        if self._lines.is_over:
            return None
        if self._header is None:
            self._read_header()
            if self._header is None:
                return None
        header, width = self._header, len(self._header)
        rows = self._rows(limit)
        if not rows:
            # What was there may have been broken.
            return [] if self._has_passed_over else None
        if not self._whole or any(len(row) != width and row for row in rows):
            rows = self._whole_ones(rows, width)
        return [dict(zip(header, row)) for row in rows if row]

    def _whole_ones(self, rows: list[list[str]], width: int) -> list[list[str]]:
        start, lines, ends = self._last
        whole = []
        first = 0
        for row, end in zip(rows, ends):
            content = b"".join(lines[first:end])
            if cause := self._cause(row, width, content, start):
                self._broken.add(self._lines.path, start, content, cause)
            else:
                whole.append(row)
            start, first = start + len(content), end
        return whole

    def _cause(self, row: list[str], width: int, content: bytes, start: int) -> str:
        """The cause why a row that begins at byte ``start`` is broken; nothing if it is whole, or a blank line."""
        if row and not self._whole and not all(map(is_utf8, row)):
            return not_utf8(content, start)
        if row and len(row) != width:
            return f"the row at byte {start} has {len(row)} fields and the header {width}: {row!r:.200}"
        return ""

    def _rows(self, limit: int) -> list[list[str]]:
        """Up to ``limit`` whole rows, blank lines among them as empty rows; none at the end (for now)."""
        self._has_passed_over = False
        lines = self._lines.look(limit)
        while lines:
            offset = self._lines.offset
            texts, self._whole = decoded(lines, offset)
            plain = _unquoted(texts)
            if plain is not None:
                self._last = (offset, lines, range(1, len(lines) + 1))
                self._lines.use(lines)
                return plain
            feed = _Feed(texts)
            parser = csv.reader(feed)
            rows: list[list[str]] = []
            ends: list[int] = []
            cause = ""
            try:
                while feed.given < len(lines) and len(rows) < limit:
                    rows.append(next(parser))
                    ends.append(feed.given)
            except _Incomplete:
                pass
            except csv.Error as error:
                cause = f"the row at byte {offset} is not CSV: {error}"
            if rows:
                self._last = (offset, lines, ends)
                self._lines.use(lines[: ends[-1]])
                return rows
            if not cause:
                # One row is longer than all these lines: look further.
                more = self._lines.look(len(lines) * 2, more=True)
                if len(more) > len(lines):
                    lines = more
                    continue
                if not self._lines.is_final:
                    return []
                cause = f"a quote is opened in the row at byte {offset} and never closed"
            # The next line may be the beginning of a row again.
            self._broken.add(self._lines.path, offset, lines[0], cause)
            self._has_passed_over = True
            self._lines.use(lines[:1])
            lines = self._lines.look(limit)
        return []
