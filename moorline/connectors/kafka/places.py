"""Where does reading start, and where does it end? As a user says it, and as offsets of partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from moorline.errors import InvalidArgument

Partition = tuple[str, int]


@dataclass(frozen=True)
class Place:
    """A place in every partition: one of the words, a time, or an offset for each."""

    word: str = ""
    timestamp_ms: int | None = None
    offsets: Mapping[Partition, int] = field(default_factory=dict)

    def check(self, what: str, partitions: Collection[Partition]) -> None:
        """Raise if offsets were given, and they are not those of exactly these partitions."""
        if not self.offsets:
            return
        if unknown := sorted(set(self.offsets) - set(partitions)):
            raise InvalidArgument(what, unknown, "There is no such partition among those that are read.")
        if missing := sorted(set(partitions) - set(self.offsets)):
            raise InvalidArgument(what, f"no offset for {missing}", "Name an offset for each partition.")


def place(what: str, given: Any, words: Collection[str]) -> Place:
    """The place that a user has given as ``start`` or ``end``.

    >>> place("start", "latest", ["earliest", "latest"])
    Place(word='latest', timestamp_ms=None, offsets={})
    >>> from datetime import timezone
    >>> place("start", datetime(2026, 1, 1, tzinfo=timezone.utc), []).timestamp_ms
    1767225600000
    >>> place("start", {("orders", 0): 12}, []).offsets
    {('orders', 0): 12}
    """
    if isinstance(given, str) and given in words:
        return Place(word=given)
    if isinstance(given, datetime):
        if given.tzinfo is None:
            advice = "A time without a time zone is another one on another machine: datetime(..., tzinfo=timezone.utc)."
            raise InvalidArgument(what, given, advice)
        return Place(timestamp_ms=_not_negative(what, round(given.timestamp() * 1000)))
    if isinstance(given, int) and not isinstance(given, bool):
        return Place(timestamp_ms=_not_negative(what, given))
    if isinstance(given, Mapping) and given:
        return Place(offsets={_partition(what, at): _not_negative(what, offset) for at, offset in given.items()})
    named = ", ".join(f'"{word}"' for word in words)
    advice = f'It is {named}, a datetime, milliseconds since 1970, or offsets: {{("topic", 0): 12, ...}}.'
    raise InvalidArgument(what, given, advice)


def _partition(what: str, given: Any) -> Partition:
    match given:
        case (str(topic), int(number)) if number >= 0:
            return topic, number
    raise InvalidArgument(what, given, 'A partition is a pair such as ("orders", 0).')


def _not_negative(what: str, number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**63:
        raise InvalidArgument(what, number, "It is a number that is not negative.")
    return number
