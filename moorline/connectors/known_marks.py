"""Marks that a subtask has seen at a server: what it has committed there cannot be undone by the server in silence.

A mark at the server says how far the commits of a writer have come, and only goes forward. A server that comes back
without its data, or as a replica that had not seen the last writes, has an older one: then records that were committed
are gone. So what was seen goes into the snapshots of the writer, and is compared after a restart too, also by another
subtask.

A mark begins with the number of a checkpoint and of a chunk of it; what follows is the sink's own affair.
"""

from __future__ import annotations

from typing import Any

from moorline.api.sinks import SinkContext
from moorline.errors import SnapshotCorrupt

#: Numbers, of which a later mark has greater ones.
Mark = tuple[int, ...]


class KnownMarks:
    """The marks that one subtask knows, by place and name: noted by its committer, kept in the snapshots of its writer.

    >>> known = KnownMarks((["marks", "5f1e/0", 7, 2],), numbers=2)
    >>> known.least("marks", "5f1e/0"), known.least("marks", "5f1e/1")
    ((7, 2), None)
    >>> known.note("marks", "5f1e/1", (8, 0)); known.snapshot()
    [['marks', '5f1e/1', 8, 0]]
    """

    def __init__(self, restored: tuple[Any, ...], numbers: int) -> None:
        #: What an earlier attempt knew: to be compared before the first commit.
        self.restored: dict[tuple[str, str], Mark] = {}
        self._seen: dict[tuple[str, str], Mark] = {}
        #: Of a server that numbers what it gets: a number that it has reached, so that what is staged now comes after.
        self.floor = 0
        for element in restored:
            match element:
                case [str(place), str(name), *mark] if len(mark) == numbers and all(isinstance(n, int) for n in mark):
                    self.restored[place, name] = tuple(mark)
                case _:
                    raise SnapshotCorrupt("the manifest", f"{element!r:.80} is not a mark of a sink")

    def least(self, place: str, name: str) -> Mark | None:
        """The mark that the server must have, or a later one."""
        return self._seen.get((place, name), self.restored.get((place, name)))

    def note(self, place: str, name: str, mark: Mark) -> None:
        """The server has this one."""
        self._seen[place, name] = max(mark, self.least(place, name) or mark)

    def snapshot(self) -> list[Any]:
        """As plain data. What was restored is kept until there is something newer."""
        known = dict(self._seen) or self.restored
        return [[place, name, *mark] for (place, name), mark in known.items()]


class KnownBySubtask:
    """The one object for committer and writer of a subtask, which a sink makes one after the other.

    A sink that was sent to another process knows none.
    """

    def __init__(self, numbers: int) -> None:
        self._numbers = numbers
        self._known: dict[tuple[Any, ...], KnownMarks] = {}

    def of(self, ctx: SinkContext) -> KnownMarks:
        """The marks that the subtask knows, to begin with from its snapshot."""
        subtask = (ctx.job, ctx.uid, ctx.lineage, ctx.subtask, ctx.attempt)
        if subtask not in self._known:
            self._known[subtask] = KnownMarks(ctx.restored, self._numbers)
        return self._known[subtask]

    def __reduce__(self) -> tuple[Any, ...]:
        return KnownBySubtask, (self._numbers,)
