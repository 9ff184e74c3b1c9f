"""JSON lines and CSV with a declared schema: many lines at once to columns, one by one where some are broken.

A position is the same byte as for records, so a file that was begun with a schema can be read on without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from moorline.connectors.broken import BrokenRecords
from moorline.connectors.columns.csv import CsvColumns
from moorline.connectors.columns.fields import UnfitColumns, batch_of_fitting
from moorline.connectors.columns.json import JsonColumns
from moorline.connectors.files.formats.blocks import LineBlocks
from moorline.connectors.files.formats.csv import CsvRecords
from moorline.connectors.files.formats.line_records import LineRecords
from moorline.connectors.files.formats.lines import Lines, cut, without_mark
from moorline.connectors.files.identity import shown
from moorline.errors import UnreadableRecord
from moorline.model.columns import ColumnBatch


class JsonColumnRecords(LineRecords):
    """The columns of the JSON object on each line; blank lines are passed over."""

    def __init__(self, lines: Lines, broken: BrokenRecords, schema: pa.Schema) -> None:
        super().__init__(lines, broken)
        self._blocks, self._columns = LineBlocks(lines), JsonColumns(schema)

    def read(self, limit: int) -> Sequence[Any] | None:
        data = self._blocks.look(limit)
        if not data:
            return None
        start, path, broken = self._lines.offset, self._lines.path, self._broken
        lines = cut(data)
        all_texts = without_mark(lines, start)
        texts = [text for text in all_texts if not text.isspace()]

        def unfit(place: int, error: Exception) -> None:
            number = [number for number, text in enumerate(all_texts) if not text.isspace()][place]
            at, line = start + sum(map(len, lines[:number])), lines[number]
            cause = f"the line at byte {at} is no JSON object of the schema: {error}. It is {line[:100]!r}"
            broken.add(path, at, line, cause)

        batch = self._columns.batch(texts, unfit)
        self._blocks.use(data)
        return ColumnBatch(batch)


class CsvColumnRecords(CsvRecords):
    """The columns of rows below a header."""

    def __init__(self, lines: Lines, broken: BrokenRecords, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns: CsvColumns | None = None
        #: Up to where rows are read one by one, because a block of lines was refused.
        self._row_by_row_to = 0
        super().__init__(lines, broken)
        self._blocks = LineBlocks(lines)

    def read(self, limit: int) -> Sequence[Any] | None:
        if self._columns is None:
            if self._header is None:
                self._blocks.give_back()
                self._read_header()
            if self._header is None:
                return None
            try:
                self._columns = CsvColumns(self._schema, self._header)
            except UnfitColumns as error:
                raise UnreadableRecord(shown(self._lines.path), "read", str(error)) from None
        if self._lines.offset >= self._row_by_row_to:
            data = self._blocks.look(limit)
            batch = self._columns.block(data) if data else None
            if batch is not None:
                self._blocks.use(data)
                return ColumnBatch(batch)
            self._blocks.give_back()
            self._row_by_row_to = self._lines.offset + len(data)
        return None if self._lines.is_over else self._row_by_row(self._columns, limit)

    def _row_by_row(self, columns: CsvColumns, limit: int) -> Sequence[Any] | None:
        rows = self._rows(limit)
        if not rows:
            return [] if self._has_passed_over else None
        start, lines, ends = self._last
        width, first = len(self._header or ()), 0
        texts: list[list[str]] = []
        places: list[int] = []
        broken: list[tuple[int, str]] = []
        contents: dict[int, bytes] = {}
        for row, end in zip(rows, ends):
            contents[start] = content = b"".join(lines[first:end])
            if cause := self._cause(row, width, content, start):
                broken.append((start, cause))
            elif row:
                texts.append(row)
                places.append(start)
            start, first = start + len(content), end

        def unfit(place: int, error: UnfitColumns) -> None:
            at = places[place]
            cause = f"the row at byte {at} does not fit the schema: {error}. It is {contents[at][:100]!r}"
            broken.append((at, cause))

        batch = batch_of_fitting(texts, columns.rows, unfit)
        for at, cause in sorted(broken):
            self._broken.add(self._lines.path, at, contents[at], cause)
        return ColumnBatch(batch)
