"""Windows that end together, fired together: where a window fires at its end and at no other time.

Nearly all windows are such, and with a window per record their end is most of the work. On the heap their timers are
popped by the thousand (``state/heap/timers.py``), and no trigger is asked: what it would answer is known.

    the timer of the window's last moment    fire; clean up, or set the timer for clean-up time
    the timer of clean-up time               clean up
    any other                                of a trigger that the job had before: as for any window (``firing.py``)

Reductions and accumulators that cannot change in place are taken from their table all at once. A reduction is its own
result: no code of the user's runs at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from moorline.model.times import MAX_TIME
from moorline.state.backend import CurrentKey
from moorline.state.heap.states import HeapValueState, Table
from moorline.state.heap.timers import HeapTimers, Item
from moorline.subtask.windows.contents import Aggregated, Contents, Reduced
from moorline.subtask.windows.firing import Firing
from moorline.subtask.windows.lifetimes import Lifetimes
from moorline.subtask.windows.results import WindowResults


class EndingWindows:
    """The windows of one operator that fire at their end. ``is_result``: the contents are what is passed on."""

    def __init__(
        self,
        firing: Firing,
        lifetimes: Lifetimes,
        contents: Contents,
        results: WindowResults,
        current: CurrentKey,
        is_result: bool,
    ) -> None:
        assert isinstance(lifetimes.timers, HeapTimers)
        self._firing, self._lifetimes, self._timers = firing, lifetimes, lifetimes.timers
        self._results, self._current = results, current
        self._table = _table_of(contents) if is_result else None
        #: From an accumulator to what is passed on.
        self._result = contents.result if isinstance(contents, Aggregated) else None

    def on_timers(self, time: int, items: list[Item]) -> None:
        """Do what is due for windows whose timers were popped. The scope is at the one whose user code runs."""
        ends = [item for item in items if item[1][1] - 1 == time]  # type: ignore[index]
        if len(ends) < len(items):
            for key, span in items:
                assert span is not None
                if span[1] - 1 != time:
                    self._current.key = key
                    self._firing.on_timer(self._lifetimes.is_event_time, time, key, span)
        if not ends:
            return
        clean_up = self._lifetimes.clean_up_time((0, time + 1))
        is_last = clean_up <= time
        if self._table is not None:
            self._pass_values(self._table, time, ends, is_last)
        else:
            for key, span in ends:
                assert span is not None
                self._current.key = key
                self._firing.at_end(key, span, is_last)
        if not is_last and clean_up < MAX_TIME:
            self._timers.register_all(clean_up, ends)

    def _pass_values(self, table: Table, time: int, ends: list[Item], is_last: bool) -> None:
        values = table.take_all(ends) if is_last else list(map(table.entries.get, ends))
        if any(value is None for value in values):
            ends = [item for item, value in zip(ends, values) if value is not None]
            values = [value for value in values if value is not None]
        if self._result is None:
            self._results.extend(values, time)
        else:
            self._results.extend(self._shown(self._result, ends, values), time)

    def _shown(self, result: Callable[[Any], Any], ends: list[Item], values: list[Any]) -> Iterator[Any]:
        """The results of accumulators that have one. One at a time: nothing else holds them when they are taken."""
        current, scope = self._current, self._firing.scope
        for item, value in zip(ends, values):
            current.key, scope.key = item[0], item
            shown = result(value)
            if shown is not None:
                yield shown
                shown = None


def _table_of(contents: Contents) -> Table | None:
    """The table of contents that cannot change in place: nothing but the table needs to know that they are gone."""
    if isinstance(contents, (Reduced, Aggregated)) and isinstance(contents.state, HeapValueState):
        return contents.state.table
    return None
