"""The receivers of each record: the sending ends of a subtask's links, with one channel for each receiver.

Records wait in the buffer of their channel, and are pickled a few hundred at a time, while the processor still has them
in its cache. What becomes of the bytes is ``subtask/output.py``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from moorline.errors import InvalidKey, MoorlineError
from moorline.model import keys
from moorline.model.columns import ColumnBatch, ColumnKey
from moorline.model.graph import Link, Operator, Partitioning, Plan
from moorline.model.ids import SubtaskId
from moorline.model.key_groups import owner
from moorline.model.keys.identity import compares_as_encoded
from moorline.model.wire import elements
from moorline.model.wire.elements import HEAD
from moorline.protocol.flow import FIRST_WINDOW, Outflow
from moorline.protocol.lowering import relay_slot
from moorline.subtask.call_costs import most_records
from moorline.subtask.columns.sharing import Shares, UnusableKey, WaitingColumns, dealt_out, routed
from moorline.subtask.operators.base import user_code_failed

if TYPE_CHECKING:
    from moorline.subtask.output import Output

#: A frame should be about this large under load.
FRAME_BYTES = 256 << 10
#: Columns wait for others to share a frame with up to this at least.
FEW_COLUMNS_BYTES = 4 << 10
#: Records are pickled when there are so many of them.
PART_RECORDS = 256
#: How many routes are remembered before they are looked up anew.
ROUTES = 1 << 18


class Channel:
    """The way to one receiving subtask."""

    __slots__ = (
        "columns", "flow", "head", "is_feedback", "link", "most_records", "parts", "receiver", "records", "size",
        "slot", "stamps",
    )  # fmt: skip

    def __init__(
        self, plan: Plan, link: Link, sender: SubtaskId, receiver: int, attempt: int, first_window: int = FIRST_WINDOW
    ) -> None:
        stage, here = plan.slot(sender)
        self.receiver = SubtaskId(link.target, receiver)
        target_stage, target = plan.slot(self.receiver)
        self.link, self.is_feedback = link.id, link.feedback
        #: How far ahead of its receiver it is.
        self.flow = Outflow(first_window)
        # A receiver further on is reached through the stages between, by the same slots every time.
        is_direct = link.feedback or target_stage == stage + 1
        self.slot = target if is_direct else relay_slot(here, target, plan.widths[stage + 1])
        self.head = HEAD.pack(0, attempt, target_stage, target, link.id, sender.index)[1:]
        #: So many records are pickled together.
        self.most_records = most_records(plan, link.target)
        self.records: list[Any] = []
        #: The timestamps of :attr:`records`: one each, or none at all.
        self.stamps: list[int] = []
        #: Batches of columns that wait, and come after :attr:`records`: of the two only one ever waits.
        self.columns = WaitingColumns()
        #: Pickled already, and how many bytes that is.
        self.parts: list[bytes] = []
        self.size = 0


class LinkOutput:
    """One link's sending end in one subtask. It is given batches and watermarks, like an operator."""

    #: The vertex it leads to.
    target = -1
    #: Among how many receivers a batch is shared out at least, where there are so many.
    spread = 1

    def __init__(self, channels: list[Channel], output: Output) -> None:
        self.channels, self._output = channels, output
        self._is_feedback = channels[0].is_feedback

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        if isinstance(records, ColumnBatch):
            self._process_columns(records, timestamps)
            return
        # Records with and without timestamps do not share a part.
        for channel in self.channels:
            if channel.columns or (channel.records and bool(channel.stamps) != bool(timestamps)):
                self._output.pack(channel)
        self._share_out(records, timestamps)
        self._output.has_buffered = True
        output = self._output
        enough = min(PART_RECORDS, output.part_records)
        for channel in self.channels:
            if len(channel.records) >= enough or len(channel.records) * output.record_bytes >= channel.flow.frame_bytes:
                output.pack(channel)

    def _process_columns(self, records: ColumnBatch, timestamps: list[int] | None) -> None:
        shares = self._share_columns(records.batch, timestamps)
        if shares is None:
            self.process(records.rows(), timestamps)
            return
        for channel, (batch, stamps) in zip(self.channels, shares, strict=True):
            if batch is not None and batch.num_rows:
                if channel.records or not channel.columns.takes(batch, stamps):
                    self._output.pack(channel)
                channel.columns.add(batch, stamps)
                # A few rows of columns take more room than they have bytes.
                if channel.columns.nbytes >= min(FRAME_BYTES, max(channel.flow.frame_bytes, FEW_COLUMNS_BYTES)):
                    self._output.pack(channel)
        self._output.has_buffered = True

    def _share_columns(self, batch: pa.RecordBatch, timestamps: list[int] | None) -> Shares | None:
        """The part of a batch of columns for each receiver. None: it must be shared out row by row."""
        return None

    def watermark(self, time: int) -> None:
        self._mark(elements.pack_watermark(time))

    def idle(self) -> None:
        self._mark(elements.PACKED_IDLE)

    def _mark(self, packed: bytes) -> None:
        """Something that must not overtake the records before it. Time does not go back."""
        if self._is_feedback:
            return
        for channel in self.channels:
            if channel.records or channel.columns:
                self._output.pack(channel)
            channel.parts.append(packed)
            channel.size += len(packed)
        self._output.has_buffered = True

    def _share_out(self, records: list[Any], timestamps: list[int] | None) -> None:
        raise NotImplementedError


