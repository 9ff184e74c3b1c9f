"""Is a piece of state over its time, and what does touching it write down?

Every value, list element and map entry with a time to live is stored with the time it was last touched, its *stamp*.
How long it may live is not stored: the running job says so, for old state too.

    clock        now                                        a touch at
    processing   the wall clock                             now
    event        the time of the record or timer itself;    the time of the record or timer itself, or the watermark
                 the watermark if it is late or has none    if it has none; before any watermark: not known
    ----------   ----------------------------------------   --------------------------------------------------------
    stamp        read                                       write
    none         live; takes the touch                      takes the touch
    live         takes the touch if reads count             takes the touch
    expired      removed; shown once more if that is asked  takes the touch, as if it had been removed

In event time something is removed when the watermark is past its end, not when a record is: an older record that is
still on time finds it. So what a record sees follows from its own time and from the records before it, however often
watermarks are announced. A late record sees nothing that the watermark has ended, removed or not.

A live stamp never goes back: a late record does not shorten the life of what it touches. No stamp means that it was
stored before it had a time to live, or touched when no time was known; its life begins when it is next looked at.

Called for every access of a state, so these are functions of ints and nothing else. ``state/ttl/states.py`` calls them.
"""

from __future__ import annotations

from moorline.model.times import MAX_TIME, MIN_TIME


def is_expired(last_access: int | None, ttl_ms: int, now: int) -> bool:
    """Has it been untouched for ``ttl_ms``? Exactly that long is too long.

    >>> is_expired(1000, 500, 1499), is_expired(1000, 500, 1500)
    (False, True)
    >>> is_expired(None, 500, 1500)
    False

    A sum past the end of time is the end of time, as in Flink's 64 bits.
    """
    return last_access is not None and (last_access + ttl_ms <= now or now >= MAX_TIME)


def event_now(passed: int, timestamp: int | None) -> int:
    """The time to judge by in event time. ``passed``: the last watermark of which every timer has fired.

    >>> event_now(5000, timestamp=6000), event_now(5000, timestamp=4000), event_now(5000, timestamp=None)
    (6000, 5000, 5000)

    The last watermark is no time but says that there is no more input.

    >>> event_now(MAX_TIME, timestamp=4000)
    4000
    """
    if passed >= MAX_TIME:
        return MIN_TIME if timestamp is None else timestamp
    return passed if timestamp is None or timestamp < passed else timestamp


def event_stamp(passed: int, timestamp: int | None) -> int | None:
    """The time of a touch in event time; None if it is not known yet.

    >>> event_stamp(5000, timestamp=4000), event_stamp(5000, timestamp=None), event_stamp(MIN_TIME, timestamp=None)
    (4000, 5000, None)
    """
    if timestamp is not None:
        return timestamp
    return passed if MIN_TIME < passed < MAX_TIME else None


def later(last_access: int | None, touch: int | None, now: int) -> int | None:
    """The stamp of something live after a touch: it never goes back, and no life begins in the past.

    >>> later(4000, 5000, now=4500), later(5000, 4000, now=4500), later(None, 4000, now=4500), later(4000, None, now=0)
    (5000, 5000, 4500, None)
    """
    if touch is None:
        return None
    least = now if last_access is None else last_access
    return touch if touch > least else least


def after_read(last_access: int | None, touch: int | None, now: int, reads_count: bool) -> int | None:
    """The stamp of something live after it was read. If it is the same as before nothing needs to be written.

    >>> after_read(4000, 5000, 5000, reads_count=True), after_read(4000, 5000, 5000, reads_count=False)
    (5000, 4000)
    >>> after_read(None, 5000, 5000, reads_count=False)
    5000
    """
    return later(last_access, touch, now) if reads_count or last_access is None else last_access


def after_write(last_access: int | None, touch: int | None, now: int, ttl_ms: int) -> int | None:
    """The stamp of something after it was written over. What was expired is gone and leaves no trace.

    >>> after_write(4000, 3000, now=4200, ttl_ms=500), after_write(4000, 3000, now=4600, ttl_ms=500)
    (4000, 3000)
    """
    return touch if is_expired(last_access, ttl_ms, now) else later(last_access, touch, now)
