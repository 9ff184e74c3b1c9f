"""Records processed a few at a time, so that a slow function does not keep a checkpoint waiting.

A frame may hold thousands of records, and a function may take a tenth of a second for each. Between slices the
subtask looks whether the driver wants something; what is left of the frame is in flight then, like any other frame.
How many records make a slice follows from how long the last one took. A function that is not slow never notices. Nor
does one that takes as long for a few records as for many, like a sink that sends what it gets in one request: smaller
slices would only make more requests of it. What is made of a slice is held in memory until all of it is there, so one
that makes much of little gets fewer records, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moorline.model.columns import ColumnBatch
from moorline.subtask.operators.base import ChainedOperator

#: A slice should take about so long at most.
SLICE_MS = 20
#: And what is packed for other subtasks meanwhile should not be much more than this.
SLICE_BYTES = 1 << 20
#: A slice of columns has so many times as many rows: a row costs a fraction there, and a call as much as it does.
COLUMNS = 16
#: After so many slices it is tried again whether smaller ones are quicker.
TRY_AGAIN = 64


class AdaptiveBatches:
    """Processes records until something more urgent comes up."""

    def __init__(
        self,
        now_ms: Callable[[], float],
        has_urgent_work: Callable[[], bool],
        records: int,
        packed_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        self._now_ms, self._has_urgent_work, self._packed_bytes = now_ms, has_urgent_work, packed_bytes
        self._records = self._most = self._limit = records
        #: The last slice that took too long: its records and milliseconds.
        self._slow = (0, 0.0)
        #: What a call takes if it is slow by itself, and for how many slices that is believed.
        self._call_ms, self._grows = 0.0, 0
        #: For how many single records it is believed that it is the records that are slow.
        self._singles = 0

    def process(self, operator: ChainedOperator, records: list[Any], stamps: list[int] | None, side: int) -> int:
        """Process a part, and return the number of its records: all of them, or fewer if something is wanted."""
        done, count = 0, len(records)
        times = COLUMNS if isinstance(records, ColumnBatch) else 1
        while True:
            stop = min(done + self._records * times, count)
            began, packed_before = self._now_ms(), self._packed_bytes()
            if stop - done == count:
                operator.process(records, stamps, side)
            else:
                operator.process(records[done:stop], stamps and stamps[done:stop], side)
            size = -(-(stop - done) // times)
            self._bound(size, self._packed_bytes() - packed_before)
            self._adapt(size, self._now_ms() - began)
            done = stop
            if done == count or self._has_urgent_work():
                return done

    def _bound(self, records: int, packed_bytes: int) -> None:
        if packed_bytes > SLICE_BYTES or self._most < self._limit:
            self._most = max(1, min(2 * self._most, self._limit, records * SLICE_BYTES // max(packed_bytes, 1)))
            self._records = min(self._records, self._most)

    def _adapt(self, records: int, took_ms: float) -> None:
        if took_ms <= SLICE_MS:
            if took_ms < SLICE_MS / 4:
                self._records = min(2 * self._records, self._most)
            return
        before, before_ms = self._slow
        fewer_take_as_long = 2 * records <= before and took_ms > 0.7 * before_ms
        if fewer_take_as_long or (records > before == 1 and took_ms < 1.4 * before_ms):
            # It is the call that is slow. More records then, as long as that costs nothing.
            self._call_ms, self._grows, self._slow = max(took_ms, before_ms), TRY_AGAIN, (0, 0.0)
            self._records = min(2 * max(before, records), self._most)
        elif self._grows:
            self._grows -= 1
            costs_nothing = took_ms <= 1.4 * self._call_ms
            self._records = min(2 * self._records, self._most) if costs_nothing else max(1, self._records // 2)
        else:
            self._slow = records, took_ms
            self._records = max(1, int(records * SLICE_MS / took_ms))
            if records > 1:
                self._singles = TRY_AGAIN if before == 1 else self._singles
            elif self._singles:
                self._singles -= 1
            else:
                # There are no fewer to compare it with: the next slice is of more.
                self._records = min(2, self._most)
