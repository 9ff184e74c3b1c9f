"""A sink into Kafka, exactly once or at least once.

exactly once     messages wait in the snapshot; when the checkpoint is complete they are written in a transaction
                 with the marker of the checkpoint (``transactions.py``), and readers of committed messages see them
at least once    messages are written as they come, and a barrier waits until the brokers have them
"""

from __future__ import annotations

import time
from typing import Any, Literal

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer

from moorline.api.sinks import DeliveryGuarantee, Sink, SinkCommitter, SinkContext, SinkWriter
from moorline.connectors.kafka.client import BrokerErrors, KafkaCluster
from moorline.connectors.kafka.writing.markers import Markers
from moorline.connectors.kafka.writing.messages import MessageMaker
from moorline.connectors.kafka.writing.staging import StagedMessages, Staging
from moorline.connectors.kafka.writing.transactions import CALL_SECONDS, QUEUE, KafkaCommitter, Outbox
from moorline.connectors.slot_markers import SlotStages
from moorline.errors import InvalidArgument
from moorline.model.spelling import did_you_mean

#: Between two looks while a barrier waits for the brokers.
LOOK_SECONDS = 0.2
#: A topic that was made a moment ago is not known to every broker yet.
GRACE_SECONDS = 2.0
#: The id of the transaction that only tries whether there may be any.
TRIAL = "moorline/trial"


class KafkaSink(Sink):
    """See :func:`moorline.write_kafka`."""

    commits_in_background = True
    takes_columns = True

    def __init__(
        self,
        cluster: KafkaCluster,
        maker: MessageMaker,
        guarantee: DeliveryGuarantee,
        markers: Markers,
        on_roll_back: Literal["fail", "repeat"],
        patience: float,
    ) -> None:
        self.cluster, self.maker, self.guarantee, self.markers = cluster, maker, guarantee, markers
        self.patience = patience
        self.on_roll_back = on_roll_back if self.is_exact else "repeat"

    def __repr__(self) -> str:
        topic = repr(self.maker.topic) if isinstance(self.maker.topic, str) else "chosen by a function"
        return f"write_kafka({self.cluster.brokers!r}, {topic})"

    @property
    def is_exact(self) -> bool:
        return self.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def check(self) -> None:
        """Is there such a topic, and may it be written to by transactions?"""
        self.maker.format.check()
        topic = self.maker.topic
        if isinstance(topic, str):
            self._check_topic(topic)
        if self.is_exact:
            self.markers.ensure(self.patience)
            self._try_a_transaction()

    def _check_topic(self, topic: str) -> None:
        deadline = time.monotonic() + GRACE_SECONDS
        while True:
            error = self.cluster.metadata(self.patience, topic).topics[topic].error
            if error is None:
                return
            if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise self.cluster.failure(f"look at the topic {topic!r} of", error)
            if time.monotonic() > deadline:
                known = self.cluster.metadata(self.patience).topics
                advice = f"{self.cluster.address} has no such topic. Make it first.{did_you_mean(topic, known)}"
                raise InvalidArgument("topic", topic, advice)
            time.sleep(LOOK_SECONDS)

    def _try_a_transaction(self) -> None:
        try:
            Producer(self.cluster.settings({"transactional.id": TRIAL})).init_transactions(CALL_SECONDS)
        except KafkaException as error:
            raise self.cluster.failure("begin a transaction in", error) from None

    def open(self, ctx: SinkContext) -> SinkWriter:
        """A writer that stages messages, or writes them."""
        return _StagingWriter(self.maker, self.markers.id, ctx) if self.is_exact else _DirectWriter(self, ctx)

    def open_subtask_committer(self, ctx: SinkContext) -> SinkCommitter:
        """The committer, with a transactional client for each slot that it commits for."""
        return KafkaCommitter(self.cluster, self.markers, self.patience, ctx)


class _StagingWriter(SinkWriter):
    def __init__(self, maker: MessageMaker, markers: str, ctx: SinkContext) -> None:
        self._make, self._markers, self._ctx = maker.make, markers, ctx
        self._staging = Staging()
        self._previous = 0
        self._slots = SlotStages(ctx)

    def write(self, records: list[Any]) -> None:
        for topic, messages, content in self._make(records):
            self._staging.add(topic, messages, content)

    def prepare(self, checkpoint: int) -> list[Any]:
        chunks = self._staging.take()
        if not chunks:
            return []
        ctx, previous, self._previous = self._ctx, self._previous, checkpoint
        *_, known = self._slots.stage(checkpoint)
        place = ctx.lineage, ctx.attempt, ctx.subtask, checkpoint
        staged = StagedMessages(*place, previous, chunks, self._markers, [] if previous else known)
        return [msgspec.to_builtins(staged, builtin_types=(bytes,))]

    def snapshot(self) -> list[Any]:
        return self._slots.snapshot()


class _DirectWriter(SinkWriter):
    def __init__(self, sink: KafkaSink, ctx: SinkContext) -> None:
        self._cluster, self._make, self._patience, self._ctx = sink.cluster, sink.maker.make, sink.patience, ctx
        self._errors = BrokerErrors()
        self._refused: KafkaError | None = None
        own = {
            "enable.idempotence": True,
            "delivery.timeout.ms": max(1, round(1000 * sink.patience)),
            # A function call for each message that arrives would cost more than sending it.
            "delivery.report.only.error": True,
            "linger.ms": sink.cluster.options.get("linger.ms", 5),
            "error_cb": self._errors.add,
            "on_delivery": self._delivered,
            **QUEUE,
        }
        self._producer = Producer(self._cluster.settings(own))
        self._outbox = Outbox(self._producer)

    def write(self, records: list[Any]) -> None:
        try:
            for topic, messages, _ in self._make(records):
                self._outbox.send(topic, messages)
        except KafkaException as error:
            raise self._cluster.failure("write to", error) from error
        self._raise_refused()

    def prepare(self, checkpoint: int) -> list[Any]:
        """Wait until the brokers have everything; the client tries again by itself while there is patience."""
        deadline = time.monotonic() + self._patience + CALL_SECONDS
        while self._producer.flush(LOOK_SECONDS) and time.monotonic() < deadline:
            self._raise_refused()
            if self._errors.latest is not None:
                self._ctx.outage(self._cluster.hidden(self._errors.latest.str()))
        self._raise_refused()
        if len(self._producer):
            latest = self._errors.latest or KafkaError(KafkaError._TIMED_OUT, "no answer")
            raise self._cluster.failure("write to", latest)
        self._errors.clear()
        self._ctx.outage(None)
        return []

    def close(self) -> None:
        self._producer.purge()

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        self._refused = self._refused or error

    def _raise_refused(self) -> None:
        if self._refused is not None:
            raise self._cluster.failure("write to", self._errors.latest or self._refused)
