"""Records as columns: a batch of Arrow columns where otherwise a list of records stands, and keys that are columns.

Operators pass a :class:`ColumnBatch` on as they pass a list of records. Those that know columns take its ``batch``; all
others see a sequence of rows, which are made once, when the first of them is asked for. A row is a dict. Timestamps are
an array in the same way: a :class:`TimeColumn`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Times = npt.NDArray[np.int64]
_UTC = ZoneInfo("UTC")


class ColumnBatch(Sequence[Any]):
    """A sequence of rows that lie in columns.

    >>> batch = ColumnBatch(pa.RecordBatch.from_pydict({"user": ["ada", "bob"], "cents": [5, 7]}))
    >>> len(batch), batch[1], batch[:1].batch.num_rows
    (2, {'user': 'bob', 'cents': 7}, 1)
    """

    __slots__ = ("_rows", "batch")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self._rows: list[dict[str, Any]] | None = None

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> ColumnBatch: ...
    def __getitem__(self, at: int | slice) -> dict[str, Any] | ColumnBatch:
        if isinstance(at, slice):
            first, end, step = at.indices(len(self))
            if step != 1:
                return self.of(range(first, end, step))
            return ColumnBatch(self.batch.slice(first, max(0, end - first)))
        return self.rows()[at]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (list, ColumnBatch)) and self.rows() == list(other)

    __hash__ = None  # type: ignore[assignment]  # rows can be changed

    def __repr__(self) -> str:
        return f"<{len(self)} rows of {', '.join(self.batch.schema.names)}>"

    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts. They are made once."""
        if self._rows is None:
            names = self.batch.schema.names
            columns = list(map(values_of, self.batch.columns))
            self._rows = [dict(zip(names, values)) for values in zip(*columns, strict=True)]
        return self._rows

    def of(self, places: Sequence[int]) -> ColumnBatch:
        """Some of the rows, by their places."""
        return ColumnBatch(self.batch.take(pa.array(places, pa.int64())))

    def copy(self) -> ColumnBatch:
        """The same columns, with rows of its own."""
        return ColumnBatch(self.batch)


#: What Python's datetimes can be, in microseconds since 1970.
_FIRST, _END = -62_135_596_800_000_000, 253_402_300_800_000_000


def values_of(column: pa.Array) -> list[Any]:
    """The values of a column as Python has them: ``to_pylist``, which takes microseconds for each moment.

    >>> values_of(pa.array([0, None], pa.timestamp("ms", "UTC")))
    [datetime.datetime(1970, 1, 1, 0, 0, tzinfo=zoneinfo.ZoneInfo(key='UTC')), None]
    """
    type = column.type
    if not pa.types.is_timestamp(type) or type.unit == "ns" or type.tz not in (None, "UTC") or not len(column):
        return list(column.to_pylist())
    bounds = pc.min_max(column.cast(pa.int64()))
    first, last = bounds["min"].as_py(), bounds["max"].as_py()
    scale = {"s": 1_000_000, "ms": 1_000, "us": 1}[type.unit]
    if first is None or not _FIRST <= first * scale <= last * scale < _END:
        return list(column.to_pylist())  # which says what is wrong
    moments = column.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).tolist()
    if type.tz is None:
        return list(moments)
    return [None if moment is None else moment.replace(tzinfo=_UTC) for moment in moments]


@dataclass(frozen=True)
class ColumnKey:
    """A key selector that names columns: one, whose values are the keys, or several, whose tuples are.

    >>> ColumnKey(("user",))({"user": "ada"}), ColumnKey(("user", "day"))({"user": "ada", "day": 3})
    ('ada', ('ada', 3))
    """

    names: tuple[str, ...]

    def __call__(self, row: Any) -> Any:
        if len(self.names) == 1:
            return row[self.names[0]]
        return tuple(row[name] for name in self.names)

    def __str__(self) -> str:
        return ", ".join(self.names)


class TimeColumn(Sequence[int]):
    """Timestamps in milliseconds since 1970, one for each row. For those that want ints, they are made once.

    >>> times = TimeColumn(np.array([5, 3]))
    >>> list(times), times.of([True, False]), times == [5, 3]
    ([5, 3], <1 times>, True)
    """

    __slots__ = ("_ints", "times")

    def __init__(self, times: Times) -> None:
        self.times = times
        self._ints: list[int] | None = None

    def __len__(self) -> int:
        return len(self.times)

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> TimeColumn: ...
    def __getitem__(self, at: int | slice) -> int | TimeColumn:
        return TimeColumn(self.times[at]) if isinstance(at, slice) else int(self.times[at])

    def __iter__(self) -> Iterator[int]:
        if self._ints is None:
            self._ints = self.times.tolist()
        return iter(self._ints)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (list, TimeColumn)) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # compared by what is in it

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.times, dtype, copy=copy)

    def __repr__(self) -> str:
        return f"<{len(self)} times>"

    def of(self, rows: Any) -> TimeColumn:
        """Those of some rows: their places, or a bool for each."""
        return TimeColumn(self.times[np.asarray(rows)])


def times_of(timestamps: Sequence[int]) -> Times:
    """Timestamps as an array."""
    return timestamps.times if isinstance(timestamps, TimeColumn) else np.array(timestamps, np.int64)


def chosen(timestamps: Sequence[int] | None, rows: Any) -> Any:
    """The timestamps of some rows: their places, or a bool for each. None: there are none.

    >>> chosen([5, 3, 9], [True, False, True]), chosen(None, [0])
    (<2 times>, None)
    """
    return TimeColumn(times_of(timestamps)[np.asarray(rows)]) if timestamps else None
