"""Rows of CSV as columns of a schema: Arrow's parser for a block of lines, texts of rows where that says no.

A block is taken only if each of its lines is a row by itself. Arrow's parser and Python's then see the same fields.
Texts are kept as they are, an empty one too; of any other column an empty field is null, and the rest is what Arrow's
casts make of the text: ``true`` and ``1``, ISO 8601, decimals that need no rounding.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.csv

from moorline.connectors.columns.fields import UnfitColumns, from_texts, has_infinities, whole_batch


class CsvColumns:
    """The columns of rows below a header.

    >>> columns = CsvColumns(pa.schema([("age", pa.int64())]), ["name", "age"])
    >>> columns.block(b"Ada,36\\nBob,\\n").to_pylist(), columns.rows([["Eve", "20"]]).to_pylist()
    ([{'age': 36}, {'age': None}], [{'age': 20}])
    """

    def __init__(self, schema: pa.Schema, header: Sequence[str]) -> None:
        missing = [name for name in schema.names if name not in header]
        if missing:
            raise UnfitColumns(f"its header has no column {', '.join(map(repr, missing))}: it is {', '.join(header)}")
        self._schema, self._header = schema, list(header)
        self._places = [self._header.index(name) for name in schema.names]
        #: A row of empty fields, which is put after each block: a quote that is still open swallows it.
        self._last = b'""\n' if len(header) == 1 else b"," * (len(header) - 1) + b"\n"
        self._options = pyarrow.csv.ConvertOptions(
            column_types={field.name: _parsed_type(field.type) for field in schema},
            include_columns=schema.names,
            null_values=[""],
            strings_can_be_null=False,
        )

    def block(self, data: bytes) -> pa.RecordBatch | None:
        """A row for each line that is not empty. None: the rows must be found otherwise, and some may be broken."""
        if b"\0" in data or data.count(b"\r") != data.count(b"\r\n"):
            return None
        if data.startswith(codecs.BOM_UTF8):  # Arrow takes it for the mark of a file, and here it is part of a text
            return None
        if not data.isascii():
            try:
                data.decode()
            except UnicodeDecodeError:
                return None
        if not data.endswith(b"\n"):
            data += b"\n"
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(data + self._last),
                read_options=pyarrow.csv.ReadOptions(
                    use_threads=False, block_size=len(data) + len(self._last) + 1, column_names=self._header
                ),
                convert_options=self._options,
            )
            if table.num_rows - 1 != data.count(b"\n") and table.num_rows - 1 != _filled_lines(data):
                return None
            columns = [column.combine_chunks() for column in table.slice(0, table.num_rows - 1).columns]
            return whole_batch(map(_as_declared, columns, self._schema), self._schema)
        except (pa.ArrowException, UnfitColumns):
            return None

    def rows(self, rows: Sequence[Sequence[str]]) -> pa.RecordBatch:
        """The columns of rows of texts, as many in each as the header has names. Raises :class:`UnfitColumns`."""
        columns = (
            from_texts(pa.array([row[place] for row in rows], pa.string()), field, empty_is_null=True)
            for place, field in zip(self._places, self._schema)
        )
        return whole_batch(columns, self._schema)


def _filled_lines(data: bytes) -> int:
    return sum(1 for line in data.split(b"\n") if line not in (b"", b"\r"))


def _parsed_type(type: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(type) or pa.types.is_float32(type) or pa.types.is_float64(type):
        return type
    return pa.string()


def _as_declared(column: pa.Array, field: pa.Field) -> pa.Array:
    if has_infinities(column):
        raise UnfitColumns(f"column {field.name!r} has a text of an infinity, or a number that is too large")
    return column if column.type == field.type else from_texts(column, field, empty_is_null=True)
