"""The reader of one subtask: messages of its partitions as records, one partition at a time.

A position is the offset after the last message that was handed out. The end of a partition is reported by the client as
an event of its own: it moves the position past transaction markers and aborted messages, of which nothing is ever
handed out. Which partition is next, and what was fetched of it, is in ``assigned.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient

from moorline.api.sources import Positions, SourceContext, SourceReader
from moorline.connectors.broken import BrokenRecords
from moorline.connectors.kafka.client import KafkaCluster, is_lasting
from moorline.connectors.kafka.places import Partition
from moorline.connectors.kafka.reading.assigned import AssignedPartitions, PartitionReading, make_consumer
from moorline.connectors.kafka.reading.decoding import MessageDecoder, Undecoded
from moorline.connectors.kafka.reading.enumerator import partition_of
from moorline.connectors.kafka.reading.group import GroupOffsets
from moorline.connectors.kafka.reading.lost_offsets import LostOffsets
from moorline.connectors.kafka.reading.watch import BrokerWatch
from moorline.connectors.retry import Outage
from moorline.errors import SnapshotCorrupt

#: Offsets are smaller.
_NO_OFFSET = 2**63
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class KafkaReader(SourceReader[Any]):
    """The reader of a subtask."""

    def __init__(
        self,
        cluster: KafkaCluster,
        ctx: SourceContext,
        decoder: MessageDecoder,
        broken: BrokenRecords,
        *,
        isolation: str,
        group: str | None,
        on_lost_offsets: str,
        patience: float,
    ) -> None:
        self._cluster, self._decoder, self._broken = cluster, decoder, broken
        self._lost = LostOffsets(cluster, ctx, isolation, on_lost_offsets)
        self._watch = BrokerWatch(cluster, lambda: self._admin, Outage(patience, ctx.outage), patience)
        warn = partial(ctx.notice, "group_offsets")
        self._group = None if group is None else GroupOffsets(group, lambda: self._admin, warn)
        #: While a server is away that messages cannot be decoded without.
        self._decoding = Outage(patience, ctx.outage)
        self._partitions = AssignedPartitions(make_consumer(cluster, isolation, group, self._watch.report))
        self._has_all = False
        #: The offsets of all partitions when positions were last asked for.
        self._handed_out: dict[Partition, int] = {}

    # --- splits ------------------------------------------------------------------------------------

    def add_splits(self, splits: Positions) -> None:
        added = []
        for split, position in splits.items():
            match position:
                case int(next) if 0 <= next < _NO_OFFSET:
                    end = None
                case [int(next), int(end)] if 0 <= next < _NO_OFFSET:
                    pass
                case _:
                    raise SnapshotCorrupt("the manifest", f"{position!r:.80} is not a position in a partition")
            reading = PartitionReading(str(split), partition_of(split), next, end)
            if not reading.is_done:
                added.append(reading)
        self._partitions.add(added)

    def no_more_splits(self) -> None:
        self._has_all = True

    def splits(self) -> list[int | str]:
        return [reading.split for reading in self._partitions.readings.values()]

    def positions(self) -> Positions:
        readings = self._partitions.readings
        self._handed_out = {**self._partitions.ends, **{place: reading.next for place, reading in readings.items()}}
        return {
            reading.split: reading.next if reading.end is None else [reading.next, reading.end]
            for reading in readings.values()
        }

    # --- reading -----------------------------------------------------------------------------------

    def read(self, limit: int) -> Sequence[Any] | None:
        self.timestamps = None
        if not self._decoding.is_due():
            return []
        partitions = self._partitions
        if not partitions.ready:
            self._fetch()
        while partitions.ready:
            reading = partitions.ready.popleft()
            records = self._serve(reading, limit)
            partitions.served(reading)
            self.side_outputs = self._broken.take() or None
            if records or self.side_outputs or not self._decoding.is_due():
                self.split = reading.split
                return records
        return None if self._has_all and not partitions.readings else []

    def _fetch(self) -> None:
        heard = self._partitions.fetch(self._watch.report)
        self._watch.look(self._partitions.readings, heard=heard)
        if self._group is not None:
            self._group.look()

    def _serve(self, reading: PartitionReading, limit: int) -> Sequence[Any]:
        """Up to so many records of one partition."""
        messages = reading.look(limit)
        if any(map(Message.error, messages)):
            plain = [error is None for error in map(Message.error, messages)].index(False)
            if plain == 0:
                reading.serve(1)
                self._happened(reading, messages[0])
                return []
            del messages[plain:]
        if reading.end is not None and _offset(messages[-1]) >= reading.end:
            messages = [message for message in messages if _offset(message) < reading.end]
            if not messages:
                reading.next = reading.end
                return []
        try:
            records, whole = self._decoder.decode(messages)
            self._decoding.over()
        except Undecoded as undecoded:
            # The rest is tried again, when it is time.
            self._decoding.failed(undecoded.error)
            (records, whole), messages = undecoded.decoded, messages[: undecoded.done]
        if messages:
            reading.next = _offset(messages[-1]) + 1
            reading.serve(len(messages))
        if whole:
            stamps = [stamp for _, stamp in map(Message.timestamp, whole)]
            self.timestamps = stamps if min(stamps) >= 0 else None
        return records

    def _happened(self, reading: PartitionReading, message: Message) -> None:
        """The client reports something about a partition."""
        error = message.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            reading.next = max(reading.next, _offset(message))
        elif error.code() in _GONE:
            self._go_on_elsewhere(reading)
        elif is_lasting(error) and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise self._cluster.failure(f"read {reading.split} of", error)
        else:
            self._watch.report(error)

    def _go_on_elsewhere(self, reading: PartitionReading) -> None:
        """The offset that is wanted is not there: raise, or go on with what is."""
        try:
            reading.next = self._lost.go_on(reading.place, reading.split, reading.next)
        except KafkaException as error:
            self._watch.report(error.args[0])
        self._partitions.begin_anew(reading)

    def records_behind(self) -> dict[str, int]:
        return self._partitions.records_behind()

    # --- the rest ----------------------------------------------------------------------------------

    def notify_checkpoint_complete(self, checkpoint: int) -> None:
        if self._group is not None and self._handed_out:
            self._group.show(self._handed_out)
            self._handed_out = {}

    def close(self) -> None:
        if self._group is not None:
            self._group.close()
        self._partitions.close()

    @cached_property
    def _admin(self) -> AdminClient:
        """A client for questions beside the reading, made when there is one to ask."""
        return AdminClient(self._cluster.settings({}))


def _offset(message: Message) -> int:
    offset: int = message.offset()
    return offset
