"""The timestamps of rows that lie in columns: an array where otherwise a list of ints stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


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
