"""The time at which the key of each slot was last touched, for state in columns with a time to live.

The rules are those of ``protocol/expiry.py`` by the clock: what was untouched for so long begins anew, and something
without a stamp is from before there was a time to live, or not touched yet.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moorline.api.state.ttl import StateTtlConfig
from moorline.model.times import MIN_TIME
from moorline.state.columns.index import Slots, grown

#: In place of a stamp: there is none.
_NONE = MIN_TIME


def is_by_columns(ttl: StateTtlConfig) -> bool:
    """Is there a way to judge by these rules for whole batches? By the time of each record there is none."""
    return ttl.time == "processing" and ttl.visibility == "never_return_expired"


class Stamps:
    """The stamps of a table.

    >>> stamps = Stamps(StateTtlConfig("1s"))
    >>> stamps.open(np.array([0, 1]), 2), stamps.touch(np.array([0]), 500)
    (None, None)
    >>> stamps.is_over(np.array([0, 1]), 1500).tolist()
    [True, False]
    """

    def __init__(self, ttl: StateTtlConfig) -> None:
        self._length_ms = ttl.length_ms
        self._last = np.zeros(0, np.int64)

    def open(self, fresh: Slots, size: int) -> None:
        """These slots come into use. All are below ``size``."""
        self._last = grown(self._last, size)
        self._last[fresh] = _NONE

    def touch(self, slots: Slots, now: int) -> None:
        # They never go back: those of a snapshot may be of a clock that was ahead.
        self._last[slots] = np.maximum(self._last[slots], now)

    def is_over(self, slots: Slots, now: int) -> npt.NDArray[np.bool_]:
        """Which of these were not touched for too long?"""
        last = self._last[slots]
        is_over: npt.NDArray[np.bool_] = (last != _NONE) & (last <= now - self._length_ms)
        return is_over

    def of(self, slots: Slots) -> npt.NDArray[np.int64]:
        """A copy of the stamps of some slots."""
        return self._last[slots]

    def put(self, slots: Slots, column: pa.Array | None) -> None:
        """Restored stamps; None: the state had no time to live."""
        self._last[slots] = _NONE if column is None else column.fill_null(_NONE).to_numpy(zero_copy_only=False)


def stamp_columns(last: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
    """The columns that rows of a state with a time to live have."""
    return {"last_access": pa.array(last, mask=last == _NONE), "ttl": pa.nulls(len(last), pa.int64())}
