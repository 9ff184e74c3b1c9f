"""Folding a chain of a base and its increments into one table.

A key (in states of windows and of timers: a key and namespace) that occurs in an increment replaces all older rows
under it, whether they are one value, the elements of a list or the entries of a map; a row that says ``gone`` leaves
nothing. This is the same rule by which a restore reads a chain, but over columns: nothing here is done row by row.

The writer of snapshots folds a chain when it has become long (``protocol/increments.py``), one range of key groups
after the other, off the subtask's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_ORDER = ("key_group", "key", "namespace", "map_key", "value", "last_access", "ttl")


def fold(chain: Sequence[tuple[pa.Table, bool]]) -> pa.Table | None:
    """The rows that are left of tables, oldest first, each with whether it is an increment.

    >>> base = pa.table({"key_group": [3, 7], "key": ["a", "b"], "value": [1, 2]})
    >>> step = pa.table({"key_group": [3, 7], "key": ["a", "b"], "value": [9, None], "gone": [False, True]})
    >>> fold([(base, False), (step, True)]).to_pylist()
    [{'key_group': 3, 'key': 'a', 'value': 9}]

    All rows of a key in one increment are in one table: tables are cut between key groups. The result is sorted by
    key group, key and namespace; rows of the same key stay in their order. None for no tables at all.
    """
    if not chain:
        return None
    tables = [table for table, _ in chain]
    if len({table.schema.field("key").type for table in tables}) > 1:
        tables = [with_encoded_keys(table) for table in tables]
    rows = pa.concat_tables(tables, promote_options="default")
    lengths = [len(table) for table in tables]
    age = np.repeat(np.arange(len(tables)), lengths)
    is_increment = np.repeat([increment for _, increment in chain], lengths).astype(bool)

    ident = _idents(rows)
    newest = np.full(int(ident.max(initial=-1)) + 1, -1)
    newest[ident[is_increment]] = age[is_increment]  # ages rise, and of several values the last one stays
    is_kept = age >= newest[ident]
    if "gone" in rows.column_names:
        is_kept &= ~pc.fill_null(rows["gone"], False).to_numpy()
    kept = rows.select([name for name in _ORDER if name in rows.column_names]).filter(pa.array(is_kept))
    return kept.take(_sorted(kept))


def _idents(rows: pa.Table) -> npt.NDArray[np.int64]:
    """A small number for each row, the same for two rows exactly if they belong to the same key and namespace."""
    ident = _codes(rows["key"])
    if "namespace" in rows.column_names:
        namespace = rows["namespace"].combine_chunks()
        for field in ("start", "end"):
            codes = _codes(pc.struct_field(namespace, field))
            # Each is below 2**31, so the product fits.
            ident = _codes(pa.array(ident * (int(codes.max(initial=0)) + 1) + codes))
    return ident


def _codes(column: Any) -> npt.NDArray[np.int64]:
    """Equal values as equal numbers; null is a value like any other."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return np.asarray(array.dictionary_encode(null_encoding="encode").indices.to_numpy(), np.int64)


def _sorted(rows: pa.Table) -> pa.Array:
    """A stable order by key group, key and namespace."""
    by = {"key_group": rows["key_group"], "key": rows["key"]}
    if "namespace" in rows.column_names:
        namespace = rows["namespace"].combine_chunks()
        by |= {field: pc.struct_field(namespace, field) for field in ("start", "end")}
    return pc.sort_indices(pa.table(by), [(name, "ascending") for name in by])


def with_encoded_keys(table: pa.Table) -> pa.Table:
    """The table with its keys in the one form that holds any: their encodings, see ``model/keys/encoding.py``."""
    column = table["key"].combine_chunks()
    if pa.types.is_binary(column.type):
        return table
    if pa.types.is_int64(column.type):
        encoded = np.empty((len(column), 9), np.uint8)
        encoded[:, 0] = ord("i")
        numbers = column.to_numpy().view(np.uint64) ^ np.uint64(1 << 63)
        encoded[:, 1:] = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
        offsets = pa.array(np.arange(0, 9 * len(column) + 1, 9), pa.int32())
        keys = pa.Array.from_buffers(pa.binary(), len(column), [None, offsets.buffers()[1], pa.py_buffer(encoded)])
    else:
        keys = pc.binary_join_element_wise(pa.scalar(b"s"), column.cast(pa.binary()), pa.scalar(b""))
    return table.set_column(table.schema.get_field_index("key"), "key", keys)
