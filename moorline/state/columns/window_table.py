"""A table of windows in columns, and the timers of its windows, which are stored as a state of their own.

A window that has not fired waits for its last moment; one that has fired, and is kept for late records, for clean-up
time. So a bit for each slot says which timer there is, and the record form of the operator goes on from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from moorline.model.times import MAX_TIME
from moorline.state.columns.index import Slots, grown
from moorline.state.columns.removed import Idents, Ints
from moorline.state.columns.rows import Copied, rows_of
from moorline.state.columns.table import ColumnTable, Keys
from moorline.state.forms import Form, timers_form
from moorline.state.registration import TIMERS


class WindowTable(ColumnTable):
    """The columns of a state of windows."""

    def __init__(self, form: Form, max_parallelism: int, notes_removed: bool = False) -> None:
        super().__init__(form, max_parallelism, notes_removed)
        #: Does the window of a slot still fire at its end?
        self.is_waiting = np.zeros(0, np.bool_)

    def _open(self, fresh: Slots) -> None:
        super()._open(fresh)
        self.is_waiting = grown(self.is_waiting, self.size)
        self.is_waiting[fresh] = False

    def ends_of(self, slots: Slots) -> Ints:
        """The end of the window of each of these slots."""
        assert self.windows is not None
        return self.windows.ends[self.window_of[slots]]

    def due(self, time: int) -> Iterator[None]:
        """Have everything that is due by a time in slots: it is."""
        yield

    def next_due(self, lateness_ms: int) -> int:
        """The time at which the next window ends or is cleaned up."""
        used = self.used()
        if not len(used):
            return MAX_TIME
        last = self.ends_of(used) - 1
        return int(np.where(self.is_waiting[used], last, last + lateness_ms).min())

    def find(self, keys: Keys, spans: tuple[Ints, Ints]) -> Slots:
        """The slots of keys in windows; -1 for those that have none. Slow: for a restore."""
        places = {ident: slot for slot, ident in zip(self.used().tolist(), _each(self.idents(self.used())))}
        wanted = _each(Idents(keys, spans[0], spans))
        return np.fromiter((places.get(ident, -1) for ident in wanted), np.int64, len(spans[0]))


class WindowTimers:
    """The timers of the windows of a table. ``lateness_ms``: how long after its end a window is kept."""

    def __init__(self, table: WindowTable, lateness_ms: int) -> None:
        self.form, self.table, self._lateness_ms = timers_form(TIMERS + "event"), table, lateness_ms

    def __len__(self) -> int:
        return len(self.table)

    def all_keys(self) -> list[Any]:
        return self.table.all_keys()

    def slots_of(self, key: Any) -> Slots:
        return self.table.slots_of(key)

    def changed_since(self, epoch: int) -> Slots:
        return self.table.changed_since(epoch)

    def removed_since(self, epoch: int) -> list[Idents] | None:
        return self.table.removed_since(epoch)

    def copied(self, slots: Slots | None, gone: list[Idents] | None = None, now: int | None = None) -> Copied:
        """A copy of the timers of these slots; None: of all."""
        chosen = self.table.used() if slots is None else slots
        last = self.table.ends_of(chosen) - 1
        kept = np.minimum(last, MAX_TIME - self._lateness_ms) + self._lateness_ms
        times = np.where(self.table.is_waiting[chosen], last, kept)
        return Copied(self.table.idents(chosen), [(times, times < MAX_TIME, None)], slots is not None, gone or [])

    def rows(self, copied: Copied) -> Iterator[pa.Table]:
        return rows_of(copied, pa.int64(), self.table.max_parallelism)

    def take_in(self, keys: Keys, times: pa.Array, spans: Any = None, stamps: Any = None) -> None:
        """Take restored timers in. A window without anything in it has none."""
        slots = self.table.find(keys, spans)
        is_there = slots >= 0
        slots, at_end = slots[is_there], (np.asarray(times) == spans[1] - 1)[is_there]
        self.table.is_waiting[slots] = False
        self.table.is_waiting[slots[at_end]] = True

    def clear(self, keys: Keys, spans: Any = None) -> None:
        """Nothing: a later increment says what timers there are of what is still there."""


def _each(idents: Idents) -> list[tuple[Any, int, int]]:
    assert idents.spans is not None
    keys = idents.keys.tolist() if isinstance(idents.keys, np.ndarray) else idents.keys
    return list(zip(keys, *(part.tolist() for part in idents.spans), strict=True))
