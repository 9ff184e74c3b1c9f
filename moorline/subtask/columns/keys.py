"""The keys of the rows of a batch, as a table of columns wants them, and back to columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moorline.api.columns.schemas import key_values
from moorline.errors import InvalidKey
from moorline.model import keys
from moorline.model.columns import ColumnBatch
from moorline.model.keys.identity import KeyIdentities
from moorline.state.columns.index import Slots
from moorline.state.columns.table import Keys


def keys_of(
    batch: pa.RecordBatch, names: tuple[str, ...], uid: str, identities: KeyIdentities
) -> tuple[Keys, Slots | None]:
    """The keys of a batch, and which of them each row has. None: ints, one for each row."""
    found, places = _keys_of(batch, names, uid, identities)
    identities.sample.see(found, places)
    return found, places


def _keys_of(
    batch: pa.RecordBatch, names: tuple[str, ...], uid: str, identities: KeyIdentities
) -> tuple[Keys, Slots | None]:
    columns = key_parts(batch, names)
    for name, column in zip(names, columns, strict=True):
        if column.null_count and len(names) == 1:
            row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
            record = f"{ColumnBatch(batch.slice(row, 1))[0]!r:.500}"
            raise InvalidKey(uid, "None", record, f"the column {name!r} is null")
    column = columns[0]
    if len(names) == 1 and pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
        numbers = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        identities.of_batch(numbers[:1].tolist())
        return numbers, None
    if len(names) == 1:
        encoded = column.dictionary_encode()
        distinct: list[Any] = encoded.dictionary.to_pylist()
        places: Slots = encoded.indices.to_numpy(zero_copy_only=False)
    else:
        distinct, places = _tuples(columns)
    try:
        return identities.of_batch(distinct), places
    except (keys.NotAKey, TypeError) as error:
        raise InvalidKey(uid, f"{distinct[0]!r:.200}", "of a batch", str(error)) from None


def key_parts(batch: pa.RecordBatch, names: Iterable[str]) -> list[pa.Array]:
    """The columns of a key, in which what is equal is the same, and of which each different value occurs."""
    return [_plain(batch.column(name)) for name in names]


def _plain(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        # A dictionary may have values that no row has, and one twice.
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        # To Arrow -0.0 is another value than 0.0.
        column = pc.add(column.cast(pa.float64()), 0.0).cast(column.type)
    return column


def _tuples(columns: list[pa.Array]) -> tuple[list[Any], Slots]:
    """The different tuples of values, and which of them each row has."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
        _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    rows = pa.array(first)
    return list(zip(*(column.take(rows).to_pylist() for column in columns), strict=True)), codes


def key_columns(found: Keys, fields: list[pa.Field], identities: KeyIdentities) -> list[pa.Array]:
    """Keys as the columns that they were taken from."""
    types = [field.type for field in fields]
    if isinstance(found, np.ndarray) and len(types) == 1 and pa.types.is_integer(types[0]):
        return [pa.array(found).cast(types[0])]
    shown = [identities.shown(key) for key in (found.tolist() if isinstance(found, np.ndarray) else found)]
    rows = [key_values((key,) if len(types) == 1 else key, types) for key in shown]
    return [pa.array([row[n] for row in rows], arrow) for n, arrow in enumerate(types)]
