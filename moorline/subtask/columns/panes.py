"""The windows that the rows of a batch are in, for windows that follow from the time alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from moorline.api.windows.assigners import SlidingEventTimeWindows, Span, TumblingEventTimeWindows
from moorline.model.columns import Times

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Assigned:
    """The windows of a batch, and which rows are in which."""

    #: The different windows.
    spans: list[Span]
    #: The places of the rows that are in one; None: each row is in one, in order. A row may be in several.
    rows: Rows | None
    #: Which of the windows each of these is in; None: all are in the only one.
    windows: Rows | None

    def chosen(self, is_chosen: npt.NDArray[np.bool_], count: int) -> Assigned:
        """Some of the windows, with their rows. ``count``: of rows in the batch."""
        kept = [span for span, is_kept in zip(self.spans, is_chosen.tolist()) if is_kept]
        if self.windows is None:
            return Assigned(kept, self.rows if kept else np.empty(0, np.int64), None)
        is_row = is_chosen[self.windows]
        rows = np.flatnonzero(is_row) if self.rows is None else self.rows[is_row]
        return Assigned(kept, rows, (np.cumsum(is_chosen) - 1)[self.windows[is_row]])

    def places(self, count: int) -> Rows:
        """The rows that are in a window."""
        return np.arange(count) if self.rows is None else self.rows


def assigned(assigner: TumblingEventTimeWindows | SlidingEventTimeWindows, times: Times) -> Assigned:
    """The windows of rows with these times.

    >>> made = assigned(TumblingEventTimeWindows("10ms"), np.array([3, 12, 5]))
    >>> made.spans, made.windows.tolist()
    ([(0, 10), (10, 20)], [0, 1, 0])
    >>> made = assigned(SlidingEventTimeWindows("10ms", "5ms"), np.array([3, 12]))
    >>> made.spans, made.rows.tolist(), made.windows.tolist()
    ([(-5, 5), (0, 10), (5, 15), (10, 20)], [0, 0, 1, 1], [1, 0, 3, 2])
    """
    size = assigner.size_ms
    period = assigner.slide_ms if isinstance(assigner, SlidingEventTimeWindows) else size
    first, last = (int(t) - (int(t) - assigner.offset_ms) % period for t in (times.min(), times.max()))
    if period == size and first == last:
        return Assigned([(first, first + size)], None, None)
    # The number of each row's pane, counted from that of the earliest.
    panes = (times - first) // period
    if period == size:
        return _numbered(panes, first, period, size, None)
    # A row is in the windows that begin with its pane, and in as many before as reach over it. Latest first.
    most = -(-size // period)
    rows = np.repeat(np.arange(len(times)), most)
    panes = panes[rows] - np.tile(np.arange(most), len(times))
    is_in = times[rows] < first + panes * period + size
    return _numbered(panes[is_in], first, period, size, rows[is_in])


def _numbered(panes: Rows, first: int, period: int, size: int, rows: Rows | None) -> Assigned:
    """Windows by the numbers of the panes that they begin with."""
    if not len(panes):
        return Assigned([], np.empty(0, np.int64), panes)
    least, count = int(panes.min()), int(panes.max()) - int(panes.min()) + 1
    if count <= 4 * len(panes) + 64:
        # Few or dense: count them, which is quicker than to sort.
        is_there = np.zeros(count, np.bool_)
        is_there[panes - least] = True
        numbers = (np.cumsum(is_there) - 1)[panes - least]
        known = np.flatnonzero(is_there) + least
    else:
        known, numbers = np.unique(panes, return_inverse=True)
    spans = [(start, start + size) for start in (first + known * period).tolist()]
    return Assigned(spans, rows, numbers)
