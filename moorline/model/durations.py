"""Durations as people write them: ``timedelta``, ``"10s"``, ``"10 seconds"`` as in Spark, or a number of seconds."""

import re
from datetime import timedelta

from moorline.errors import InvalidArgument
from moorline.model.spelling import did_you_mean

Duration = timedelta | str | float

_SPELLINGS = {
    1: "ms milli millis millisecond milliseconds",
    1000: "s sec secs second seconds",
    60_000: "m min mins minute minutes",
    3_600_000: "h hour hours",
    86_400_000: "d day days",
    7 * 86_400_000: "w week weeks",
}
_UNITS = {spelling: ms for ms, spellings in _SPELLINGS.items() for spelling in spellings.split()}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def milliseconds(duration: Duration, what: str = "duration") -> int:
    """``duration`` in milliseconds.

    >>> milliseconds("1.5s"), milliseconds(timedelta(minutes=2)), milliseconds(0.25)
    (1500, 120000, 250)
    >>> milliseconds("10 seconds"), milliseconds("1 minute 30 seconds")
    (10000, 90000)
    """
    if isinstance(duration, timedelta):
        ms = duration / timedelta(milliseconds=1)
    elif isinstance(duration, str):
        parts = _PART.findall(duration.lower())
        if not parts or _PART.sub("", duration.lower()) or not all(unit in _UNITS for _, unit in parts):
            meant = "".join(did_you_mean(unit, _UNITS) for _, unit in parts if unit not in _UNITS)
            advice = f'Write a timedelta or a text such as "500ms", "10s", "5 minutes", "1h".{meant}'
            raise InvalidArgument(what, duration, advice)
        ms = sum(float(number) * _UNITS[unit] for number, unit in parts)
    elif isinstance(duration, (int, float)) and not isinstance(duration, bool):
        ms = duration * 1000
    else:
        raise InvalidArgument(what, duration, 'Write a timedelta or a text such as "10s".')
    if not 0 <= ms < 2**53:
        raise InvalidArgument(what, duration, "A duration is not negative and not endless.")
    return round(ms)
