"""Small numbers for windows, in whose place they stand in a table of windows."""

from __future__ import annotations

import numpy as np

from moorline.api.windows.assigners import Span
from moorline.state.columns.index import SlotNumbers, Slots, grown


class WindowNumbers:
    """The numbers of the windows that a table has something of.

    >>> windows = WindowNumbers()
    >>> number = windows.of((0, 10))
    >>> windows.add(np.array([number, number])), int(windows.starts[number]), int(windows.ends[number])
    (None, 0, 10)
    >>> windows.drop(np.array([number])), len(windows), windows.drop(np.array([number])), len(windows)
    (None, 1, None, 0)
    """

    def __init__(self) -> None:
        self._by_span: dict[Span, int] = {}
        self._numbers = SlotNumbers()
        #: Start and end of each, by number.
        self.starts, self.ends = np.zeros(0, np.int64), np.zeros(0, np.int64)
        #: How many keys have something in each.
        self._keys = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._by_span)

    def of(self, span: Span) -> int:
        """The number of a window. Something is put there at once."""
        number = self._by_span.get(span)
        if number is None:
            number = self._by_span[span] = int(self._numbers.take(1)[0])
            self._numbers.fresh()
            size = self._numbers.size
            self.starts, self.ends = grown(self.starts, size), grown(self.ends, size)
            self._keys = grown(self._keys, size)
            self.starts[number], self.ends[number] = span
        return number

    def in_use(self) -> Slots:
        """The numbers of all windows."""
        return self._numbers.used()

    def add(self, numbers: Slots) -> None:
        """So many keys more have something in these."""
        self._keys += np.bincount(numbers, minlength=len(self._keys))

    def drop(self, numbers: Slots) -> None:
        """So many keys less have something in these."""
        self._keys -= np.bincount(numbers, minlength=len(self._keys))
        used = self._numbers.used()
        over = used[self._keys[used] == 0]
        for number in over.tolist():
            del self._by_span[int(self.starts[number]), int(self.ends[number])]
        if len(over):
            self._numbers.give_back(over)
