"""From records to frames on their way: packing, flushing, and how far ahead of its receivers a subtask may be.

Records wait in one buffer per receiving subtask (``subtask/links.py``). A few hundred of them are pickled at a time,
and wait as bytes until there are enough for a frame, or until it is time to flush (``protocol/flushing.py``). The loop
takes the rows (slot, frame) that are ready and yields them to Spark.

Spark hands a row to the next worker only when another row follows it, so a row with an empty frame, a *chaser*,
follows the last frame to each slot, unless more frames are coming anyway.

What goes back to the head of a loop is batched and flushed in the same way, but taken by :meth:`Output.take_feedback`:
it does not go through Spark's exchange.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from moorline.errors import RecordTooLarge
from moorline.model.graph import Link, Plan
from moorline.model.ids import SubtaskId
from moorline.model.wire import elements
from moorline.model.wire.elements import BATCH, END, MARK, Barrier
from moorline.protocol.flow import FIRST_WINDOW, Sending
from moorline.protocol.flushing import Flushing
from moorline.subtask.call_costs import MANY_RECORDS
from moorline.subtask.links import FRAME_BYTES, Channel, LinkOutput, link_output
from moorline.subtask.operators.base import Target

#: Records are pickled in parts of about this: small enough for the processor's cache, large enough for pickle to get
#: going. How many of them at most is a matter of their receiver.
PART_BYTES = 64 << 10
#: No record is larger than this on its way: it is held in memory several times, by Spark too.
MOST_BYTES = 1 << 30

Rows = list[tuple[int, bytes]]


class Linked(Protocol):
    """The end of a chain of operators."""

    def link_to(self, plan: Plan, link: Link, sender: SubtaskId) -> Target:
        """The receiver of the records that go over ``link``."""
        ...


class Output:
    """Everything a subtask sends."""

    def __init__(
        self, attempt: int, flush_ms: int, now_ms: Callable[[], float], first_window: int = FIRST_WINDOW
    ) -> None:
        self._first_window = first_window
        self._sending = Sending()
        #: The channels over Spark's exchange, in the order of what they send.
        self._channels: list[Channel] = []
        self._attempt, self.flush_ms, self._now_ms = attempt, flush_ms, now_ms
        self._flushing = Flushing(flush_ms)
        self.links: list[LinkOutput] = []
        self.records_out = self.bytes_out = 0
        #: How many records make a part, going by the last one; the first is a guess.
        self.part_records = 8
        #: About how many bytes a record takes, likewise.
        self.record_bytes = 64.0
        self.has_buffered = False
        self._rows: Rows = []
        #: Frames that go back round a loop, and to whom.
        self._feedback: list[tuple[SubtaskId, bytes]] = []
        self._unchased: set[int] = set()

    def link_to(self, plan: Plan, link: Link, sender: SubtaskId) -> Target:
        made = link_output(plan, link, sender, self, self._attempt, self._first_window)
        if not link.feedback:
            self._channels += made.channels
            self._sending.outflows += [channel.flow for channel in made.channels]
        return made

    # --- how much may be made --------------------------------------------------------------------

    def granted(self, link: int, receiver: int, taken: int, window: int) -> None:
        """A receiver has said how much it has taken, and how much it can do with."""
        for channel in self._channels:
            if channel.link == link and channel.receiver.index == receiver:
                channel.flow.granted(taken, window)
        self._sending.heard()

    def is_held(self) -> bool:
        """Is so much on its way to a receiver that no more should be made for now?"""
        return self._sending.is_held([self._waiting(channel) for channel in self._channels], self._now_ms())

    def room_records(self) -> int | None:
        """About how many records may be made now; None: any number, there is nobody to send them to."""
        rooms = [
            # Records are dealt out, though not always evenly; those of a broadcast go to each.
            min(channel.flow.room(self._waiting(channel)) for channel in link.channels) * link.spread
            for link in self.links
            if not link.channels[0].is_feedback
        ]
        return max(1, int(min(rooms) / self.record_bytes)) if rooms else None

    def in_flight_bytes(self) -> int:
        """The bytes that are on their way to others."""
        return sum(channel.flow.in_flight for channel in self._channels)

    def _waiting(self, channel: Channel) -> int:
        return channel.size + channel.columns.nbytes + int(len(channel.records) * self.record_bytes)

    # --- frames ----------------------------------------------------------------------------------

    def pack(self, channel: Channel) -> None:
        """Pickle what waits for one receiver, and send what is enough for a frame."""
        records, stamps = channel.records, channel.stamps
        self.records_out += len(records) + channel.columns.rows
        if channel.columns:
            rows, part = channel.columns.rows, channel.columns.pack()
            self.record_bytes = len(part) / rows
            self.bytes_out += len(part)
            channel.parts.append(part)
            channel.size += len(part)
            if channel.size >= FRAME_BYTES or channel.size >= channel.flow.frame_bytes:
                self.send(channel)
        while records:
            # In parts of the same size: a small one behind large ones would cost its receiver as much as they do.
            most = min(self.part_records, channel.most_records)
            count = -(-len(records) // -(-len(records) // most))
            part = elements.pack_records(records[:count] if count < len(records) else records, stamps[:count])
            del records[:count], stamps[:count]  # in place: the routes hold on to these lists
            if len(part) > MOST_BYTES:
                raise RecordTooLarge(len(part), MOST_BYTES)
            channel.parts.append(part)
            channel.size += len(part)
            self.bytes_out += len(part)
            # Small records go by the hundred or thousand, records of a megabyte one by one.
            self.part_records = max(1, min(PART_BYTES * count // len(part), MANY_RECORDS))
            self.record_bytes = len(part) / count
            if channel.size >= FRAME_BYTES or channel.size >= channel.flow.frame_bytes:
                self.send(channel)

    def send(self, channel: Channel) -> None:
        """Make a frame of what is packed for one receiver."""
        frame = b"".join((bytes((BATCH,)), channel.head, *channel.parts))
        channel.flow.sent += len(frame)
        self._add(channel, frame)
        channel.parts.clear()
        channel.size = 0

    def send_all(self) -> None:
        """Make frames of everything that waits."""
        for link in self.links:
            for channel in link.channels:
                if channel.records or channel.columns:
                    self.pack(channel)
                if channel.parts:
                    self.send(channel)
        self.has_buffered = False

    def broadcast(self, barrier: Barrier) -> None:
        """Everything so far, then the barrier, on every channel."""
        self.send_all()
        for link in self.links:
            for channel in link.channels:
                head = bytes((elements.BARRIER,)) + channel.head
                self._add(channel, elements.pack_barrier(head, barrier))

    def mark(self, targets: frozenset[int], number: int, clean: bool) -> None:
        """Everything so far, then a mark, on every channel to these vertices."""
        self.send_all()
        for link in self.links:
            for channel in link.channels if link.target in targets else ():
                self._add(channel, elements.pack_mark(bytes((MARK,)) + channel.head, number, clean))

    def end(self) -> None:
        """Everything so far, then the end, on every channel."""
        self.send_all()
        for link in self.links:
            for channel in link.channels:
                self._add(channel, bytes((END,)) + channel.head)

    def _add(self, channel: Channel, frame: bytes) -> None:
        if channel.is_feedback:
            self._feedback.append((channel.receiver, frame))
        else:
            self._rows.append((channel.slot, frame))

    def pass_on(self, slot: int, frame: bytes) -> None:
        """A frame for a later stage."""
        self._rows.append((slot, frame))

    def take(self, is_idle: bool) -> Rows:
        """The rows to yield now. ``is_idle``: nothing else is about to be sent."""
        if is_idle:
            self._flushing.idle_ms = self._now_ms()
        if self.has_buffered or self._unchased or self._rows:
            now = self._now_ms()
            if self._flushing.is_due(now):
                if self.has_buffered:
                    self.send_all()
                self._flushing.flushed_ms = now
                rows, self._rows = self._rows, []
                chased = self._unchased.union([slot for slot, _ in rows])
                self._unchased.clear()
                return rows + [(slot, b"") for slot in chased]
        if self._rows:
            rows, self._rows = self._rows, []
            self._unchased.update([slot for slot, _ in rows])
            return rows
        return []

    def take_feedback(self) -> list[tuple[SubtaskId, bytes]]:
        """The frames that go back now: to be taken after :meth:`take`, which flushes."""
        frames, self._feedback = self._feedback, []
        return frames

    def take_rest(self) -> Rows:
        """All rows there are: nothing follows them, and the end of the stream carries them over."""
        self.send_all()
        rows, self._rows = self._rows, []
        return rows

    def wait_ms(self) -> float | None:
        """The time until :meth:`take` has something to do; None: it has nothing."""
        if self.has_buffered or self._unchased or self._rows:
            return self._flushing.wait_ms(self._now_ms())
        return None
