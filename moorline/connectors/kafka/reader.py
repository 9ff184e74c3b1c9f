"""The partitions of one subtask: fetched in bulk, handed out one partition at a time.

librdkafka fetches ahead, in threads of its own, up to a bound in bytes. What it hands over is mixed; it is sorted by
partition and served in turn, and nothing more is asked for before it is served. So a partition with much in it does not
hold up the others, and memory is bounded by one bulk beside the client's own queue.

A position is the offset after the last message that was handed out. The end of a partition is reported by the client as
an event of its own: it moves the position past transaction markers and aborted messages, of which nothing is ever
handed out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cached_property, partial
from itertools import groupby
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from moorline.api.sources import Positions, SourceContext, SourceReader
from moorline.connectors.broken import BrokenRecords
from moorline.connectors.kafka.client import KafkaCluster, is_lasting
from moorline.connectors.kafka.decoding import MessageDecoder, Undecoded
from moorline.connectors.kafka.enumerator import partition_of
from moorline.connectors.kafka.group import GroupOffsets
from moorline.connectors.kafka.places import Partition
from moorline.connectors.kafka.topics import LEVELS, known_offset
from moorline.connectors.kafka.watch import BrokerWatch
from moorline.connectors.retry import Outage
from moorline.errors import OffsetsLost, SnapshotCorrupt

#: Messages that are taken from the client at a time, and how large they may be together.
_MOST_MESSAGES, _FIRST_MESSAGES, _BULK_BYTES = 8192, 512, 8 << 20
#: How long the question for the offsets of a partition may take, if those that are wanted are gone.
_ANSWER_SECONDS = 5.0
#: Offsets are smaller.
_NO_OFFSET = 2**63
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)

#: What messages are counted as that were gone before they were read.
LOST = "lost_records"

#: Options of the consumer that a user may set otherwise.
TUNED = {
    "client.id": "moorline",
    # The client's own queue, of all partitions together. After it was full it should not pause for a second.
    "queued.max.messages.kbytes": 32 << 10,
    "fetch.queue.backoff.ms": 20,
    "reconnect.backoff.max.ms": 2_000,
    "socket.keepalive.enable": True,
    # A topic or a leader that the client did not find at first is looked for again after so long, and not after five
    # minutes, as it would by itself.
    "topic.metadata.refresh.interval.ms": 5_000,
    "check.crcs": True,
    # A job that is held up by a slow sink does not read, for as long as that takes.
    "max.poll.interval.ms": 86_400_000,
}


class _PartitionReading:
    """One partition: where it is, where it ends, and what was fetched of it and not served."""

    __slots__ = ("end", "fetched", "next", "place", "served", "split")

    def __init__(self, split: str, place: Partition, next: int, end: int | None) -> None:
        self.split, self.place, self.next, self.end = split, place, next, end
        self.fetched: list[Message] = []
        #: How many of these were served.
        self.served = 0

    @property
    def is_done(self) -> bool:
        return self.end is not None and self.next >= self.end

    def look(self, limit: int) -> list[Message]:
        """Up to so many messages; not yet served."""
        return self.fetched[self.served : self.served + limit]

    def serve(self, count: int) -> None:
        """So many messages are dealt with."""
        self.served += count
        if self.served == len(self.fetched):
            self.fetched, self.served = [], 0


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
        self._cluster, self._ctx, self._on_lost_offsets = cluster, ctx, on_lost_offsets
        self._decoder, self._broken, self._isolation = decoder, broken, isolation
        self._watch = BrokerWatch(cluster, lambda: self._admin, Outage(patience, ctx.outage), patience)
        warn = partial(ctx.notice, "group_offsets")
        self._group = None if group is None else GroupOffsets(group, lambda: self._admin, warn)
        #: While a server is away that messages cannot be decoded without.
        self._decoding = Outage(patience, ctx.outage)
        self._partitions: dict[Partition, _PartitionReading] = {}
        #: Those of which something was fetched and not served, in turn.
        self._ready: deque[_PartitionReading] = deque()
        self._bulk = _FIRST_MESSAGES
        self._has_all = False
        #: Offsets of partitions that are read to their end, and those of all when positions were last asked for.
        self._ends: dict[Partition, int] = {}
        self._handed_out: dict[Partition, int] = {}
        self._consumer = make_consumer(cluster, isolation, group, self._watch.report)

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
            reading = _PartitionReading(str(split), partition_of(split), next, end)
            if not reading.is_done:
                self._partitions[reading.place] = reading
                added.append(TopicPartition(*reading.place, next))
        if added:
            self._consumer.incremental_assign(added)

    def no_more_splits(self) -> None:
        self._has_all = True

    def splits(self) -> list[int | str]:
        return [reading.split for reading in self._partitions.values()]

    def positions(self) -> Positions:
        self._handed_out = {**self._ends, **{place: reading.next for place, reading in self._partitions.items()}}
        return {
            reading.split: reading.next if reading.end is None else [reading.next, reading.end]
            for reading in self._partitions.values()
        }

    # --- reading -----------------------------------------------------------------------------------

    def read(self, limit: int) -> list[Any] | None:
        self.timestamps = None
        if not self._decoding.is_due():
            return []
        if not self._ready:
            self._fetch()
        while self._ready:
            reading = self._ready.popleft()
            records = self._serve(reading, limit)
            if reading.is_done:
                self._finish(reading)
            elif reading.fetched:
                self._ready.append(reading)
            self.side_outputs = self._broken.take() or None
            if records or self.side_outputs or not self._decoding.is_due():
                self.split = reading.split
                return records
        return None if self._has_all and not self._partitions else []

    def _fetch(self) -> None:
        """Take what the client has, and sort it by partition."""
        messages = self._consumer.consume(self._bulk, 0)
        self._watch.look(self._partitions, heard=bool(messages))
        if self._group is not None:
            self._group.look()
        if not messages:
            return
        size = sum(map(len, messages)) // len(messages) + 1
        self._bulk = max(1, min(_MOST_MESSAGES, _BULK_BYTES // size))
        for topic, of_topic in groupby(messages, Message.topic):
            for number, run in groupby(of_topic, Message.partition):
                reading = self._partitions.get((topic, number))
                if reading is not None:
                    if not reading.fetched:
                        self._ready.append(reading)
                    reading.fetched.extend(run)
                elif topic is None:
                    for message in run:
                        self._watch.report(message.error())

    def _serve(self, reading: _PartitionReading, limit: int) -> list[Any]:
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

    def _happened(self, reading: _PartitionReading, message: Message) -> None:
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

    def _finish(self, reading: _PartitionReading) -> None:
        del self._partitions[reading.place]
        self._ends[reading.place] = reading.next
        self._consumer.incremental_unassign([TopicPartition(*reading.place)])

    def _go_on_elsewhere(self, reading: _PartitionReading) -> None:
        """The offset that is wanted is not there: raise, or go on with what is."""
        wanted = reading.next
        try:
            first, end = self._bounds(TopicPartition(*reading.place))
        except KafkaException as error:
            self._watch.report(error.args[0])
            first = end = wanted
        if not first <= wanted <= end:
            lost = OffsetsLost(f"{self._cluster.address}: {reading.split}", wanted, first, end)
            if self._on_lost_offsets == "fail":
                raise lost
            reading.next = first if self._on_lost_offsets == "earliest" else end
            self._ctx.counters[LOST] = self._ctx.counters.get(LOST, 0) + max(0, reading.next - wanted)
            self._ctx.notice(LOST, f"{lost} It goes on with offset {reading.next}.")
        reading.fetched, reading.served = [], 0
        self._consumer.incremental_unassign([TopicPartition(*reading.place)])
        self._consumer.incremental_assign([TopicPartition(*reading.place, reading.next)])

    def _bounds(self, place: TopicPartition) -> tuple[int, int]:
        """The first offset of a partition, and the one behind the last that may be read."""
        # A client of its own: an older one may ask with an epoch from before the broker was started again.
        admin, level = AdminClient(self._cluster.settings({})), LEVELS[self._isolation]
        both = [
            admin.list_offsets({place: spec}, isolation_level=level, request_timeout=_ANSWER_SECONDS)[place]
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        ]
        first, end = (known_offset(answer.result().offset) for answer in both)
        return first, end

    # --- the rest ----------------------------------------------------------------------------------

    def notify_checkpoint_complete(self, checkpoint: int) -> None:
        if self._group is not None and self._handed_out:
            self._group.show(self._handed_out)
            self._handed_out = {}

    def close(self) -> None:
        if self._group is not None:
            self._group.close()
        self._consumer.close()

    @cached_property
    def _admin(self) -> AdminClient:
        """A client for questions beside the reading, made when there is one to ask."""
        return AdminClient(self._cluster.settings({}))


def make_consumer(
    cluster: KafkaCluster,
    isolation: str,
    group: str | None,
    on_error: Callable[[KafkaError], None] = lambda error: None,
) -> Consumer:
    """A consumer that is assigned partitions by hand. Raises InvalidArgument for options that are none."""
    own = {
        # The client wants a group also where none is used.
        "group.id": group or "moorline",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "error_cb": on_error,
    }
    try:
        return Consumer({**TUNED, **cluster.settings(own)})
    except (KafkaException, ValueError, TypeError) as error:
        raise cluster.wrong_options(error) from None


def _offset(message: Message) -> int:
    offset: int = message.offset()
    return offset
