"""The source at the head of a subtask's chain: when it may read, and the checkpoints that wait for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from moorline.model.wire.messages import Trigger
from moorline.subtask.operators.source import ReadingOperator


class Reading:
    """A source, as its subtask drives it.

    Being paused is no phase of the subtask: the driver pauses a source and lets it go on again, for instance to keep
    it from running ahead of slower ones, while phases only go forward.
    """

    def __init__(self, source: ReadingOperator) -> None:
        self.source = source
        self.is_paused = False
        #: Checkpoints that wait until the restored frames in flight have been processed.
        self._pending: list[Trigger] = []

    @property
    def may_read(self) -> bool:
        return not (self.source.has_ended or self.is_paused)

    def defer(self, trigger: Trigger) -> None:
        """Keep a checkpoint that the driver asks for until :meth:`due`."""
        self._pending.append(trigger)

    def due(self, overtaken: int, is_in_flight: Callable[[], bool]) -> Iterator[Trigger]:
        """The checkpoints to take now: those up to ``overtaken``, and all once nothing restored is in flight."""
        while self._pending and (self._pending[0].checkpoint <= overtaken or not is_in_flight()):
            yield self._pending.pop(0)
