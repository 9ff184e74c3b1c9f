"""The event time of one subtask: the least of what its input channels say.

A watermark t on a channel says that no record earlier than t is expected there any more. A subtask has come as far as
the slowest of its channels; one that has gone idle is not waited for, one that has ended never again.

    channel says     it counts as
    nothing yet      as early as can be
    watermark t      t; the channel is active (again). A t below its last one is ignored.
    idle             not at all, until its next watermark
    end              not at all

Time never goes back: a channel that was idle and comes back behind the others does not lower what was announced.
When every channel has ended nothing more is announced: the last thing each of them said was the end of time, or the
job is stopping in the middle. When all that are left are idle, so is the subtask; and because nothing holds time back
then, it has come as far as the furthest of them: look at :attr:`Watermarks.current`.

``subtask/clocks.py`` asks for every watermark that arrives, which is a few times a second, not per record.
"""

from __future__ import annotations

from moorline.model.times import MIN_TIME

#: What :class:`Watermarks` answers when the subtask is to pass on that it is idle.
IDLE = "idle"


class Watermarks:
    """The watermarks of one subtask's channels.

    >>> times = Watermarks(2)
    >>> times.advanced(0, 10), times.advanced(1, 5), times.idled(1)
    (None, 5, 10)
    """

    def __init__(self, channels: int) -> None:
        self._times = [MIN_TIME] * channels
        self._active = [True] * channels
        self._open = [True] * channels
        self._is_idle = False
        #: What was announced last.
        self.current = MIN_TIME

    def advanced(self, channel: int, time: int) -> int | None:
        """A watermark has arrived. The time to announce, or None."""
        self._times[channel] = max(self._times[channel], time)
        self._active[channel] = True
        if self._is_idle:
            # Say something even if time stands still, so that those that wait for us know that we are back.
            self._is_idle = False
            return self._announce() or self.current
        return self._announce()

    def idled(self, channel: int) -> int | str | None:
        """A channel has gone idle. The time to announce, IDLE, or None."""
        self._active[channel] = False
        return self._without()

    def ended(self, channel: int) -> int | str | None:
        """A channel has ended. The time to announce, IDLE, or None."""
        self._open[channel] = False
        return self._without()

    def _without(self) -> int | str | None:
        if not any(self._open):
            return None
        if not any(a and o for a, o in zip(self._active, self._open)):
            was_idle, self._is_idle = self._is_idle, True
            # Nothing holds time back any more, so it goes on to where the furthest had come.
            self.current = max(self.current, *(t for t, o in zip(self._times, self._open) if o))
            return None if was_idle else IDLE
        return self._announce()

    def _announce(self) -> int | None:
        waited_for = [t for t, a, o in zip(self._times, self._active, self._open) if a and o]
        time = min(waited_for, default=MIN_TIME)
        if time <= self.current:
            return None
        self.current = time
        return time
