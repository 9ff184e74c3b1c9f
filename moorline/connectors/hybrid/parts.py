"""The parts of a hybrid source: which sources they are, and what their splits are called outside.

"0:7"        split 7 of the first part
"1/orders"   split "orders" of the second part
"1"          the second part as a whole, where its reader does not say which split it has read from
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moorline.api.sources import Positions, Source, SourceContext, SplitId, owner_of
from moorline.errors import InvalidArgument, SnapshotCorrupt


@dataclass(frozen=True)
class SourceEnd:
    """The end of a source, for a function that makes the next one.

    >>> SourceEnd({"orders-0": 17}).positions["orders-0"]
    17
    """

    #: The positions that its readers had at the end, of all splits that they still kept.
    positions: Mapping[SplitId, Any] = field(default_factory=dict)
    #: The last state of its enumerator, if it has one.
    enumerated: Any = None


Part = Source | Callable[[SourceEnd], Source]


class Parts:
    """The sources of a hybrid one. Those that follow from the end of the one before are made when that is known."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = list(parts)
        self._made: dict[int, Source] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def __getstate__(self) -> dict[str, Any]:
        return {"_parts": self._parts, "_made": {}}

    @property
    def sources(self) -> list[Source]:
        """Those that are known from the beginning."""
        return [part for part in self._parts if isinstance(part, Source)]

    def is_derived(self, number: int) -> bool:
        """Does a part follow from the end of the one before?"""
        return number < len(self._parts) and not isinstance(self._parts[number], Source)

    def source(self, number: int, ends: Mapping[int, SourceEnd]) -> Source:
        """The source of a part. ``ends``: those of the parts before derived ones."""
        part = self._parts[number]
        if isinstance(part, Source):
            return part
        if number not in self._made:
            made = part(ends[number - 1])
            if not isinstance(made, Source):
                raise InvalidArgument("then", made, "The function must return a source.")
            if made.is_bounded is False and number < len(self._parts) - 1:
                raise InvalidArgument("then", made, "It does not end, and another source is to follow it.")
            self._made[number] = made
        return self._made[number]


@dataclass(frozen=True)
class PartContext(SourceContext):
    """The place of a reader of one part: splits belong to the subtask that their outer names belong to."""

    part: int = 0

    def owns(self, split: SplitId) -> bool:
        return owner_of(outer_id(self.part, split), self.parallelism) == self.subtask


def outer_id(part: int, split: SplitId) -> str:
    """The name of a part's split outside."""
    return f"{part}:{split}" if isinstance(split, int) else f"{part}/{split}"


def outer(part: int, positions: Positions) -> dict[SplitId, Any]:
    """Positions of a part by the names that its splits have outside."""
    return {outer_id(part, split): position for split, position in positions.items()}


def by_part(positions: Positions, count: int) -> dict[int, dict[SplitId, Any]]:
    """Positions by part, by the names that its splits have inside. Raises SnapshotCorrupt for names of others.

    >>> by_part({"0:7": "a", "1/orders": "b"}, 2)
    {0: {7: 'a'}, 1: {'orders': 'b'}}
    """
    found: dict[int, dict[SplitId, Any]] = {}
    for split, position in positions.items():
        text = str(split)
        digits = len(text) - len(text.lstrip("0123456789"))
        part, mark, name = text[:digits], text[digits : digits + 1], text[digits + 1 :]
        is_number = name.removeprefix("-").isdecimal() and name.isascii()
        if not 0 < digits < 6 or mark not in ("/", ":") or int(part) >= count or (mark == ":" and not is_number):
            cause = f"{split!r:.80} is not a split of a source with {count} parts. They can only be added to at the end"
            raise SnapshotCorrupt("the manifest", cause)
        found.setdefault(int(part), {})[int(name) if mark == ":" else name] = position
    return found


def packed_ends(ends: Mapping[int, SourceEnd]) -> list[Any]:
    """Ends as plain data."""
    return [[number, dict(end.positions), end.enumerated] for number, end in ends.items()]


def unpacked_ends(data: Any) -> dict[int, SourceEnd]:
    """Ends from plain data. Raises ValueError."""
    ends = {}
    for item in data:
        match item:
            case [int(number), dict(positions), enumerated]:
                ends[number] = SourceEnd(positions, enumerated)
            case _:
                raise ValueError(f"{item!r:.80} is not the end of a source")
    return ends
