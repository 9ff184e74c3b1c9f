"""Functions of columns of moments. Those with a time zone are looked at in it, others as they stand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from moorline.errors import InvalidArgument
from moorline.model.durations import Duration, milliseconds

if TYPE_CHECKING:
    from moorline.api.columns.expressions.expression import Expression

#: What Python and Arrow understand in the same way.
_DIRECTIVES = frozenset("aAbBdHIjmMpSuUVwWyYzZGFTD%")
#: From the largest on.
_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000), ("millisecond", 1))


class TimeFunctions:
    """``mo.col("at").dt``."""

    __slots__ = ("_expression",)

    def __init__(self, expression: Expression) -> None:
        self._expression = expression

    def _with(self, function: str, name: str, argument: str = "", **options: object) -> Expression:
        return self._expression._with(function, f"{{}}.dt.{name}({argument})", **options)

    def year(self) -> Expression:
        """The year."""
        return self._with("year", "year")

    def month(self) -> Expression:
        """The month, from 1."""
        return self._with("month", "month")

    def day(self) -> Expression:
        """The day of the month, from 1."""
        return self._with("day", "day")

    def hour(self) -> Expression:
        """The hour, from 0."""
        return self._with("hour", "hour")

    def minute(self) -> Expression:
        """The minute, from 0."""
        return self._with("minute", "minute")

    def second(self) -> Expression:
        """The second, from 0, as a whole number."""
        return self._with("second", "second")

    def weekday(self) -> Expression:
        """The day of the week: Monday is 0."""
        return self._with("day_of_week", "weekday")

    def date(self) -> Expression:
        """The day, without the time."""
        return self._with("day_of", "date")

    def truncate(self, length: Duration) -> Expression:
        """The beginning of the day, hour, or other length that it lies in, counted from 1970: ``truncate("15min")``.

        In a time zone it is the time that its clocks show, and each of the two hours that they show twice is one.
        """
        ms = milliseconds(length, "truncate")
        if ms <= 0:
            raise InvalidArgument("truncate", length, 'Give a length of time, such as "1h".')
        unit, of_unit = next((unit, size) for unit, size in _UNITS if ms % size == 0)
        options: dict[str, object] = {"multiple": ms // of_unit, "unit": unit, "is_in_hours": 3_600_000 % ms == 0}
        return self._with("truncate", "truncate", repr(length), **options)

    def format(self, pattern: str) -> Expression:
        """As a text, by a pattern of strftime: ``format("%Y-%m-%d")``. ``%S`` are whole seconds."""
        known = isinstance(pattern, str) and "%" in pattern and _DIRECTIVES.issuperset(re.findall("%(.?)", pattern))
        if not known:
            advice = (
                f'Give a pattern of strftime: format("%Y-%m-%d"). There is % before {"".join(sorted(_DIRECTIVES))}.'
            )
            raise InvalidArgument("format", pattern, advice)
        shown = repr(pattern).replace("{", "{{").replace("}", "}}")
        return self._with("format_time", "format", shown, pattern=pattern)

    def epoch_ms(self) -> Expression:
        """Milliseconds since 1970, rounded down."""
        return self._with("epoch_ms", "epoch_ms")
