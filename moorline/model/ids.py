"""Ids: the numbers and names of subtasks, attempts and checkpoints."""

from typing import NamedTuple, NewType

#: Counts checkpoints of a job, from 1, never reused.
CheckpointId = NewType("CheckpointId", int)

#: Counts starts of a job, from 1, across restarts of the driver too. What is older is refused.
Attempt = NewType("Attempt", int)


class SubtaskId(NamedTuple):
    """One parallel instance of a vertex of the physical plan."""

    vertex: int
    index: int  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.vertex}/{self.index}"
