"""The partitions of one subtask: fetched in bulk, and served in turn.

librdkafka fetches ahead, in threads of its own, up to a bound in bytes. What it hands over is mixed; it is sorted by
partition and served in turn, and nothing more is asked for before it is served. So a partition with much in it does not
hold up the others, and memory is bounded by one bulk beside the client's own queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import groupby

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from moorline.connectors.kafka.client import KafkaCluster
from moorline.connectors.kafka.places import Partition

#: Messages that are taken from the client at a time, and how large they may be together.
_MOST_MESSAGES, _FIRST_MESSAGES, _BULK_BYTES = 8192, 512, 8 << 20

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


class PartitionReading:
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


class AssignedPartitions:
    """The partitions that a consumer was given and has not read to their end."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.readings: dict[Partition, PartitionReading] = {}
        #: Those of which something was fetched and not served, in turn.
        self.ready: deque[PartitionReading] = deque()
        #: Where those stand that are read to their end.
        self.ends: dict[Partition, int] = {}
        self._bulk = _FIRST_MESSAGES

    def add(self, readings: Iterable[PartitionReading]) -> None:
        """Begin to read partitions, where they say."""
        added = {reading.place: reading for reading in readings}
        self.readings.update(added)
        if added:
            self._consumer.incremental_assign([TopicPartition(*place, one.next) for place, one in added.items()])

    def fetch(self, on_error: Callable[[KafkaError | None], None]) -> bool:
        """Take what the client has, and sort it by partition. Was there anything?"""
        messages = self._consumer.consume(self._bulk, 0)
        if not messages:
            return False
        size = sum(map(len, messages)) // len(messages) + 1
        self._bulk = max(1, min(_MOST_MESSAGES, _BULK_BYTES // size))
        for topic, of_topic in groupby(messages, Message.topic):
            for number, run in groupby(of_topic, Message.partition):
                reading = self.readings.get((topic, number))
                if reading is not None:
                    if not reading.fetched:
                        self.ready.append(reading)
                    reading.fetched.extend(run)
                elif topic is None:
                    for message in run:
                        on_error(message.error())
        return True

    def served(self, reading: PartitionReading) -> None:
        """It had its turn: it is done, or gets in line again if there is more of it."""
        if reading.is_done:
            del self.readings[reading.place]
            self.ends[reading.place] = reading.next
            self._consumer.incremental_unassign([TopicPartition(*reading.place)])
        elif reading.fetched:
            self.ready.append(reading)

    def begin_anew(self, reading: PartitionReading) -> None:
        """Fetch a partition from its position on, whatever was fetched of it."""
        reading.fetched, reading.served = [], 0
        self._consumer.incremental_unassign([TopicPartition(*reading.place)])
        self._consumer.incremental_assign([TopicPartition(*reading.place, reading.next)])

    def records_behind(self) -> dict[str, int]:
        """Offsets of each partition that were not handed out, by the end that the client knows: nobody is asked."""
        behind = {}
        for reading in list(self.readings.values()):
            _, end = self._consumer.get_watermark_offsets(TopicPartition(*reading.place), cached=True)
            if end >= 0:
                behind[reading.split] = max(0, end - reading.next)
        return behind

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


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
