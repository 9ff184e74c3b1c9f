"""The deletion of files that no checkpoint names.

A file is written before the manifest that names it, so every file is unnamed for a while. Most that stay so are deleted
when their checkpoint is given up. What is left over has many causes: a delete that failed, an upload that was finished
after all, a worker of an earlier attempt that had not noticed. They are looked for now and then:

    of an earlier attempt                           -> after the grace time: it is fenced, and names nothing any more
    of a checkpoint in flight                       -> never: its manifest is still to come
    of one that may or may not have been published  -> not until a later one is: only then is it certain
    of any other checkpoint of ours                 -> after the grace time: nothing will ever name it

The grace time is counted from when the file was first found unnamed, by the clock of the driver that looks. Nothing
that a retained checkpoint needs is among them: what is named by any entry of the history is not asked about here.
``driver/checkpoints/retention.py`` looks and deletes.

From outside the history alone is known, and not what is in flight. :func:`is_abandoned` is what can be said from there,
whether or not a driver is at work; ``snapshots/inspection.py`` asks it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from moorline.model.facts import UnnamedFile


@dataclass(slots=True)
class Housekeeping:
    """The files that were found unnamed, and since when."""

    attempt: int
    grace_ms: int
    looked_ms: int
    since_ms: dict[str, int] = field(default_factory=dict)

    def is_due(self, now_ms: int) -> bool:
        """Is it time to look again? As often as the grace time, so nothing stays for more than two of them."""
        return now_ms - self.looked_ms >= self.grace_ms

    def looked(
        self, found: Iterable[UnnamedFile], in_flight: Collection[int], unsure: Collection[int], now_ms: int
    ) -> list[str]:
        """The files to delete now, of those that were found."""
        self.looked_ms = now_ms
        loose = [f.path for f in found if self._is_loose(f, in_flight, unsure)]
        # What is gone or named by now is forgotten: if it ever came back, its time would begin anew.
        self.since_ms = {path: self.since_ms.get(path, now_ms) for path in loose}
        return [path for path in loose if now_ms - self.since_ms[path] >= self.grace_ms]

    def at_the_end(self, found: Iterable[UnnamedFile], unsure: Collection[int]) -> list[str]:
        """The job is over here, nothing is in flight any more: all that can go."""
        return [f.path for f in found if self._is_loose(f, (), unsure)]

    def _is_loose(self, file: UnnamedFile, in_flight: Collection[int], unsure: Collection[int]) -> bool:
        if file.attempt != self.attempt:
            return file.attempt < self.attempt
        return file.checkpoint not in in_flight and file.checkpoint not in unsure


def is_abandoned(file: UnnamedFile, attempt: int, completed: int) -> bool:
    """Is it certain that nothing will ever name this file? ``attempt``: the newest; ``completed``: its last checkpoint.

    An earlier attempt is fenced. Within an attempt a complete checkpoint ends all that were started before it. Of later
    ones it is unknown: their upload may be under way, for however long.

    >>> is_abandoned(UnnamedFile("data/...", checkpoint=9, attempt=2), attempt=3, completed=8)
    True
    >>> is_abandoned(UnnamedFile("data/...", checkpoint=7, attempt=3), attempt=3, completed=8)
    True
    >>> is_abandoned(UnnamedFile("data/...", checkpoint=9, attempt=3), attempt=3, completed=8)
    False
    """
    return file.attempt < attempt or (file.attempt == attempt and file.checkpoint < completed)
