"""Records on lines: plain text and JSON, and what the formats on lines share."""

from __future__ import annotations

from typing import Any

import msgspec

from moorline.connectors.broken import BrokenRecords
from moorline.connectors.files.formats.lines import Lines, decoded, is_utf8, not_utf8, without_mark
from moorline.connectors.files.opened import Position


class LineRecords:
    """The common part of the formats on lines."""

    def __init__(self, lines: Lines, broken: BrokenRecords) -> None:
        self._lines, self._broken = lines, broken

    @property
    def is_final(self) -> bool:
        return self._lines.is_final

    def position(self) -> Position:
        return self._lines.position()

    def close(self) -> None:
        self._lines.close()


class TextRecords(LineRecords):
    """Each line is a record, empty ones too."""

    def read(self, limit: int) -> list[Any] | None:
        lines = [] if self._lines.is_over else self._lines.look(limit)
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


class JsonRecords(LineRecords):
    """The JSON value on each line; blank lines are passed over."""

    def __init__(self, lines: Lines, broken: BrokenRecords) -> None:
        super().__init__(lines, broken)
        self._decode = msgspec.json.Decoder().decode

    def read(self, limit: int) -> list[Any] | None:
        lines = [] if self._lines.is_over else self._lines.look(limit)
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
