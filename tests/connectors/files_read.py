"""Readers of the file source, read to their end or step by step."""

import csv
import io
from pathlib import Path
from typing import Any

from test_list_and_generator_sources import Clock, open_all

from moorline.api.sources import SourceReader
from moorline.connectors.files.source import Files
from moorline.state.types import plain


def read_all(source: Any, limit: int = 1000) -> list[Any]:
    [reader] = open_all(source, 1, {})
    return drain(reader, limit)


def drain(reader: SourceReader, limit: int = 1000) -> list[Any]:
    """All there is for now."""
    out: list[Any] = []
    idle = 0
    while idle < 2:
        records = reader.read(limit)
        if records is None:
            break
        idle = 0 if records else idle + 1
        out += records
    assert plain.decode(plain.encode(reader.positions())) == reader.positions()
    return out


def as_csv(rows: list[list[str]], end: str) -> str:
    text = io.StringIO(newline="")
    # The csv module of Python 3.11 does not quote a lone \r when lines end with \n.
    quoting = csv.QUOTE_ALL if any("\r" in field for row in rows for field in row) else csv.QUOTE_MINIMAL
    csv.writer(text, lineterminator=end, quoting=quoting).writerows(rows)
    return text.getvalue()


class Watched:
    """A watched folder and its reader, with a clock that is moved by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.source = Files(folder, watch="10s", clock=self.clock)
        [self.reader] = open_all(self.source, 1, {})

    def append(self, name: str, data: str | bytes) -> None:
        with open(self.folder / name, "ab") as file:
            file.write(data.encode() if isinstance(data, str) else data)

    def restart(self) -> None:
        [self.reader] = open_all(self.source, 1, self.reader.positions())

    def later(self) -> list[Any]:
        self.clock.now += 10
        return drain(self.reader)
