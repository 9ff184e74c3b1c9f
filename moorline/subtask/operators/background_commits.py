"""Commits of a sink on a thread beside its subtask: one at a time, in the order in which they were confirmed.

    confirmed    its committables are due; they stay in every snapshot
       | the commit before is done
    committing   still in every snapshot: whether it has taken effect is not known
       | done
    (gone)       the next one, with everything that was confirmed meanwhile

A commit that fails fails the attempt; the next one restores the committables and commits them again. A subtask whose
final checkpoint is confirmed is done when nothing is due any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moorline.api.sinks import SinkCommitter
from moorline.failpoints import failpoint
from moorline.subtask.environment import Background


class BackgroundCommits:
    """The commits of one sink in one subtask. Everything but the commit itself is on the subtask's thread."""

    def __init__(
        self, committer: SinkCommitter, background: Background, failed: Callable[[BaseException], BaseException]
    ) -> None:
        self._committer, self._background, self._failed = committer, background, failed
        #: Confirmed and not known to be committed, with their checkpoints.
        self.due: list[tuple[int, Any]] = []
        self._is_committing = False

    def add(self, committables: list[tuple[int, Any]]) -> None:
        """Have these committed as soon as those before are."""
        self.due += committables
        self._next()

    def _next(self) -> None:
        if self.due and not self._is_committing:
            self._is_committing = True
            batch = [committable for _, committable in self.due]
            self._background(lambda: self._commit(batch), self._done)

    def _commit(self, batch: list[Any]) -> int:
        failpoint("sink.commit.before")
        self._committer.commit(batch)
        failpoint("sink.commit.after")
        return len(batch)

    def _done(self, count: int | None, error: BaseException | None) -> None:
        self._is_committing = False
        if error is not None:
            raise self._failed(error)
        assert count is not None
        del self.due[:count]
        self._next()
