"""Formats of files: the records of a file, and the position of a reader in it.

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

import os
from typing import Any, Literal, Protocol

from moorline.connectors.broken import BrokenRecords
from moorline.connectors.files.csv import CsvRecords
from moorline.connectors.files.identity import Position, shown
from moorline.connectors.files.line_records import JsonRecords, TextRecords
from moorline.connectors.files.lines import Lines
from moorline.connectors.files.parquet import ParquetRecords
from moorline.errors import RestoreError, StorageError

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
        """The position of the first record that was not returned yet, and a print of the file."""

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
