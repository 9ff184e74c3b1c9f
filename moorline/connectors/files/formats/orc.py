"""ORC as a source: rows of one stripe at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.orc

from moorline.connectors.broken import BrokenRecords
from moorline.connectors.files.formats.parquet import whole_columns
from moorline.connectors.files.identity import replaced, shown
from moorline.connectors.files.opened import OpenedFile, Position
from moorline.errors import UnreadableRecord

#: What stands before the last byte of a whole file, which is the length of the part that this belongs to.
_MAGIC = b"ORC"


class OrcRecords:
    """A dict per row, or columns of them. One stripe is in memory at a time.

    The number of rows in a stripe is known when it has been read. So a position is a stripe and a row of it, and a
    stripe that cannot be read counts as one broken record.
    """

    def __init__(
        self,
        file: OpenedFile,
        position: Position | None,
        broken: BrokenRecords,
        *,
        final: bool,
        in_columns: bool = False,
    ) -> None:
        self._opened, self._broken = file, broken
        self._stripe = 0 if position is None else int(position["stripe"])
        self._row = 0 if position is None else int(position["row"])
        self._rows: pa.Table | None = None
        self._in_columns = in_columns
        self._file: pyarrow.orc.ORCFile | None = None
        if not final and not _has_footer(file):
            return  # still being written; the next listing looks at it again
        if self._stripe or self._row:
            file.check_same(position)
        file.begin(file.size)
        try:
            self._file = pyarrow.orc.ORCFile(file.arrow)
        except (pa.ArrowException, OSError) as error:
            if (fault := file.fault(error)) is not None:
                raise fault from error
            raise UnreadableRecord(shown(file.path), "read", f"it is not a whole ORC file: {error}") from error
        has = self._file.nstripes
        if self._stripe > has or (self._stripe == has and self._row):
            raise replaced(file.path, f"it has {has} stripes, but {self._stripe} were read before")

    def read(self, limit: int) -> Sequence[Any] | None:
        if self._file is None:
            return None
        while self._stripe < self._file.nstripes:
            try:
                if self._rows is None:
                    self._rows = _in_microseconds(pa.Table.from_batches([self._file.read_stripe(self._stripe)]))
                some = self._rows.slice(self._row, limit)
                rows = whole_columns(some) if self._in_columns else some.to_pylist()
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                if (fault := self._opened.fault(error)) is not None:
                    raise fault from error
                cause = f"stripe {self._stripe} cannot be read: {error}"
                self._broken.add(self._opened.path, self._stripe, b"", cause)
                self._next_stripe()
                return []
            self._row += len(rows)
            if self._row >= self._rows.num_rows:
                self._next_stripe()
            if rows:
                return rows
        return None

    def _next_stripe(self) -> None:
        self._stripe, self._row, self._rows = self._stripe + 1, 0, None

    @property
    def is_final(self) -> bool:
        # As a Parquet file: whole, or not there yet.
        return self._file is not None

    def position(self) -> Position:
        return {"stripe": self._stripe, "row": self._row, **self._opened.identity()}

    def close(self) -> None:
        self._opened.close()


def _has_footer(file: OpenedFile) -> bool:
    if file.size < 2 * len(_MAGIC) + 1:
        return False
    file.stream.seek(-len(_MAGIC) - 1, os.SEEK_END)
    return file.stream.read(len(_MAGIC)) == _MAGIC


def _in_microseconds(table: pa.Table) -> pa.Table:
    """The table with times as Python has them. ORC has nanoseconds, and those that matter are kept."""
    schema = pa.schema([field.with_type(_coarser(field.type)) for field in table.schema])
    if schema == table.schema:
        return table
    try:
        return table.cast(schema)
    except pa.ArrowInvalid:
        return table


def _coarser(type: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type) and type.unit == "ns":
        return pa.timestamp("us", type.tz)
    if pa.types.is_list(type):
        return pa.list_(type.value_field.with_type(_coarser(type.value_type)))
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(_coarser(field.type)) for field in type])
    if pa.types.is_map(type):
        return pa.map_(_coarser(type.key_type), _coarser(type.item_type))
    return type
