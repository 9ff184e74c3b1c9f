"""The rules of one expiring state: the form of a stored element, the two clocks, the configuration.

The rules are in ``protocol/expiry.py``. Here they meet the operator's :class:`OperatorClock`. ``state/ttl/states.py``
and ``state/ttl/collections.py`` make closures from it; a backend asks :func:`judged_at` for its snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from moorline.api.state.ttl import StateTtlConfig
from moorline.errors import InvalidArgument
from moorline.model.durations import Duration, milliseconds
from moorline.protocol.expiry import event_now, event_stamp
from moorline.state.backend import CurrentKey, OperatorClock
from moorline.state.ttl.sweep import NEVER, TURNS, Sweep, among_collections, among_values

#: What the backend stores: the value, when it was last touched, and its own length if it has one (milliseconds).
Stamped = tuple[Any, int | None, int | None]


def judged_at(config: StateTtlConfig, moment: OperatorClock) -> int:
    """The time by which expiry is judged while no record is processed: for snapshots that leave out what is expired.

    >>> moment = OperatorClock()
    >>> moment.processing_ms = 1000
    >>> judged_at(StateTtlConfig("1h"), moment)
    1000
    """
    return moment.processing_ms if config.time == "processing" else event_now(moment.passed, None)


@lru_cache(1024, typed=True)
def length_of(ttl: Duration) -> int:
    """The length of one write, in milliseconds.

    >>> length_of("1.5s")
    1500
    """
    length = milliseconds(ttl, "ttl")
    if length <= 0:
        raise InvalidArgument("ttl", ttl, "Give a length above zero, such as '1h'. To remove it at once, clear it.")
    return length


class Rules:
    """The rules that the closures of a state are made from."""

    def __init__(
        self,
        config: StateTtlConfig,
        moment: OperatorClock,
        current: CurrentKey,
        keys: Callable[[], Iterator[Any]] | None,
        peek: Callable[[Any], Any] | None,
    ) -> None:
        self.config, self.moment, self._current, self._keys, self._peek = config, moment, current, keys, peek
        self.length = config.length_ms
        self.reads_count = config.update == "on_read_and_write"
        self.shows_expired = config.visibility == "return_expired_if_not_cleaned_up"
        self.is_event_time = config.time == "event"
        self.times = _event_times(moment) if self.is_event_time else _processing_times(moment)
        #: As of when something that is expired now may be removed as well.
        self.removable_at: Callable[[int], int] = lambda now: min(now, moment.passed) if self.is_event_time else now

    def sweep(
        self, tidy: Callable[[int], object], *, of_collections: bool
    ) -> tuple[Callable[[], bool], Callable[[], None]]:
        """Two functions for every access: is it its turn to sweep, and sweep (``state/ttl/sweep.py``)."""
        looks = self.config.cleanup_incrementally
        if self._keys is None or self._peek is None or not looks:
            return NEVER, lambda: None
        find = (among_collections if of_collections else among_values)(self._peek, self.length)
        config, moment = self.config, self.moment
        sweep = Sweep(
            self._keys,
            self._current,
            lambda: judged_at(config, moment),
            find,
            tidy,
            looks=looks,
            length_ms=self.length,
            at_once=1 if of_collections else TURNS,  # one large map may be long enough to wait for
        )
        return sweep.turn, sweep.sweep_some


def _processing_times(moment: OperatorClock) -> Callable[[], tuple[int, int | None]]:
    """A function that gives now and the time of a touch, which are the same."""

    def times() -> tuple[int, int | None]:
        now = moment.processing_ms
        return now, now

    return times


def _event_times(moment: OperatorClock) -> Callable[[], tuple[int, int | None]]:
    """A function that gives now and the time of a touch."""

    def times() -> tuple[int, int | None]:
        passed, timestamp = moment.passed, moment.timestamp
        if timestamp is not None and timestamp >= passed:
            return timestamp, timestamp  # as below, without the calls
        return event_now(passed, timestamp), event_stamp(passed, timestamp)

    return times
