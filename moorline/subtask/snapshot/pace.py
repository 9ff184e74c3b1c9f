"""The pace at which a subtask's snapshots are encoded: slices, and rests that leave the interpreter to records.

``protocol/slicing.py`` decides; here are the clock, the sleep, and what is known about who waits. One :class:`Pace`
belongs to all snapshots of a subtask, because they are written one after the other: one that nobody waits for must not
hold up the next one, which may be the last of the job.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from moorline.model.config.thresholds import SLICE_RULE, SliceRule
from moorline.protocol.slicing import Slicing

#: While state is encoded a thread that wants the interpreter asks for it after so long. Python's default is 5 ms, and a
#: record asks several times on its way: whenever it has waited for input, or has handed something to Spark.
SWITCH_SECONDS = 0.0005


class Pace:
    """The pace of one subtask's snapshots.

    >>> pace = Pace(rest=lambda seconds: None)
    >>> with pace.of_a_snapshot() as slices:
    ...     for start in range(0, 1000, slices.rows):
    ...         slices.done(slices.rows)
    """

    def __init__(self, rest: Callable[[float], None] = time.sleep, rule: SliceRule = SLICE_RULE) -> None:
        self._rest, self._rule = rest, rule
        #: Snapshots that somebody waits for. Written by the subtask's thread alone.
        self._awaited = 0

    def await_one(self) -> None:
        """Note that a snapshot is waited for: it and those before it are written without rests."""
        self._awaited += 1

    def awaited_one_ended(self) -> None:
        """It has been written, or never will be."""
        self._awaited -= 1

    @property
    def is_awaited(self) -> bool:
        return self._awaited > 0

    @contextmanager
    def of_a_snapshot(self) -> Iterator[PacedSlices]:
        """The slices of one snapshot, on the thread that writes it."""
        with _quick_switches:
            yield PacedSlices(self, self._rest, self._rule)


class PacedSlices:
    """The slices of one snapshot (``state/backend.py`` says what a backend does with them)."""

    def __init__(self, pace: Pace, rest: Callable[[float], None], rule: SliceRule) -> None:
        self._pace, self._rest, self._slicing = pace, rest, Slicing(rule)
        self._began = time.thread_time()

    @property
    def rows(self) -> int:
        return self._slicing.rows

    def done(self, rows: int) -> None:
        now = time.thread_time()
        ms = self._slicing.worked(rows, 1000 * (now - self._began), self._pace.is_awaited)
        if ms:
            self._rest(ms / 1000)
        self._began = time.thread_time()


class _QuickSwitches:
    """Has threads ask for the interpreter sooner while a snapshot of any subtask in this process is encoded."""

    def __init__(self) -> None:
        self._lock, self._users, self._before = threading.Lock(), 0, 0.0

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, SWITCH_SECONDS))

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                sys.setswitchinterval(self._before)


_quick_switches = _QuickSwitches()
