"""What the records of a file are, for each format, and how far into the file a reader is.

    format    record                         position
    text      a line, without its end        {"offset": byte}
    jsonl     the value on a line            {"offset": byte}
    csv       a dict by the header's names   {"offset": byte}
    parquet   a dict by column names         {"row": number}

A position stands before the first record that was not returned yet; it also says what the file looked like
(``identity.py``). ``source.py`` decides which file is read when; it also knows the one position that is the same
for all, ``{"done": True}``. What cannot be decoded is handed to :class:`BrokenRecords`, which raises or lets it go:

    text, jsonl   a line that is not UTF-8, or not JSON
    csv           a row that has not as many fields as the header, is not UTF-8 or not CSV; after a quote that is never
                  closed, the line it stands in
    parquet       a row group, by its first row

A file of which nothing can be read (no header, no footer) is an UnreadableRecord in every case.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from moorline.connectors.files.broken import BrokenRecords
from moorline.connectors.files.identity import Position, Print, check_same, replaced, seen_of, shown
from moorline.connectors.files.lines import Lines, decoded, is_utf8, not_utf8, without_mark
from moorline.errors import RestoreError, StorageError, UnreadableRecord

Format = Literal["jsonl", "csv", "parquet", "text"]

_EXTENSIONS: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".txt": "text",
    ".text": "text",
    ".log": "text",
}


class RecordFile(Protocol):
    """One file being read."""

    @property
    def is_final(self) -> bool:
        """Once ``read`` has returned ``None``: is the file finished for good, or may it still grow?"""

    def read(self, limit: int) -> list[Any] | None:
        """Up to ``limit`` records (maybe none of a chunk of blank lines); ``None`` if there are no more for now."""

    def position(self) -> Position:
        """Where the first record stands that was not returned yet, and what the file looks like."""

    def close(self) -> None:
        """Give the file back."""


def format_of(path: str) -> Format:
    """The format that goes with the file's extension.

    >>> format_of("/data/clicks.ndjson")
    'jsonl'
    """
    extension = os.path.splitext(path)[1].lower()
    if extension not in _EXTENSIONS:
        raise StorageError(
            shown(path),
            "tell the format of",
            f"the extension {extension!r} is not one of {' '.join(_EXTENSIONS)}. "
            f"Say format=, or choose the files with pattern=.",
            can_pass=False,
        )
    return _EXTENSIONS[extension]


def open_file(
    path: str, format: Format, position: Position | None, broken: BrokenRecords, *, final: bool
) -> RecordFile:
    """Read ``path`` from ``position`` on. If it is not ``final`` it may still grow."""
    unit = "row" if format == "parquet" else "offset"
    if position is not None and unit not in position:
        raise RestoreError(
            f"{shown(path)} was being read as another format when the snapshot was taken (its position is {position}); "
            f"now it is read as {format}. Give the source the format= it had."
        )
    if format == "parquet":
        return ParquetRecords(path, position, broken, final=final)
    lines = Lines(path, position, final=final)
    if format == "csv":
        return CsvRecords(lines, broken)
    return JsonRecords(lines, broken) if format == "jsonl" else TextRecords(lines, broken)


class _LineRecords:
    """What the formats on lines share."""

    def __init__(self, lines: Lines, broken: BrokenRecords) -> None:
        self._lines, self._broken = lines, broken

    @property
    def is_final(self) -> bool:
        return self._lines.final

    def _is_over(self) -> bool:
        return self._lines.offset >= self._lines.known_end

    def position(self) -> Position:
        return self._lines.position()

    def close(self) -> None:
        self._lines.close()


class TextRecords(_LineRecords):
    """Each line is a record, empty ones too."""

    def read(self, limit: int) -> list[Any] | None:
        lines = [] if self._is_over() else self._lines.look(limit)
        if not lines:
            return None
        texts, whole = decoded(lines, self._lines.offset)
        if not whole:
            offset = self._lines.offset
            for line, text in zip(lines, texts):
                if not is_utf8(text):
                    self._broken.add(self._lines.path, offset, line, not_utf8(line, offset))
                offset += len(line)
            texts = [text for text in texts if is_utf8(text)]
        self._lines.use(lines)
        return [line.removesuffix("\n").removesuffix("\r") for line in texts]


class JsonRecords(_LineRecords):
    """The JSON value on each line; blank lines are passed over."""

    def __init__(self, lines: Lines, broken: BrokenRecords) -> None:
        super().__init__(lines, broken)
        self._decode = msgspec.json.Decoder().decode

    def read(self, limit: int) -> list[Any] | None:
        lines = [] if self._is_over() else self._lines.look(limit)
        if not lines:
            return None
        decode = self._decode
        texts = without_mark(lines, self._lines.offset)
        try:
            # Line by line is as fast as the decoder's own decode_lines, which lets a value go over several lines.
            records = [decode(line) for line in texts if not line.isspace()]
        except (msgspec.DecodeError, UnicodeDecodeError):
            records = self._whole_ones(lines, texts)
        self._lines.use(lines)
        return records

    def _whole_ones(self, lines: list[bytes], texts: list[bytes]) -> list[Any]:
        records = []
        offset = self._lines.offset
        for line, text in zip(lines, texts):
            try:
                if not text.isspace():
                    records.append(self._decode(text))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                cause = f"the line at byte {offset} is not JSON: {error}. It is {line[:100]!r}"
                self._broken.add(self._lines.path, offset, line, cause)
            offset += len(line)
        return records


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


class CsvRecords(_LineRecords):
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
            self._reread_header(lines.path)

    def _reread_header(self, path: str) -> None:
        first = Lines(path, None, final=self._lines.final)
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

    def read(self, limit: int) -> list[Any] | None:
        if self._is_over():
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
            if row and not self._whole and not all(map(is_utf8, row)):
                self._broken.add(self._lines.path, start, content, not_utf8(content, start))
            elif row and len(row) != width:
                cause = f"the row at byte {start} has {len(row)} fields and the header {width}: {row!r:.200}"
                self._broken.add(self._lines.path, start, content, cause)
            else:
                whole.append(row)
            start, first = start + len(content), end
        return whole

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
                if not self._lines.final:
                    return []
                cause = f"a quote is opened in the row at byte {offset} and never closed"
            # The next line may be the beginning of a row again.
            self._broken.add(self._lines.path, offset, lines[0], cause)
            self._has_passed_over = True
            self._lines.use(lines[:1])
            lines = self._lines.look(limit)
        return []


class ParquetRecords:
    """A dict per row. One row group is in memory at a time."""

    def __init__(self, path: str, position: Position | None, broken: BrokenRecords, *, final: bool) -> None:
        self._path, self._broken = path, broken
        self._row = row = 0 if position is None else int(position["row"])
        self._group = pa.table({})
        #: The rows [first, end) that :attr:`_group` holds.
        self._first = self._end = 0
        self._groups = 0
        self._identity: Position = {}
        self._file: pq.ParquetFile | None = None
        if not final and not _has_footer(path):
            return  # still being written; the next listing looks at it again
        with open(path, "rb") as file:
            if row:
                check_same(file.fileno(), path, position)
            status = os.fstat(file.fileno())
            self._identity = {"print": str(Print(file.fileno(), status.st_size)), "seen": seen_of(status)}
        try:
            # Arrow takes no names that are not UTF-8.
            self._file = pq.ParquetFile(path if is_utf8(path) else open(path, "rb"))  # noqa: SIM115
        except (pa.ArrowException, OSError) as error:
            raise _refused(path, f"it is not a whole Parquet file: {error}", error) from error
        if row > self._file.metadata.num_rows:
            has = self._file.metadata.num_rows
            self.close()
            raise replaced(path, f"it has {has} rows, but {row} were read before")

    def read(self, limit: int) -> list[Any] | None:
        if self._file is None:
            return None
        try:
            while self._row >= self._end:
                if self._groups == self._file.metadata.num_row_groups:
                    return None
                self._next_group(self._file)
            rows = self._group.slice(self._row - self._first, limit).to_pylist()
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise StorageError.of(shown(self._path), "read", error) from error
            cause = f"rows {self._row} to {self._end - 1} cannot be read: {error}"
            self._broken.add(self._path, self._row, b"", cause, self._end - self._row)
            self._row = self._end
            return []
        self._row += len(rows)
        return list(rows)

    def _next_group(self, file: pq.ParquetFile) -> None:
        number, self._groups = self._groups, self._groups + 1
        self._first, self._end = self._end, self._end + file.metadata.row_group(number).num_rows
        if self._row < self._end:  # groups that lie before the position need not be read
            self._group = file.read_row_group(number)

    @property
    def is_final(self) -> bool:
        # A Parquet file is whole or it is not there yet: its footer is written last.
        return self._file is not None

    def position(self) -> Position:
        return {"row": self._row, **self._identity}

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _refused(path: str, cause: str, error: Exception) -> StorageError:
    """An error of the operating system, or of what is in the file."""
    if isinstance(error, OSError) and error.errno is not None:
        return StorageError.of(shown(path), "read", error)
    return UnreadableRecord(shown(path), "read", cause)


def _has_footer(path: str) -> bool:
    with open(path, "rb") as file:
        if file.seek(0, os.SEEK_END) < 12:
            return False
        file.seek(-4, os.SEEK_END)
        return file.read(4) == b"PAR1"