class ForwardOutput(LinkOutput):
    """To the one subtask with the same index."""

    def _share_out(self, records: list[Any], timestamps: list[int] | None) -> None:
        self.channels[0].records += records
        if timestamps:
            self.channels[0].stamps += timestamps

    def _share_columns(self, batch: pa.RecordBatch, timestamps: list[int] | None) -> Shares:
        return [(batch, timestamps)]


class BroadcastOutput(LinkOutput):
    """To every subtask."""

    def _share_columns(self, batch: pa.RecordBatch, timestamps: list[int] | None) -> Shares:
        return [(batch, timestamps)] * len(self.channels)

    def _share_out(self, records: list[Any], timestamps: list[int] | None) -> None:
        for channel in self.channels:
            channel.records += records
            channel.stamps += timestamps or ()


class RebalanceOutput(LinkOutput):
    """To all in turn, record by record: whole batches would leave some idle when batches are few."""

    _next = 0

    def __init__(self, channels: list[Channel], output: Output) -> None:
        super().__init__(channels, output)
        self.spread = len(channels)

    def _share_out(self, records: list[Any], timestamps: list[int] | None) -> None:
        count = len(self.channels)
        for number, channel in enumerate(self.channels):
            turn = slice((number - self._next) % count, None, count)
            channel.records += records[turn]
            if timestamps:
                channel.stamps += timestamps[turn]
        self._next = (self._next + len(records)) % count

    def _share_columns(self, batch: pa.RecordBatch, timestamps: list[int] | None) -> Shares:
        shares = dealt_out(batch, timestamps, len(self.channels), self._next)
        self._next = (self._next + batch.num_rows) % len(self.channels)
        return shares


