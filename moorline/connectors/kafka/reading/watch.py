"""Are the brokers of one's partitions away, or have they only nothing new? Asked without ever waiting.

A consumer reports that a line broke and not that it is mended, and of a topic that was deleted, or is forbidden now, it
reports nothing. So after an error, and after some silence, the cluster is asked for the own topics, and for the last
offsets of the own partitions, which only their leaders can answer:

    well       an error is reported, or nothing is         -> asking
    asking     all have answered                           -> well, the outage is over
               one has not                                 -> asking again after a pause, or the end of patience
               one says that it will never                 -> the end
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from moorline.connectors.kafka.client import BrokerErrors, KafkaCluster, is_lasting, kafka_error
from moorline.connectors.kafka.places import Partition
from moorline.connectors.retry import Outage

#: How long an answer may take, unless patience is shorter.
_ANSWER_SECONDS = 3.0
#: A consumer from which nothing comes for so long, not even that there is nothing, may be cut off.
SILENT_SECONDS = 10.0
#: Errors of the group of a consumer, in which nothing depends on it.
_OF_GROUPS = frozenset(
    {
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
    }
)


class BrokerWatch:
    """The watch of one reader: give :meth:`report` to its consumer as ``error_cb``."""

    def __init__(
        self, cluster: KafkaCluster, admin: Callable[[], AdminClient], outage: Outage, patience: float
    ) -> None:
        self._cluster, self._admin, self._outage = cluster, admin, outage
        self._seconds = min(_ANSWER_SECONDS, max(patience, 0.5))
        self._errors = BrokerErrors()
        self._asked: list[Future[Any]] = []
        #: The reason for the question under way.
        self._reason: KafkaError | None = None
        self._heard_at = time.monotonic()

    def report(self, error: KafkaError) -> None:
        """The client has met an error."""
        if error.code() not in _OF_GROUPS:
            self._errors.add(error)

    def look(self, partitions: Collection[Partition], *, heard: bool) -> None:
        """Ask, or take the answers. ``heard``: the consumer had something just now.

        Raises what will not pass, and what has not passed for too long.
        """
        if self._errors.lasting is not None:
            raise self._cluster.failure("read from", self._errors.lasting)
        if heard:
            self._heard_at = time.monotonic()
        if self._asked:
            if all(answer.done() for answer in self._asked):
                self._take_answers()
        elif partitions and self._outage.is_due() and (self._errors.latest is not None or self._is_silent()):
            self._ask(partitions)

    def _is_silent(self) -> bool:
        return time.monotonic() - self._heard_at > SILENT_SECONDS

    def _ask(self, partitions: Collection[Partition]) -> None:
        self._reason = self._errors.latest
        self._errors.clear()
        topics = TopicCollection(sorted({topic for topic, _ in partitions}))
        places = {TopicPartition(*partition): OffsetSpec.latest() for partition in partitions}
        admin = self._admin()
        self._asked = [
            *admin.describe_topics(topics, request_timeout=self._seconds).values(),
            *admin.list_offsets(places, request_timeout=self._seconds).values(),
        ]

    def _take_answers(self) -> None:
        failures = [error for answer in self._asked if (error := answer.exception()) is not None]
        self._asked = []
        if not failures:
            self._heard_at = time.monotonic()
            self._outage.over()
            return
        answers = [found for error in failures if isinstance(error, KafkaException) and (found := kafka_error(error))]
        for answer in answers:
            # A topic may be unknown for a moment, while a broker comes up.
            if is_lasting(answer) and answer.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise self._cluster.failure("read from", answer)
        reason = self._errors.latest or self._reason or answers[0]
        self._errors.add(reason)  # so it is asked again
        self._outage.failed(self._cluster.failure("read from", reason))
