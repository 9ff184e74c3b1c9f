"""Pauses of sources while too much has been put aside.

An unaligned checkpoint takes off the exchange what is queued there, and puts it aside in front of a subtask that is
too slow for it. The exchange fills again behind it. With a checkpoint every second and a sink that needs a minute for
what one exchange holds, ever more would be put aside, and written again with each checkpoint.

    flowing   some subtask has put aside more than ``most_bytes``              -> paused: sources stop reading
    paused    no subtask has more than half of ``most_bytes`` put aside        -> flowing: sources go on

Nothing is lost by pausing them: they would only fill queues that are not worked off. They answer to checkpoints all the
same. No clock, no I/O. ``driver/checkpoints/sources.py`` drives it, with what subtasks report twice a second.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from moorline.model.ids import SubtaskId


@dataclass(slots=True)
class Pacing:
    """Feed it what subtasks have put aside; it says when sources are to stop (True) and to go on (False).

    >>> pacing = Pacing(most_bytes=100)
    >>> [pacing.put_aside(SubtaskId(1, 0), n) for n in (80, 120, 70, 40)]
    [None, True, None, False]
    """

    most_bytes: int
    is_paused: bool = False
    _bytes: dict[SubtaskId, int] = field(default_factory=dict)

    def put_aside(self, subtask: SubtaskId, size: int) -> bool | None:
        """A subtask has so much put aside now. None: nothing changes."""
        self._bytes[subtask] = size
        limit = self.most_bytes // 2 if self.is_paused else self.most_bytes
        is_paused = any(size > limit for size in self._bytes.values())
        if is_paused == self.is_paused:
            return None
        self.is_paused = is_paused
        return is_paused
