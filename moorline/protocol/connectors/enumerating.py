"""The search for new splits of a source by the driver, and the subtasks that get them.

    time has come                -> LookForSplits, one at a time; the first at the start of the attempt
    looked(splits, state)        -> Assign each split to its owner; at the first look every subtask is told, also one
                                    that gets none, so that it knows that it has none; the next look is due later
    looked(None, state)          -> Assign to everyone that there will be no more; nothing is looked for again
    looked(…, announcement)      -> Assign to everyone, if it is another announcement than before
    reported()                   -> a reader has a word for the enumerator: the next look is due at once
    failed(why)                  -> GiveUpLooking

**What a snapshot has.** ``state`` is what the enumerator knew after that look. It takes effect together with the
assignments, at one moment on the driver's thread; a checkpoint is triggered before or after it. The line to a subtask
keeps its order, so the splits of all looks before the trigger are in the positions that subtasks hand in, and those of
later looks are neither there nor in the enumerator's state: the next attempt finds them again.

No I/O, no clock. ``driver/connectors/enumerating.py`` obeys it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class LookForSplits:
    """Have the enumerator look for splits, and report what it has found."""

    def __str__(self) -> str:
        return "look for splits"


@dataclass(frozen=True, slots=True)
class Assign:
    """Send these splits to a subtask."""

    subtask: int
    splits: dict[Any, Any]
    no_more: bool
    #: To be known before the splits are; None: what was announced before still holds.
    announcement: Any = None

    def __str__(self) -> str:
        end = ", and no more" if self.no_more else ""
        first = "" if self.announcement is None else f"announce {self.announcement}, "
        return f"{first}assign {sorted(map(str, self.splits))} to subtask {self.subtask}{end}"


@dataclass(frozen=True, slots=True)
class GiveUpLooking:
    """Fail the attempt."""

    why: str

    def __str__(self) -> str:
        return f"fail the attempt: {self.why}"


Action = LookForSplits | Assign | GiveUpLooking


@dataclass(slots=True)
class Enumerating:
    """The splits of one source in one attempt. Feed it facts; obey the actions in their order."""

    parallelism: int
    owner_of: Callable[[Any, int], int]
    interval_ms: int
    #: The enumerator's state as a snapshot has it.
    state: Any = None
    due_ms: int | None = 0
    is_looking: bool = False
    has_looked: bool = False
    #: The newest announcement that was sent.
    announcement: Any = None
    #: Has a reader reported something that the look under way does not know of?
    is_asked: bool = False
    _known: set[Any] = field(default_factory=set)

    def time_passed(self, now_ms: int) -> list[Action]:
        if self.is_looking or self.due_ms is None or now_ms < self.due_ms:
            return []
        self.is_looking = True
        return [LookForSplits()]

    def reported(self) -> None:
        """A reader has reported something: the enumerator gets it with the next look."""
        if self.is_looking:
            self.is_asked = True
        elif self.due_ms is not None:
            self.due_ms = 0

    def looked(
        self, splits: Mapping[Any, Any] | None, state: Any, now_ms: int, announcement: Any = None
    ) -> list[Action]:
        self.is_looking, self.state = False, state
        self.due_ms = None if splits is None else now_ms + (0 if self.is_asked else self.interval_ms)
        self.is_asked = False
        shares: dict[int, dict[Any, Any]] = {n: {} for n in range(self.parallelism)}
        for split, position in (splits or {}).items():
            if split not in self._known:
                shares[self.owner_of(split, self.parallelism)][split] = position
        self._known.update(splits or ())
        is_first, self.has_looked = not self.has_looked, True
        said = None if announcement == self.announcement else announcement
        self.announcement = announcement
        tells_all = is_first or splits is None or said is not None
        return [Assign(n, share, splits is None, said) for n, share in shares.items() if share or tells_all]

    def failed(self, why: str) -> list[Action]:
        self.is_looking, self.due_ms = False, None
        return [GiveUpLooking(why)]
