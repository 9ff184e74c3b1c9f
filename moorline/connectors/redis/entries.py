"""The place of a reader in a Redis stream, and the entries that were taken away before it came to them.

    position   {"id": the last entry that was read, "added": see below, "end": the last entry to read, or None}

Redis counts what was ever added to a stream and what is left of it. ``added`` of a position is the count of all entries
that are not left to be read: those up to it, and those that were gone when the reader started. Whenever it is known how
many are left after it (all that there are, once the head of the stream has been trimmed up to our position; or what was
just fetched, if that reached the end), the rest was taken away unread, by XTRIM, MAXLEN or XDEL:

    added to the stream - left after the position - added at the position = lost

``added`` is None after a start in the middle of a stream, until its end has been reached once. This file performs no
I/O.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from moorline.errors import InvalidArgument, SnapshotCorrupt

_ID = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")
_HIGHEST = 2**64 - 1


class EntryId(NamedTuple):
    """The id of an entry: its time in milliseconds, and a number among those of the same time.

    >>> EntryId.of("1700000000000-3"), str(EntryId.of(b"5")), EntryId(5, 0).before
    (EntryId(ms=1700000000000, number=3), '5-0', EntryId(ms=4, number=18446744073709551615))
    """

    ms: int
    number: int

    @classmethod
    def of(cls, text: str | bytes) -> EntryId:
        """Raises ValueError for a text that is none."""
        match = _ID.fullmatch(text.decode() if isinstance(text, bytes) else text)
        if match is None:
            raise ValueError(f"{text!r:.80} is not the id of an entry")
        id = cls(int(match[1]), int(match[2] or 0))
        if max(id) > _HIGHEST:
            raise ValueError(f"{text!r:.80} is too large for the id of an entry")
        return id

    @property
    def before(self) -> EntryId:
        """The highest id that is lower."""
        if self.number:
            return EntryId(self.ms, self.number - 1)
        return EntryId(self.ms - 1, _HIGHEST) if self.ms else self

    def __str__(self) -> str:
        return f"{self.ms}-{self.number}"


BEGINNING = EntryId(0, 0)


class StreamFacts(NamedTuple):
    """The facts of a stream at one moment, as Redis says."""

    length: int
    first: EntryId
    last: EntryId
    added: int

    @classmethod
    def of(cls, pairs: list[Any]) -> StreamFacts:
        """From the names and values of XINFO STREAM. Raises InvalidArgument for a server that is too old."""
        info = dict(zip(pairs[::2], pairs[1::2]))
        if b"entries-added" not in info:
            advice = "Streams are read from Redis 7.0 on: older ones cannot say what was trimmed."
            raise InvalidArgument("Redis server", "no entries-added in XINFO STREAM", advice)
        first, last = EntryId.of(info[b"recorded-first-entry-id"]), EntryId.of(info[b"last-generated-id"])
        return cls(int(info[b"length"]), first, last, int(info[b"entries-added"]))

    def left_after(self, id: EntryId) -> int | None:
        """The number of entries after an id, if it can be known without counting them."""
        if id == self.last:
            return 0
        is_trimmed_up_to_it = id < self.last and (self.length == 0 or self.first > id)
        return self.length if is_trimmed_up_to_it else None


@dataclass(frozen=True)
class Cursor:
    """A place in a stream."""

    id: EntryId
    added: int | None = None
    end: EntryId | None = None
    #: Was this the end of the stream, when it was looked at last?
    at_end: bool = field(default=False, compare=False)

    @classmethod
    def at(cls, id: EntryId, facts: StreamFacts | None, end: EntryId | None = None) -> Cursor:
        """A place to begin at: what is gone by now is no loss.

        >>> Cursor.at(BEGINNING, StreamFacts(length=2, first=EntryId(4, 0), last=EntryId(5, 0), added=9)).added
        7
        """
        if facts is None:
            return cls(id, 0 if id == BEGINNING else None, end)
        left = facts.left_after(id)
        return cls(id, None if left is None else facts.added - left, end)

    @classmethod
    def restored(cls, position: Any) -> Cursor:
        """From a snapshot, which is data like any other."""
        try:
            match position:
                case {"id": str(id), "added": None | int() as added, "end": None | str() as end}:
                    return cls(EntryId.of(id), added, None if end is None else EntryId.of(end))
        except ValueError:
            pass
        raise SnapshotCorrupt("the manifest", f"{position!r:.80} is not a position in a Redis stream")

    def position(self) -> dict[str, Any]:
        """As plain data, for a snapshot."""
        return {"id": str(self.id), "added": self.added, "end": None if self.end is None else str(self.end)}

    def seen_with(self, facts: StreamFacts, fetched: int | None) -> Cursor:
        """The same place, with what is known of it now. ``fetched``: all that is left after it, if that is known."""
        added = facts.added - fetched if self.added is None and fetched is not None else self.added
        return replace(self, added=added, at_end=fetched == 0)

    def after(self, id: EntryId, count: int) -> Cursor:
        """The place ``count`` entries further."""
        return replace(self, id=id, added=None if self.added is None else self.added + count, at_end=False)


@dataclass(frozen=True)
class EntryLoss:
    """Entries that are gone before they were read."""

    what: str
    #: How many, if that is known.
    count: int | None
    #: Where reading can go on.
    cursor: Cursor


def find_loss(cursor: Cursor, facts: StreamFacts | None, fetched: int | None = None) -> EntryLoss | None:
    """The entries that were taken away after ``cursor``, if any. ``fetched``: all that is left after it, if known.

    >>> here = Cursor(EntryId(3, 0), added=3)
    >>> trimmed = StreamFacts(length=2, first=EntryId(6, 0), last=EntryId(7, 0), added=7)
    >>> find_loss(here, trimmed).count
    2
    """
    if facts is None:
        if cursor.id == BEGINNING:
            return None  # not there yet
        return EntryLoss("the stream is gone", None, Cursor(BEGINNING, 0, cursor.end))
    left = facts.left_after(cursor.id)
    if cursor.added is None:
        # What came between the last entry that was read and the head of the stream is not known.
        return EntryLoss(_trimmed(facts), None, Cursor.at(cursor.id, facts, cursor.end)) if left else None
    if facts.last < cursor.id or facts.added < cursor.added:
        return EntryLoss(_ANEW, None, Cursor.at(BEGINNING, facts, cursor.end))
    left = fetched if left is None else left
    missing = 0 if left is None else facts.added - left - cursor.added
    if missing == 0:
        return None
    here = replace(cursor, added=cursor.added + missing)
    return EntryLoss(_trimmed(facts), missing, here) if missing > 0 else EntryLoss(_ANEW, None, here)


_ANEW = "the stream was deleted and made anew, or the server has lost data"


def _trimmed(facts: StreamFacts) -> str:
    first = f"; the first entry that is left is {facts.first}" if facts.length else ""
    return f"it was trimmed, or entries were deleted{first}"


def first_id(start: Any) -> EntryId | None:
    """The last id that is not read, for a start at an id or at a time; None for "latest".

    >>> first_id("earliest"), first_id("7-1")
    (EntryId(ms=0, number=0), EntryId(ms=7, number=0))
    """
    advice = 'It is "earliest", "latest", the id of an entry, or a datetime with a time zone.'
    if start == "earliest":
        return BEGINNING
    if start == "latest":
        return None
    if isinstance(start, datetime) and start.tzinfo is not None:
        return EntryId(max(0, int(start.timestamp() * 1000)), 0).before
    try:
        if isinstance(start, str):
            return EntryId.of(start).before
    except ValueError:
        pass
    raise InvalidArgument("start", start, advice)
