"""The different keys of a batch, and which of them each row has."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moorline.api.columns.batch_functions import BatchKeys
from moorline.errors import InvalidKey
from moorline.model.columns import ColumnBatch
from moorline.subtask.columns.keys import key_parts


def distinct_keys(batch: pa.RecordBatch, names: tuple[str, ...], uid: str) -> tuple[BatchKeys, list[Any]]:
    """The keys as columns, and as Python's own values: tuples, if they are of several columns.

    Raises :class:`InvalidKey` for a null where a single column is the key.
    """
    columns = key_parts(batch, names)
    if len(names) == 1:
        column = columns[0]
        if column.null_count:
            row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
            record = f"{ColumnBatch(batch.slice(row, 1))[0]!r:.500}"
            raise InvalidKey(uid, "None", record, f"the column {names[0]!r} is null")
        encoded = column.dictionary_encode()
        of_rows = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return BatchKeys(encoded.dictionary, of_rows), encoded.dictionary.to_pylist()
    of_rows = _codes(columns)
    keys = BatchKeys(pa.nulls(int(of_rows.max()) + 1 if len(of_rows) else 0), of_rows)
    distinct = [column.take(pa.array(keys.first_rows)) for column in columns]
    fields = [batch.schema.field(name).with_type(column.type) for name, column in zip(names, columns, strict=True)]
    keys.values = pa.StructArray.from_arrays(distinct, fields=fields)
    return keys, list(zip(*(column.to_pylist() for column in distinct), strict=True))


def _codes(columns: list[pa.Array]) -> npt.NDArray[np.int64]:
    """Numbers from 0, in the order of their first rows, that are equal where all columns are."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        codes = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
        # Small numbers again: the next product must fit as well.
        codes = pa.array(codes).dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes
