"""The time of one subtask: event time, which its channels bring, and the wall clock, which its operators await.

``subtask/task.py`` asks. In a loop time ends when the loop is empty: what comes back must not come after the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from moorline.model.times import MAX_TIME
from moorline.protocol.watermarks import Watermarks
from moorline.subtask.operators.base import ChainedOperator


class Clocks:
    """The times of one subtask. ``is_in_loop``: it is on a way round; ``is_head``: records come back to it."""

    def __init__(self, channels: int, is_in_loop: bool, is_head: bool, wall_ms: Callable[[], int]) -> None:
        self._watermarks = Watermarks(channels)
        self._is_in_loop, self._is_head, self._wall_ms = is_in_loop, is_head, wall_ms
        self._operators: Sequence[ChainedOperator] = ()

    def start(self, operators: Sequence[ChainedOperator]) -> None:
        self._operators = operators

    # --- event time ------------------------------------------------------------------------------

    def advanced(self, channel: int, time: int) -> None:
        self._announce(self._watermarks.advanced(channel, time))

    def idled(self, channel: int) -> None:
        self._announce(self._watermarks.idled(channel))

    def ended(self, channel: int) -> None:
        self._announce(self._watermarks.ended(channel))

    def end_of_input(self) -> None:
        """There is no more input, so time is over, unless it was already."""
        if not self._is_head and self._watermarks.current < MAX_TIME:
            self._operators[0].watermark(MAX_TIME)

    def end_of_loop(self) -> None:
        """Nothing goes round any more but what the end of time makes."""
        if not self.is_over_in_loop():
            self._operators[0].watermark(MAX_TIME)

    def is_over_in_loop(self) -> bool:
        """Has time ended in a loop? Then nothing is sent round any more but what comes round."""
        return self._is_in_loop and bool(self._operators) and self._operators[0].moment.watermark >= MAX_TIME

    def _announce(self, announced: int | str | None) -> None:
        if isinstance(announced, int):
            self._pass_on(announced)
        elif announced is not None:
            # All inputs are idle: time goes on to the furthest of them first.
            if self._watermarks.current > self._operators[0].moment.watermark:
                self._pass_on(self._watermarks.current)
            self._operators[0].idle()

    def _pass_on(self, time: int) -> None:
        if time < MAX_TIME or not self._is_head:
            self._operators[0].watermark(time)

    # --- the wall clock --------------------------------------------------------------------------

    def due_ms(self) -> int | None:
        """The time at which an operator has something to do."""
        if self.is_over_in_loop():
            return None
        return min((t for o in self._operators if (t := o.next_tick_ms()) is not None), default=None)

    def seconds_until(self, due_ms: int | None) -> float:
        return math.inf if due_ms is None else max(0.0, (due_ms - self._wall_ms()) / 1000)

    def tick(self, due_ms: int | None) -> bool:
        """Have the operators do what is due. False if nothing is."""
        now_ms = self._wall_ms()
        if due_ms is None or due_ms > now_ms:
            return False
        for operator in self._operators:
            at = operator.next_tick_ms()
            if at is not None and at <= now_ms:
                operator.tick(now_ms)
        return True
