"""The progress of the commits of a Kafka sink: records of a compacted topic, written in the transactions of the data.

    key      [job, uid of the sink, lineage, slot] as JSON
    value    the checkpoint whose messages were committed last, as JSON

A transaction that writes the messages of a checkpoint also writes its marker, so either both are there or neither.
Compaction keeps the newest marker of each slot for ever. Offsets of a group would do as well for a week: then the
broker forgets them, and a job that is restored from an older savepoint would write everything twice.
"""

from __future__ import annotations

import logging
import time
import zlib
from typing import Literal

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from moorline.connectors import retry
from moorline.connectors.kafka.client import KafkaCluster, is_transient, kafka_error
from moorline.connectors.kafka.topics import known_offset, topic_id
from moorline.errors import InvalidArgument, StorageError

log = logging.getLogger("moorline")

#: Slots share partitions. One that is being written to keeps readers of the others waiting for some milliseconds.
PARTITIONS = 16
SETTINGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "segment.ms": "3600000"}
#: For a reader of markers while another slot has a transaction open.
READ_SECONDS = 30.0


class Marker(msgspec.Struct, frozen=True):
    """The slot that a marker is about."""

    job: str
    uid: str
    lineage: str
    slot: int

    def key(self) -> bytes:
        """Its key in the topic."""
        return msgspec.json.encode([self.job, self.uid, self.lineage, self.slot])


class Markers:
    """The topic with the markers of one cluster."""

    def __init__(self, cluster: KafkaCluster, topic: str, on_missing: Literal["fail", "ignore"] = "fail") -> None:
        self._cluster, self.topic, self.on_missing = cluster, topic, on_missing
        #: Of the topic, once it was looked at.
        self.id = ""
        self._partitions = 0

    def ensure(self, seconds: float) -> None:
        """Make the topic, if there is none. Raises InvalidArgument if it is one that forgets."""
        if self.topic not in self._cluster.metadata(seconds).topics:
            self._create(seconds)
        try:
            # Just made, it may be unknown for a moment.
            retry.call(lambda: self._look(seconds), _may_come, seconds)
        except KafkaException as error:
            raise self._cluster.failure(f"look at the topic {self.topic!r} for markers in", error) from None

    def _look(self, seconds: float) -> None:
        admin = AdminClient(self._cluster.settings({}))
        self.id = self.identity(admin)
        policy = self._policy(admin, seconds)
        if policy is None:
            log.warning(
                "%s: the settings of topic %r are not told. Its cleanup.policy has to be compact, or markers of "
                "commits are forgotten and messages written twice",
                *(self._cluster.address, self.topic),
            )
        elif policy != "compact":
            advice = (
                f"Its cleanup.policy is {policy}: {self._cluster.address} would forget markers, and messages of a "
                "savepoint that is older would be written twice. Set cleanup.policy=compact, or name another topic."
            )
            raise InvalidArgument("marker_topic", self.topic, advice)

    def _policy(self, admin: AdminClient, seconds: float) -> str | None:
        """The fate of old markers; None if the cluster does not say, or not to us."""
        resource = ConfigResource(ResourceType.TOPIC, self.topic)
        try:
            found = admin.describe_configs([resource], request_timeout=seconds)[resource].result(seconds)
        except KafkaException as error:
            if _may_come(error):
                raise
            return None
        entry = found.get("cleanup.policy")
        return None if entry is None else str(entry.value)

    def identity(self, admin: AdminClient | None = None) -> str:
        """The id of the topic, which another one of its name does not have; empty if the cluster gives none."""
        admin = admin or AdminClient(self._cluster.settings({}))
        answers = admin.describe_topics(TopicCollection([self.topic]), request_timeout=READ_SECONDS)
        return topic_id(answers[self.topic].result(READ_SECONDS))

    def _create(self, seconds: float) -> None:
        admin = AdminClient(self._cluster.settings({}))
        new = NewTopic(self.topic, PARTITIONS, -1, config=SETTINGS)

        def make() -> None:
            try:
                admin.create_topics([new], operation_timeout=seconds)[self.topic].result(seconds)
            except KafkaException as error:
                found = kafka_error(error)
                if found is None or found.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

        try:
            # Also while too few brokers are there for its replicas.
            retry.call(make, is_transient, seconds)
        except KafkaException as error:
            raise self._cluster.failure(f"make the topic {self.topic!r} for markers in", error) from None

    def partition(self, marker: Marker) -> int:
        """The partition that a marker is in."""
        if not self._partitions:
            found = self._cluster.metadata(READ_SECONDS, self.topic).topics[self.topic]
            if not found.partitions:
                cause = f"the topic {self.topic!r} with the markers of its commits is gone"
                raise StorageError(self._cluster.address, "commit to", cause, can_pass=False)
            self._partitions = len(found.partitions)
        return zlib.crc32(marker.key()) % self._partitions

    def read(self, marker: Marker) -> int:
        """The checkpoint that was committed last for a slot; 0: none.

        Call it when no transaction of the slot can be open any more. Those of other slots are waited for.
        """
        own = {"group.id": "moorline-markers", "enable.auto.commit": False, "isolation.level": "read_committed"}
        # The end is told by an answer without messages, which a broker holds back for half a second unless asked.
        also = {"enable.partition.eof": True, "topic.metadata.refresh.interval.ms": 2_000, "fetch.wait.max.ms": 10}
        consumer = Consumer(self._cluster.settings({**own, **also}))
        try:
            return self._read(consumer, marker)
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, marker: Marker) -> int:
        place = TopicPartition(self.topic, self.partition(marker), OFFSET_BEGINNING)
        end = self._end(place)
        consumer.assign([place])
        key, checkpoint, position = marker.key(), 0, 0
        deadline = time.monotonic() + READ_SECONDS
        while position < end:
            for message in consumer.consume(1000, 0.1):
                error = message.error()
                if error is None:
                    position = (message.offset() or 0) + 1
                    if message.key() == key:
                        checkpoint = self._value(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    # Of what may be read: an open transaction lies behind it, or what ends one.
                    position = max(position, message.offset() or 0)
                else:
                    raise KafkaException(error)
            if time.monotonic() > deadline:
                cause = f"a transaction that does not end keeps markers in {self.topic!r} from being read"
                raise StorageError(self._cluster.address, "commit to", cause, can_pass=True)
        return checkpoint

    def _end(self, place: TopicPartition) -> int:
        """Behind the last message of a partition, whatever becomes of its transaction.

        A reader of committed messages is told of an end before the first open transaction, of whichever slot: a marker
        behind it was committed and would not be seen.
        """
        # A client of its own: an older one asks with an epoch from before the broker was started again, for minutes.
        admin = AdminClient(self._cluster.settings({}))
        (answer,) = admin.list_offsets({place: OffsetSpec.latest()}, request_timeout=READ_SECONDS).values()
        return known_offset(int(answer.result().offset))

    def _value(self, value: bytes | None) -> int:
        try:
            return msgspec.json.decode(value or b"0", type=int)
        except msgspec.MsgspecError as error:
            cause = f"a marker in {self.topic!r} is none of ours: {error}"
            raise StorageError(self._cluster.address, "commit to", cause, can_pass=False) from None


def _may_come(error: Exception) -> bool:
    found = kafka_error(error) if isinstance(error, KafkaException) else None
    return is_transient(error) or (found is not None and found.code() == KafkaError.UNKNOWN_TOPIC_OR_PART)
