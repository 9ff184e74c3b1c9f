"""One subtask's part in finding out that its loop is empty.

Drives ``protocol/termination.py``: the marks that come in, and those that go out on the links that stay in the loop.
``subtask/loop.py`` owns one if its subtask is on a way round a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from moorline.model.elements import unpack_mark
from moorline.model.graph import Plan
from moorline.model.ids import SubtaskId
from moorline.protocol.termination import (
    EndLoop,
    EndTime,
    Event,
    Head,
    InputEnded,
    MarkArrived,
    OnTheWay,
    RecordReturned,
    SendMark,
)
from moorline.subtask.output import Output


class Looping:
    """Where one subtask stands in the end of its loop."""

    def __init__(
        self,
        plan: Plan,
        subtask: SubtaskId,
        output: Output,
        end_time: Callable[[], None],
        end_loop: Callable[[], None],
    ) -> None:
        self._loop, self._output = plan.loop_of[subtask.vertex], output
        self._end_time, self._end_loop = end_time, end_loop
        channels = plan.channels_into(subtask)
        inside = {c for c, (link, _) in enumerate(channels) if plan.links[link].source in self._loop}
        back = plan.feedback_into(subtask)
        #: Is it a subtask that records come back to?
        self.is_head = bool(back)
        self._machine: Head | OnTheWay
        self._machine = Head(frozenset(range(len(back)))) if back else OnTheWay(frozenset(inside))
        #: Channels from outside that have not ended.
        self._outside = set(range(len(channels))) - inside
        if not self._outside:
            self._tell(InputEnded())

    def ended(self, channel: int) -> None:
        """A channel of the exchange has ended."""
        if channel in self._outside:
            self._outside.discard(channel)
            if not self._outside:
                self._tell(InputEnded())

    def marked(self, channel: int, frame: bytes) -> None:
        """A mark has come: at the head, on a channel that leads back."""
        self._tell(MarkArrived(channel, *unpack_mark(frame)))

    def returned(self) -> None:
        """Records have come back."""
        self._tell(RecordReturned())

    def _tell(self, event: Event) -> None:
        for action in self._machine.handle(event):
            match action:
                case SendMark(number, clean):
                    self._output.mark(self._loop, number, clean)
                case EndTime():
                    self._end_time()
                case EndLoop():
                    self._end_loop()
                case _:
                    assert_never(action)
