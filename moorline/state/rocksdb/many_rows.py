"""Many rows at once, where they are all alike: one value for each key, and keys that are all ints or all texts.

That is most of what is stored, and it need not be looked at row by row: the key groups and numbers in thousands of row
keys are one array, and so are the row keys of a column of numbers. ``state/rocksdb/rows.py`` uses this where it can
and has the way for everything else; both give the same tables and the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from moorline.model import keys
from moorline.state.forms import Form
from moorline.state.heap.rows import TABLE_BYTES, TABLE_ROWS
from moorline.state.rocksdb.layout import (
    encoded_key,
    encoded_place,
    group_of,
    int_places,
    packed_value,
    place_end,
    str_places,
)
from moorline.state.rocksdb.store import View
from moorline.state.types.annotations import UNFIT, StoredType, to_bytes, to_column

#: Rows are turned into columns in pieces of so many rows or bytes.
PIECE_ROWS, PIECE_BYTES = 8_192, 4 << 20
#: A key group that is so much larger than a table should be is cut.
TOO_LARGE = 4

_INT_ROW = np.dtype([("state", ">u2"), ("group", ">u2"), ("tag", "u1"), ("number", ">u8")])
_SIGN = np.uint64(1 << 63)


def are_alike(form: Form, tag: bytes) -> bool:
    """Say whether the rows of a state whose keys have this tag are all alike. Stamps are not looked at."""
    return tag in (b"i", b"s") and not form.has_elements and not form.is_windowed


# --- from the database ------------------------------------------------------------------------


def value_tables(view: View, form: Form, tag: bytes) -> Iterator[pa.Table]:
    """The rows of such a state, sorted, in tables of bounded size that are cut between key groups."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for piece in _pieces(view, form, tag):
        waiting.append(piece)
        rows, size = rows + piece.num_rows, size + piece.nbytes
        if rows >= TABLE_ROWS or size >= TABLE_BYTES:
            table = pa.concat_tables(waiting)
            groups = table["key_group"].to_numpy()
            # The last key group may go on in the next piece.
            cut = int(np.searchsorted(groups, groups[-1]))
            if rows >= TOO_LARGE * TABLE_ROWS or size >= TOO_LARGE * TABLE_BYTES:
                cut = cut or rows
            if cut:
                yield table.slice(0, cut)
                rest = table.slice(cut)
                waiting, rows, size = [rest] if rest.num_rows else [], rest.num_rows, rest.nbytes
    if rows:
        yield pa.concat_tables(waiting)


def _pieces(view: View, form: Form, tag: bytes) -> Iterator[pa.Table]:
    unpack = form.value.unpack
    for rows, packed in view.pieces(PIECE_ROWS, PIECE_BYTES):
        groups, key_column = (_int_keys if tag == b"i" else _str_keys)(rows)
        values = [unpack(p[1:] if not p[0] else packed_value(p)) for p in packed]
        yield pa.table({"key_group": groups, "key": key_column, "value": to_column(form.value, values, form.state)})


def _int_keys(rows: list[bytes]) -> tuple[pa.Array, pa.Array]:
    if set(map(len, rows)) != {_INT_ROW.itemsize}:
        raise ValueError(f"among {len(rows):,} rows from {rows[0]!r:.50} on there is one without an int key")
    table = np.frombuffer(b"".join(rows), _INT_ROW)
    numbers = (table["number"].astype(np.uint64) ^ _SIGN).view(np.int64)
    return pa.array(table["group"].astype(np.int32)), pa.array(numbers)


def _str_keys(rows: list[bytes]) -> tuple[pa.Array, pa.Array]:
    texts = [keys.decode(encoded_key(row[2 : place_end(row)])) for row in rows]
    return pa.array([group_of(row) for row in rows], pa.int32()), pa.array(texts, pa.string())


# --- into the database ------------------------------------------------------------------------


def prefixes_of(start: bytes, column: pa.ChunkedArray, max_parallelism: int) -> list[bytes]:
    """The beginnings of the rows of a column of keys. ``start``: that of all rows of the state."""
    if pa.types.is_int64(column.type) and not column.null_count:
        return int_places(column.to_numpy(), max_parallelism, start)
    found: list[Any] = column.to_pylist()
    if pa.types.is_string(column.type):
        return [start + made for made in str_places(found, max_parallelism)]
    return [start + encoded_place(bytes(encoded), max_parallelism) for encoded in found]


def elements_of(stored_type: StoredType, values: list[Any], state: str) -> list[bytes]:
    """The row values of some values, without a stamp. Raises :class:`StateTypeMismatch`."""
    pack = stored_type.pack
    try:
        return [b"\0" + pack(value) for value in values]
    except UNFIT:
        return [b"\0" + to_bytes(stored_type, value, state) for value in values]  # says what does not fit
