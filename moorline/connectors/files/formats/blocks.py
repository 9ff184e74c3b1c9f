"""Lines of a file by the block: bytes with many whole lines in them, for formats that decode them at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from moorline.connectors.files.formats.lines import Lines

_LINE_END = 10


class LineBlocks:
    """The next lines of a file as they stand, without a step for each."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._data = b""
        #: Where each line ends in the data, and how many lines are used; what comes after the last of them is in part.
        self._ends: npt.NDArray[np.intp] = np.array([], np.intp)
        self._used = 0

    def look(self, limit: int) -> bytes:
        """Up to ``limit`` whole lines that were not used yet; none at the end (for now)."""
        if self._used == len(self._ends):
            self._fill()
        last = min(self._used + limit, len(self._ends)) - 1
        return self._data[self._start() : self._ends[last]] if last >= self._used else b""

    def use(self, data: bytes) -> None:
        """Release the bytes that :meth:`look` has returned."""
        start = self._start()
        self._used = int(np.searchsorted(self._ends, start + len(data))) + 1
        self._lines.use_raw(data)

    def give_back(self) -> None:
        """Have the lines go on with what was not used."""
        self._lines.unread(self._data[self._start() :])
        self._data, self._ends, self._used = b"", self._ends[:0], 0

    def _start(self) -> int:
        return int(self._ends[self._used - 1]) if self._used else 0

    def _fill(self) -> None:
        pieces = [self._data[self._start() :]]
        has_ended = self._lines.is_over and not pieces[0]
        while not has_ended:
            pieces.append(self._lines.raw())
            has_ended = not pieces[-1]
            if b"\n" in pieces[-1]:
                break
        self._data = b"".join(pieces)
        self._ends = np.flatnonzero(np.frombuffer(self._data, np.uint8) == _LINE_END) + 1
        if has_ended and self._lines.final and len(self._data) > (self._ends[-1] if len(self._ends) else 0):
            self._ends = np.append(self._ends, len(self._data))
        self._used = 0