class HashOutput(LinkOutput):
    """To the owner of each record's key group."""

    def __init__(
        self,
        channels: list[Channel],
        output: Output,
        key_of: Callable[[Any], Any],
        operator: Operator,
        sender: int,
        max_parallelism: int,
    ) -> None:
        super().__init__(channels, output)
        self._key_of, self._operator, self._max_parallelism = key_of, operator, max_parallelism
        self._sender = sender
        #: The key groups of a whole batch of keys, as long as keys are of one of the kinds for which there is a way.
        self._by_batch = True
        #: Whole batches are picked apart once per receiver, which pays while there are few of them.
        self._picks_apart = len(channels) <= 8
        self.spread = min(2, len(channels))
        self._appends = [channel.records.append for channel in channels]
        #: For keys of other kinds: the number of its receiver, and the ``append`` of that one's buffer.
        self._routes: dict[Any, tuple[int, Callable[[Any], None]]] = {}

    def _share_out(self, records: list[Any], timestamps: list[int] | None) -> None:
        iterator: Any = iter(records)
        try:
            if not (self._by_batch and self._route_batch(records, timestamps, iterator)):
                iterator = iter(records)
                self._route_each(iterator, timestamps)
        except MoorlineError:
            raise
        except Exception as error:  # of the user's key selector
            at = len(records) - iterator.__length_hint__() - 1
            raise user_code_failed(self._operator, self._sender, error, -1, f"{records[at]!r:.500}") from error

    def _share_columns(self, batch: pa.RecordBatch, timestamps: list[int] | None) -> Shares | None:
        if not isinstance(self._key_of, ColumnKey):
            return None
        try:
            return routed(batch, timestamps, self._key_of, len(self.channels), self._max_parallelism)
        except UnusableKey as error:
            raise InvalidKey(self._operator.uid, error.key, error.record, error.cause) from None

    def _route_each(self, records: Iterator[Any], timestamps: list[int] | None) -> None:
        key_of, routes = self._key_of, self._routes
        receivers: list[int] = []
        for record in records:
            key = key_of(record)
            try:
                receiver, append = routes[key]
            except (KeyError, TypeError):
                receiver, append = self._route(key, record)
            append(record)
            if timestamps:
                receivers.append(receiver)
        for receiver, timestamp in zip(receivers, timestamps or ()):
            self.channels[receiver].stamps.append(timestamp)

    def _route_batch(self, records: list[Any], timestamps: list[int] | None, iterator: Iterator[Any]) -> bool:
        """Route a whole batch at once if its keys are all ints or all texts. False: they are not, nothing has happened.

        No table of routes is kept for these: it would cost more than hashing as soon as there are many keys.
        """
        batch_keys = list(map(self._key_of, iterator))
        kinds = set(map(type, batch_keys))
        try:
            if kinds == {int}:
                groups = keys.int_key_groups(np.array(batch_keys, np.int64), self._max_parallelism)
            elif kinds == {str}:
                groups = keys.str_key_groups(batch_keys, self._max_parallelism)
            else:
                self._by_batch = not batch_keys  # and do not try again: keys are of one kind
                return False
        except (OverflowError, UnicodeEncodeError):
            return False
        receivers = groups * len(self.channels) // self._max_parallelism  # what owner() says, for a column
        if not self._picks_apart:
            self._append_each(records, timestamps, receivers.tolist())
            return True
        for number, channel in enumerate(self.channels):
            is_sent = (receivers == number).tolist()
            channel.records += compress(records, is_sent)
            if timestamps:
                channel.stamps += compress(timestamps, is_sent)
        return True

    def _append_each(self, records: list[Any], timestamps: list[int] | None, receivers: list[int]) -> None:
        appends = self._appends
        for record, receiver in zip(records, receivers):
            appends[receiver](record)
        for timestamp, receiver in zip(timestamps or (), receivers):
            self.channels[receiver].stamps.append(timestamp)

    def _route(self, key: Any, record: Any) -> tuple[int, Callable[[Any], None]]:
        try:
            group = keys.key_group(key, self._max_parallelism)
            receiver = owner(group, len(self.channels), self._max_parallelism)
            route = receiver, self.channels[receiver].records.append
            if len(self._routes) >= ROUTES:
                self._routes.clear()
            if compares_as_encoded(key):  # or else it could be found for a key that is equal, and another
                self._routes[key] = route
        except (keys.NotAKey, TypeError) as error:
            raise InvalidKey(self._operator.uid, f"{key!r:.200}", f"{record!r:.500}", str(error)) from None
        return route


def link_output(
    plan: Plan, link: Link, sender: SubtaskId, output: Output, attempt: int, first_window: int = FIRST_WINDOW
) -> LinkOutput:
    """The sending end of ``link`` in ``sender``."""
    target = plan.vertices[link.target]
    graph = plan.graph
    receivers = [sender.index] if link.partitioning is Partitioning.FORWARD else range(target.parallelism)
    channels = [Channel(plan, link, sender, receiver, attempt, first_window) for receiver in receivers]
    match link.partitioning:
        case Partitioning.FORWARD:
            made: LinkOutput = ForwardOutput(channels, output)
        case Partitioning.REBALANCE:
            made = RebalanceOutput(channels, output)
        case Partitioning.HASH:
            root = graph.by_uid[target.operators[0]]
            key = root.inputs[link.input].key
            made = HashOutput(channels, output, key, root, sender.index, graph.max_parallelism)
        case Partitioning.BROADCAST:
            made = BroadcastOutput(channels, output)
    made.target = link.target
    output.links.append(made)
    return made
