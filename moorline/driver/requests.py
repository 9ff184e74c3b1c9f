"""What somebody outside has asked the running job for, and the answer that he waits for."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field


@dataclass(eq=False)
class SnapshotRequest:
    """A snapshot now: a savepoint, or a checkpoint before a rescale."""

    #: Where the savepoint goes; empty: it is a checkpoint.
    savepoint: str = ""
    #: The sources read no further once the barrier has gone out.
    pause: bool = False
    #: Before that, time ends: everything that waits for it fires.
    drain: bool = False
    #: The number of the snapshot, or why there is none.
    answer: Future[int] = field(default_factory=Future)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def succeed(self, checkpoint: int) -> None:
        if not self.answer.done():
            self.answer.set_result(checkpoint)
