"""Removing what is over its time while the stream goes on: a few keys at a time, all of them in the end.

A key that is not asked for again is never seen as expired by a read. So every access pays for looking at some other
keys (``cleanup_incrementally``, 5 by default). The bill is paid every :data:`TURNS` accesses at once, since beginning
costs more than looking; and when all keys have been looked at, the next round waits until an eighth of the
time to live has passed, at most a minute: looking at keys that were live a moment ago finds nothing. So what is over
its time may stay for an eighth of its life, and a full round, longer than it should. No read ever shows it.

Looking is done beside the live state, so that it neither copies values nor counts as a change of them; only where
there is something to remove, or a life to begin, the live state is used. ``state/ttl/rules.py`` makes a sweep for each
state of a backend that can list its keys cheaply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle, islice, repeat
from typing import Any

from moorline.model.times import MIN_TIME
from moorline.state.backend import CurrentKey

#: The number of accesses that pay together.
TURNS = 32
#: The longest pause between two rounds.
MINUTE_MS = 60_000

#: Which of these keys have something to be done about, and how many elements that was to look at.
Find = Callable[[list[Any], int], tuple[list[Any], int]]

#: The turns of a state that is not swept.
NEVER: Callable[[], bool] = repeat(False).__next__


class Sweep:
    """The rounds over all keys of one state.

    ``turn`` says for an access whether it is one that pays; then ``sweep_some`` is called. ``tidy`` removes what is
    expired under the current key, and begins the lives that have not begun.
    """

    def __init__(
        self,
        keys: Callable[[], Iterator[Any]],
        current: CurrentKey,
        now: Callable[[], int],
        find: Find,
        tidy: Callable[[int], object],
        *,
        looks: int,
        length_ms: int,
        at_once: int,
    ) -> None:
        self._keys, self._current, self._now, self._find, self._tidy = keys, current, now, find, tidy
        self._budget, self._at_once = looks * TURNS, at_once
        #: Looks beyond the budget: a list or map is looked at as a whole. Later turns pay them back.
        self._debt = 0
        self._pause_ms = min(length_ms // 8, MINUTE_MS)
        self._rest: Iterator[Any] | None = None
        self._next_round = MIN_TIME
        #: A counter in C: cheaper than one in Python.
        self.turn: Callable[[], bool] = cycle([False] * (TURNS - 1) + [True]).__next__

    def sweep_some(self) -> None:
        """Look at the keys whose turn it is, and leave the current key as it was."""
        now = self._now()
        if now == MIN_TIME or (self._rest is None and now < self._next_round):
            return
        if self._rest is None:
            self._rest, self._next_round = self._keys(), now + self._pause_ms
        budget = self._budget - self._debt
        while budget > 0:
            try:
                keys = list(islice(self._rest, min(budget, self._at_once)))
            except RuntimeError:
                # The dict has changed under its iterator. Begin again with the next turn.
                self._rest, self._next_round = None, now
                break
            if not keys:
                self._rest = None
                break
            due, looks = self._find(keys, now)
            budget -= looks
            if due:
                self._tidy_all(due, now)
        self._debt = max(-budget, 0)

    def _tidy_all(self, keys: list[Any], now: int) -> None:
        current, tidy = self._current, self._tidy
        before = current.key
        try:
            for current.key in keys:
                tidy(now)
        finally:
            current.key = before


def among_values(peek: Callable[[Any], Any], length: int) -> Find:
    """For states with one element per key."""

    def find(keys: list[Any], now: int) -> tuple[list[Any], int]:
        oldest = now - length
        due = []
        for key in keys:
            stamped = peek(key)
            if stamped is not None:
                _, last, own = stamped
                if last is None or (last <= oldest if own is None else last + own <= now):
                    due.append(key)
        return due, len(keys)

    return find


def among_collections(peek: Callable[[Any], Any], length: int) -> Find:
    """For lists and maps."""

    def find(keys: list[Any], now: int) -> tuple[list[Any], int]:
        oldest = now - length
        due = []
        looks = len(keys)
        for key in keys:
            content = peek(key) or ()
            looks += len(content)
            for _, last, own in content.values() if isinstance(content, dict) else content:
                if last is None or (last <= oldest if own is None else last + own <= now):
                    due.append(key)
                    break
        return due, looks

    return find
