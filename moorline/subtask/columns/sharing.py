"""Columns on their way out: who gets which rows, and batches that wait until there are enough for a frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from moorline.model import keys
from moorline.model.columns import ColumnBatch, ColumnKey, TimeColumn, Times, chosen, times_of
from moorline.model.keys.tuples import tuple_key_groups
from moorline.model.wire import elements

#: What each receiver gets: rows and their timestamps. None: nothing.
Shares = list[tuple[pa.RecordBatch | None, Sequence[int] | None]]


class UnusableKey(ValueError):
    """A row has no key."""

    def __init__(self, key: str, record: str, cause: str) -> None:
        super().__init__(cause)
        self.key, self.record, self.cause = key, record, cause


class WaitingColumns:
    """Batches for one receiver that become one part of a frame."""

    __slots__ = ("_batches", "_stamps", "nbytes", "rows")

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._stamps: list[Times] = []
        self.rows = self.nbytes = 0

    def __bool__(self) -> bool:
        return self.rows > 0

    def takes(self, batch: pa.RecordBatch, stamps: Sequence[int] | None) -> bool:
        """Can these wait together with what waits? All have the same columns, and timestamps or none."""
        if not self._batches:
            return True
        return bool(self._stamps) == bool(stamps) and self._batches[0].schema.equals(batch.schema)

    def add(self, batch: pa.RecordBatch, stamps: Sequence[int] | None) -> None:
        self._batches.append(batch)
        if stamps:
            self._stamps.append(times_of(stamps))
        self.rows += batch.num_rows
        # Of a slice this is its own part alone.
        self.nbytes += batch.nbytes

    def take(self) -> tuple[pa.RecordBatch, TimeColumn | None]:
        """All that waits, and its timestamps. Nothing waits then."""
        batch = self._batches[0] if len(self._batches) == 1 else pa.concat_batches(self._batches)
        stamps = TimeColumn(np.concatenate(self._stamps)) if self._stamps else None
        self._batches, self._stamps, self.rows, self.nbytes = [], [], 0, 0
        return batch, stamps

    def pack(self) -> bytes:
        """All that waits, as a part of a frame. Nothing waits then."""
        return elements.pack_columns(*self.take())


def dealt_out(batch: pa.RecordBatch, timestamps: Sequence[int] | None, receivers: int, first: int) -> Shares:
    """To all in turn, row by row, beginning with ``first``."""
    turns = (np.arange(batch.num_rows) + first) % receivers
    return [_share(batch, timestamps, turns == number) for number in range(receivers)]


def routed(
    batch: pa.RecordBatch, timestamps: Sequence[int] | None, key: ColumnKey, receivers: int, max_parallelism: int
) -> Shares:
    """To the owners of the keys' groups. Raises :class:`UnusableKey`."""
    owners = key_groups(batch, key, max_parallelism) * receivers // max_parallelism  # what owner() says, for a column
    if receivers == 1:
        return [(batch, timestamps)]
    return [_share(batch, timestamps, owners == number) for number in range(receivers)]


def _share(
    batch: pa.RecordBatch, timestamps: Sequence[int] | None, is_sent: npt.NDArray[np.bool_]
) -> tuple[pa.RecordBatch, Sequence[int] | None]:
    # To take rows by their numbers costs a fourth of what it costs to filter them.
    rows = np.flatnonzero(is_sent)
    return batch.take(pa.array(rows)), chosen(timestamps, rows)


def key_groups(batch: pa.RecordBatch, key: ColumnKey, max_parallelism: int) -> npt.NDArray[np.int64]:
    """The key group of each row, the same as for its key alone. Raises :class:`UnusableKey`."""
    missing = [name for name in key.names if name not in batch.schema.names]
    if missing:
        cause = f"there is no column {missing[0]!r} among {', '.join(batch.schema.names)}"
        raise UnusableKey("?", f"{ColumnBatch(batch.slice(0, 1))[0]!r:.500}", cause)
    column = batch.column(key.names[0])
    if len(key.names) == 1 and pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if len(key.names) > 1:
        columns = [batch.column(name) for name in key.names]
        if (groups := tuple_key_groups(columns, max_parallelism)) is not None:
            return groups
        structs = pa.StructArray.from_arrays(columns, names=list(key.names))
        return _of_distinct([tuple(row.values()) for row in structs.to_pylist()], max_parallelism)
    if column.null_count:
        row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        record = f"{ColumnBatch(batch.slice(row, 1))[0]!r:.500}"
        raise UnusableKey("None", record, f"the column {key.names[0]!r} is null")
    if pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
        return keys.int_key_groups(column.cast(pa.int64()).to_numpy(zero_copy_only=False), max_parallelism)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return keys.str_key_groups(column.to_pylist(), max_parallelism)
    encoded = pc.dictionary_encode(column)
    places: npt.NDArray[np.int32] = encoded.indices.to_numpy(zero_copy_only=False)
    return _of_distinct(encoded.dictionary.to_pylist(), max_parallelism)[places]


def _of_distinct(values: list[Any], max_parallelism: int) -> npt.NDArray[np.int64]:
    out = np.empty(len(values), np.int64)
    for n, value in enumerate(values):
        try:
            out[n] = keys.key_group(value, max_parallelism)
        except (keys.NotAKey, TypeError) as error:
            raise UnusableKey(f"{value!r:.200}", "of a batch", str(error)) from None
    return out
