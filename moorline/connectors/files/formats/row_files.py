"""Files of records that a sink writes: JSON lines and text here, those with columns in ``table_files.py``.

A JSON line holds any record that JSON can express (a tuple becomes an array). A line of text is a text without a line
end in it.
"""

from __future__ import annotations

from typing import IO, Any, Protocol

import msgspec

from moorline.connectors.columns.json import JsonRows
from moorline.connectors.row_tables import UnfitRecord
from moorline.model.columns import ColumnBatch


class RowFile(Protocol):
    """One file being written."""

    #: May :meth:`write` be given a :class:`ColumnBatch`?
    takes_columns: bool

    def write(self, records: list[Any]) -> None:
        """Append the records."""

    def finish(self) -> None:
        """Write what is held back. The file below stays open."""


class JsonLinesFile:
    """Records as JSON, one per line."""

    takes_columns = True

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._file = file
        self._path = path
        self._encoder = msgspec.json.Encoder()
        self._rows = JsonRows()

    def write(self, records: list[Any] | ColumnBatch) -> None:
        """Append the records."""
        try:
            rows = self._rows.of(records.batch) if isinstance(records, ColumnBatch) else records
            lines = self._encoder.encode_lines(rows)
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise self._fault(records) from None
        self._file.write(lines)

    def _fault(self, records: list[Any] | ColumnBatch) -> UnfitRecord:
        for record in records:
            try:
                self._encoder.encode(record)
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                advice = "Map it to what JSON has: dicts with text keys, lists, texts, numbers, booleans and None."
                return UnfitRecord(self._path, f"{record!r:.200}", str(error), advice)
        raise AssertionError("the same records were refused a moment ago")

    def finish(self) -> None:
        """Nothing is held back here."""


class TextFile:
    """Texts, one per line."""

    takes_columns = False

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._file = file
        self._path = path

    def write(self, records: list[Any]) -> None:
        """Append the records."""
        try:
            lines = "\n".join(records)
            data = lines.encode() + b"\n"
        except (TypeError, UnicodeEncodeError):
            raise self._fault(records) from None
        if lines.count("\n") != len(records) - 1 or b"\r\n" in data:
            raise self._fault(records)
        self._file.write(data)

    def _fault(self, records: list[Any]) -> UnfitRecord:
        for record in records:
            cause = ""
            if not isinstance(record, str):
                cause = f"it is a {type(record).__name__} and not a text"
            elif "\n" in record or record.endswith("\r"):
                cause = "it has a line end in it, and would be read as several lines, or as another one"
            elif not _is_encodable(record):
                cause = "it has characters that are not Unicode"
            if cause:
                advice = 'Map the records to texts of one line, or write them with format="jsonl".'
                return UnfitRecord(self._path, f"{record!r:.200}", cause, advice)
        raise AssertionError("the same records were refused a moment ago")

    def finish(self) -> None:
        """Nothing is held back here."""


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
