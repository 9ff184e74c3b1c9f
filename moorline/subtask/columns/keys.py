"""The keys of the rows of a batch, as a table of columns wants them, and back to columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

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
    columns = [batch.column(name) for name in names]
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
    if isinstance(found, np.ndarray) and len(fields) == 1:
        return [pa.array(found).cast(fields[0].type)]
    shown = [identities.shown(key) for key in (found.tolist() if isinstance(found, np.ndarray) else found)]
    if len(fields) == 1:
        return [pa.array(shown, fields[0].type)]
    return [pa.array([key[n] for key in shown], field.type) for n, field in enumerate(fields)]
