"""The commits of one subtask to Kafka: the messages of a checkpoint and their marker in one transaction.

A transactional id belongs to the attempt and slot that wrote the messages:

    moorline/<job>/<sink>/<lineage>/<attempt>/<slot>

Its owner is that subtask. After a restart the subtask that was given its committables takes the id over, which ends a
transaction that the old owner has open and keeps it from committing. Then the marker says whether the checkpoint was
committed. So a commit is made once, whoever of the two is quicker; and a new attempt never waits for ids of others.

A client cannot find out how a transaction ended whose commit timed out. It is thrown away; the next one takes the id
over, reads the marker and decides anew.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from moorline.api.sinks import SinkCommitter, SinkContext
from moorline.connectors import retry
from moorline.connectors.kafka.client import KafkaCluster, is_transient, kafka_error
from moorline.connectors.kafka.writing.markers import Marker, Markers
from moorline.connectors.kafka.writing.staging import MESSAGE_BYTES, Message, StagedMessages
from moorline.errors import StorageError
from moorline.failpoints import failpoint

#: What the client says of transactions that it loses to its successor, which is as it should be.
log = logging.getLogger("moorline.kafka")
log.setLevel(logging.CRITICAL + 1)

#: For one call at the broker; what takes longer is repeated.
CALL_SECONDS = 20.0
#: Messages that are handed to the client at a time, by number and size.
BATCH, BATCH_BYTES = 10_000, 16 << 20
#: Messages that the client may have; its queue is far larger, so it is never full.
IN_FLIGHT_MESSAGES, IN_FLIGHT_BYTES = 200_000, 64 << 20
QUEUE = {"queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1 << 20}
#: Slots whose ids are taken over at the same moment.
TAKEOVERS = 8
#: The broker ends a transaction that takes longer. Nobody waits for it: whoever comes next ends it at once.
TRANSACTION_TIMEOUT_MS = 300_000


#: Errors after which a client is of no use, and another one can do it.
_CLIENT_IS_OVER = frozenset(
    (
        KafkaError._FENCED,
        KafkaError._FATAL,
        KafkaError._STATE,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_TXN_STATE,
    )
)


class KafkaCommitter(SinkCommitter):
    """Commits what was staged, each slot in transactions of its own."""

    def __init__(self, cluster: KafkaCluster, markers: Markers, patience: float, ctx: SinkContext) -> None:
        self._cluster, self._markers, self._patience, self._ctx = cluster, markers, patience, ctx
        self._slots: dict[str, Slot] = {}

    def commit(self, committables: list[Any]) -> None:
        staged = sorted(map(StagedMessages.of, committables), key=_order)
        slots = [(Slot.name(self._ctx, first), list(group)) for first, group in _by_slot(staged)]
        with ThreadPoolExecutor(min(TAKEOVERS, len(slots) or 1), thread_name_prefix="moorline-kafka") as threads:
            list(threads.map(lambda slot: self._commit_slot(*slot), slots))

    def close(self) -> None:
        for slot in self._slots.values():
            slot.close()

    def _commit_slot(self, name: str, staged: list[StagedMessages]) -> None:
        try:
            retry.call(lambda: self._try(name, staged), _can_be_tried_again, self._patience, self._ctx.outage)
        except KafkaException as error:
            raise self._cluster.failure(f"commit checkpoint {staged[-1].checkpoint} to", error) from error

    def _try(self, name: str, staged: list[StagedMessages]) -> None:
        slot = self._slots.get(name)
        try:
            if slot is None:
                marker = Marker(self._ctx.job, self._ctx.uid, staged[0].lineage, staged[0].slot)
                slot = self._slots[name] = Slot(name, marker, self._cluster, self._markers)
                slot.take_over()
            slot.commit(staged)
        except BaseException:
            # What became of the transaction is known to the broker alone.
            if slot is not None:
                del self._slots[name]
                slot.close()
            raise


class Slot:
    """A transactional id, and how far its commits have come."""

    def __init__(self, name: str, marker: Marker, cluster: KafkaCluster, markers: Markers) -> None:
        self._cluster, self._markers, self._marker = cluster, markers, marker
        own = {
            "transactional.id": name,
            "transaction.timeout.ms": cluster.options.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS),
            "linger.ms": cluster.options.get("linger.ms", 20),
            "logger": log,
            **QUEUE,
        }
        self._producer = Producer(cluster.settings(own))
        self._reached = 0

    @staticmethod
    def name(ctx: SinkContext, staged: StagedMessages) -> str:
        """The transactional id of the attempt and slot that staged something."""
        return f"moorline/{ctx.job}/{ctx.uid}/{staged.lineage}/{staged.attempt}/{staged.slot}"

    def take_over(self) -> None:
        """End whatever is open under this id, and see how far its commits have come."""
        self._producer.init_transactions(CALL_SECONDS)
        self._reached = self._markers.read(self._marker)

    def commit(self, staged: list[StagedMessages]) -> None:
        """Commit those that are not committed yet, in one transaction."""
        due = [s for s in staged if s.checkpoint > self._reached]
        if not due:
            return
        self._check_markers(due[0])
        self._producer.begin_transaction()
        outbox = Outbox(self._producer)
        for part in due:
            for topic, messages in part.messages():
                outbox.send(topic, messages)
        checkpoint, partition = due[-1].checkpoint, self._markers.partition(self._marker)
        self._producer.produce(self._markers.topic, str(checkpoint), self._marker.key(), partition)
        failpoint("sink.commit.middle")
        self._producer.commit_transaction(CALL_SECONDS)
        self._reached = checkpoint

    def close(self) -> None:
        """Give it up. What is not committed never will be by this client: it may not be able to reach the broker."""
        with contextlib.suppress(KafkaException):
            self._producer.purge()

    def _check_markers(self, staged: StagedMessages) -> None:
        """Refuse to commit where markers are behind what was committed: it would be done twice."""
        if self._markers.on_missing == "ignore":
            return
        if self._reached < staged.previous:
            raise self._forgotten(staged, staged.previous, self._reached)
        if not self._reached and staged.markers and self._markers.identity() not in ("", staged.markers):
            raise self._forgotten(staged, staged.previous, self._reached)
        for known in staged.known:
            marker = Marker(known.job, self._marker.uid, known.lineage, known.slot)
            reached = self._reached if marker == self._marker else self._markers.read(marker)
            if reached < known.checkpoint:
                raise self._forgotten(staged, known.checkpoint, reached)

    def _forgotten(self, staged: StagedMessages, committed: int, found: int) -> StorageError:
        before = f"checkpoint {committed} was committed" if committed else "checkpoints may have been committed before"
        cause = (
            f"{before}, and its marker in topic {self._markers.topic!r} says {found or 'nothing'}: the topic was "
            "deleted or emptied, or it is another cluster, or one that was restored from a backup. Whether messages "
            "are there cannot be told. Nothing was written. Begin anew; or, if they may come twice, go on with "
            "on_missing_markers='ignore'"
        )
        return StorageError(self._cluster.address, f"commit checkpoint {staged.checkpoint} to", cause, can_pass=False)


class Outbox:
    """Hands messages to a client, and waits while it has enough of them.

    Its queue must never be full: a message that came while there was room again would overtake those refused before.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._bytes = 0

    def send(self, topic: str, messages: list[Message]) -> None:
        """Hand over messages for a topic, in their order."""
        if any("headers" in message for message in messages):
            for message in messages:
                self._make_room(_size(message))
                headers = [(name, value) for name, value in message.get("headers", ())]
                self._producer.produce(topic, **{**message, "headers": headers})
            return
        for batch, size in _batches(messages):
            self._make_room(size)
            self._producer.produce_batch(topic, batch)
            for message in batch:
                if "_error" in message:
                    raise KafkaException(message["_error"])

    def _make_room(self, size: int) -> None:
        self._producer.poll(0)
        if self._bytes + size > IN_FLIGHT_BYTES or len(self._producer) > IN_FLIGHT_MESSAGES:
            if self._producer.flush(CALL_SECONDS):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the broker does not take what is written"))
            self._bytes = 0
        self._bytes += size


