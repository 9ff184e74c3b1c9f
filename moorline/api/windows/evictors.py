"""Evictors: they remove some of a window's contents before, or after, it is passed on.

An evictor sees all records of a window, so they are all kept until the window is gone: a reduction or aggregation is
then made anew at each firing. Called by ``subtask/windows/contents.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moorline.errors import InvalidArgument
from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options
from moorline.model.times import MIN_TIME

if TYPE_CHECKING:
    from moorline.api.windows.assigners import Window

#: A record with its timestamp; the earliest time there is stands for none.
Timed = tuple[int, Any]


class Evictor:
    """The rule that decides which records of a window stay.

    >>> class Newest(Evictor):
    ...     def evict_before(self, elements, window):
    ...         return [max(elements)]
    """

    def evict_before(self, elements: list[Timed], window: Window, /) -> list[Timed]:
        """The records that are passed on, from pairs of timestamp and record in order of arrival."""
        return elements

    def evict_after(self, elements: list[Timed], window: Window, /) -> list[Timed]:
        """Of those that were passed on, the records that stay in the window."""
        return elements


@checks_options()
class CountEvictor(Evictor):
    """An evictor that keeps the last ``count`` records.

    >>> CountEvictor(2).evict_before([(0, "a"), (1, "b"), (2, "c")], None)
    [(1, 'b'), (2, 'c')]
    """

    def __init__(self, count: int, *, after: bool = False) -> None:
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise InvalidArgument("count", count, "Give a whole number of records, at least 1.")
        self.count, self.after = count, after

    @classmethod
    def of(cls, count: int, do_evict_after: bool = False) -> CountEvictor:
        """The same, by Flink's name."""
        return cls(count, after=do_evict_after)

    def evict_before(self, elements: list[Timed], window: Window) -> list[Timed]:
        return elements if self.after else elements[-self.count :]

    def evict_after(self, elements: list[Timed], window: Window) -> list[Timed]:
        return elements[-self.count :] if self.after else elements


@checks_options()
class TimeEvictor(Evictor):
    """An evictor that keeps the records less than ``length`` older than the newest one.

    >>> TimeEvictor("2s").evict_before([(0, "a"), (1000, "b"), (2000, "c")], None)
    [(1000, 'b'), (2000, 'c')]
    """

    def __init__(self, length: Duration, *, after: bool = False) -> None:
        self.length_ms, self.after = milliseconds(length, "length"), after

    @classmethod
    def of(cls, length: Duration, do_evict_after: bool = False) -> TimeEvictor:
        """The same, by Flink's name."""
        return cls(length, after=do_evict_after)

    def evict_before(self, elements: list[Timed], window: Window) -> list[Timed]:
        return elements if self.after else self._newest(elements)

    def evict_after(self, elements: list[Timed], window: Window) -> list[Timed]:
        return self._newest(elements) if self.after else elements

    def _newest(self, elements: list[Timed]) -> list[Timed]:
        latest = max((time for time, _ in elements), default=MIN_TIME)
        if latest == MIN_TIME:
            return elements
        return [(time, value) for time, value in elements if time > latest - self.length_ms]
