"""When is a loop empty? Only then may a bounded job end.

No subtask can see that alone: its inputs have ended and nothing comes back, but a record may be on its way round. So
*marks* go round behind the records. Every subtask of the head sends mark k into the loop; one on the way passes it on
when it has come on all channels from inside the loop and all input from outside has ended. So when mark k has come back
on all channels, everything that was sent before it has come back as well. A mark is *clean* if, since the mark before
it, no record has come back to its sender. On the way a mark stays clean only if it came clean on all channels, so
all subtasks of the head learn the same.

    OPEN      an input has not ended       all have ended            -> DRAINING, mark 1 is sent
    DRAINING  marks go round               the mark comes back clean -> ENDING, time ends, the next mark is sent
                                           it comes back not clean   -> the next mark is sent
    ENDING    marks go round               the mark comes back clean -> OVER, the loop ends
                                           it comes back not clean   -> the next mark is sent
    OVER      nothing comes any more

Why clean is empty: mark k is clean everywhere, so between sending mark k-1 and mark k no subtask of the head got a
record back, and sent none, for its inputs have ended. What was sent before mark k-1 has come back before mark k-1, and
that is: nothing. Nothing is on its way, and no subtask is left that would send something.

Time ends inside a loop when it is empty for the first time. Timers fire then, and what they send round makes it
necessary to find it empty once more.

No I/O, no clock. ``subtask/iteration/membership.py`` drives it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from moorline.errors import InvalidTransition

# Events


@dataclass(frozen=True, slots=True)
class InputEnded:
    """All input from outside the loop has ended."""


@dataclass(frozen=True, slots=True)
class RecordReturned:
    """At the head: a record has come back."""


@dataclass(frozen=True, slots=True)
class MarkArrived:
    """All records before it on its channel have been processed."""

    channel: int
    round: int
    clean: bool


Event = InputEnded | RecordReturned | MarkArrived

# Actions


@dataclass(frozen=True, slots=True)
class SendMark:
    """On every channel that stays in the loop."""

    round: int
    clean: bool

    def __str__(self) -> str:
        return f"send mark {self.round}, {'clean' if self.clean else 'not clean'}"


@dataclass(frozen=True, slots=True)
class EndTime:
    """The loop is empty: time may end in it."""

    def __str__(self) -> str:
        return "end time in the loop"


@dataclass(frozen=True, slots=True)
class EndLoop:
    """The loop is empty for good."""

    def __str__(self) -> str:
        return "end the loop"


Action = SendMark | EndTime | EndLoop


class LoopPhase(Enum):
    OPEN = "open"
    DRAINING = "draining"
    ENDING = "ending"
    OVER = "over"


@dataclass(slots=True)
class _Rounds:
    """The marks as they come in. A channel may be one round ahead: who sends on it has its round complete already."""

    channels: frozenset[int]
    number: int = 1
    #: Of this round and of the next: by channel, whether the mark was clean.
    marks: dict[int, bool] = field(default_factory=dict)
    ahead: dict[int, bool] = field(default_factory=dict)

    def arrived(self, mark: MarkArrived) -> None:
        marks = self.marks if mark.channel not in self.marks else self.ahead
        number = self.number if marks is self.marks else self.number + 1
        if mark.round != number or mark.channel not in self.channels or mark.channel in marks:
            raise InvalidTransition("termination", f"round {self.number} with {self.marks}", str(mark))
        marks[mark.channel] = mark.clean

    @property
    def is_complete(self) -> bool:
        return len(self.marks) == len(self.channels)

    def next(self) -> bool:
        """Go on to the next round. Was this one clean on all channels?"""
        clean = all(self.marks.values())
        self.number, self.marks, self.ahead = self.number + 1, self.ahead, {}
        return clean


@dataclass(slots=True)
class LoopHead:
    """One subtask of a loop's head. Feed it events; obey the actions it returns.

    >>> head = LoopHead(frozenset({0}))
    >>> [str(action) for action in head.handle(InputEnded())]
    ['send mark 1, not clean']
    """

    #: The channels that lead back.
    channels: frozenset[int]
    phase: LoopPhase = LoopPhase.OPEN
    #: Has a record come back since the last mark was sent?
    is_clean: bool = False
    rounds: _Rounds = field(init=False)

    def __post_init__(self) -> None:
        self.rounds = _Rounds(self.channels)

    def handle(self, event: Event) -> list[Action]:
        match event:
            case InputEnded():
                if self.phase is not LoopPhase.OPEN:
                    raise InvalidTransition("termination", self.phase.value, str(event))
                self.phase = LoopPhase.DRAINING
                return [self._mark()]
            case RecordReturned():
                if self.phase is LoopPhase.OVER:
                    raise InvalidTransition("termination", "over", "a record has come back to a loop that was empty")
                self.is_clean = False
                return []
            case MarkArrived():
                # Other subtasks' marks may come round before our own inputs have ended.
                self.rounds.arrived(event)
                return self._came_back() if self.rounds.is_complete else []
            case _:
                assert_never(event)

    def _came_back(self) -> list[Action]:
        if not self.rounds.next():
            return [self._mark()]
        if self.phase is LoopPhase.DRAINING:
            self.phase = LoopPhase.ENDING
            self.is_clean = False  # who knows what fires
            return [EndTime(), self._mark()]
        self.phase = LoopPhase.OVER
        return [EndLoop()]

    def _mark(self) -> SendMark:
        mark, self.is_clean = SendMark(self.rounds.number, self.is_clean), True
        return mark


@dataclass(slots=True)
class OnTheWay:
    """A subtask in a loop that is not of its head. Feed it events; obey the actions it returns."""

    #: The channels that come from inside the loop.
    channels: frozenset[int]
    input_has_ended: bool = False
    rounds: _Rounds = field(init=False)

    def __post_init__(self) -> None:
        self.rounds = _Rounds(self.channels)

    def handle(self, event: Event) -> list[Action]:
        match event:
            case InputEnded():
                self.input_has_ended = True
            case MarkArrived():
                self.rounds.arrived(event)
            case RecordReturned():
                raise InvalidTransition("termination", "on the way", "a record comes back to the head only")
            case _:
                assert_never(event)
        if not self.rounds.is_complete or not self.input_has_ended:
            return []
        number = self.rounds.number
        return [SendMark(number, self.rounds.next())]
