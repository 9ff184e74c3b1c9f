"""Windows in RocksDB whose aggregates lie in columns while they are worked on, and the timers that end them.

The same cache of slots over rows as for other aggregates (``state/rocksdb/columns.py``), for pairs of key and window.
Most windows are over before they have to be written: they come and go in the cache, and no row was ever made of them.
What is written is what windows of records have: a row for each key and window, and two for its timer
(``state/rocksdb/timers.py``), so an operator that goes record by record can take it over, and back.

Rows *behind* the cache are those that were restored, or that were written when it was full and emptied. Two bounds say
when they have to be looked for:

    behind_end    a window that ends later has no row behind the cache: it need not be read
    behind_from   none of them is due before: no timer has to be looked for
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import rocksdict

from moorline.model import keys as key_encoding
from moorline.model.times import MAX_TIME, MIN_TIME
from moorline.state.columns.index import Ints, Slots, grown
from moorline.state.columns.spans import WindowNumbers
from moorline.state.columns.table import Keys
from moorline.state.columns.window_table import WindowTable
from moorline.state.forms import Form
from moorline.state.rocksdb.columns import MOST_DIRTY, RowsInColumns
from moorline.state.rocksdb.layout import (
    after,
    encoded_key,
    number_bytes,
    place_end,
    time_at,
    time_bytes,
    window_at,
    window_bytes,
)
from moorline.state.rocksdb.store import Store, new_batch

#: Timers that are due are looked up so many at a time.
DUE_ROWS = 1 << 15
#: In place of the time of a timer: there is none.
NO_TIMER = MAX_TIME


class WindowsInColumns(RowsInColumns):
    """The rows of windows, and those that are in columns just now. ``timers``: the number of their timers."""

    _table: WindowTable

    def __init__(
        self,
        store: Store,
        form: Form,
        number: int,
        max_parallelism: int,
        room: int,
        *,
        timers: int,
        lateness_ms: int,
    ) -> None:
        super().__init__(store, form, number, max_parallelism, room, WindowTable(form, max_parallelism))
        self._under_key, self._under_time = number_bytes(timers), number_bytes(timers + 1)
        self._lateness_ms = lateness_ms
        #: By slot: has it a row? And the time of its timer as it is written.
        self._is_stored, self._timer_at = np.zeros(0, np.bool_), np.zeros(0, np.int64)
        #: Rows that are to be removed, with the times of their timers.
        self._gone: list[tuple[bytes, int]] = []
        #: Everything that was due by then has been taken out.
        self._passed = MIN_TIME
        self._behind_from = self._first_due(self._under_time)
        self._behind_end = self._restored_end(number)

    # --- the table -----------------------------------------------------------------------------

    @property
    def windows(self) -> WindowNumbers | None:
        """The windows that there are, by number."""
        return self._table.windows

    @property
    def window_of(self) -> Ints:
        """By slot: the number of its window."""
        return self._table.window_of

    @property
    def is_waiting(self) -> npt.NDArray[np.bool_]:
        """By slot: does its window still fire at its end?"""
        return self._table.is_waiting

    def ends_of(self, slots: Slots) -> Ints:
        """The end of the window of each of these slots."""
        return self._table.ends_of(slots)

    def keys_of(self, slots: Slots) -> Keys:
        """The keys of some slots."""
        return self._table.keys_of(slots)

    def used(self) -> Slots:
        """All slots in use."""
        return self._table.used()

    def slots(self, keys: Keys, windows: Slots | None = None) -> Slots:
        """The slots of keys in windows, with what is stored for them."""
        slots = self._table.slots(keys, windows)
        self.asked += len(slots)
        self._have_room(int(slots.max(initial=-1)) + 1)
        fresh = slots[~self._is_loaded[slots]]
        if len(fresh):
            fresh = np.unique(fresh)
            self._is_loaded[fresh] = True
            self._timer_at[fresh] = NO_TIMER
            behind = fresh[self.ends_of(fresh) <= self._behind_end]
            if len(behind):
                self._load(behind)
        return slots

    def remove(self, slots: Slots) -> None:
        """Forget these slots, each of them once, and their rows."""
        if not len(slots):
            return
        stored = slots[self._is_stored[slots]]
        if len(stored):
            self._gone += zip(self._names(stored), self._timer_at[stored].tolist(), strict=True)
        for flags in (self._is_stored, self._is_loaded, self._is_dirty):
            flags[slots] = False
        self._rows[slots] = None
        self._table.remove(slots)

    def _have_room(self, size: int) -> None:
        super()._have_room(size)
        self._is_stored = grown(self._is_stored, len(self._is_loaded))
        self._timer_at = grown(self._timer_at, len(self._is_loaded))

    # --- rows ----------------------------------------------------------------------------------

    def _row_keys(self, slots: Slots) -> list[bytes]:
        windows = self._table.windows
        assert windows is not None
        numbers = self._table.window_of[slots]
        known = {n: window_bytes((int(windows.starts[n]), int(windows.ends[n]))) for n in set(numbers.tolist())}
        return [row + known[n] for row, n in zip(super()._row_keys(slots), numbers.tolist(), strict=True)]

    def _load(self, slots: Slots) -> Slots:
        if self._gone:
            self._write_gone()
        there = super()._load(slots)
        if not len(there):
            return there
        self._is_stored[there] = True
        names, last = self._names(there), self.ends_of(there) - 1
        at_end = [self._under_key + name[2:] + time_bytes(time) for name, time in zip(names, last.tolist())]
        is_waiting = np.array([row is not None for row in self._store.multi_get(at_end)])
        self._table.is_waiting[there] = is_waiting
        self._timer_at[there] = np.where(is_waiting, last, NO_TIMER)
        for slot, name in zip(there[~is_waiting].tolist(), (n for n, w in zip(names, is_waiting) if not w)):
            prefix = self._under_key + name[2:]
            row = next(self._store.scan(prefix, after(prefix)), None)
            self._timer_at[slot] = NO_TIMER if row is None else time_at(row[0], len(prefix))
        return there

    def _write_rows(self, batch: rocksdict.WriteBatch, slots: Slots) -> None:
        super()._write_rows(batch, slots)
        self._is_stored[slots] = True
        last = self.ends_of(slots) - 1
        kept = np.minimum(last, MAX_TIME - self._lateness_ms) + self._lateness_ms
        times, before = np.where(self._table.is_waiting[slots], last, kept), self._timer_at[slots]
        is_other = times != before
        changed = slots[is_other]
        for name, old, new in zip(self._names(changed), before[is_other].tolist(), times[is_other].tolist()):
            self._delete_timer(batch, name, old)
            if new != NO_TIMER:
                rest, time = name[2:], time_bytes(new)
                batch[self._under_time + time + rest] = b""
                batch[self._under_key + rest + time] = b""
        self._timer_at[changed] = times[is_other]

    def _delete_timer(self, batch: rocksdict.WriteBatch, name: bytes, time: int) -> None:
        if time != NO_TIMER:
            rest, at = name[2:], time_bytes(time)
            batch.delete(self._under_time + at + rest)
            batch.delete(self._under_key + rest + at)

    def _write_gone(self) -> None:
        """Remove the rows of windows that are over."""
        batch = new_batch()
        for name, time in self._gone:
            batch.delete(name)
            self._delete_timer(batch, name, time)
        self._store.write(batch)
        self._gone.clear()

    def write(self) -> None:
        """Write what has changed, and remove what is over."""
        self._write_gone()
        super().write()

    def end_batch(self) -> None:
        """Write what has changed if that is much, and empty the cache if it is full."""
        super().end_batch()
        if len(self._gone) >= MOST_DIRTY:
            self._write_gone()

    def shrink(self) -> None:
        """Forget what is here. Everything has been written."""
        self._behind_end = max(self._behind_end, int(self.ends_of(self.used()).max(initial=MIN_TIME)))
        super().shrink()
        self._is_stored[:] = False
        self._behind_from = self._first_due(self._after(self._passed))

    # --- what is due ---------------------------------------------------------------------------

    def next_due(self, lateness_ms: int) -> int:
        """The time at which the next window ends or is cleaned up, or one behind the cache may."""
        return min(self._table.next_due(lateness_ms), self._behind_from)

    def due(self, time: int) -> Iterator[None]:
        """Have everything that is due by a time in slots: some of it at each step, to be taken out before the next."""
        self._passed = time
        if self._behind_from > time:
            yield
            return
        self._write_gone()  # or it would be found once more
        rows = self._store.scan(self._under_time + time_bytes(self._behind_from), self._after(time))
        while piece := [row for row, _ in islice(rows, DUE_ROWS)]:
            self._take_in(piece)
            yield
            self.end_batch()
        self._behind_from = self._first_due(self._after(time))
        yield

    def _take_in(self, timers: list[bytes]) -> None:
        """Have the windows of some timers, as they lie under their time, in slots."""
        assert self._table.windows is not None
        idents, numbers = [], []
        for row in timers:
            end = place_end(row, 10)
            span, _ = window_at(row, end)
            if span is None:
                raise ValueError(f"timer {row[:50]!r} is of no window")
            idents.append(key_encoding.decode_identity(encoded_key(row[10:end])))
            numbers.append(self._table.windows.of(span))
        are_ints = set(map(type, idents)) == {int} and all(-(1 << 63) <= n < 1 << 63 for n in idents)
        found: Any = np.array(idents, np.int64) if are_ints else idents
        self.slots(found, np.array(numbers, np.int64))

    def _after(self, time: int) -> bytes:
        """The first row under the time behind all that are due by a time."""
        return after(self._under_time) if time >= MAX_TIME else self._under_time + time_bytes(time + 1)

    def _first_due(self, start: bytes) -> int:
        """The time of the first timer from a row on."""
        end = after(self._under_time)
        row = self._store.view(start, end).first(start, end) if start < end else None
        return MAX_TIME if row is None else time_at(row, 2)

    def _restored_end(self, number: int) -> int:
        """No window that was restored ends later: its timer is not before its last moment."""
        if self._lateness_ms >= MAX_TIME // 2:  # it may have fired and have no timer
            start, end = number_bytes(number), after(number_bytes(number))
            return MIN_TIME if self._store.view(start, end).first(start, end) is None else MAX_TIME
        start, end = self._under_time, after(self._under_time)
        row = self._store.view(start, end).last(start, end)
        return MIN_TIME if row is None else time_at(row, 2) + 1


class TimersOfWindows:
    """The timers of windows in columns, which are written with their windows."""

    def write_into(self, batch: rocksdict.WriteBatch) -> None:
        """Nothing."""

    def flushed(self) -> None:
        """Nothing."""

    shrink = flushed
