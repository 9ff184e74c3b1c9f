"""Timestamps by a column of the records, a whole batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moorline.errors import InvalidArgument
from moorline.model.columns import ColumnBatch, TimeColumn, Times
from moorline.model.times import MAX_TIME

#: How many of a column's units are a millisecond; below zero, how many milliseconds are a unit.
_UNITS = {"s": -1000, "ms": 1, "us": 1000, "ns": 1_000_000}


def column_times(batch: pa.RecordBatch, name: str) -> TimeColumn:
    """The times in a column: milliseconds since 1970 if they are ints, else moments or days.

    >>> from datetime import datetime
    >>> list(column_times(pa.RecordBatch.from_pydict({"at": [datetime(1969, 12, 31, 23, 59, 59, 999999)]}), "at"))
    [-1]
    """
    column = _named(batch, name)
    if column.null_count:
        row = ColumnBatch(batch.slice(int(np.flatnonzero(np.asarray(column.is_null()))[0]), 1))[0]
        raise InvalidArgument("timestamp", None, f"The column {name!r} has no time here: {row!r:.500}")
    if pa.types.is_integer(column.type):
        if pa.types.is_uint64(column.type) and len(column) and pc.max(column).as_py() > MAX_TIME:
            raise InvalidArgument(
                "timestamp", pc.max(column).as_py(), f"Of the column {name!r}: it is beyond all time."
            )
        return TimeColumn(_ints(column))
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    if not pa.types.is_timestamp(column.type):
        advice = f"The column {name!r} is {column.type}: give one of timestamps, of dates, or of ints of milliseconds."
        raise InvalidArgument("timestamp", name, advice)
    numbers, unit = _ints(column.view(pa.int64())), _UNITS[column.type.unit]
    # Down, also before 1970: a moment belongs to the window it is in.
    if unit < 0:
        farthest = max(abs(int(numbers.min(initial=0))), abs(int(numbers.max(initial=0))))
        if farthest * -unit > MAX_TIME:
            raise InvalidArgument("timestamp", farthest, f"The column {name!r} has a time beyond all milliseconds.")
        return TimeColumn(numbers * -unit)
    return TimeColumn(numbers // unit if unit > 1 else numbers)


def _named(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name not in batch.schema.names:
        raise InvalidArgument("timestamp", name, f"The stream has the columns {', '.join(batch.schema.names)}.")
    return batch.column(batch.schema.names.index(name))


def _ints(column: pa.Array) -> Times:
    return np.asarray(pc.cast(column, pa.int64()))


def field_of(name: str) -> Callable[[Any], Any]:
    """From one record to its field of that name."""

    def field(record: Any) -> Any:
        return record[name] if isinstance(record, dict) else getattr(record, name)

    return field


def assigned(records: Sequence[Any], assign: Any) -> Sequence[Any]:
    """The time of each record by a timestamp assigner, or by the name of a column."""
    if not isinstance(assign, str):
        return list(map(assign, records))
    if isinstance(records, ColumnBatch):
        return column_times(records.batch, assign)
    return list(map(field_of(assign), records))
