"""The sources of an attempt, as its checkpoints see them: who still reads, and who has to wait.

Barriers start at sources. A job whose sources have all come to their end has only its final checkpoint left. Where
checkpoints overtake, sources wait while too much has been put aside in front of other subtasks
(``protocol/pacing.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from moorline.model.graph import Plan
from moorline.model.ids import SubtaskId
from moorline.model.wire.messages import Hold, Order
from moorline.protocol.pacing import Pacing

log = logging.getLogger("moorline")


class Sources:
    """The sources of one attempt. Without ``pacing`` they never wait."""

    def __init__(self, plan: Plan, send: Callable[[SubtaskId, Order], None], pacing: Pacing | None) -> None:
        self._subtasks = list(plan.source_subtasks())
        self._send, self._pacing = send, pacing
        #: Sources, and heads of loops, that have not come to their end.
        self._reading = {*self._subtasks, *plan.heads()}

    def send(self, order: Order) -> None:
        """Send an order to every source."""
        for source in self._subtasks:
            self._send(source, order)

    def ended(self, subtask: SubtaskId) -> bool:
        """A source has read everything, or a loop is empty. Was it the last one?"""
        self._reading.discard(subtask)
        return not self._reading

    def put_aside(self, subtask: SubtaskId, size: int) -> None:
        """Have the sources wait or go on, now that a subtask has so many bytes put aside."""
        wait = self._pacing.put_aside(subtask, size) if self._pacing is not None else None
        if wait is not None:
            log.debug("sources %s: what was put aside has to be worked off", "wait" if wait else "go on")
            self.send(Hold(on=wait))
