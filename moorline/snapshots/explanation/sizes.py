"""The bytes of each row of a column, unpacked: numbers by their width, texts by their length, nested ones summed up.

Everything is done over whole columns; no value becomes a Python object.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Sizes = npt.NDArray[np.int64]
_VARIABLE = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)


def table_row_bytes(table: pa.Table) -> Sizes:
    """The bytes of each row in all columns of a table.

    >>> table_row_bytes(pa.table({"key": ["a", "bcd"], "value": [[1, 2], None]})).tolist()
    [17, 3]
    """
    total = np.zeros(len(table), np.int64)
    for column in table.itercolumns():
        total += row_bytes(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
    return total


def row_bytes(column: Any) -> Sizes:
    """The bytes of each value of an Arrow array. Null has none; bytes for bookkeeping are not counted.

    >>> row_bytes(pa.array([1, None, 3])).tolist()
    [8, 0, 8]
    """
    if isinstance(column, pa.ChunkedArray):  # an array of more than 2 GiB
        return np.concatenate([row_bytes(chunk) for chunk in column.chunks] or [np.zeros(0, np.int64)])
    is_there = column.is_valid().to_numpy(zero_copy_only=False)
    return np.asarray(_value_bytes(column, column.type) * is_there, np.int64)


def _value_bytes(column: Any, kind: pa.DataType) -> Sizes:
    """The same, with anything at all for null."""
    count = len(column)
    if pa.types.is_null(kind):
        return np.zeros(count, np.int64)
    if pa.types.is_struct(kind):
        parts = [row_bytes(part) for part in column.flatten()]
        return np.asarray(np.sum([np.zeros(count, np.int64), *parts], axis=0), np.int64)
    if pa.types.is_map(kind):
        return _in_lists(row_bytes(column.keys) + row_bytes(column.items), column.offsets)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _in_lists(row_bytes(column.values), column.offsets)
    if pa.types.is_fixed_size_list(kind):
        inner = row_bytes(column.values.slice(column.offset * kind.list_size, count * kind.list_size))
        return np.asarray(inner.reshape(count, kind.list_size).sum(axis=1), np.int64)
    if any(test(kind) for test in _VARIABLE):
        return np.asarray(pc.fill_null(pc.binary_length(column), 0).to_numpy(), np.int64)
    return np.full(count, max(1, kind.bit_width // 8), np.int64)


def _in_lists(sizes: Sizes, offsets: Any) -> Sizes:
    """The sizes of elements, summed up for each list."""
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
    cuts = offsets.to_numpy()
    return np.asarray(ends[cuts[1:]] - ends[cuts[:-1]], np.int64)
