"""Formats of files: the records of a file, and the position of a reader in it.

    format    record                         position
    text      a line, without its end        {"offset": byte}
    jsonl     the value on a line            {"offset": byte}
    csv       a dict by the header's names   {"offset": byte}
    parquet   a dict by column names         {"row": number}
    orc       a dict by column names         {"stripe": number, "row": number in it}
    avro      a value, mostly a dict         {"offset": byte of its block, "record": number in it}

    text, jsonl and csv, compressed          {"unpacked": byte of the text}

A position stands before the first record that was not returned yet; it also says what the file looked like
(``opened.py``). ``source.py`` decides which file is read when; it also knows the one position that is the same
for all, ``{"done": True}``. What cannot be decoded is handed to :class:`BrokenRecords`, which raises or lets it go:

    text, jsonl   a line that is not UTF-8, or not JSON
    csv           a row that has not as many fields as the header, is not UTF-8 or not CSV; after a quote that is never
                  closed, the line it stands in
    parquet       a row group, by its first row
    orc           a stripe, by its number
    avro          a block, by its byte

With a schema, records are columns of it (``column_lines.py``, ``shaped.py``), positions are the same, and a line or row
that does not fit it is broken too.

A file of which nothing can be read (no header, no footer), or nothing more (compressed, and cut off), is an
UnreadableRecord in every case.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import pyarrow as pa

from moorline.connectors.broken import BrokenRecords
from moorline.connectors.files.formats.avro import AvroRecords
from moorline.connectors.files.formats.column_lines import CsvColumnRecords, JsonColumnRecords
from moorline.connectors.files.formats.compressed import EXTENSIONS as COMPRESSED
from moorline.connectors.files.formats.compressed import CompressedLines, compression_of
from moorline.connectors.files.formats.csv import CsvRecords
from moorline.connectors.files.formats.line_records import JsonRecords, TextRecords
from moorline.connectors.files.formats.lines import Lines
from moorline.connectors.files.formats.orc import OrcRecords
from moorline.connectors.files.formats.parquet import ParquetRecords
from moorline.connectors.files.formats.shaped import ShapedRecords
from moorline.connectors.files.identity import shown
from moorline.connectors.files.opened import OpenedFile, Position
from moorline.errors import RestoreError, SnapshotCorrupt, StorageError, UnreadableRecord

Format = Literal["jsonl", "csv", "parquet", "orc", "avro", "text"]

_EXTENSIONS: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".orc": "orc",
    ".avro": "avro",
    ".txt": "text",
    ".text": "text",
    ".log": "text",
}
_ON_LINES = ("jsonl", "csv", "text")
#: What a position counts in.
_UNITS: dict[str, frozenset[str]] = {
    "parquet": frozenset({"row"}),
    "orc": frozenset({"stripe", "row"}),
    "avro": frozenset({"offset", "record"}),
}
_ALL_UNITS = frozenset({"offset", "unpacked", "row", "stripe", "record"})


class RecordFile(Protocol):
    """One file being read."""

    @property
    def is_final(self) -> bool:
        """Once ``read`` has returned ``None``: is the file finished for good, or may it still grow?"""

    def read(self, limit: int) -> Sequence[Any] | None:
        """Up to ``limit`` records (maybe none of a chunk of blank lines); ``None`` if there are no more for now."""

    def position(self) -> Position:
        """The position of the first record that was not returned yet, and a print of the file."""

    def close(self) -> None:
        """Give the file back."""


def format_of(path: str) -> Format:
    """The format that goes with the file's extension.

    >>> format_of("/data/clicks.ndjson"), format_of("/data/clicks.csv.gz")
    ('jsonl', 'csv')
    """
    packed = compression_of(path) is not None
    extension = os.path.splitext(os.path.splitext(path)[0] if packed else path)[1].lower()
    if extension not in _EXTENSIONS or (packed and _EXTENSIONS[extension] not in _ON_LINES):
        known = " ".join(_EXTENSIONS)
        raise StorageError(
            shown(path),
            "tell the format of",
            f"the extension {extension!r} is not one of {known}, those on lines maybe followed by one of "
            f"{' '.join(COMPRESSED)}. Say format=, or choose the files with pattern=.",
            can_pass=False,
        )
    return _EXTENSIONS[extension]


def open_file(
    file: OpenedFile,
    format: Format,
    position: Position | None,
    broken: BrokenRecords,
    *,
    final: bool,
    schema: pa.Schema | None = None,
) -> RecordFile:
    """Read ``file`` from ``position`` on, as columns of ``schema`` if there is one. If not ``final``, it may grow."""
    try:
        return _open(file, format, position, broken, final, schema)
    except BaseException:
        file.close()
        raise


def _open(
    file: OpenedFile,
    format: Format,
    position: Position | None,
    broken: BrokenRecords,
    final: bool,
    schema: pa.Schema | None,
) -> RecordFile:
    compression = compression_of(file.path) if format in _ON_LINES else None
    unit = "offset" if compression is None else "unpacked"
    _check_position(file.path, position, format, _UNITS.get(format, frozenset({unit})))
    if format in ("parquet", "orc", "avro"):
        rows: RecordFile
        if format == "parquet":
            rows = ParquetRecords(file, position, broken, final=final)
        elif format == "orc":
            rows = OrcRecords(file, position, broken, final=final, in_columns=schema is not None)
        else:
            rows = AvroRecords(file, position, broken, final=final)
        return rows if schema is None else ShapedRecords(rows, file.path, broken, schema)
    lines: Lines
    if compression is None:
        lines = Lines(file, position, final=final)
    else:
        lines = CompressedLines(file, position, compression, final=final)
    if schema is not None and format == "text":
        raise UnreadableRecord(shown(file.path), "read", "it has lines of text, and a schema wants columns")
    if schema is not None:
        in_columns = CsvColumnRecords if format == "csv" else JsonColumnRecords
        return in_columns(lines, broken, schema)
    if format == "csv":
        return CsvRecords(lines, broken)
    return JsonRecords(lines, broken) if format == "jsonl" else TextRecords(lines, broken)


def _check_position(path: str, position: Position | None, format: Format, units: frozenset[str]) -> None:
    """Positions come from a snapshot: they may be of another format, or none at all."""
    if position is None:
        return
    if position.keys() & _ALL_UNITS != units:
        raise RestoreError(
            f"{shown(path)} was being read as another format when the snapshot was taken (its position is {position}); "
            f"now it is read as {format}. Give the source the format= it had."
        )
    for unit in units:
        value = position[unit]
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise SnapshotCorrupt("the snapshot", f"{value!r:.80} is not a position in {shown(path)}")
