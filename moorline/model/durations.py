"""Durations as people write them: ``timedelta``, ``"10s"``, or a number of seconds."""

import re
from datetime import timedelta

from moorline.errors import InvalidArgument

Duration = timedelta | str | float

_UNITS = {"ms": 1, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def milliseconds(duration: Duration, what: str = "duration") -> int:
    """``duration`` in milliseconds.

    >>> milliseconds("1.5s"), milliseconds(timedelta(minutes=2)), milliseconds(0.25)
    (1500, 120000, 250)
    """
    if isinstance(duration, timedelta):
        ms = duration / timedelta(milliseconds=1)
    elif isinstance(duration, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", duration)
        if not found or found[2] not in _UNITS:
            raise InvalidArgument(what, duration, 'Write a timedelta or a text such as "500ms", "10s", "5min", "1h".')
        ms = float(found[1]) * _UNITS[found[2]]
    elif isinstance(duration, (int, float)) and not isinstance(duration, bool):
        ms = duration * 1000
    else:
        raise InvalidArgument(what, duration, 'Write a timedelta or a text such as "10s".')
    if not 0 <= ms < 2**53:
        raise InvalidArgument(what, duration, "A duration is not negative and not endless.")
    return round(ms)
