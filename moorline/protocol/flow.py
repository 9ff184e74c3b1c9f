"""The bound of what is on its way from one subtask to another: what the receiver needs a stated time for.

Between two subtasks lie Spark's buffers, which hold a number of bytes: of small records and a slow receiver that is
minutes of work, and a barrier has to wait behind all of it. So a receiver says how much it has taken off the exchange,
and how much more it can do with, going by its own speed; and a sender that is so far ahead makes no more until it hears
that it may.

    sender      sent ------------------------->  taken     receiver
                 |   at most ``window`` apart       |
                 +<------ taken, window ------------+      by way of the driver, some ten times a second under load

    window      what the receiver processes of this sender's in a quarter of a second, measured while it is not idle
    frames      a quarter of that, so that neither a frame nor a word about it is long in coming

Some receivers take as long for a little as for much: a sink that makes one request of all that it is given, or a
function of whole batches. By its speed alone such a receiver would get less and less: smaller frames make it slower,
and its slower speed makes them smaller. So the windows of one together have a least size, whatever its speed.

A receiver with time to spare is never what limits a sender: its speed is measured by the time it works, not by what it
happens to be sent, and Spark's own buffers fill before its window does. Frames that are kept aside for an alignment are
taken: what waits for a barrier must not keep the barrier away.

A sender that hears nothing goes on a little after PATIENCE_MS, then after twice as long, and so on: a driver that does
not get round to it makes a job slower, and never stops it. Nothing is lost or sent twice by any of this. It only says
when.

A word that is lost is missed: the receiver counts with what it has said. A sender that starts late, after a kill, has
no line to the driver at first. What has sent something has one, so what was said before is said again then.

This file performs no I/O and reads no clock. ``subtask/inputs.py`` and ``subtask/output.py`` drive it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

#: What is on its way to a subtask should take it about so long, unless another time is given.
TARGET_MS = 250
#: Before anything is known of a receiver, so many bytes may be on their way to it from each sender.
FIRST_WINDOW = 8 << 10
#: The least that may be on its way to a receiver that may take as long for little as for much.
LEAST_FOR_CALLS = 256 << 10
#: The same where there are only steps on columns: some milliseconds for each batch, and little for a row.
LEAST_FOR_COLUMNS = 1 << 20
#: More than Spark's buffers hold is never of use.
MOST_WINDOW = 64 << 20
#: A speed is measured over at least so much work; and after so much work senders hear of it, if not before.
MEASURE_MS = 20
SAY_MS = 75
#: The speed over so much work counts as much as all that was before.
MEMORY_MS = 100
#: A sender that must not send and hears nothing goes on a little after so long.
PATIENCE_MS = 1_000


class Grant(NamedTuple):
    """A word to a sender: so many bytes of its channel were taken so far, and so many more may be on their way."""

    channel: int
    taken: int
    window: int


@dataclass(slots=True)
class _Inflow:
    """One channel of a receiver, in bytes."""

    window: int
    taken: int = 0
    #: What had been taken when the sender was last told.
    told: int = 0
    #: Was the last word to a sender that had sent nothing yet, and so may not have been there to hear it?
    is_doubtful: bool = False
    #: What was processed since the last measurement; and over time, the older the less it counts.
    processed: int = 0
    lately: float = 0.0


class Receiving:
    """The receiving side of one subtask: what it takes and processes, for those who send to it.

    >>> receiving = Receiving(channels=1, first_window=4_000)
    >>> receiving.took(0, 1_000, worked_ms=0)
    [Grant(channel=0, taken=1000, window=4000)]
    >>> receiving.processed(0, 1_000)
    >>> receiving.took(0, 1_000, worked_ms=100)  # it did 10 bytes per millisecond
    [Grant(channel=0, taken=2000, window=2500)]
    """

    def __init__(
        self, channels: int, first_window: int = FIRST_WINDOW, target_ms: int = TARGET_MS, least: int = 1
    ) -> None:
        self._target_ms, self._least = target_ms, least // max(channels, 1)
        self._inflows = [_Inflow(first_window) for _ in range(channels)]
        self._measured_ms = 0.0
        #: Bytes per millisecond of work, of all channels.
        self._speed = 0.0
        self._said_ms = 0.0

    def took(self, channel: int, size: int, worked_ms: float) -> list[Grant]:
        """A frame was taken off the exchange: to be processed, or to be kept for later. Returns what to tell senders.

        ``worked_ms``: how long the subtask has not been idle, since it started.
        """
        inflow = self._inflows[channel]
        inflow.taken += size
        found = []
        if inflow.taken - inflow.told >= inflow.window / 4 or worked_ms - self._said_ms >= SAY_MS:
            found = self._grants(worked_ms)
        if inflow.is_doubtful and all(grant.channel != channel for grant in found):
            found.append(Grant(channel, inflow.told, inflow.window))
        inflow.is_doubtful = False
        return found

    def processed(self, channel: int, size: int) -> None:
        """So much was processed of what was taken."""
        self._inflows[channel].processed += size

    def _grants(self, worked_ms: float) -> list[Grant]:
        self._said_ms = worked_ms
        has_processed = any(inflow.processed for inflow in self._inflows)
        self._measure(worked_ms)
        lately = sum(inflow.lately for inflow in self._inflows)
        found = []
        for channel, inflow in enumerate(self._inflows):
            # What was done too quickly to be measured was done quickly.
            window = 2 * inflow.window if has_processed else inflow.window
            if self._speed:
                # Half by what it sends, half as much as any: one that had little to send may have more the next moment.
                share = 0.5 * inflow.lately / lately + 0.5 / len(self._inflows)
                window = int(self._target_ms * self._speed * share)
            window = max(1, self._least, min(window, MOST_WINDOW))
            is_news = not 0.8 * inflow.window < window < 1.25 * inflow.window
            if is_news or inflow.taken - inflow.told >= inflow.window / 8:
                inflow.told, inflow.window = inflow.taken, window
                inflow.is_doubtful = not inflow.taken
                found.append(Grant(channel, inflow.taken, window))
        return found

    def _measure(self, worked_ms: float) -> None:
        spent = worked_ms - self._measured_ms
        if spent < MEASURE_MS or not any(inflow.processed for inflow in self._inflows):
            return
        speed = sum(inflow.processed for inflow in self._inflows) / spent
        weight = spent / (spent + MEMORY_MS) if self._speed else 1.0
        self._speed += weight * (speed - self._speed)
        for inflow in self._inflows:
            # Slowly: of two senders that send as much as each other, often only one has its turn between two looks.
            inflow.lately = 0.95 * inflow.lately + inflow.processed
            inflow.processed = 0
        self._measured_ms = worked_ms


@dataclass(slots=True)
class Outflow:
    """The way to one receiver, in bytes, as its sender knows it.

    >>> outflow = Outflow(window=1_000)
    >>> outflow.room(waiting=200); outflow.sent = 900; outflow.room(waiting=200)
    800
    -100
    >>> outflow.granted(taken=500, window=2_000); outflow.room(), outflow.in_flight, outflow.frame_bytes
    (1600, 400, 500)
    """

    window: int = FIRST_WINDOW
    sent: int = 0
    taken: int = 0
    #: How much it may send although it has heard nothing.
    ventured: int = 0

    @property
    def in_flight(self) -> int:
        return self.sent - self.taken

    @property
    def frame_bytes(self) -> int:
        """The size of a frame at most."""
        return self.window // 4

    def room(self, waiting: int = 0) -> int:
        """The bytes that may still be made for this receiver. ``waiting``: what is made already and not sent."""
        return self.taken + self.window + self.ventured - self.sent - waiting

    def granted(self, taken: int, window: int) -> None:
        self.taken, self.window, self.ventured = taken, window, 0


@dataclass(slots=True)
class Sending:
    """Whether one subtask may make more to send.

    >>> outflow = Outflow(window=1_000, sent=1_000)
    >>> sending = Sending([outflow])
    >>> sending.is_held([0], now_ms=0), sending.is_held([0], now_ms=999), sending.is_held([0], now_ms=1_000)
    (True, True, False)
    >>> outflow.sent = 1_250
    >>> sending.is_held([0], now_ms=1_001), sending.is_held([0], now_ms=2_999), sending.is_held([0], now_ms=3_001)
    (True, True, False)
    """

    outflows: list[Outflow] = field(default_factory=list)
    _held_since_ms: float | None = None
    #: How often it went on without having heard anything.
    _ventures: int = 0

    def is_held(self, waiting: Sequence[int], now_ms: float) -> bool:
        """Must it stop making more? ``waiting``: for each receiver, what is made already and not sent."""
        full = [outflow for outflow, size in zip(self.outflows, waiting, strict=True) if outflow.room(size) <= 0]
        if not full:
            self._held_since_ms = None
            return False
        if self._held_since_ms is None:
            self._held_since_ms = now_ms
        if now_ms - self._held_since_ms < PATIENCE_MS << min(self._ventures, 6):
            return True
        for outflow, size in zip(self.outflows, waiting):
            if (room := outflow.room(size)) <= 0:
                outflow.ventured += max(1, outflow.frame_bytes) - room
        self._held_since_ms, self._ventures = None, self._ventures + 1
        return False

    def heard(self) -> None:
        """A receiver has said something."""
        self._ventures = 0