def _batches(messages: list[Message]) -> Iterator[tuple[list[Message], int]]:
    """Runs of messages that are small enough to be handed over together, and their sizes."""
    for first in range(0, len(messages), BATCH):
        batch = messages[first : first + BATCH]
        sizes = list(map(_size, batch))
        if sum(sizes) <= BATCH_BYTES:
            yield batch, sum(sizes)
            continue
        some, size = list[Message](), 0
        for message, own in zip(batch, sizes):
            some.append(message)
            size += own
            if size >= BATCH_BYTES:
                yield some, size
                some, size = [], 0
        if some:
            yield some, size


def _size(message: Message) -> int:
    return len(message.get("value") or b"") + len(message.get("key") or b"") + MESSAGE_BYTES


def _order(staged: StagedMessages) -> tuple[str, int, int, int]:
    return staged.lineage, staged.attempt, staged.slot, staged.checkpoint


def _by_slot(staged: Iterable[StagedMessages]) -> Iterator[tuple[StagedMessages, list[StagedMessages]]]:
    for _, group in groupby(staged, key=lambda s: _order(s)[:3]):
        parts = list(group)
        yield parts[0], parts


def _can_be_tried_again(error: Exception) -> bool:
    """Also after another client took the id over, or the broker ended a transaction that took too long.

    If that client is our successor it commits the same, and the marker lets one of us.
    """
    found = kafka_error(error)
    if found is not None and found.code() in _CLIENT_IS_OVER:
        return True
    if isinstance(error, StorageError):
        return bool(error.can_pass)
    return is_transient(error)
